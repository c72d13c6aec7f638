"""How a failed call becomes one of `lance_namespace.errors`: by a table, in one place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, TypeVar

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    TableColumnNotFoundError,
    TableIndexAlreadyExistsError,
    TableIndexNotFoundError,
    TableNotFoundError,
    TableSchemaValidationError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
    ThrottlingError,
    TransactionNotFoundError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async.model import Id, NamespaceId

E = TypeVar("E", bound=BaseException)

Code = str | int
"""What a wire calls a failure: an HTTP status, an error type, an exception's name."""

ErrorTable = Mapping[Code | tuple[Code, str], type[LanceNamespaceError]]
"""Codes, alone or together with an operation or a kind of subject, and the errors they become."""

COMMON_ERRORS: ErrorTable = {
    "timeout": ServiceUnavailableError,
    "refused": ServiceUnavailableError,
    "untrusted": ServiceUnavailableError,
    "disconnected": ServiceUnavailableError,
    "deadline": ServiceUnavailableError,
    "circuit": ServiceUnavailableError,
    # The answer to another request; what was asked for is still unanswered.
    "mismatch": ServiceUnavailableError,
}
"""What can happen on every wire."""

HTTP_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    400: InvalidInputError,
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    # What is asked of the service itself exists, unless the service is not at that address.
    (404, "get_config"): InvalidInputError,
    (404, "fetch_token"): InvalidInputError,
    (404, "namespace"): NamespaceNotFoundError,
    (404, "table"): TableNotFoundError,
    # A proxy wants credentials.
    407: UnauthenticatedError,
    408: ServiceUnavailableError,
    419: UnauthenticatedError,
    422: InvalidInputError,
    429: ThrottlingError,
    501: UnsupportedOperationError,
    502: ServiceUnavailableError,
    503: ServiceUnavailableError,
    504: ServiceUnavailableError,
}
"""What the statuses of HTTP mean where a catalog says nothing more precise."""

# Other Lance tools look for these words, with this case, to tell the errors apart.
PHRASES: Mapping[type[LanceNamespaceError], str] = {
    ConcurrentModificationError: "Concurrent modification",
    InternalError: "Internal error",
    InvalidInputError: "Invalid input",
    InvalidTableStateError: "Invalid table state",
    NamespaceAlreadyExistsError: "Namespace already exists",
    NamespaceNotEmptyError: "Namespace not empty",
    NamespaceNotFoundError: "Namespace not found",
    PermissionDeniedError: "Permission denied",
    ServiceUnavailableError: "Service unavailable",
    TableAlreadyExistsError: "Table already exists",
    TableBranchAlreadyExistsError: "Table branch already exists",
    TableBranchNotFoundError: "Table branch not found",
    TableColumnNotFoundError: "Table column not found",
    TableIndexAlreadyExistsError: "Table index already exists",
    TableIndexNotFoundError: "Table index not found",
    TableNotFoundError: "Table not found",
    TableSchemaValidationError: "Table schema invalid",
    TableTagAlreadyExistsError: "Table tag already exists",
    TableTagNotFoundError: "Table tag not found",
    TableVersionNotFoundError: "Table version not found",
    ThrottlingError: "Throttled",
    TransactionNotFoundError: "Transaction not found",
    UnauthenticatedError: "Unauthenticated",
    UnsupportedOperationError: "Not supported",
}


_LONGEST_ID, _LONGEST_MESSAGE, _LONGEST_CODE = 600, 1000, 100
"""How many characters of an id, of what a server says, and of what it calls a failure are shown."""


class NotALanceTableError(InvalidInputError):
    """The catalog has a table of that name, but of another format than Lance."""


class AnotherAnswerError(Exception):
    """An answer that names something else than was asked for, and so answers another request."""


class UnreadableRegistrationError(TableNotFoundError):
    """The catalog has the name, but has lost what it kept about the table, so that nobody can load it."""


class BadLocationError(InvalidTableStateError):
    """The catalog has the table at a location where none of its tables can be; only deregistering it is possible."""


