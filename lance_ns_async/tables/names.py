"""Names of columns that make a table unreadable, which Lance refuses in some of its operations alone."""

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
"""What Lance calls columns of its own, which it gives beside a table's; the last two where it was searched."""


def check(names: Iterable[str], field: str) -> None:
    """Raises InvalidInputError where one of them cannot be a column's; `field` is what of the request names them."""
    for name in names:
        check_any(name, field)
        if name in RESERVED:
            raise InvalidInputError(f"{field}: {name}: Lance has a column of its own with that name; choose another")
        if "`" in name:
            raise InvalidInputError(f"{field}: {name}: Lance cannot read a name with a backtick; choose another")


def check_any(name: str, field: str) -> None:
    """Raises InvalidInputError where it cannot be a name at whatever depth."""
    if not name:
        raise InvalidInputError(f"{field}: a name is empty; give the column one")
