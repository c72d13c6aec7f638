"""Writer of a Spark task: it writes rows to files and returns their metadata. A later commit makes them readable.

Spark's Python processes import this module, so this package must be installed there. It makes no catalog call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import chain, groupby
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any

from lance_ns_async.model import Table, TableId
from lance_ns_async.spark.renewal import Renewal, open_version
from lance_ns_async.spark.tasks import describe_error
from lance_ns_async.spark.types import is_list

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator

COLUMN = "fragment"
"""The only column of a task's result, which has one row for each file."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The target and the options of all tasks. Pickled into every task, including the storage options."""

    table: str
    """The table's id as one string."""
    location: str
    schema: pa.Schema
    """The schema of the files."""
    version: int | None
    """The version to append to; None for files that will be the whole content of a version."""
    replaces: bool
    """Whether the new version replaces an existing one."""
    limits: Mapping[str, Any] = dataclass_field(default_factory=dict)
    """Further arguments of `write_fragments`."""
    options: Mapping[str, str] | None = dataclass_field(default=None, repr=False)
    """The storage options, including secrets."""
    renewal: Renewal | None = None
    """Renews the storage options; None if nobody does."""

    @property
    def target(self) -> Table:
        """The table."""
        return Table(TableId(self.table), self.location, storage_options=self.options)


