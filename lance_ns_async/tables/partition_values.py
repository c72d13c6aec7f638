"""Values of partition fields: the transforms of the partitioning spec, and its expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError

from lance_ns_async.spec.partitions import PartitionField, Partitioning, PartitionSpec


def derive(partitioning: Partitioning, field: PartitionField, rows: pa.Table) -> pa.Array:
    """Returns the value of a field for each row; a column that was removed counts as null.

    Raises:
        InvalidInputError: The transform is unknown, or the expression fails.
    """
    columns = [
        pa.nulls(rows.num_rows) if name is None else rows[name].combine_chunks() for name in partitioning.columns(field)
    ]
    if field.transform is None:
        values = _evaluate(field, columns)
    elif all(pa.types.is_null(column.type) for column in columns):
        values = pa.nulls(rows.num_rows)
    else:
        values = _transform(field, columns)
    return values.cast(field.result_type)


def divide(partitioning: Partitioning, spec: PartitionSpec, rows: pa.Table) -> tuple[pa.Table, Sequence[pa.Table]]:
    """Divides rows into partitions.

    Returns:
        The values of each partition, with a column for each field; and the rows of each partition in their order.

    Raises:
        InvalidInputError: The expression of a field fails.
    """
    values = {field.column: derive(partitioning, field, rows) for field in spec.fields}
    numbered = pa.table({**values, "": pa.array(range(rows.num_rows), pa.int64())})
    groups = numbered.group_by(list(values), use_threads=False).aggregate([("", "list")])
    positions = groups["_list"].combine_chunks()
    return groups.select(list(values)), [rows.take(positions[n].values) for n in range(groups.num_rows)]


def _transform(field: PartitionField, columns: Sequence[pa.Array]) -> pa.Array:
    column = columns[0]
    match field.transform:
        case "identity":
            return column
        case "year" | "month" | "day" | "hour":
            return getattr(pc, field.transform)(column)
        case "truncate" if pa.types.is_integer(column.type):
            # The quotient is rounded towards zero, as in DataFusion.
            return pc.multiply(pc.divide(column, pa.scalar(field.number, column.type)), field.number)
        case "truncate":
            return pc.utf8_slice_codeunits(column, 0, field.number)
        case "bucket" | "multi_bucket":
            return pa.array(_buckets(columns, field.number or 1), pa.int32())
    raise InvalidInputError(f"partition field {field.field_id!r}: unknown transform {field.transform!r}")


def _buckets(columns: Sequence[pa.Array], count: int) -> Iterator[int | None]:
    """Yields the bucket of each row, by the hash of the bytes of its values that are not null."""
    from mmh3 import hash

    for values in zip(*map(_bytes, columns), strict=True):
        present = [value for value in values if value is not None]
        yield abs(hash(b"".join(present))) % count if present else None


def _bytes(column: pa.Array) -> Iterator[bytes | None]:
    """Yields the bytes of each value: UTF-8, or a little-endian number. All integers have 8 bytes.

    The spec says that equal numbers of different types have the same hash, and does not say which bytes are hashed.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (None if value is None else value.encode() for value in column.to_pylist())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return iter(column.to_pylist())
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return (None if value is None else str(value).lower().encode() for value in column.to_pylist())
    length = 4 if pa.types.is_date32(kind) or pa.types.is_time32(kind) else 8
    numbers = column.cast(pa.uint64() if pa.types.is_uint64(kind) else f"int{8 * length}").to_pylist()
    signed = not pa.types.is_uint64(kind)
    return (None if it is None else it.to_bytes(length, "little", signed=signed) for it in numbers)


def _evaluate(field: PartitionField, columns: Sequence[pa.Array]) -> pa.Array:
    """Returns the results of a field's SQL expression, which Lance evaluates on a dataset in memory."""
    import lance

    rows = pa.table({f"col{n}": column for n, column in enumerate(columns)})
    if not rows.num_rows:
        return pa.nulls(0)
    expressions: Any = {"value": field.expression}
    try:
        dataset = lance.write_dataset(rows, "memory://partition-values")
        return dataset.scanner(columns=expressions).to_table()["value"].combine_chunks()
    except (OSError, ValueError) as e:
        raise InvalidInputError(f"partition field {field.field_id!r}: {field.expression!r} failed ({e})") from e
