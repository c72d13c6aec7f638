"""Network faults of Thrift only."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.fakes.thrift_wire import EXCEPTION, REPLY, Message, Struct, decoded, frame
from tests.network.kinds import End, always, right, saying
from tests.network.proxy import Act, Kind


def _changed(change: Callable[[Message], Message]) -> Act:
    """The answer with another head, or another body."""
    return saying(lambda exchange: change(decoded(exchange.right)).encoded())


def _result(body: bytes, end: End = "keep") -> Act:
    """The right head with another body, which has to end itself."""

    def words(request: bytes) -> bytes:
        asked = decoded(request)
        return Message(REPLY, asked.name, asked.sequence, Struct()).encoded()[:-1] + body

    return saying(lambda exchange: words(exchange.request), end)


def _refusal(kind: int) -> Kind:
    def words(request: bytes) -> bytes:
        asked = decoded(request)
        return Message(EXCEPTION, asked.name, asked.sequence, Struct({1: "no\r\nway\x1b[31m", 2: kind})).encoded()

    act = saying(lambda exchange: words(exchange.request))
    return Kind(f"`TApplicationException` {kind}", act, forwards=False)


def _field(type: int, number: int, value: bytes) -> bytes:
    return struct.pack(">Bh", type, number) + value


_EXCEPTION = _field(11, 1, struct.pack(">I", 4) + b"oops") + b"\0"

THRIFT_KINDS: Sequence[Kind] = (
    Kind("a sequence id one lower", _changed(lambda said: replace(said, sequence=said.sequence - 1))),
    Kind("a sequence id one higher", _changed(lambda said: replace(said, sequence=said.sequence + 1))),
    Kind("sequence id 0", _changed(lambda said: replace(said, sequence=0))),
    Kind("a negative sequence id", _changed(lambda said: replace(said, sequence=-1))),
    Kind("another method's name", _changed(lambda said: replace(said, name="get_all_databases"))),
    Kind("an empty name", _changed(lambda said: replace(said, name=""))),
    Kind("a longer name", _changed(lambda said: replace(said, name=said.name + "x"))),
    Kind("a call for an answer", _changed(lambda said: replace(said, kind=1))),
    Kind("a oneway call for an answer", _changed(lambda said: replace(said, kind=4))),
    Kind("a kind of message that there is not", _changed(lambda said: replace(said, kind=77))),
    *(_refusal(kind) for kind in (0, 1, 2, 3, 4, 5, 6, 7, 10, 4711, -1)),
    *(
        Kind(f"exception {number} of the result", _result(_field(12, number, _EXCEPTION) + b"\0"), forwards=False)
        for number in (1, 2, 3, 9, 15)
    ),
    Kind("a frame", saying(lambda exchange: frame(exchange.right))),
    Kind("a frame of 4 GB", always(b"\xff\xff\xff\xff", "hang")),
    Kind("a frame of nothing", always(b"\0\0\0\0", "hang")),
    Kind("an answer in HTTP", always(b"HTTP/1.1 400 Bad Request\r\n\r\n", "close")),
    Kind("the compact protocol", always(b"\x82\x41\x01\x0dget_table_req\0")),
    Kind("the JSON protocol", always(b'[1,"get_table_req",2,1,{}]')),
    Kind("the protocol before it was strict", always(b"\0\0\0\x0dget_table_req\x02\0\0\0\1\0")),
    Kind("a version that there is not", saying(lambda exchange: b"\x80\x02" + exchange.right[2:])),
    Kind("an end of login by SASL", always(b"\5\0\0\0\0")),
    Kind("a type that there is not", _result(_field(77, 0, b""))),
    Kind("a string of 2 GB", _result(_field(11, 0, struct.pack(">I", 2**31 - 1)), "hang")),
    Kind("a string of a negative size", _result(_field(11, 0, b"\xff\xff\xff\xff") + b"\0")),
    Kind("a list of 4 billion", _result(_field(15, 0, struct.pack(">BI", 12, 2**32 - 1)), "hang")),
    Kind(
        "a list of 4 billion of nothing",
        _result(_field(15, 9, struct.pack(">BI", 0, 2**31 - 1)) + b"\0"),
        forwards=False,
    ),
    Kind("a map of 4 billion", _result(_field(13, 9, struct.pack(">BBI", 11, 11, 2**31 - 1)), "hang"), forwards=False),
    Kind("a set of unknown type", _result(_field(14, 9, struct.pack(">BI", 99, 1)) + b"\0"), forwards=False),
    Kind("a string over the limit", _result(_field(11, 9, struct.pack(">I", 2**24)) + bytes(2**21)), forwards=False),
    Kind("structs nested 10,000 deep", _result(_field(12, 0, b"") * 10_000)),
    Kind("lists nested 10,000 deep", _result(_field(15, 9, b"") + struct.pack(">BI", 15, 1) * 10_000), forwards=False),
    Kind("a number where the table belongs", _result(_field(8, 0, b"\0\0\0\1") + b"\0")),
    Kind("a string where the table belongs", _result(_field(11, 0, struct.pack(">I", 1) + b"t") + b"\0")),
    Kind("a table of nothing", _result(_field(12, 0, _field(12, 1, b"\0") + b"\0") + b"\0")),
    Kind("a text that is no UTF-8", _result(_field(12, 1, _field(11, 1, b"\0\0\0\2\xff\xfe") + b"\0") + b"\0")),
    Kind("fields of negative number", _result(_field(8, -5, b"\0\0\0\1") + b"\0")),
    Kind("an answer before the first call", saying(right), greets=Message(REPLY, "get_table_req", 1).encoded()),
    Kind("noise before the first call", saying(right), greets=b"hello"),
)
"""Misbehaviour of what speaks Thrift."""
