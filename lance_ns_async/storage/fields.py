"""Names and paths of fields. A path is names separated by dots; names with a dot or a backtick are in backticks.

Some column names make a table unreadable, and Lance rejects them only in some operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lance_namespace.errors import InvalidInputError

_NAME = r"`(?:[^`]|``)*`|[^.`]+"
_PATH = re.compile(rf"(?:{_NAME})(?:\.(?:{_NAME}))*")

RESERVED_NAMES = frozenset(
    (
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "_distance",
        "_score",
    )
)
"""Names of Lance's own columns, which it returns with those of a table; the last two in results of searches."""


def split_path(path: str) -> tuple[str, ...]:
    """Returns the names in a path, outermost first. Raises InvalidInputError if it is not a field path."""
    if not _PATH.fullmatch(path):
        raise InvalidInputError(f"field path {path!r}: invalid; write e.g. a, a.b or a.`b.c`")
    return tuple(map(_unquote, re.findall(_NAME, path)))


def join_path(names: Iterable[str]) -> str:
    """Returns the path of these names in its canonical spelling."""
    return ".".join(_quote(name) if set(name) & {".", "`"} else name for name in names)


def check_columns(names: Iterable[str], field: str) -> None:
    """Raises InvalidInputError if a name cannot be a column's; `field` is the field of the request with the names."""
    for name in names:
        check_name(name, field)
        if name in RESERVED_NAMES:
            raise InvalidInputError(f"{field}: {name}: reserved by Lance; choose another name")
        if "`" in name:
            raise InvalidInputError(f"{field}: {name}: Lance cannot read names with a backtick; choose another name")


def check_name(name: str, field: str) -> None:
    """Raises InvalidInputError if the name is invalid for a field at any depth."""
    if not name:
        raise InvalidInputError(f"{field}: a name must not be empty")


def _unquote(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
