"""Reads of Lance tables in Spark tasks: the plan of the tables, and their rows as Arrow batches.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from lance_ns_async.spark import tasks

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
        """Returns the plan as text."""
        rows = [
            (e.table, e.location, e.version, e.rows, e.fragments, e.options and dict(e.options), e.share, e.shares)
            for e in self.entries
        ]
        condition = self.condition and (self.condition.sql, self.condition.types)
        return tasks.encode((rows, self.groups, self.table_column, condition))

    @classmethod
    def decode(cls, text: str) -> Plan:
        """Returns the plan from the output of `encode`."""
        rows, groups, table_column, condition = tasks.decode(text)
        return cls([Entry(*row) for row in rows], groups, table_column, condition and Condition(*condition))


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


BATCH_BYTES = 16 * 1024 * 1024
"""Approximate maximum size of a batch in bytes, independent of the width of rows."""

BUFFER_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes that a scan reads ahead."""


def batches(
    entries: Iterable[Entry], want: pa.Schema, table_column: str | None, condition: Condition | None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the tables in batches with exactly the schema `want`.

    Only one table is open at a time, with a few batches in memory. Columns that a table lacks are null; `table_column`
    has its id.
    """
    columns = [name for name in want.names if name != table_column]
    types = None if condition is None or condition.types is None else decode_schema(condition.types)
    for entry in entries:
        try:
            for batch in _scan(entry, columns, condition, types):
                if batch.num_rows:
                    yield _conform(batch, want, table_column, entry.table)
        except (OSError, ValueError, RuntimeError) as e:
            raise RuntimeError(f"table {entry.table}, version {entry.version} at {entry.location}: {e}") from e


def plans_reader(want: pa.Schema, name: str = "read") -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that reads the encoded plans in the first column; Spark shows its name."""

    def read(text: str) -> Iterator[pa.RecordBatch]:
        plan = Plan.decode(text)
        return batches(plan.entries, want, plan.table_column, plan.condition)

    return tasks.for_each_text(read, name)


def encode_schema(schema: pa.Schema) -> str:
    """Returns a schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """Returns the schema from the output of `encode_schema`."""
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def is_same_type(a: pa.DataType, b: pa.DataType) -> bool:
    """Returns whether a filter has the same meaning for two types."""
    import pyarrow as pa

    texts = (pa.string(), pa.large_string())
    return a == b or (a in texts and b in texts)


def has_columns(schema: pa.Schema, types: pa.Schema) -> bool:
    """Returns whether a schema has all columns of `types`, with the same types for a filter."""
    return all(it.name in schema.names and is_same_type(schema.field(it.name).type, it.type) for it in types)


def _scan(
    entry: Entry, columns: Sequence[str], condition: Condition | None, types: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that the condition selects, with those of the columns that the table has, and maybe others."""
    import lance

    options = dict(entry.options) if entry.options else None
    dataset: Any = lance.dataset(entry.location, version=entry.version, storage_options=options)
    fragments = None
    if entry.shares > 1:
        all_fragments = dataset.get_fragments()
        start, end = (len(all_fragments) * n // entry.shares for n in (entry.share, entry.share + 1))
        fragments = all_fragments[start:end]
    here: pa.Schema = dataset.schema
    applies_here = types is None or has_columns(here, types)
    others = [] if applies_here or types is None else [name for name in types.names if name not in columns]
    scanner = dataset.scanner(
        columns=[name for name in (*columns, *others) if name in here.names],
        filter=condition.sql if condition is not None and applies_here else None,
        fragments=fragments,
        batch_size_bytes=BATCH_BYTES,
        io_buffer_size=BUFFER_BYTES,
        batch_readahead=2,
        fragment_readahead=2,
        # With this option the scan returns bytes, which is the type in the schema of the dataset.
        blob_handling="all_binary",
    )
    batches: Iterator[pa.RecordBatch] = scanner.to_batches()
    if condition is None or types is None or applies_here:
        return batches
    return (_select(batch, condition.sql, types) for batch in batches if batch.num_rows)


def _select(batch: pa.RecordBatch, sql: str, types: pa.Schema) -> pa.RecordBatch:
    """Returns the rows that a filter selects, if the table lacks columns of the filter or has them in other types."""
    import lance
    import pyarrow as pa

    values = pa.Table.from_batches([_conform(batch, types, None, "")])
    # Lance is the only one to evaluate filters, so that they have the same meaning for all tables.
    dataset: Any = lance.write_dataset(values, "memory://", max_rows_per_file=batch.num_rows)
    selection = dataset.scanner(columns=[], filter=sql, with_row_id=True).to_table()
    return batch.take(selection["_rowid"].combine_chunks())


def _conform(batch: pa.RecordBatch, want: pa.Schema, table_column: str | None, table: str) -> pa.RecordBatch:
    """Returns the columns of `want` with their types; those that the batch lacks are null."""
    import pyarrow as pa

    arrays = []
    for it in want:
        if it.name == table_column:
            arrays.append(pa.repeat(pa.scalar(table, it.type), batch.num_rows))
            continue
        if it.name not in batch.schema.names:
            arrays.append(pa.nulls(batch.num_rows, it.type))
            continue
        try:
            arrays.append(batch.column(it.name).cast(it.type))
        except pa.ArrowException as e:
            raise ValueError(f"column {it.name!r} cannot be cast to {it.type}, which Spark expects: {e}") from e
    return pa.RecordBatch.from_arrays(arrays, schema=want)
