"""Values of partition fields: the transforms of the partitioning spec, and its expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError

from lance_ns_async.spec.partitions import PartitionField, Partitioning, PartitionSpec
from lance_ns_async.storage.sql_bounds import Texts


def derive(partitioning: Partitioning, field: PartitionField, rows: pa.Table) -> pa.Array:
    """Returns the value of a field for each row; a column that was removed counts as null."""
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
    """
    values = [derive(partitioning, field, rows) for field in spec.fields]
    numbers = np.zeros(rows.num_rows, np.int64)
    count = 1
    for column in values:
        encoded = column.dictionary_encode(null_encoding="encode")
        both = pa.array(numbers * len(encoded.dictionary) + encoded.indices.to_numpy()).dictionary_encode()
        numbers, count = both.indices.to_numpy().astype(np.int64), len(both.dictionary)
    # Numbers of 16 bits are sorted in linear time.
    order = np.argsort(numbers.astype(np.uint16) if count <= 2**16 else numbers, kind="stable")
    lengths = np.bincount(numbers, minlength=count)
    starts = np.cumsum(lengths) - lengths
    sorted_rows = rows.take(pa.array(order))
    parts = [sorted_rows.slice(start, length) for start, length in zip(starts, lengths, strict=True)]
    table = pa.table(values, names=[field.column for field in spec.fields]).take(pa.array(order[starts]))
    try:
        table.to_pylist()
    except OverflowError as e:
        raise InvalidInputError(
            "the value of a partition is a date or time outside the years 1 to 9999; divide by its year instead"
        ) from e
    return table, parts


def _transform(field: PartitionField, columns: Sequence[pa.Array]) -> pa.Array:
    column = columns[0]
    match field.transform:
        case "identity":
            return column
        case "year" | "month" | "day" | "hour":
            return getattr(pc, field.transform)(column)
        case "truncate" if pa.types.is_integer(column.type):
            # The quotient is rounded towards zero, as in DataFusion. The width may be too large for the column's type.
            wide = column.cast(pa.uint64() if pa.types.is_uint64(column.type) else pa.int64())
            width = pa.scalar(field.number, wide.type)
            return pc.multiply(pc.divide(wide, width), width)
        case "truncate":
            return pc.utf8_slice_codeunits(column, 0, field.number)
        case "bucket" | "multi_bucket":
            return _buckets(columns, field.number or 1)
    raise InvalidInputError(f"partition field {field.field_id!r}: unknown transform {field.transform!r}")


def _buckets(columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Returns the bucket of each row, by the hash of the bytes of its values that are not null."""
    from mmh3 import hash

    if len(columns) == 1 and (numbers := _numbers(columns[0])) is not None:
        # The library hashes one value at a time, in fifty times as long.
        hashes = _hash_numbers(numbers).astype(np.int64)
        return pa.array(np.abs(hashes) % count, pa.int32(), mask=columns[0].is_null().to_numpy(zero_copy_only=False))
    present = ([it for it in values if it is not None] for values in zip(*map(_bytes, columns), strict=True))
    return pa.array((abs(hash(b"".join(it))) % count if it else None for it in present), pa.int32())


def _numbers(column: pa.Array) -> np.ndarray[Any, Any] | None:
    """Returns the values as the numbers whose bytes are hashed, with 0 for null; None for a type without numbers.

    The spec says that equal numbers of different types have the same hash, and does not say which bytes are hashed.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return None
    is_short = pa.types.is_date32(kind) or pa.types.is_time32(kind)
    whole = pa.int32() if is_short else pa.uint64() if pa.types.is_uint64(kind) else pa.int64()
    numbers: np.ndarray[Any, Any] = column.cast(whole).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers.astype(f"<i{whole.bit_width // 8}")


def _bytes(column: pa.Array) -> Iterator[bytes | None]:
    """Yields the bytes of each value: text in UTF-8, and numbers with the lowest byte first."""
    kind = column.type
    if (numbers := _numbers(column)) is not None:
        valid = column.is_valid().to_pylist()
        return (it.tobytes() if is_valid else None for it, is_valid in zip(numbers, valid, strict=True))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return iter(column.to_pylist())
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    texts = (it if it is None or is_text else str(it).lower() for it in column.to_pylist())
    return (None if it is None else it.encode() for it in texts)


def _hash_numbers(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Returns the hash of the bytes of each number: Murmur3 for x86, 32 bits, seed 0."""
    words = np.ascontiguousarray(numbers).view("<u4").reshape(len(numbers), -1)
    result = np.zeros(len(numbers), np.uint32)
    for column in words.T:
        word = _rotate(column * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        result = _rotate(result ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    result ^= np.uint32(4 * words.shape[1])
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        result = (result ^ (result >> np.uint32(shift))) * np.uint32(factor)
    return result.view(np.int32)


def _rotate(words: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


def _evaluate(field: PartitionField, columns: Sequence[pa.Array]) -> pa.Array:
    """Returns the results of a field's SQL expression, which Lance evaluates on a dataset in memory."""
    import lance

    rows = pa.table({f"col{n}": column for n, column in enumerate(columns)})
    if not rows.num_rows:
        return pa.nulls(0)
    # The expression is from the catalog.
    Texts({f"partition field {field.field_id!r}": field.expression}).check()
    expressions: Any = {"value": field.expression}
    try:
        dataset = lance.write_dataset(rows, "memory://partition-values")
        return dataset.scanner(columns=expressions).to_table()["value"].combine_chunks()
    except (OSError, ValueError) as e:
        raise InvalidInputError(f"partition field {field.field_id!r}: {field.expression!r} failed ({e})") from e
