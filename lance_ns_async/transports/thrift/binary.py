"""Thrift's binary protocol in its strict form: calls are encoded, and replies decoded a chunk at a time.

Spec: https://github.com/apache/thrift/blob/master/doc/specs/thrift-binary-protocol.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from lance_ns_async.errors import shortened
from lance_ns_async.transports.thrift.decoder import (
    BOOL,
    I16,
    I32,
    LIST,
    MAP,
    SHOWN,
    STRING,
    STRUCT,
    Decoder,
    MalformedError,
    Shape,
)

STOP = b"\0"
"""Ends the fields of a struct."""

MESSAGE: Shape = {1: None}
"""The form of exceptions: a text."""

_MOST_SAID = 500
"""How many characters of a server's message are shown."""

_VERSION = b"\x80\x01\x00"
_CALL, _REPLY, _REFUSAL = b"\x01", b"\x02", b"\x03"


class MismatchError(MalformedError):
    """A reply to another call than the one that was made."""


def call(method: str, sequence: int, arguments: bytes) -> bytes:
    """A call; `arguments` are its fields."""
    return b"".join((_VERSION, _CALL, _named(method, sequence), arguments, STOP))


def text(id: int, value: str) -> bytes:
    """A field that holds a text."""
    return struct.pack(">Bh", STRING, id) + _sized(value)


def flag(id: int, value: bool) -> bytes:
    """A field that holds a bool."""
    return struct.pack(">Bh?", BOOL, id, value)


def short(id: int, value: int) -> bytes:
    """A field that holds a number of 16 bits."""
    return struct.pack(">Bhh", I16, id, value)


def number(id: int, value: int) -> bytes:
    """A field that holds a number of 32 bits."""
    return struct.pack(">Bhi", I32, id, value)


def texts(id: int, values: Iterable[str]) -> bytes:
    """A field that holds a list of texts."""
    items = [_sized(value) for value in values]
    return struct.pack(">BhBI", LIST, id, STRING, len(items)) + b"".join(items)


def no_structs(id: int) -> bytes:
    """A field that holds an empty list of structs."""
    return struct.pack(">BhBI", LIST, id, STRUCT, 0)


def text_pairs(id: int, values: Mapping[str, str]) -> bytes:
    """A field that holds a map from texts to texts."""
    items = [_sized(key) + _sized(value) for key, value in values.items()]
    return struct.pack(">BhBBI", MAP, id, STRING, STRING, len(items)) + b"".join(items)


def nested(id: int, *fields: bytes) -> bytes:
    """A field that holds a struct of these fields."""
    return struct.pack(">Bh", STRUCT, id) + b"".join(fields) + STOP


class Reply:
    """Reads the reply to one call from chunks as they come, and takes no other for it."""

    def __init__(self, method: str, sequence: int, shape: Shape, *, keep: bool = False) -> None:
        """`shape` is that of the result: field 0 is what the method gives, others are its exceptions."""
        self._named = _named(method, sequence)
        self._shape = shape
        self._head = b""
        self._decoder: Decoder | None = None
        self._kept: list[bytes] | None = [] if keep else None
        self.refused = False
        """Whether the server says that it cannot even make the call; `found` then says why: 1 a text, 2 a type."""

    @property
    def found(self) -> dict[int, Any]:
        """The fields of the result that were read so far."""
        return self._decoder.found if self._decoder else {}

    @property
    def body(self) -> bytes:
        """The whole result as it came, where it was to be kept."""
        return b"".join(self._kept or ())

    def feed(self, chunk: bytes) -> bool:
        """Reads on; whether the reply ends with this chunk. Raises MalformedError where it is none."""
        if self._decoder is None:
            self._head += chunk
            if (decoder := self._opened()) is None:
                return False
            self._decoder = decoder
            chunk = self._head[4 + len(self._named) :]
        if self._kept is not None:
            self._kept.append(chunk)
        return self._decoder.feed(chunk)

    def _opened(self) -> Decoder | None:
        """What reads the body, once the head is whole and right."""
        head = self._head[: 4 + len(self._named)]
        if head == _VERSION + _REPLY + self._named:
            return Decoder(self._shape)
        if head == _VERSION + _REFUSAL + self._named:
            self.refused = True
            return Decoder({1: None, 2: None})
        if not _VERSION.startswith(head[:3]) or head[3:4] not in (b"", _REPLY, _REFUSAL):
            raise MalformedError(
                f"no reply in Thrift's strict binary protocol: {self._head[:SHOWN]!r}; "
                "is it a Thrift server, and without TLS, frames and logins if none are configured?"
            )
        if not self._named.startswith(head[4:]):
            raise MismatchError(f"the reply to another call: {self._head[4:SHOWN]!r}, not {self._named!r}")
        return None


def on_one_line(message: str) -> str:
    """A server's message on one line and in part: some tell their SQL."""
    return shortened(" ".join(message.split()), _MOST_SAID)


def _named(method: str, sequence: int) -> bytes:
    return _sized(method) + struct.pack(">i", sequence)


def _sized(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">I", len(raw)) + raw
