"""Mapping of failed calls to the errors of `lance_namespace.errors`, and formatting of messages and tracebacks."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from functools import partial, wraps
from inspect import iscoroutinefunction
from math import inf
from typing import Any, TypeVar

import lance_namespace.errors as err
from lance_namespace.errors import InternalError, LanceNamespaceError

from lance_ns_async.model import Id, NamespaceId

C = TypeVar("C", bound=type)
T = TypeVar("T")

E = TypeVar("E", bound=BaseException)
L = TypeVar("L", bound=err.LanceNamespaceError)

Code = str | int
"""A failure's code in its protocol: an HTTP status, an error type or the name of an exception."""

ErrorTable = Mapping[Code | tuple[Code, str], type[err.LanceNamespaceError]]
"""Codes, alone or with an operation or a kind of subject, and the error classes they map to."""

COMMON_ERRORS: ErrorTable = {
    "timeout": err.ServiceUnavailableError,
    "refused": err.ServiceUnavailableError,
    "untrusted": err.ServiceUnavailableError,
    "disconnected": err.ServiceUnavailableError,
    "deadline": err.ServiceUnavailableError,
    "circuit": err.ServiceUnavailableError,
    # The response belongs to another request, so this request has no response yet.
    "mismatch": err.ServiceUnavailableError,
}
"""Failures that every transport can have."""

HTTP_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    400: err.InvalidInputError,
    401: err.UnauthenticatedError,
    403: err.PermissionDeniedError,
    # These endpoints always exist, so a 404 means that the service is not at that address.
    (404, "get_config"): err.InvalidInputError,
    (404, "fetch_token"): err.InvalidInputError,
    (404, "namespace"): err.NamespaceNotFoundError,
    (404, "table"): err.TableNotFoundError,
    # A proxy requires credentials.
    407: err.UnauthenticatedError,
    408: err.ServiceUnavailableError,
    # The request is too large for the server or a proxy.
    413: err.InvalidInputError,
    419: err.UnauthenticatedError,
    422: err.InvalidInputError,
    429: err.ThrottlingError,
    501: err.UnsupportedOperationError,
    502: err.ServiceUnavailableError,
    503: err.ServiceUnavailableError,
    504: err.ServiceUnavailableError,
}
"""The default meaning of HTTP statuses; a catalog's own table may be more precise."""

# Other Lance tools search messages for these exact, case-sensitive phrases.
PHRASES: Mapping[type[err.LanceNamespaceError], str] = {
    err.ConcurrentModificationError: "Concurrent modification",
    err.InternalError: "Internal error",
    err.InvalidInputError: "Invalid input",
    err.InvalidTableStateError: "Invalid table state",
    err.NamespaceAlreadyExistsError: "Namespace already exists",
    err.NamespaceNotEmptyError: "Namespace not empty",
    err.NamespaceNotFoundError: "Namespace not found",
    err.PermissionDeniedError: "Permission denied",
    err.ServiceUnavailableError: "Service unavailable",
    err.TableAlreadyExistsError: "Table already exists",
    err.TableBranchAlreadyExistsError: "Table branch already exists",
    err.TableBranchNotFoundError: "Table branch not found",
    err.TableColumnNotFoundError: "Table column not found",
    err.TableIndexAlreadyExistsError: "Table index already exists",
    err.TableIndexNotFoundError: "Table index not found",
    err.TableNotFoundError: "Table not found",
    err.TableSchemaValidationError: "Table schema invalid",
    err.TableTagAlreadyExistsError: "Table tag already exists",
    err.TableTagNotFoundError: "Table tag not found",
    err.TableVersionNotFoundError: "Table version not found",
    err.ThrottlingError: "Throttled",
    err.TransactionNotFoundError: "Transaction not found",
    err.UnauthenticatedError: "Unauthenticated",
    err.UnsupportedOperationError: "Not supported",
}


