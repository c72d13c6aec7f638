"""Checks of the sizes declared in an Arrow IPC stream, before any decompression.

Each compressed buffer begins with its uncompressed length, and pyarrow allocates that much memory. The layout is
defined in `format/Message.fbs` and `format/Schema.fbs` of Arrow's sources.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from lance_namespace.errors import InvalidInputError

MAX_FIELDS: Final = 5_000  # Maximum columns and nested fields of a stream. Lance takes quadratic time for them.

_FREE_VALUES: Final = 1_000_000
"""Maximum number of values beyond eight per byte of a stream; null columns and empty structs take no bytes."""

_MAX_BATCHES: Final = 10_000  # Maximum batches of a stream; each takes 40 µs, and a kilobyte or more of memory.
_MAX_PARTS: Final = 500_000  # Maximum number of arrays and buffers in all batches of a stream; each takes up to 0.5 µs.

_ALONE = threading.Lock()
"""Held during a check: several would not end earlier, and delay the event loop for each of them."""

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3

_REMEDY = "send fewer rows in each request"


@dataclass(slots=True)
class _Sizes:
    decoded_bytes: int = 0
    values: int = 0
    batches: int = 0
    parts: int = 0


def check(data: pa.Buffer, limit: int) -> int:
    """Returns the size of a stream after decompression, in bytes, without decompressing it."""
    sizes = _Sizes()
    with _ALONE:
        with pa.ipc.open_stream(data) as stream:
            _check_fields(stream.schema)
        for message in pa.ipc.MessageReader.open_stream(data):
            sizes.batches += 1
            if message.type in ("record batch", "dictionary"):
                try:
                    _add(sizes, memoryview(message.metadata), message.body)
                except (struct.error, IndexError) as e:
                    raise pa.ArrowInvalid("a message's metadata is broken") from e
            _check_sizes(sizes, limit)
    return sizes.decoded_bytes


def check_views(table: pa.Table, limit: int) -> None:
    """Raises InvalidInputError if string and binary views refer to over `limit` bytes; shared bytes count each time."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks:
            total += sum(_view_sizes(chunk))
    if total > limit:
        raise InvalidInputError(f"request_data: its string and binary views have more than {limit} bytes; {_REMEDY}")


def _check_sizes(sizes: _Sizes, limit: int) -> None:
    if sizes.batches > _MAX_BATCHES or sizes.parts > _MAX_PARTS:
        raise InvalidInputError(
            f"request_data: more than {_MAX_BATCHES} batches, or {_MAX_PARTS} arrays and buffers in them; "
            f"send larger batches, or {_REMEDY}"
        )
    if sizes.decoded_bytes > limit:
        raise InvalidInputError(f"request_data: its rows have more than {limit} bytes after decompression; {_REMEDY}")
    if sizes.values > 8 * sizes.decoded_bytes + _FREE_VALUES:
        raise InvalidInputError(
            f"request_data: it declares {sizes.values} values in {sizes.decoded_bytes} bytes; "
            f"{_REMEDY} if all values are null"
        )


def _check_fields(schema: pa.Schema) -> None:
    left = MAX_FIELDS
    types = [field.type for field in schema]
    while types:
        left -= len(types)
        if left < 0:
            raise InvalidInputError(
                f"request_data: more than {MAX_FIELDS} columns and nested fields; use several tables"
            )
        types = [type.field(i).type for type in types for i in range(type.num_fields)]


def _add(sizes: _Sizes, metadata: memoryview, body: pa.Buffer | None) -> None:
    """Adds the sizes that a message declares."""
    root = _u32(metadata, 0)
    kind = metadata[_place(metadata, root, 1)]
    batch = _table(metadata, root, 2)
    if kind == _DICTIONARY_BATCH:
        batch = _table(metadata, batch, 1)
    elif kind != _RECORD_BATCH:
        return
    if length := _place(metadata, batch, 0):
        sizes.values += _i64(metadata, length)
    if nodes := _place(metadata, batch, 1):
        # Nested fields can have more values than the batch has rows.
        sizes.values += _total(_pairs(sizes, metadata, nodes)[::2])
    if not (buffers := _place(metadata, batch, 2)):
        return
    pairs = _pairs(sizes, metadata, buffers)
    if _place(metadata, batch, 3) == 0 or body is None:
        sizes.decoded_bytes += _total(pairs[1::2])
        return
    for offset, size in zip(pairs[::2], pairs[1::2], strict=True):
        declared_size = -1
        if size > 8:
            if offset < 0 or offset + 8 > body.size:
                raise IndexError
            (declared_size,) = struct.unpack_from("<q", body, offset)
        # -1 means that this buffer is not compressed.
        sizes.decoded_bytes += max(size if declared_size == -1 else declared_size, 0)


def _pairs(sizes: _Sizes, metadata: memoryview, place: int) -> memoryview:
    """Returns a vector of pairs of numbers, one after the other, and counts it."""
    start, count = _vector(metadata, place)
    sizes.parts += count
    pairs = metadata[start : start + 16 * count].cast("q")
    if len(pairs) != 2 * count:
        raise IndexError
    return pairs


def _total(sizes: memoryview) -> int:
    numbers: list[int] = sizes.tolist()
    if min(numbers, default=0) < 0:
        raise IndexError
    return sum(numbers)


def _place(data: memoryview, table: int, field: int) -> int:
    """Returns the offset of a field of a flatbuffer table; 0 if the field is absent."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    if vtable < 0:
        raise IndexError
    (size,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * field
    if entry + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + entry)
    return table + offset if offset else 0


def _table(data: memoryview, table: int, field: int) -> int:
    place = _place(data, table, field)
    if not place:
        raise IndexError
    return place + _u32(data, place)


def _vector(data: memoryview, place: int) -> tuple[int, int]:
    start = place + _u32(data, place)
    return start + 4, _u32(data, start)


def _u32(data: memoryview, place: int) -> int:
    value: int = struct.unpack_from("<I", data, place)[0]
    return value


def _i64(data: memoryview, place: int) -> int:
    value: int = struct.unpack_from("<q", data, place)[0]
    if value < 0:
        raise IndexError
    return value


def _view_sizes(array: pa.Array) -> Iterator[int]:
    """Yields the bytes that the views in an array and in its child arrays refer to."""
    type = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _view_sizes(array.storage)
    elif pa.types.is_string_view(type) or pa.types.is_binary_view(type):
        _, views = array.buffers()[:2]
        if views is not None and len(array):
            words = pa.Array.from_buffers(pa.int32(), 4 * (len(array) + array.offset), [None, views])
            lengths = pc.list_element(pa.FixedSizeListArray.from_arrays(words, 4), 0)
            yield pc.sum(lengths.slice(array.offset)).as_py() or 0
    elif pa.types.is_struct(type):
        for i in range(type.num_fields):
            yield from _view_sizes(array.field(i))
    elif pa.types.is_map(type):
        yield from _view_sizes(array.keys)
        yield from _view_sizes(array.items)
    elif pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        yield from _view_sizes(array.values)
    elif pa.types.is_dictionary(type):
        yield from _view_sizes(array.dictionary)
