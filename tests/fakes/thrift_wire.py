"""Thrift's binary protocol in its strict form, for values of any structure, without an IDL."""

from __future__ import annotations

import socket
import struct
from asyncio import StreamReader
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

CALL, REPLY, EXCEPTION = 1, 2, 3  # The kinds of messages
BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
"""The types of values."""
_STRICT = 0x8001
_NUMBERS = {BOOL: ">?", BYTE: ">b", DOUBLE: ">d", I16: ">h", I32: ">i", I64: ">q"}
Reading = Generator[int, bytes, Any]  # Yields the number of bytes to read next, receives them, and returns a value


class NotThriftError(Exception):
    """The bytes are not a message of this protocol."""


class Struct(dict[int, Any]):
    """The fields of a struct by number; None for one that is not sent."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A value whose type on the wire is not the default for its Python type; for a list, the type of its items."""

    type: int
    value: Any


@dataclass(frozen=True, slots=True)
class Message:
    """A call, a reply or an exception of the protocol itself."""

    kind: int
    name: str
    sequence: int
    body: Struct = field(default_factory=Struct)

    def encoded(self) -> bytes:
        name = self.name.encode()
        out = bytearray(struct.pack(f">HHi{len(name)}si", _STRICT, self.kind, len(name), name, self.sequence))
        _write_struct(out, self.body)
        return bytes(out)


def message() -> Reading:
    strict, kind = struct.unpack(">HH", (yield 4))
    if strict != _STRICT:
        raise NotThriftError("Missing version in readMessageBegin, old client?")
    name = yield from _string()
    (sequence,) = struct.unpack(">i", (yield 4))
    body = yield from _value(STRUCT)
    return Message(kind, name, sequence, body)


def decoded(data: bytes) -> Message:
    try:
        return _read(BytesIO(data))
    except EOFError:
        raise NotThriftError("the message breaks off") from None


async def read_message(reader: StreamReader, *, framed: bool = False) -> Message:
    """Returns the next message of a connection; raises IncompleteReadError at its end."""
    if framed:
        return decoded(await read_frame(reader))
    reading = message()
    size = next(reading)
    try:
        while True:
            size = reading.send(await reader.readexactly(size))
    except StopIteration as done:
        result: Message = done.value
        return result


async def read_frame(reader: StreamReader) -> bytes:
    """Returns the next bytes of a connection, which are preceded by their number."""
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    return await reader.readexactly(size)


def frame(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def receive_message(wire: socket.socket) -> Message:
    """Returns the next message of a blocking socket, and nothing after it; raises EOFError at its end."""
    with wire.makefile("rb", buffering=0) as unbuffered:
        return _read(unbuffered)


def _read(file: Any) -> Message:
    reading = message()
    size = next(reading)
    try:
        while True:
            size = reading.send(_exactly(file, size))
    except StopIteration as done:
        result: Message = done.value
        return result


def _exactly(file: Any, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = file.read(size)
        if not part:
            raise EOFError("the connection ended")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _string() -> Reading:
    (size,) = struct.unpack(">i", (yield 4))
    if size < 0:
        raise NotThriftError(f"Negative size: {size}")
    return (yield size).decode() if size else ""


def _value(type: int) -> Reading:
    match type:
        case 11:
            return (yield from _string())
        case 12:
            result = Struct()
            while (kind := (yield 1)[0]) != 0:
                (number,) = struct.unpack(">h", (yield 2))
                result[number] = yield from _value(kind)
            return result
        case 13:
            keys, values, count = struct.unpack(">bbi", (yield 6))
            pairs = {}
            for _ in range(count):
                key = yield from _value(keys)
                pairs[key] = yield from _value(values)
            return pairs
        case 14 | 15:
            items, count = struct.unpack(">bi", (yield 5))
            sequence = []
            for _ in range(count):
                item = yield from _value(items)
                sequence.append(item)
            return sequence
        case _ if type in _NUMBERS:
            form = _NUMBERS[type]
            return struct.unpack(form, (yield struct.calcsize(form)))[0]
    raise NotThriftError(f"unknown type {type}")


def _type(value: Any) -> int:
    match value:
        case Typed(type, list()):
            return LIST
        case Typed(type, _):
            return type
        case bool():
            return BOOL
        case int():
            return I32
        case str() | bytes():
            return STRING
        case Struct():
            return STRUCT
        case dict():
            return MAP
        case _:
            return LIST


def _write_struct(out: bytearray, fields: Struct) -> None:
    for number, value in fields.items():
        if value is not None:
            kind = _type(value)
            out += struct.pack(">bh", kind, number)
            _write(out, kind, value)
    out.append(0)


def _write(out: bytearray, type: int, value: Any) -> None:
    match type:
        case 11:
            raw = value.encode() if isinstance(value, str) else value
            out += struct.pack(">i", len(raw)) + raw
        case 12:
            _write_struct(out, value)
        case 13:
            out += struct.pack(">bbi", STRING, STRING, len(value))
            for key, held in value.items():
                _write(out, STRING, key)
                _write(out, STRING, held)
        case 15:
            items: Sequence[Any] = value.value if isinstance(value, Typed) else value
            kind = value.type if isinstance(value, Typed) else _type(items[0]) if items else STRING
            out += struct.pack(">bi", kind, len(items))
            for item in items:
                _write(out, kind, item)
        case _:
            out += struct.pack(_NUMBERS[type], value.value if isinstance(value, Typed) else value)
