"""The mapping of pylance's errors to those of the spec, by text, because their classes are built-in and differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import lance_namespace.errors as err

from lance_ns_async.errors import PHRASES, one_line, shortened, spelled, without_source
from lance_ns_async.model import Table

_MAX_MESSAGE_LENGTH = 800

_REFUSALS = (ValueError, TypeError, NotImplementedError, IndexError, OverflowError)
"""The classes that pylance's Python code raises for invalid arguments."""

_LOST_FILE = re.compile(r"Not found: \S*/(data/[^/\s]+\.lance|_deletions/[^/\s]+\.(?:arrow|bin))(?!/)")
"""A file of rows; the folders above a table may have the same names."""

_PHRASE = "|".join(map(re.escape, PHRASES.values()))
# An error of this package that Lance raised again: `Namespace error: <phrase of Lance>: <our phrase>: ...`. Both
# phrases may be equal.
_OURS = re.compile(rf"Namespace error: .*?(?:(?:{_PHRASE}): )?(?P<message>(?P<phrase>{_PHRASE}): .*)")
_BY_PHRASE = {phrase: cls for cls, phrase in PHRASES.items()}

_TIME_AS_TEXT = re.compile(
    r"Received literal Utf8\(\"([^\"]*)\"\) and could not convert to literal of type '(Date|Timestamp)[^']*'"
)
_UNKNOWN_REGION = re.compile(r"Failed to resolve region for bucket '([^']*)'")
_NO_CREDENTIALS = re.compile(r"Failed to get AWS credentials: .*")

_STORE_FAULTS: tuple[tuple[re.Pattern[str], type[err.LanceNamespaceError]], ...] = (
    (
        re.compile(
            rf"{_NO_CREDENTIALS.pattern}|ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|status code: 401"
        ),
        err.UnauthenticatedError,
    ),
    (
        re.compile(
            r"status code: 403|AccessDenied|\[Errno 13\]|(Permission denied|Operation not permitted) \(os error"
        ),
        err.PermissionDeniedError,
    ),
    (re.compile(r"SlowDown|status code: 429"), err.ThrottlingError),
    (re.compile(r"status code: 50[234]|error sending request|operation timed out"), err.ServiceUnavailableError),
    (_UNKNOWN_REGION, err.InvalidInputError),
)
"""The faults of a store, whatever Lance does there."""

# The order matters: the text of an error may also match a later pattern.
_FAULTS: tuple[tuple[re.Pattern[str], type[err.LanceNamespaceError]], ...] = (
    (
        re.compile(
            r"_versions/\S+\.manifest was not found|Not found: \S+/_versions/\S+\.manifest|Version not found err"
        ),
        err.TableVersionNotFoundError,
    ),
    (re.compile(r"tree/\S+/_versions|Branch \S+ does not exist"), err.TableBranchNotFoundError),
    (re.compile(r"Branch \S+ already exists"), err.TableBranchAlreadyExistsError),
    (re.compile(r"is referenced by|Refusing to drop"), err.InvalidTableStateError),
    (re.compile(r"Too many levels of symbolic links|File system loop found"), err.InvalidTableStateError),
    (re.compile(r"Ref not found error: tag"), err.TableTagNotFoundError),
    (re.compile(r"Ref conflict error: tag"), err.TableTagAlreadyExistsError),
    (re.compile(r"Dataset already exists"), err.TableAlreadyExistsError),
    (re.compile(r"Dataset at path .* was not found"), err.TableNotFoundError),
    (_LOST_FILE, err.InvalidTableStateError),
    (re.compile(r"Index name .* already exists"), err.TableIndexAlreadyExistsError),
    (re.compile(r"Lance index not found|Index \"[^\"]*\" not found"), err.TableIndexNotFoundError),
    (
        re.compile(
            r"No field named|does not exist in (the )?(dataset|schema)|is not in the dataset|not found in schema"
            r"|Field '[^']*' not found"
        ),
        err.TableColumnNotFoundError,
    ),
    (re.compile(r"Append with different schema|LanceError\(Schema\)"), err.TableSchemaValidationError),
    (
        re.compile(r"Retryable commit conflict|Incompatible transaction|Commit conflict|Too many concurrent writers"),
        err.ConcurrentModificationError,
    ),
    *_STORE_FAULTS,
    (re.compile(r"Not supported: "), err.UnsupportedOperationError),
    (
        re.compile(
            r"No object store provider|Invalid user input|already exists in the dataset|Ref is invalid"
            r"|can't set tokenizer|supports only cosine distance|num_bits \d+ not supported|Can't cast value"
            r"|GeoArrowArray|File name too long|NoSuchBucket|specified bucket does not exist"
        ),
        err.InvalidInputError,
    ),
)


