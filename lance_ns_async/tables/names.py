"""Checks of column names that make a table unreadable; Lance rejects them only in some operations."""

from __future__ import annotations

from collections.abc import Iterable

from lance_namespace.errors import InvalidInputError

RESERVED = frozenset(
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


def check(names: Iterable[str], field: str) -> None:
    """Raises InvalidInputError if a name cannot be a column's; `field` is the field of the request with the names."""
    for name in names:
        check_any(name, field)
        if name in RESERVED:
            raise InvalidInputError(f"{field}: {name}: Lance has a column of its own with that name; choose another")
        if "`" in name:
            raise InvalidInputError(f"{field}: {name}: Lance cannot read a name with a backtick; choose another")


def check_any(name: str, field: str) -> None:
    """Raises InvalidInputError if the name is invalid for a field at any depth."""
    if not name:
        raise InvalidInputError(f"{field}: a name is empty; give the column one")
