"""Incremental decoder for structs of Thrift's binary protocol, which decodes only the requested fields."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
"""Thrift's type codes."""

Shape: TypeAlias = "Mapping[int, Shape | None]"
"""The fields of a struct to decode, by number, with the shapes of nested structs; all other fields are skipped."""

_NUMBERS = {
    kind: struct.Struct(form).unpack_from
    for kind, form in ((BOOL, ">?"), (BYTE, ">b"), (DOUBLE, ">d"), (I16, ">h"), (I32, ">i"), (I64, ">q"))
}
_WIDTHS = bytes({BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}.get(kind, 0) for kind in range(256))

# Sizes are read unsigned, so that an invalid reply can never move the position backwards.
_id = struct.Struct(">h").unpack_from
_size = struct.Struct(">I").unpack_from
_id_size = struct.Struct(">hI").unpack_from
_id_list = struct.Struct(">hBI").unpack_from
_id_map = struct.Struct(">hBBI").unpack_from
_list = struct.Struct(">BI").unpack_from
_map = struct.Struct(">BBI").unpack_from

_DEEPEST = 64  # Maximum nesting depth of structs and containers; no valid reply is deeper.
_TEXTS = (STRING,)
_TEXT_PAIRS = (STRING, STRING)
_STRUCTS = (STRUCT,)
QUOTE_LIMIT = 40
"""Maximum number of bytes of malformed data in a message."""


class MalformedError(ValueError):
    """The data is not a valid reply in this protocol."""


