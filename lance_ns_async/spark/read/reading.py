"""Sequential reads of Lance tables as Arrow batches, in a Spark task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lance_ns_async.spark.read.plan import Entry, Plan

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 16 * 1024 * 1024
"""Approximate maximum size of a batch in bytes, independent of the width of rows."""

BUFFER_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes that a scan reads ahead."""


def batches(
    entries: Iterable[Entry], want: pa.Schema, table_column: str | None, condition: str | None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the tables in batches with exactly the schema `want`.

    Only one table is open at a time, with a few batches in memory.

    Args:
        entries: The tables.
        want: The schema of the batches.
        table_column: The column of `want` for the table id; None if there is none.
        condition: A filter in Lance SQL; None for all rows.

    Raises:
        RuntimeError: A table could not be read; the message contains its id, version and location.
    """
    columns = [name for name in want.names if name != table_column]
    for entry in entries:
        try:
            for batch in _scan(entry, columns, condition):
                if batch.num_rows:
                    yield _conform(batch, entry, want, table_column)
        except (OSError, ValueError, RuntimeError) as e:
            raise RuntimeError(f"table {entry.table}, version {entry.version} at {entry.location}: {e}") from e


def plans_reader(want: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that reads the encoded plans in the first column."""

    def read(plans: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in plans:
            for text in batch.column(0).to_pylist():
                plan = Plan.decode(text)
                yield from batches(plan.entries, want, plan.table_column, None)

    return read


def _scan(entry: Entry, columns: list[str], condition: str | None) -> Iterator[pa.RecordBatch]:
    import lance

    options = dict(entry.options) if entry.options else None
    dataset: Any = lance.dataset(entry.location, version=entry.version, storage_options=options)
    fragments = None
    if entry.shares > 1:
        all_fragments = dataset.get_fragments()
        start, end = (len(all_fragments) * n // entry.shares for n in (entry.share, entry.share + 1))
        fragments = all_fragments[start:end]
    scanner = dataset.scanner(
        columns=columns,
        filter=condition,
        fragments=fragments,
        batch_size_bytes=BATCH_BYTES,
        io_buffer_size=BUFFER_BYTES,
        batch_readahead=2,
        fragment_readahead=2,
        # With this option the scan returns bytes, which is the type in the schema of the dataset.
        blob_handling="all_binary",
    )
    batches: Iterator[pa.RecordBatch] = scanner.to_batches()
    return batches


def _conform(batch: pa.RecordBatch, entry: Entry, want: pa.Schema, table_column: str | None) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for field in want:
        if field.name == table_column:
            arrays.append(pa.repeat(pa.scalar(entry.table, field.type), batch.num_rows))
            continue
        try:
            arrays.append(batch.column(field.name).cast(field.type))
        except pa.ArrowException as e:
            raise ValueError(f"column {field.name!r} cannot be cast to {field.type}, which Spark expects: {e}") from e
    return pa.RecordBatch.from_arrays(arrays, schema=want)
