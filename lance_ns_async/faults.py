"""What pylance's errors mean: it raises builtin ones, and the same fault as different ones, so the text alone tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
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
    UnauthenticatedError,
)

from lance_ns_async.errors import PHRASES, shortened, without_source
from lance_ns_async.model import Table

_LONGEST = 400

_PHRASE = "|".join(map(re.escape, PHRASES.values()))
# What the namespace raised that Lance asked, as Lance puts it, whose own word for it may be the same.
_ASKED = re.compile(rf"Namespace error: .*?(?:(?:{_PHRASE}): )?(?P<told>(?P<phrase>{_PHRASE}): .*)")
_BY_PHRASE = {phrase: cls for cls, phrase in PHRASES.items()}

# In this order: the text of one fault may hold words of a later one.
_FAULTS: tuple[tuple[re.Pattern[str], type[LanceNamespaceError]], ...] = (
    (re.compile(r"_versions/\S+\.manifest was not found|Version not found error"), TableVersionNotFoundError),
    (re.compile(r"tree/\S+/_versions|Branch \S+ does not exist"), TableBranchNotFoundError),
    (re.compile(r"Branch \S+ already exists"), TableBranchAlreadyExistsError),
    (re.compile(r"is referenced by|Refusing to drop"), InvalidTableStateError),
    (re.compile(r"Ref not found error: tag"), TableTagNotFoundError),
    (re.compile(r"Ref conflict error: tag"), TableTagAlreadyExistsError),
    (re.compile(r"Dataset already exists"), TableAlreadyExistsError),
    (re.compile(r"Dataset at path .* was not found"), TableNotFoundError),
    (re.compile(r"Index name .* already exists"), TableIndexAlreadyExistsError),
    (re.compile(r"Lance index not found|Index \"[^\"]*\" not found"), TableIndexNotFoundError),
    (
        re.compile(
            r"No field named|does not exist in (the )?(dataset|schema)|is not in the dataset|not found in schema"
            r"|Field '[^']*' not found"
        ),
        TableColumnNotFoundError,
    ),
    (re.compile(r"Append with different schema|LanceError\(Schema\)"), TableSchemaValidationError),
    (
        re.compile(r"Retryable commit conflict|Incompatible transaction|Commit conflict|Too many concurrent writers"),
        ConcurrentModificationError,
    ),
    (
        re.compile(r"ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|status code: 401"),
        UnauthenticatedError,
    ),
    (re.compile(r"status code: 403|AccessDenied|Permission denied \(os error"), PermissionDeniedError),
    (re.compile(r"SlowDown|status code: 429"), ThrottlingError),
    (re.compile(r"status code: 50[234]|error sending request|operation timed out"), ServiceUnavailableError),
    (
        re.compile(
            r"No object store provider|Invalid user input|already exists in the dataset|Ref is invalid"
            r"|can't set tokenizer"
        ),
        InvalidInputError,
    ),
)


@contextmanager
def translated(table: Table) -> Iterator[None]:
    """Raises what pylance raises about a table as the error of the spec that it means."""
    try:
        yield
    except (OSError, ValueError, TypeError, RuntimeError, KeyError) as e:
        raise error(table, e) from e


def error(table: Table, e: Exception) -> LanceNamespaceError:
    """The error of the spec that an error of pylance's means."""
    raw = str(e.args[0]) if isinstance(e, KeyError) and e.args else str(e)
    text = _told(raw)
    if (asked := _ASKED.search(text)) is not None:
        return _BY_PHRASE[asked["phrase"]](asked["told"])
    cls = next((cls for pattern, cls in _FAULTS if pattern.search(text)), None)
    if cls is None:
        # What pylance refuses before it asks its Rust side is an argument.
        ours = isinstance(e, ValueError | TypeError | NotImplementedError) and ".rs:" not in raw
        cls = InvalidInputError if ours else InternalError
    return cls(f"{PHRASES[cls]}: {table.id} (at {table.location}: {text})")


def _told(raw: str) -> str:
    """What was said, on one line of bounded length, without where in its own source pylance said so."""
    text = " ".join(without_source(raw).split())
    text = re.sub(r", src/\S+\.rs:\d+(:\d+)?", "", text)
    # Some texts go on with the whole schema in Rust's own words.
    text = re.sub(r":? ?Schema \{.*", "", text)
    return shortened(text, _LONGEST)