HTTP_STATUSES: Mapping[err.ErrorCode, int] = {
    err.ErrorCode.UNSUPPORTED: 406,
    err.ErrorCode.NAMESPACE_NOT_FOUND: 404,
    err.ErrorCode.NAMESPACE_ALREADY_EXISTS: 409,
    err.ErrorCode.NAMESPACE_NOT_EMPTY: 409,
    err.ErrorCode.TABLE_NOT_FOUND: 404,
    err.ErrorCode.TABLE_ALREADY_EXISTS: 409,
    err.ErrorCode.TABLE_INDEX_NOT_FOUND: 404,
    err.ErrorCode.TABLE_INDEX_ALREADY_EXISTS: 409,
    err.ErrorCode.TABLE_TAG_NOT_FOUND: 404,
    err.ErrorCode.TABLE_TAG_ALREADY_EXISTS: 409,
    err.ErrorCode.TRANSACTION_NOT_FOUND: 404,
    err.ErrorCode.TABLE_VERSION_NOT_FOUND: 404,
    err.ErrorCode.TABLE_COLUMN_NOT_FOUND: 404,
    err.ErrorCode.INVALID_INPUT: 400,
    err.ErrorCode.CONCURRENT_MODIFICATION: 409,
    err.ErrorCode.PERMISSION_DENIED: 403,
    err.ErrorCode.UNAUTHENTICATED: 401,
    err.ErrorCode.SERVICE_UNAVAILABLE: 503,
    err.ErrorCode.INTERNAL: 500,
    err.ErrorCode.INVALID_TABLE_STATE: 409,
    err.ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR: 400,
    err.ErrorCode.THROTTLING: 429,
    err.ErrorCode.TABLE_BRANCH_NOT_FOUND: 404,
    err.ErrorCode.TABLE_BRANCH_ALREADY_EXISTS: 409,
}
"""The HTTP status for each error code of the spec."""

_MAX_ID_LENGTH, _MAX_MESSAGE_LENGTH, _MAX_CODE_LENGTH = 600, 1000, 100
"""Maximum number of characters in a message of an id, of a server's message and of a server's error code."""

_THROTTLED = 429


class NotALanceTableError(err.InvalidInputError):
    """The table exists in the catalog, but is not a Lance table."""


class AnotherAnswerError(Exception):
    """The response names an object that was not requested, so it belongs to another request."""


class UnreadableRegistrationError(err.TableNotFoundError):
    """The table is in the catalog, but its metadata is lost, so it cannot be loaded."""


class BadLocationError(err.InvalidTableStateError):
    """The table's location in the catalog is not allowed for any table; it can only be deregistered."""


