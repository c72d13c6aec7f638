"""Alignment of Arrow values for Lance, which panics if decimals and views are aligned to 8 bytes instead of 16.

Arrow's own formats allow 8 bytes, so that values from an IPC stream may have this alignment. A stream in the middle of
other bytes may have none at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
from pyarrow import types

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

_USUAL = 8
_WIDE = 16  # Required alignment of decimals, and of string and binary views, in bytes.


def align(rows: Rows) -> Rows:
    """Returns the same rows; columns with an unsupported alignment are copied."""
    columns = rows.columns
    copies = [_column(column) for column in columns]
    if all(new is old for new, old in zip(copies, columns, strict=True)):
        return rows
    return type(rows).from_arrays(copies, schema=rows.schema)


def align_reader(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Returns a reader of the same rows, aligned."""
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
    type = array.type
    if not _contains(type, types.is_dictionary):
        return _plain(array)
    # The buffers, and a concatenation, do not include dictionaries.
    if isinstance(array, pa.DictionaryArray):
        indices, dictionary = _plain(array.indices), _array(array.dictionary)
        return pa.DictionaryArray.from_arrays(indices, dictionary, ordered=type.ordered)
    if isinstance(array, pa.StructArray):
        fields = [_array(array.field(n)) for n in range(type.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(type), mask=array.is_null())
    if isinstance(array, pa.ListArray | pa.LargeListArray):
        copy = _concatenate(array)
        return copy.from_arrays(copy.offsets, _array(copy.values), type=type, mask=copy.is_null())
    return _plain(array)


def _plain(array: pa.Array) -> pa.Array:
    is_wide = _contains(
        array.type, types.is_decimal128, types.is_decimal256, types.is_string_view, types.is_binary_view
    )
    step = _WIDE if is_wide else _USUAL
    if all(buffer is None or buffer.address % step == 0 for buffer in array.buffers()):
        return array
    return _concatenate(array)


def _concatenate(array: pa.Array) -> pa.Array:
    # A concatenation of several arrays is copied to new memory.
    return pa.concat_arrays([array[:0], array])


def _contains(type: pa.DataType, *checks: Callable[[pa.DataType], bool]) -> bool:
    """Returns whether one of the checks applies to the type, at any depth."""
    if isinstance(type, pa.BaseExtensionType):
        return _contains(type.storage_type, *checks)
    for check in checks:
        if check(type):
            return True
    return any(_contains(type.field(n).type, *checks) for n in range(type.num_fields))