@contextmanager
def translate_errors(table: Table) -> Iterator[None]:
    """Converts errors of pylance about a table into errors of the spec."""
    try:
        yield
    except (OSError, ValueError, TypeError, RuntimeError, KeyError, IndexError, OverflowError) as e:
        raise error(table, e) from e
    except BaseException as e:  # a panic of Lance; its class is no Exception and cannot be imported
        if type(e).__name__ != "PanicException":
            raise
        raise error(table, RuntimeError(f"Lance panicked: {e}")) from e


def error(table: Table, e: Exception) -> err.LanceNamespaceError:
    """Returns the error of the spec for an error of pylance."""
    raw = str(e.args[0]) if isinstance(e, KeyError) and e.args else str(e)
    text = _clean(raw) if len(e.args) < 2 or isinstance(e, OSError) else _clean(" ".join(map(str, e.args)))
    if (match := _OURS.search(text)) is not None:
        return _BY_PHRASE[match["phrase"]](one_line(match["message"]))
    cls = next((cls for pattern, cls in _FAULTS if pattern.search(text)), None)
    if cls is None:
        refused_in_python = isinstance(e, _REFUSALS) and ".rs:" not in raw
        cls = err.InvalidInputError if refused_in_python else err.InternalError
    if cls is err.TableNotFoundError:
        # The catalog has the table, otherwise its location would not be known.
        text = "there is no version: nothing was written, or the data was removed"
    elif cls is err.InvalidTableStateError and (lost := _LOST_FILE.search(text)) is not None:
        text = f"its file {lost[1]} does not exist; an audit with deep=True names all"
    text = with_remedy(text)
    if table.signs_remotely and cls in (err.UnauthenticatedError, err.PermissionDeniedError):
        text += (
            "; its catalog offers only remote signing, which Lance cannot use; let the server vend credentials, or set "
            "those of the storage as storage.*"
        )
    return cls(one_line(f"{PHRASES[cls]}: {spelled(table.id)} (at {table.location}: {text})"))


def store_error_class(text: str) -> type[err.LanceNamespaceError] | None:
    """Returns the error class for the text of a store's fault; None for all other texts."""
    return next((cls for pattern, cls in _STORE_FAULTS if pattern.search(text)), None)


def with_remedy(text: str) -> str:
    """Returns the text of an error with the options to set, if the region or the credentials of S3 are missing."""
    text = _UNKNOWN_REGION.sub(r"the region of bucket '\1' is unknown; set storage.aws_region or AWS_REGION", text)
    return _NO_CREDENTIALS.sub(
        "found no AWS credentials; set storage.aws_access_key_id and storage.aws_secret_access_key, or "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        text,
    )


def _clean(raw: str) -> str:
    """Returns the message on one line of limited length, without positions in pylance's source code."""
    text = " ".join(without_source(raw).split())
    text = re.sub(r"(?<=://)[^/@\s]+@", "", text)
    text = re.sub(r", src/\S+\.rs:\d+(:\d+)?", "", text)
    text = text.replace("please specify a different name or use replace=True", "use another name, or drop it first")
    text = re.sub(r",? location:\s*\)", ")", text)
    text = _TIME_AS_TEXT.sub(lambda it: f"{it[2].lower()}s are not texts; write {it[2].lower()} '{it[1]}'", text)
    # Some texts contain the whole schema in Rust's debug format.
    text = re.sub(r":? ?Schema \{.*", "", text)
    return shortened(text, _MAX_MESSAGE_LENGTH)
