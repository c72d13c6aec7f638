"""What a Spark task does to write: it makes files of its rows, and tells of them; nothing reads them until a commit.

Imported in Spark's own Python processes, where this package must be installed. It makes no catalog call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import Accumulator, AccumulatorParam

from lance_ns_async.spark.types import is_list

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN = "fragment"
"""The one column of what a task gives: a row a file."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where all tasks write, and how. Pickled into every task, storage options and all."""

    table: str
    """The table's id as one string."""
    location: str
    schema: pa.Schema
    """The columns as they are written."""
    version: int | None
    """The version that the rows come after; None for files that are to be the whole of a version."""
    replaces: bool
    """Whether there is a version that the new one takes the place of."""
    limits: Mapping[str, Any] = dataclass_field(default_factory=dict)
    """What else `write_fragments` is told."""
    options: Mapping[str, str] | None = dataclass_field(default=None, repr=False)


class Names(AccumulatorParam[list[str]]):
    """Gathers what finished tasks have written, which Spark tells also of a job that failed."""

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        value1.extend(value2)
        return value1


def fragments_writer(
    sink: Sink, names: Accumulator[list[str]] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: writes the rows, and gives each file's metadata as JSON; none for no rows."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        written = _written(sink, chain([first], rows))
        if names is not None:
            names.add(written)
        yield pa.RecordBatch.from_arrays([pa.array(written, pa.string())], [COLUMN])

    return write


def _written(sink: Sink, batches: Iterable[pa.RecordBatch]) -> list[str]:
    import pyarrow as pa
    from lance.fragment import write_fragments
    from lance_namespace.errors import LanceNamespaceError

    from lance_ns_async.model import Table, TableId
    from lance_ns_async.storage.pylance_errors import translated

    failures: list[Exception] = []

    def shaped_batches() -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield shaped(batch, sink.schema, sink.table)
        except Exception as e:  # whatever ends the rows; Lance, which pulls them, passes on its text alone
            failures.append(e)
            raise

    rows = pa.RecordBatchReader.from_batches(sink.schema, shaped_batches())
    table = Table(TableId.parse(sink.table), sink.location)
    try:
        with translated(table):
            # Lance itself removes what it has written where it cannot go on.
            fragments = write_fragments(rows, **_where(sink), **sink.limits)
    except LanceNamespaceError:
        if failures:
            raise failures[0] from None
        raise
    return [json.dumps(fragment.to_json()) for fragment in fragments]


def _where(sink: Sink) -> dict[str, Any]:
    import lance

    options = dict(sink.options) if sink.options else None
    if sink.version is not None:
        # Columns are known by numbers, which this version has given them.
        dataset = lance.dataset(sink.location, version=sink.version, storage_options=options)
        return {"dataset_uri": dataset, "mode": "append"}
    mode = "overwrite" if sink.replaces else "create"
    return {"dataset_uri": sink.location, "mode": mode, "storage_options": options}


def shaped(batch: pa.RecordBatch, want: pa.Schema, table: str) -> pa.RecordBatch:
    """The batch in the columns wanted; raises TableSchemaValidationError for a value that cannot be in one."""
    import pyarrow as pa

    from lance_ns_async.tables.alignment import aligned

    arrays = []
    for field in want:
        try:
            array = _with_offsets(batch.column(field.name)).cast(field.type)
        except pa.ArrowException as e:
            raise _unfit(table, field, f"a value cannot be made {field.type}: {e}") from e
        if _has_null(array, field):
            raise _unfit(table, field, "there is a null in it, and it allows none")
        arrays.append(array)
    return aligned(pa.RecordBatch.from_arrays(arrays, schema=want))


def _with_offsets(array: pa.Array) -> pa.Array:
    """The same values. Below 4.0, Spark leaves out the offsets of an empty list in a list, and Lance wants them."""
    import pyarrow as pa

    if not pa.types.is_nested(array.type) or all(buffer is None or buffer.size for buffer in array.buffers()):
        return array
    return array.take(pa.array(range(len(array)), pa.int64()))


def _unfit(table: str, field: pa.Field, why: str) -> Exception:
    from lance_namespace.errors import TableSchemaValidationError

    return TableSchemaValidationError(f"Table schema invalid: {table} (column {field.name!r}: {why})")


def _has_null(array: pa.Array, field: pa.Field) -> bool:
    """Whether there is a null, at whatever depth, where the field allows none; Lance would store it all the same."""
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