class Failure(Exception):
    """A failed call as the transport saw it, before it is mapped to an error class."""

    def __init__(
        self,
        *codes: Code,
        message: str,
        retry_after: float | None = None,
        delivered: bool | None = None,
        transient: bool = False,
    ) -> None:
        # Both texts come from a server, and go to logs, observers and terminals.
        message = shortened(one_line(message), _MAX_MESSAGE_LENGTH)
        super().__init__(message)
        # HTTP 429 is throttling, whatever the error code in the body: proxies and catalogs reuse codes for it.
        codes = (_THROTTLED,) if _THROTTLED in codes else codes
        self.codes: tuple[Code, ...] = tuple(
            shortened(one_line(code), _MAX_CODE_LENGTH) if isinstance(code, str) else code for code in codes
        )
        """The codes of the failure, from the most to the least specific."""
        self.message = message
        self.retry_after = retry_after
        """Seconds that the server asked to wait; None if it did not."""
        self.delivered = delivered
        """Whether the server may have acted: False if it certainly did not, None if unknown."""
        self.transient = transient
        """Whether the same call may succeed soon, whatever the error class."""
        self.is_final = False
        """Whether the call is not sent again: its streamed body is used up, or another client has already retried."""
        self.pace = inf
        """Upper bound in seconds of the first pause; inf if it is unknown how soon the call may succeed."""
        self.is_surplus = False
        """Whether the call may only have been one too many for the catalog."""
        self.pauses_since: float | None = None
        """Time of the event loop at which the pause began, if the rest of the slot is a part of it; else None."""
        self.attempts = 1
        """Number of attempts before the call was given up."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling keeps the attached values, because errors are sent between processes.
        return partial(type(self), message=self.message), self.codes, vars(self)


_FAILURE = "_lance_ns_async_failure"


def with_failure(error: E, failure: Failure) -> E:
    """Attaches the failed call to an error, and returns the error."""
    vars(error)[_FAILURE] = failure
    return error


def failure_of(error: BaseException) -> Failure | None:
    """Returns the failed call behind an error; None if there is none.

    Not based on `__cause__`, which changes if the error is raised again from another error.
    """
    failure: Failure | None = vars(error).get(_FAILURE)
    return failure


def retry_after(error: BaseException) -> float | None:
    """Returns the seconds that a server asked to wait, from the error or its causes; None if there are none."""
    link: BaseException | None = error
    while link is not None:
        if (failure := failure_of(link)) is not None:
            return failure.retry_after
        link = link.__cause__
    return None


def http_status(error: err.LanceNamespaceError) -> int:
    """Returns the HTTP status with which a web service answers a failed request; the gateway uses the same.

    Args:
        error: The error of an operation. `retry_after` returns the seconds for the header `Retry-After`.

    Returns:
        The status of the error's code, from 400 to 503.
    """
    return HTTP_STATUSES[error.code]


def error_class(failure: Failure, subject: Id, operation: str, table: ErrorTable) -> type[err.LanceNamespaceError]:
    """Returns the error class of the first code in the table; keys with the operation or the kind take precedence."""
    for code in failure.codes:
        for key in ((code, operation), (code, subject.kind), code):
            if (cls := table.get(key)) is not None:
                return cls
    return err.InternalError


def error_for(failure: Failure, subject: Id, operation: str, table: ErrorTable) -> err.LanceNamespaceError:
    """Returns the error for users; its message has the phrase that other Lance tools search for. See `failure_of`."""
    cls = error_class(failure, subject, operation, table)
    # If the parent is missing, the message names the parent.
    is_above = cls is err.NamespaceNotFoundError and (subject.kind == "table" or operation == "create_namespace")
    named = NamespaceId(subject[:-1]) if is_above else subject
    message = _without_repetition(failure.message, _phrase(cls), spelled(named), operation)
    attempts = f"; {failure.attempts} attempts" if failure.attempts > 1 else ""
    return with_failure(error_about(cls, named, f"{operation}: {message}{attempts}"), failure)


def error_about(cls: type[L], subject: Id, reason: str) -> L:
    """Returns an error with the phrase of its class, the subject and the reason: `Table not found: a$b (why)`."""
    error = cls(f"{_phrase(cls)}: {spelled(subject)} ({reason})")
    vars(error)[_SUBJECT] = subject
    return error


_SUBJECT = "_lance_ns_async_subject"


def subject_of(error: BaseException) -> Id | None:
    """Returns the table or namespace that an error is about; None if that is unknown."""
    subject: Id | None = vars(error).get(_SUBJECT)
    return subject


def _phrase(cls: type[err.LanceNamespaceError]) -> str:
    return next((PHRASES[base] for base in cls.__mro__ if base in PHRASES), cls.__name__)


_LANCE_MESSAGE = re.compile(r"(HTTP \d+: )([\w ]+): (.*)")
"""A message of a Lance server after the HTTP status, with the phrase of its error class."""

_SUBJECT_AND_REASON = re.compile(r"(.*?) \((.*?)\)((?: \(X-Request-ID [^()]*\))?(?:; [^()]*)?)")
"""What follows the phrase: subject and operation in one of their forms, the reason, and what this client adds."""


def _without_repetition(message: str, phrase: str, subject: str, operation: str) -> str:
    """Returns the message of a Lance server without the phrase, the subject and the operation of the new error.

    Other messages are returned unchanged.
    """
    match = _LANCE_MESSAGE.fullmatch(message)
    if match is None or match[2] != phrase:
        return message
    status, text = match[1], match[3]
    parts = _SUBJECT_AND_REASON.fullmatch(text)
    if parts and parts[1] in (subject, operation, f"{operation}: {subject}", f"{operation} of {subject}"):
        text = parts[2].removeprefix(f"{operation}: ") + parts[3]
    return status + text


def raise_first(errors: Collection[err.LanceNamespaceError], of: int) -> None:
    """Raises the first of the errors, with the number of further ones in its message; does nothing without errors."""
    for error in errors:
        if len(errors) == 1:
            raise error
        raise type(error)(f"{error}; and {len(errors) - 1} more errors among {of} tables") from error


def shortened(text: str, most: int) -> str:
    """Returns the text cut to `most` characters; "..." marks a cut."""
    return text if len(text) <= most else f"{text[:most]}..."


def with_notes(error: BaseException) -> str:
    """Returns the message of an error with its notes, which say what was left behind."""
    return "; ".join([str(error), *getattr(error, "__notes__", ())])


def one_line(text: str) -> str:
    """Returns a text on one line: line ends become blanks, and other control characters are escaped.

    A server's message can therefore not start a line of its own, move the cursor or change earlier output.
    """
    if text.isprintable():
        return text
    text = re.sub(r"\s*[^\S ]+\s*", " ", text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def reduce_to_lines(error: err.LanceNamespaceError) -> None:
    """Reduces the message and each note of an error to one line."""
    error.args = tuple(one_line(arg) if isinstance(arg, str) else arg for arg in error.args)
    if notes := getattr(error, "__notes__", None):
        notes[:] = map(one_line, notes)


def not_lance(id: Id, why: str) -> NotALanceTableError:
    """Returns the error for a table of another format than Lance."""
    reason = shortened(one_line(why), _MAX_MESSAGE_LENGTH)
    return NotALanceTableError(f"{PHRASES[err.InvalidInputError]}: {spelled(id)} is no Lance table: {reason}")


def without_source(text: str) -> str:
    """Returns a message of pylance without source file positions."""
    return re.sub(r",? /\S+\.rs:\d+(:\d+)?,?", "", text)


def spelled(subject: Id) -> str:
    """Returns the subject on one line, shortened; the root stands for calls about no particular object."""
    text = str(subject) if subject else "the catalog"
    text = shortened(text, _MAX_ID_LENGTH)
    # Not `one_line`, because ids with a line end and with a blank are different ids.
    return text if text.isprintable() else text.encode("unicode_escape").decode()


_MAX_NAME_LENGTH = 200  # Maximum length of a name that is compared with others; that takes quadratic time.


def nearest(name: str, names: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Returns the known name that a misspelled one probably means, with or without its case; None if there is none.

    Args:
        name: The misspelled name.
        names: The known names.
        likeness: How similar the two must be, from 0 to 1.
    """
    if len(name) > _MAX_NAME_LENGTH:
        return None
    by_key = {it.casefold(): it for it in names}
    near = get_close_matches(name.casefold(), list(by_key), n=1, cutoff=likeness)
    return by_key[near[0]] if near else None


