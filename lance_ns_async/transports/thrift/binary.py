"""Thrift's strict binary protocol: encoding of calls, and decoding of replies chunk by chunk.

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
    I64,
    LIST,
    MAP,
    QUOTE_LIMIT,
    STRING,
    STRUCT,
    Decoder,
    MalformedError,
    Shape,
)

STOP = b"\0"
"""The byte that ends the fields of a struct."""

MESSAGE: Shape = {1: None}
"""The shape of exceptions: field 1 is the message."""

_MESSAGE_LIMIT = 500  # Maximum number of characters of a server's message in an error.

_VERSION = b"\x80\x01\x00"
_CALL, _REPLY, _REFUSAL = b"\x01", b"\x02", b"\x03"


class MismatchError(MalformedError):
    """The reply belongs to another call."""


def call(method: str, sequence: int, arguments: bytes) -> bytes:
    """Returns an encoded call; `arguments` are its encoded fields."""
    return b"".join((_VERSION, _CALL, _header(method, sequence), arguments, STOP))


def text(id: int, value: str) -> bytes:
    """Returns a string field."""
    return struct.pack(">Bh", STRING, id) + _string(value)


def flag(id: int, value: bool) -> bytes:
    """Returns a bool field."""
    return struct.pack(">Bh?", BOOL, id, value)


def short(id: int, value: int) -> bytes:
    """Returns a field with a 16-bit integer."""
    return struct.pack(">Bhh", I16, id, value)


def number(id: int, value: int) -> bytes:
    """Returns a field with a 32-bit integer."""
    return struct.pack(">Bhi", I32, id, value)


def long(id: int, value: int) -> bytes:
    """Returns a field with a 64-bit integer."""
    return struct.pack(">Bhq", I64, id, value)


def texts(id: int, values: Iterable[str]) -> bytes:
    """Returns a field with a list of strings."""
    items = [_string(value) for value in values]
    return struct.pack(">BhBI", LIST, id, STRING, len(items)) + b"".join(items)


def no_structs(id: int) -> bytes:
    """Returns a field with an empty list of structs."""
    return struct.pack(">BhBI", LIST, id, STRUCT, 0)


def text_pairs(id: int, values: Mapping[str, str]) -> bytes:
    """Returns a field with a map from strings to strings."""
    items = [_string(key) + _string(value) for key, value in values.items()]
    return struct.pack(">BhBBI", MAP, id, STRING, STRING, len(items)) + b"".join(items)


def struct_field(id: int, *fields: bytes) -> bytes:
    """Returns a field with a struct of these encoded fields."""
    return struct.pack(">Bh", STRUCT, id) + b"".join(fields) + STOP


class Reply:
    """Reads the reply to one call chunk by chunk, and rejects replies to other calls."""

    def __init__(self, method: str, sequence: int, shape: Shape, *, keep: bool = False) -> None:
        """Prepares to read a reply.

        Args:
            shape: The shape of the result: field 0 is the method's return value, the others are its exceptions.
            keep: Whether `body` keeps the encoded result.
        """
        self._header = _header(method, sequence)
        self._shape = shape
        self._head = b""
        self._decoder: Decoder | None = None
        self._body: list[bytes] | None = [] if keep else None
        self.is_refusal: bool = False
        """Whether the reply is a TApplicationException; `fields` then has its message in 1 and its type in 2."""

    @property
    def fields(self) -> dict[int, Any]:
        """The fields of the result that have been read so far."""
        return self._decoder.fields if self._decoder else {}

    @property
    def body(self) -> bytes:
        """The encoded result; empty without `keep`."""
        return b"".join(self._body or ())

    def feed(self, chunk: bytes) -> bool:
        """Reads the next chunk; returns whether the reply ends with it."""
        if self._decoder is None:
            self._head += chunk
            if (decoder := self._open_body()) is None:
                return False
            self._decoder = decoder
            chunk = self._head[4 + len(self._header) :]
        if self._body is not None:
            self._body.append(chunk)
        return self._decoder.feed(chunk)

    def _open_body(self) -> Decoder | None:
        """Returns a decoder for the body; None until the header is complete."""
        head = self._head[: 4 + len(self._header)]
        if head == _VERSION + _REPLY + self._header:
            return Decoder(self._shape)
        if head == _VERSION + _REFUSAL + self._header:
            self.is_refusal = True
            return Decoder({1: None, 2: None})
        if not _VERSION.startswith(head[:3]) or head[3:4] not in (b"", _REPLY, _REFUSAL):
            raise MalformedError(
                f"not a reply in Thrift's strict binary protocol: {self._head[:QUOTE_LIMIT]!r}; "
                "is it a Thrift server, and do TLS, framed and auth match its configuration?"
            )
        if not self._header.startswith(head[4:]):
            raise MismatchError(f"the reply to another call: {self._head[4:QUOTE_LIMIT]!r}, not {self._header!r}")
        return None


def on_one_line(message: str) -> str:
    """Returns a server's message on one line and shortened, because some servers include their SQL."""
    return shortened(" ".join(message.split()), _MESSAGE_LIMIT)


def _header(method: str, sequence: int) -> bytes:
    return _string(method) + struct.pack(">i", sequence)


def _string(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">I", len(raw)) + raw