class Decoder:
    """Decodes one struct chunk by chunk: the strings, numbers, structs, lists and maps in `shape`.

    Each chunk is read once, starting where the previous one ended, whatever the content of the struct.
    """

    def __init__(self, shape: Shape) -> None:
        self.fields: dict[int, Any] = {}
        """The fields read so far, by number; nested structs are dicts of the same form."""
        # The struct that is being read, or the container with the types of its items and the number of items left.
        self._frame: tuple[Shape, Any, tuple[int, ...] | None, int] = (shape, self.fields, None, 0)
        self._stack: list[tuple[Shape, Any, tuple[int, ...] | None, int]] = []
        self._rest: list[bytes] = []
        self._length = 0
        self._minimum = 0
        self._ahead = 0

    def feed(self, chunk: bytes) -> bool:
        """Reads the next chunk; returns whether the struct ends with it."""
        if self._ahead:
            # The chunk begins inside a string that is skipped.
            skip = min(self._ahead, len(chunk))
            self._ahead -= skip
            if self._ahead:
                return False
            chunk = chunk[skip:]
        self._length += len(chunk)
        self._rest.append(chunk)
        if self._length < self._minimum:
            return False
        data = b"".join(self._rest) if len(self._rest) > 1 else chunk
        try:
            at, self._minimum, whole = self._read(data)
        except UnicodeDecodeError as e:
            raise MalformedError(f"a string that is not UTF-8: {e.object[:QUOTE_LIMIT]!r}") from e
        self._length = max(len(data) - at, 0)
        self._ahead = max(at - len(data), 0)
        self._rest = [data[at:]] if self._length else []
        if whole and self._length:
            raise MalformedError(f"{self._length} bytes after the end of the reply")
        return whole

    def _read(self, data: bytes) -> tuple[int, int, bool]:
        """Reads items as long as they are complete.

        It is one loop without calls, because it runs for every field of every table. A skipped item may end beyond
        the data; the next access to the data then fails.

        Returns:
            The position of the next item, the minimum number of bytes it needs, and whether the struct is complete.
        """
        shape, out, kinds, left = self._frame
        stack = self._stack
        limit = len(data)
        at = end = 0
        try:
            while True:
                if len(stack) > _DEEPEST:
                    raise MalformedError(f"more than {_DEEPEST} structs and containers within each other")
                if kinds is None:
                    while kind := data[at]:
                        if kind == STRING:
                            id, size = _id_size(data, at + 1)
                            end = at + 7 + size
                            if id in shape:
                                if end > limit:
                                    raise IndexError
                                out[id] = data[at + 7 : end].decode()
                            at = end
                            continue
                        if width := _WIDTHS[kind]:
                            (id,) = _id(data, at + 1)
                            if id in shape:
                                (out[id],) = _NUMBERS[kind](data, at + 3)
                            at += 3 + width
                            continue
                        inner: tuple[int, ...] | None = None
                        count = 0
                        if kind == STRUCT:
                            (id,) = _id(data, at + 1)
                            start = at + 3
                        elif kind == MAP:
                            id, first, second, count = _id_map(data, at + 1)
                            start, inner, count = at + 9, (first, second), 2 * count
                        elif kind == LIST or kind == SET:
                            id, first, count = _id_list(data, at + 1)
                            start, inner = at + 8, (first,)
                        else:
                            raise _unknown(kind)
                        container: Any = None
                        if id in shape:
                            container = out[id] = [] if kind == LIST or kind == SET else {}
                        at = start
                        if inner and not count:
                            continue
                        stack.append((shape, out, None, 0))
                        shape, out = shape.get(id) or {}, container
                        kinds, left = inner, count
                        break
                    else:
                        at += 1
                        if not stack:
                            return at, 0, True
                        shape, out, kinds, left = stack.pop()
                elif left == 0:
                    shape, out, kinds, left = stack.pop()
                elif kinds == _STRUCTS:
                    stack.append((shape, out, kinds, left - 1))
                    if out is not None:
                        out.append({})
                        out = out[-1]
                    kinds = None
                elif out is None:
                    kind = kinds[left % len(kinds)]
                    if kind == STRING:
                        (size,) = _size(data, at)
                        at += 4 + size
                        left -= 1
                    elif width := _WIDTHS[kind]:
                        # The data is accessed although it is skipped, so that a false count cannot cause a long loop.
                        _ = data[at + width - 1]
                        at += width
                        left -= 1
                    elif kind == STRUCT:
                        stack.append((shape, None, kinds, left - 1))
                        kinds = None
                    elif kind == LIST or kind == SET:
                        first, count = _list(data, at)
                        stack.append((shape, None, kinds, left - 1))
                        at, kinds, left = at + 5, (first,), count
                    elif kind == MAP:
                        first, second, count = _map(data, at)
                        stack.append((shape, None, kinds, left - 1))
                        at, kinds, left = at + 6, (first, second), 2 * count
                    else:
                        raise _unknown(kind)
                elif kinds == _TEXTS:
                    while left:
                        (size,) = _size(data, at)
                        end = at + 4 + size
                        if end > limit:
                            raise IndexError
                        out.append(data[at + 4 : end].decode())
                        at = end
                        left -= 1
                elif kinds == _TEXT_PAIRS:
                    while left:
                        (size,) = _size(data, at)
                        end = middle = at + 4 + size
                        (size,) = _size(data, middle)
                        end = middle + 4 + size
                        if end > limit:
                            raise IndexError
                        out[data[at + 4 : middle].decode()] = data[middle + 4 : end].decode()
                        at = end
                        left -= 2
                else:
                    raise MalformedError(f"items of types {kinds} instead of strings or structs")
        except (IndexError, struct.error):
            self._frame = shape, out, kinds, left
            return at, end - at, False


def _unknown(kind: int) -> MalformedError:
    return MalformedError(f"a value of type {kind}, which is unknown")


def fields_of(body: bytes) -> dict[int, bytes]:
    """Returns each field of a complete struct, by number, in its encoded form with type and number."""
    fields = {}
    at = 0
    while kind := body[at]:
        (id,) = _id(body, at + 1)
        end = _end(body, at + 3, kind)
        fields[id] = body[at:end]
        at = end
    return fields


def struct_in(field: bytes) -> bytes:
    """Returns the encoded struct in a field of `fields_of`."""
    if field[0] != STRUCT:
        # The bytes of another type, read as sizes, could request any amount of memory.
        raise MalformedError(f"a value of type {field[0]} instead of a struct")
    return field[3:]


def _end(data: bytes, at: int, kind: int) -> int:
    """Returns the end position of the value that begins at `at`."""
    if width := _WIDTHS[kind]:
        return at + width
    if kind == STRING:
        return at + 4 + int(_size(data, at)[0])
    if kind == STRUCT:
        while inner := data[at]:
            at = _end(data, at + 3, inner)
        return at + 1
    if kind == MAP:
        first, second, count = _map(data, at)
        kinds, at = (first, second) * count, at + 6
    else:
        first, count = _list(data, at)
        kinds, at = (first,) * count, at + 5
    for item in kinds:
        at = _end(data, at, item)
    return at