def suggest(
    name: str, names: Iterable[str], *, likeness: float = 0.6, quoted: bool = False, most: int | None = None
) -> str:
    """Returns the end of a message about an unknown name: the name that is probably meant, or else known names.

    Args:
        name: The unknown name.
        names: The known names.
        likeness: How similar the suggested name must be, from 0 to 1.
        quoted: Whether the suggestion is shown as a Python string.
        most: The maximum number of known names in the message; None means all.
    """
    names = list(names)
    near = nearest(name, names, likeness=likeness)
    if near is None:
        more = "" if most is None or len(names) <= most else f" and {len(names) - most} more"
        return f"known are {', '.join(names[:most]) or 'none'}{more}"
    return f"did you mean {near!r}?" if quoted else f"did you mean {near}?"


_FLEET = {
    "copy_to": "copy",
    **{it: it for it in ("audit", "copy", "discover", "dropped", "find", "maintain", "purge", "undrop", "undrop_many")},
}


def no_attribute(owner: object, name: str, package: str) -> AttributeError:
    """Returns the error for an attribute that a namespace lacks; for an operation on whole lakes, it says where it is.

    Args:
        owner: The namespace.
        name: The attribute.
        package: How the functions for this kind of namespace are imported.
    """
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    if (function := _FLEET.get(name)) is not None:
        message += f"; use `{package}; fleet.{function}(ns, ...)`"
    return AttributeError(message, name=name, obj=owner)


_log = logging.getLogger("lance_ns_async")


def without_inner_calls(error: LanceNamespaceError) -> LanceNamespaceError:
    """Removes the traceback of an error, and a cause that its message repeats; returns the error.

    Errors that may be mistakes of the package stay whole, and so do all errors if the logger `lance_ns_async` has the
    level DEBUG. A cause that the caller's code has raised, such as its iterator of rows, stays, too.
    """
    if not isinstance(error, InternalError) and not _log.isEnabledFor(logging.DEBUG):
        error.__traceback__ = None
        if isinstance(error.__cause__, Failure) or _is_inner(error.__cause__):
            error.__cause__ = None
    return error


def _is_inner(cause: BaseException | None) -> bool:
    """Returns whether this package or pylance has raised an error."""
    tb = None if cause is None else cause.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    package = "" if tb is None else str(tb.tb_frame.f_globals.get("__name__")).partition(".")[0]
    return package in ("lance", "lance_ns_async")


def short_tracebacks(explain: Callable[[Any, LanceNamespaceError], Awaitable[None]]) -> Callable[[C], C]:
    """Makes the errors of a class's public coroutines begin at these.

    Args:
        explain: Receives the object and the error before it is raised, and may add notes.
    """

    def shorten(cls: C) -> C:
        for name, method in list(vars(cls).items()):
            if iscoroutinefunction(method) and not name.startswith("_"):
                setattr(cls, name, short(method))
        return cls

    def short(method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        @wraps(method)
        async def call(owner: Any, *args: Any, **kwargs: Any) -> T:
            try:
                return await method(owner, *args, **kwargs)
            except LanceNamespaceError as e:
                await explain(owner, e)
                raise without_inner_calls(e) from e.__cause__

        return call

    return shorten
