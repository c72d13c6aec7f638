"""Read plan: the tables for Spark's processes to read, and their distribution among tasks.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from lance_ns_async.spark.session import distribute

OPENING = 10_000
"""Cost of opening one table, as the number of rows that take about the same time to read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table to read, or a part of its fragments."""

    table: str
    """The table's id as one string."""
    location: str
    version: int
    rows: int
    fragments: int
    options: Mapping[str, str] | None = field(default=None, repr=False)
    share: int = 0
    """Index of this part, from 0."""
    shares: int = 1
    """Number of parts that the table's fragments are split into."""

    @property
    def weight(self) -> int:
        """Estimated cost of the read, in rows."""
        return self.rows // self.shares + OPENING


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter that each scan applies."""

    sql: str
    """A boolean expression in Lance's SQL."""
    types: str | None = None
    """The columns of the filter as a serialized Arrow schema in base64, if tables lack some or have other types."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a DataFrame or a task reads."""

    entries: Sequence[Entry]
    groups: int
    """Maximum number of tasks."""
    table_column: str | None
    condition: Condition | None = None

    def split(self) -> list[Plan]:
        """Returns one plan for each task."""
        return [replace(self, entries=group, groups=1) for group in group_entries(self.entries, self.groups)]

    def encode(self) -> str:
        """Returns the plan as text, compressed because it may contain many similar entries."""
        rows = [
            (e.table, e.location, e.version, e.rows, e.fragments, e.options and dict(e.options), e.share, e.shares)
            for e in self.entries
        ]
        condition = self.condition and (self.condition.sql, self.condition.types)
        content = (rows, self.groups, self.table_column, condition)
        return base64.b64encode(zlib.compress(json.dumps(content).encode(), 3)).decode()

    @classmethod
    def decode(cls, text: str) -> Plan:
        """Returns the plan from the output of `encode`."""
        rows, groups, table_column, condition = json.loads(zlib.decompress(base64.b64decode(text)))
        return cls([Entry(*row) for row in rows], groups, table_column, condition and Condition(*condition))


def group_entries(entries: Iterable[Entry], groups: int) -> list[list[Entry]]:
    """Distributes entries among at most `groups` groups of about equal weight.

    Each group keeps the order of the entries. A table that is heavier than an equal part of the total is split by its
    fragments.

    Returns:
        The groups; at least one, which is empty if there are no entries.
    """
    return distribute(_split(list(entries), groups), lambda entry: entry.weight, groups)


def _split(entries: Sequence[Entry], groups: int) -> list[Entry]:
    fair = sum(entry.weight for entry in entries) / groups
    result: list[Entry] = []
    for entry in entries:
        wish = ceil(entry.rows / max(fair - OPENING, OPENING))
        shares = max(1, min(entry.fragments, wish, groups))
        result += (replace(entry, share=share, shares=shares) for share in range(shares))
    return result
