"""Reads of Lance tables in Spark tasks: the plan of the tables, and their rows as Arrow batches.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING

from lance_ns_async.spark import tasks
from lance_ns_async.spark.renewal import Renewal, open_version
from lance_ns_async.storage.scanning import Condition, conform, scan

if TYPE_CHECKING:
    import pyarrow as pa

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
class Plan:
    """Everything that a DataFrame or a task reads."""

    entries: Sequence[Entry]
    groups: int
    """Maximum number of tasks."""
    table_column: str | None
    condition: Condition | None = None
    renewal: Renewal | None = None
    """Renews the credentials of the tables; None if they do not expire, or are not renewed."""

    def split(self) -> list[Plan]:
        """Returns one plan for each task."""
        return [replace(self, entries=group, groups=1) for group in group_entries(self.entries, self.groups)]

    def encode(self) -> str:
        """Returns the plan as text."""
        rows = [
            (e.table, e.location, e.version, e.rows, e.fragments, e.options and dict(e.options), e.share, e.shares)
            for e in self.entries
        ]
        types = self.condition and self.condition.types
        condition = self.condition and (self.condition.sql, types and encode_schema(types))
        renewal = self.renewal and astuple(self.renewal)
        return tasks.encode((rows, self.groups, self.table_column, condition, renewal))

    @classmethod
    def decode(cls, text: str) -> Plan:
        """Returns the plan from the output of `encode`."""
        rows, groups, table_column, condition, renewal = tasks.decode(text)
        if condition is not None:
            sql, types = condition
            condition = Condition(sql, types and decode_schema(types))
        entries = [Entry(*row) for row in rows]
        return cls(entries, groups, table_column, condition, renewal and Renewal(*renewal))


def group_entries(entries: Iterable[Entry], groups: int) -> list[list[Entry]]:
    """Distributes entries among at most `groups` groups of about equal weight; at least one, which may be empty.

    Each group keeps the order of the entries. A table that is heavier than an equal part of the total is split by its
    fragments.
    """
    return tasks.distribute(_split(list(entries), groups), lambda entry: entry.weight, groups)


def _split(entries: Sequence[Entry], groups: int) -> list[Entry]:
    fair = sum(entry.weight for entry in entries) / groups
    result: list[Entry] = []
    for entry in entries:
        wish = ceil(entry.rows / max(fair - OPENING, OPENING))
        shares = max(1, min(entry.fragments, wish, groups))
        result += (replace(entry, share=share, shares=shares) for share in range(shares))
    return result


def batches(plan: Plan, want: pa.Schema, entries: Iterable[Entry] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the tables in batches with exactly the schema `want`.

    Only one table is open at a time, with a few batches in memory. Columns that a table lacks are null; `table_column`
    has its id.
    """
    columns = [name for name in want.names if name != plan.table_column]
    for entry in plan.entries if entries is None else entries:
        try:
            for batch in _scan(entry, columns, plan):
                if batch.num_rows:
                    yield conform(batch, want, plan.table_column, entry.table)
        except (OSError, ValueError, RuntimeError) as e:
            raise RuntimeError(f"table {entry.table}, version {entry.version} at {entry.location}: {e}") from e


def plans_reader(want: pa.Schema, name: str = "read") -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that reads the encoded plans in the first column; Spark shows its name."""

    def read(text: str) -> Iterator[pa.RecordBatch]:
        return batches(Plan.decode(text), want)

    return tasks.for_each_text(read, name)


def encode_schema(schema: pa.Schema) -> str:
    """Returns a schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Returns the schema from the output of `encode_schema`."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _scan(entry: Entry, columns: Sequence[str], plan: Plan) -> Iterator[pa.RecordBatch]:
    dataset = open_version(entry.table, entry.location, entry.version, entry.options, plan.renewal)
    fragments = None
    if entry.shares > 1:
        all_fragments = dataset.get_fragments()
        start, end = (len(all_fragments) * n // entry.shares for n in (entry.share, entry.share + 1))
        fragments = all_fragments[start:end]
    return scan(dataset, columns, plan.condition, fragments=fragments)
