"""Alignment of Arrow values for Lance, which panics if decimals are aligned to 8 bytes instead of 16.

Arrow's own formats allow 8 bytes, so that values from an IPC stream may have this alignment.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

_USUAL = 8
_WIDE = 16
"""Required alignment of decimals, in bytes."""


def align(rows: Rows) -> Rows:
    """Returns the same rows; columns with an unsupported alignment are copied."""
    columns = rows.columns
    copies = [_column(column) for column in columns]
    if all(new is old for new, old in zip(copies, columns, strict=True)):
        return rows
    return type(rows).from_arrays(copies, schema=rows.schema)


def align_reader(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Returns a reader of the same rows, aligned; the reader itself if no column has decimals."""
    if not any(_has_wide(field.type) for field in reader.schema):
        return reader
    return pa.RecordBatchReader.from_batches(reader.schema, map(align, reader))


def _column(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    if isinstance(column, pa.Array):
        return _array(column)
    chunks = column.chunks
    copies = [_array(chunk) for chunk in chunks]
    if all(new is old for new, old in zip(copies, chunks, strict=True)):
        return column
    return pa.chunked_array(copies, column.type)


def _array(array: pa.Array) -> pa.Array:
    step = _WIDE if _has_wide(array.type) else _USUAL
    if all(buffer is None or buffer.address % step == 0 for buffer in array.buffers()):
        return array
    # A concatenation of several arrays is copied to new memory.
    return pa.concat_arrays([array[:0], array])


def _has_wide(type: pa.DataType) -> bool:
    """Returns whether the type contains decimals at any depth."""
    if isinstance(type, pa.BaseExtensionType):
        return _has_wide(type.storage_type)
    if pa.types.is_decimal128(type) or pa.types.is_decimal256(type):
        return True
    return any(_has_wide(type.field(n).type) for n in range(type.num_fields))