def fragments_writer(
    sink: Sink, results: Accumulator[list[str]] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that writes the rows of a task.

    The function yields the metadata of each file as JSON, and nothing if there are no rows. The accumulator receives
    the same texts.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        metadata = _write_files(sink, chain([first], rows))
        if results is not None:
            results.add(metadata)
        yield pa.RecordBatch.from_arrays([pa.array(metadata, pa.string())], [COLUMN])

    return write


def _write_files(sink: Sink, batches: Iterable[pa.RecordBatch]) -> list[str]:
    import pyarrow as pa
    from lance.fragment import write_fragments
    from lance_namespace.errors import LanceNamespaceError

    from lance_ns_async.storage.pylance_errors import translate_errors

    failures: list[Exception] = []

    def shaped_batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield conform(batch, sink.schema, sink.table)
        except Exception as e:  # Lance reads this iterator and keeps only the text of its errors
            failures.append(e)
            raise

    rows = pa.RecordBatchReader.from_batches(sink.schema, shaped_batches())
    try:
        with translate_errors(sink.target):
            # If Lance fails, it removes the files that it has written.
            fragments = write_fragments(rows, **_where(sink), **sink.limits)
    except LanceNamespaceError:
        if failures:
            raise failures[0] from None
        raise
    return [json.dumps(fragment.to_json()) for fragment in fragments]


def _where(sink: Sink) -> dict[str, Any]:
    if sink.version is not None:
        # Files refer to columns by field ids, which this version has assigned.
        dataset = open_version(sink.table, sink.location, sink.version, sink.options, sink.renewal)
        return {"dataset_uri": dataset, "mode": "append"}
    mode = "overwrite" if sink.replaces else "create"
    asking = {} if sink.renewal is None else sink.renewal.opener().asking(sink.target)
    return {"dataset_uri": sink.location, "mode": mode, "storage_options": dict(sink.options or {}) or None, **asking}


def _options(sink: Sink) -> dict[str, str] | None:
    table = sink.target if sink.renewal is None else sink.renewal.opener().renew(sink.target)
    return dict(table.storage_options or {}) or None


def conform(batch: pa.RecordBatch, want: pa.Schema, table: str) -> pa.RecordBatch:
    """Returns the batch with the schema `want`."""
    import pyarrow as pa

    from lance_ns_async.storage.arrow import align

    arrays = []
    for field in want:
        try:
            array = _with_offsets(batch.column(field.name)).cast(field.type)
        except pa.ArrowException as e:
            raise _unfit(table, field, f"a value cannot be cast to {field.type}: {e}") from e
        if _has_null(array, field):
            raise _unfit(table, field, "has a null, but is not nullable")
        arrays.append(array)
    return align(pa.RecordBatch.from_arrays(arrays, schema=want))


def _with_offsets(array: pa.Array) -> pa.Array:
    """Returns the values with all offsets, which Lance needs: Spark 3 omits those of an empty list in a list."""
    import pyarrow as pa

    if not pa.types.is_nested(array.type) or all(buffer is None or buffer.size for buffer in array.buffers()):
        return array
    return array.take(pa.array(range(len(array)), pa.int64()))


def _unfit(table: str, field: pa.Field, why: str) -> Exception:
    from lance_namespace.errors import TableSchemaValidationError

    return TableSchemaValidationError(f"Table schema invalid: {table} (column {field.name!r}: {why})")


def _has_null(array: pa.Array, field: pa.Field) -> bool:
    """Returns whether a field that is not nullable has a null, at any depth, which Lance would store."""
    import pyarrow as pa

    if array.null_count and not field.nullable:
        return True
    type = field.type
    if pa.types.is_struct(type):
        inside = array.drop_null()
        return any(_has_null(inside.field(n), type.field(n)) for n in range(type.num_fields))
    if is_list(type):
        return _has_null(array.flatten(), type.value_field)
    if pa.types.is_map(type):
        entries = pa.list_(pa.field("entry", pa.struct([type.key_field, type.item_field]), nullable=False))
        return _has_null(array.cast(entries), pa.field(field.name, entries))
    return False


def tables_writer(
    sinks: Sequence[Sink], index: str, results: Accumulator[list[str]] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that writes the rows of a task to several tables, one after the other.

    The rows of one table must be consecutive; only a few batches of them are in memory. The function yields one JSON
    array for each table: the table's index, the metadata of its files, and the class and message of an error or null.
    A table that cannot be written does not affect the others. The integer column `index` refers to `sinks`, and is not
    written. The accumulator receives the same arrays when the task has ended.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from lance_namespace.errors import LanceNamespaceError

        outcomes: list[str] = []
        complete_files: list[tuple[Sink, list[str]]] = []
        try:
            for table, group in groupby(_runs(batches, index), key=itemgetter(0)):
                turn = _Turn(group)
                try:
                    metadata, error = _write_files(sinks[table], turn), None
                except LanceNamespaceError as e:
                    metadata, error = [], describe_error(e)
                turn.end()
                complete_files.append((sinks[table], metadata))
                outcomes.append(json.dumps([table, metadata, error]))
        except BaseException:
            # The task is executed again, and writes files with other names.
            for sink, metadata in complete_files:
                _remove_files(sink, metadata)
            raise
        if results is not None:
            results.add(outcomes)
        yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.string())], [COLUMN])

    return write


class _Turn:
    """The batches of one table. A thread of Lance may still be reading them when the write has failed."""

    def __init__(self, group: Iterator[tuple[int, pa.RecordBatch]]) -> None:
        self._group = group
        self._lock = Lock()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            return next(self._group)[1]

    def end(self) -> None:
        """Ends the iteration, after a read under way."""
        with self._lock:
            self._group = iter(())


def _runs(batches: Iterable[pa.RecordBatch], index: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields slices of the batches, each with the rows of one table, and the table's index."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        if not batch.num_rows:
            continue
        runs = pc.run_end_encode(batch.column(index).cast(pa.int32()))
        rows, start = batch.drop_columns([index]), 0
        for table, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            if table is None:
                raise ValueError("df: a second evaluation gives values of `by` that the first one did not; cache it")
            yield table, rows.slice(start, end - start)
            start = end


def _remove_files(sink: Sink, metadata: Sequence[str]) -> None:
    """Deletes files that no version will contain; a failure is ignored, because a clean-up removes them later."""
    from lance_ns_async.storage import files

    with suppress(Exception):
        session = files.open_files(sink.location, _options(sink))
        for fragment in metadata:
            for file in json.loads(fragment)["files"]:
                files.delete(session, f"data/{file['path']}")
