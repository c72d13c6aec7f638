"""How the columns of one table differ from those of most tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of one table's columns from those that most tables have."""

    missing: Sequence[str] = ()
    """Columns that most tables have, but not this one."""
    extra: Sequence[str] = ()
    """Columns that only this table, or only few tables have."""
    types: Mapping[str, tuple[pa.DataType, pa.DataType]] = field(default_factory=dict)
    """The column's type in this table and in most tables, for each column that Spark would read as another type."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.types)

    def __str__(self) -> str:
        differences = [f"column {name!r} is missing" for name in self.missing]
        differences += (f"column {name!r} is extra" for name in self.extra)
        differences += (f"column {name!r} is {own}, not {usual}" for name, (own, usual) in self.types.items())
        return ", ".join(differences) or "none"