class Failure(Exception):
    """A failed call as the wire saw it, before anybody says what it means."""

    def __init__(
        self,
        *codes: Code,
        message: str,
        retry_after: float | None = None,
        delivered: bool | None = None,
        transient: bool = False,
    ) -> None:
        # Both are what a server says, and go to logs, observers and terminals.
        message = shortened(one_line(message), _LONGEST_MESSAGE)
        super().__init__(message)
        self.codes = tuple(
            shortened(one_line(code), _LONGEST_CODE) if isinstance(code, str) else code for code in codes
        )
        """From the most to the least specific."""
        self.message = message
        self.retry_after = retry_after
        """Seconds the server asked to wait; None where it did not."""
        self.delivered = delivered
        """Whether the server may have acted: False where it certainly did not, None where nobody knows."""
        self.transient = transient
        """Whether the same call may well succeed soon, whatever error it means."""
        self.pace = inf
        """Seconds that the first pause need not exceed; inf where nothing tells how soon the call may succeed."""
        self.pauses_since: float | None = None
        """When the pause began, of which the slot's rest is a part; None where it begins after that."""
        self.attempts = 1
        """How often the call had been sent when it was given up."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors go from one process to another, with what is attached to them.
        return partial(type(self), message=self.message), self.codes, vars(self)


_FAILURE = "_lance_ns_async_failure"


def with_failure(error: E, failure: Failure) -> E:
    """Attaches the failed call that an error tells of, and returns the error."""
    vars(error)[_FAILURE] = failure
    return error


def failure_of(error: BaseException) -> Failure | None:
    """Returns the failed call that an error tells of; None for one that comes of no call of its own.

    `__cause__` does not tell it: whoever raises the error again may give it another cause.
    """
    failure: Failure | None = vars(error).get(_FAILURE)
    return failure


def retry_after(error: BaseException) -> float | None:
    """Returns the seconds that a server asked to wait, told by an error or by one that it was raised from."""
    known: BaseException | None = error
    while known is not None:
        if (failure := failure_of(known)) is not None:
            return failure.retry_after
        known = known.__cause__
    return None


def error_class(failure: Failure, subject: Id, operation: str, table: ErrorTable) -> type[LanceNamespaceError]:
    """The error a failure means: its first code that is in the table, with the operation or kind first."""
    for code in failure.codes:
        for key in ((code, operation), (code, subject.kind), code):
            if (found := table.get(key)) is not None:
                return found
    return InternalError


def error_for(failure: Failure, subject: Id, operation: str, table: ErrorTable) -> LanceNamespaceError:
    """The error users see, which names its subject in the words other Lance tools look for; see `failure_of`."""
    cls = error_class(failure, subject, operation, table)
    # What is missing for a table, or for a namespace to be made, is what it is to be in.
    is_above = cls is NamespaceNotFoundError and (subject.kind == "table" or operation == "create_namespace")
    named = NamespaceId(subject[:-1]) if is_above else subject
    attempts = f"; {failure.attempts} attempts" if failure.attempts > 1 else ""
    phrase = next((PHRASES[base] for base in cls.__mro__ if base in PHRASES), cls.__name__)
    return with_failure(cls(f"{phrase}: {spelled(named)} ({operation}: {failure.message}{attempts})"), failure)


def raise_first(errors: Collection[LanceNamespaceError], of: int) -> None:
    """Raises the first of what went wrong with so many tables, saying how much more there is; nothing where none is."""
    for error in errors:
        if len(errors) == 1:
            raise error
        raise type(error)(f"{error}; and {len(errors) - 1} more errors among {of} tables") from error


def shortened(text: str, most: int) -> str:
    """The first `most` characters of a text; one that is cut says so."""
    return text if len(text) <= most else f"{text[:most]}..."


def one_line(text: str) -> str:
    """Returns a text for a line of a log or a terminal: line ends become blanks, other control characters are escaped.

    So nothing that a server says can begin a line of its own, move a cursor or change what is shown before it.
    """
    if text.isprintable():
        return text
    spaced = re.sub(r"\s*[^\S ]+\s*", " ", text)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in spaced)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Has every error of the spec that leaves the context say what it says, its notes included, on one line each."""
    try:
        yield
    except LanceNamespaceError as e:
        e.args = tuple(one_line(arg) if isinstance(arg, str) else arg for arg in e.args)
        if notes := getattr(e, "__notes__", None):
            notes[:] = map(one_line, notes)
        raise


def not_lance(id: Id, why: str) -> NotALanceTableError:
    """The error for a table that the catalog has, but that is none of Lance's."""
    told = shortened(one_line(why), _LONGEST_MESSAGE)
    return NotALanceTableError(f"{PHRASES[InvalidInputError]}: {spelled(id)} is no Lance table: {told}")


def without_source(text: str) -> str:
    """What pylance says, without where in its own source it says so."""
    return re.sub(r",? /\S+\.rs:\d+(:\d+)?,?", "", text)


def without_user(text: str) -> str:
    """Returns the text with user, password and query of each URL in it hidden."""
    text = re.sub(r"(?<=://)[^/@\s]+@", "***@", text)
    return re.sub(r"(?<=\w)(://[^\s?#]*)\?[^\s#]+", r"\1?***", text)


_SECRET = re.compile("secret|token|passw|passphrase|pwd|credential|key|sas|authorization|signature", re.IGNORECASE)
"""In the name of a property whose value no error shows."""


def masked(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns properties as an error may show them: without values that are, or may hold, credentials."""
    return {key: "***" if _SECRET.search(key) else without_user(value) for key, value in properties.items()}


def spelled(subject: Id) -> str:
    """The subject on one line, in part; calls that are about no object in particular are about the root."""
    text = str(subject) if subject else "the catalog"
    shown = shortened(text, _LONGEST_ID)
    # Not `one_line`: an id with a line end is another one than that with a blank.
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode()
