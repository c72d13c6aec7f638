"""Scans of datasets whose rows get the columns and types of other tables.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

BATCH_BYTES = 16 * 1024 * 1024
"""Approximate maximum size of a batch in bytes, independent of the width of rows."""

BUFFER_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes that a scan reads ahead."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter that each scan applies."""

    sql: str
    """A boolean expression in Lance's SQL."""
    types: pa.Schema | None = None
    """The columns of the filter, if tables lack some or have other types."""


def scan(
    dataset: Any,
    columns: Sequence[str],
    condition: Condition | None,
    *,
    filter: pc.Expression | None = None,
    fragments: Sequence[Any] | None = None,
    batch_bytes: int = BATCH_BYTES,
    buffer_bytes: int = BUFFER_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Returns the rows that the condition selects, with those of the columns that the table has, and maybe others.

    Args:
        dataset: The dataset, of pylance.
        columns: The names of the columns.
        condition: The condition; None means all rows.
        filter: A filter that Lance applies in place of a condition.
        fragments: The fragments to read; None means all.
        batch_bytes: Approximate maximum size of a batch.
        buffer_bytes: Maximum number of bytes to read ahead.

    Raises:
        ValueError: Lance cannot apply the filter.
    """
    here: pa.Schema = dataset.schema
    types = None if condition is None or condition.types is None else condition.types
    applies_here = types is None or has_columns(here, types)
    others = [] if applies_here or types is None else [name for name in types.names if name not in columns]
    batches: Iterator[pa.RecordBatch] = dataset.scanner(
        columns=[name for name in (*columns, *others) if name in here.names],
        filter=condition.sql if condition is not None and applies_here else filter,
        fragments=fragments,
        batch_size_bytes=batch_bytes,
        io_buffer_size=buffer_bytes,
        batch_readahead=2,
        fragment_readahead=2,
        # With this option the scan returns bytes, which is the type in the schema of the dataset.
        blob_handling="all_binary",
    ).to_reader()
    return batches if applies_here or condition is None else map(partial(select, condition), batches)


def select(condition: Condition, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows that a condition with types selects from a batch that lacks columns, or has other types."""
    import lance
    import pyarrow as pa

    if not batch.num_rows or condition.types is None:
        return batch
    values = pa.Table.from_batches([conform(batch, condition.types)])
    # Lance is the only one to evaluate filters, so that they have the same meaning for all tables.
    dataset: Any = lance.write_dataset(values, "memory://", max_rows_per_file=batch.num_rows)
    selection = dataset.scanner(columns=[], filter=condition.sql, with_row_id=True).to_table()
    return batch.take(selection["_rowid"].combine_chunks())


def conform(batch: pa.RecordBatch, want: pa.Schema, table_column: str | None = None, table: str = "") -> pa.RecordBatch:
    """Returns the columns of `want` with their types; those that the batch lacks are null.

    Args:
        batch: Rows of a table.
        want: The columns of the result.
        table_column: The column with the text of the table's id; None for none.
        table: This text.

    Raises:
        ValueError: A value does not fit into the type of its column.
    """
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
            problem = f"column {it.name!r} cannot be cast to {it.type}, the common type of all tables"
            raise ValueError(f"{problem}: {e}") from e
    return pa.RecordBatch.from_arrays(arrays, schema=want)


def has_columns(schema: pa.Schema, types: pa.Schema) -> bool:
    """Returns whether a schema has all columns of `types`, with the same types for a filter."""
    return all(it.name in schema.names and is_same_type(schema.field(it.name).type, it.type) for it in types)


def is_same_type(a: pa.DataType, b: pa.DataType) -> bool:
    """Returns whether a filter has the same meaning for two types."""
    import pyarrow as pa

    texts = (pa.string(), pa.large_string())
    return a == b or (a in texts and b in texts)
