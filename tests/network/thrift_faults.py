"""Network faults of Thrift only."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.fakes.thrift_wire import EXCEPTION, REPLY, Message, Struct, decoded, frame
from tests.network.faults import End, always, respond, unchanged
from tests.network.proxy import Act, Fault


def _changed(change: Callable[[Message], Message]) -> Act:
    """Returns an action that changes the header or the body of the response."""
    return respond(lambda exchange: change(decoded(exchange.response)).encoded())


def _result(body: bytes, end: End = "keep") -> Act:
    """Returns an action that sends the correct header and another body, which must contain its end."""

    def words(request: bytes) -> bytes:
        call = decoded(request)
        return Message(REPLY, call.name, call.sequence, Struct()).encoded()[:-1] + body

    return respond(lambda exchange: words(exchange.request), end)


def _refusal(kind: int) -> Fault:
    def words(request: bytes) -> bytes:
        call = decoded(request)
        return Message(EXCEPTION, call.name, call.sequence, Struct({1: "no\r\nway\x1b[31m", 2: kind})).encoded()

    act = respond(lambda exchange: words(exchange.request))
    return Fault(f"`TApplicationException` {kind}", act, forwards=False)


def _field(type: int, number: int, value: bytes) -> bytes:
    return struct.pack(">Bh", type, number) + value


_EXCEPTION = _field(11, 1, struct.pack(">I", 4) + b"oops") + b"\0"

THRIFT_FAULTS: Sequence[Fault] = (
    Fault("a sequence id one lower", _changed(lambda reply: replace(reply, sequence=reply.sequence - 1))),
    Fault("a sequence id one higher", _changed(lambda reply: replace(reply, sequence=reply.sequence + 1))),
    Fault("sequence id 0", _changed(lambda reply: replace(reply, sequence=0))),
    Fault("a negative sequence id", _changed(lambda reply: replace(reply, sequence=-1))),
    Fault("another method's name", _changed(lambda reply: replace(reply, name="get_all_databases"))),
    Fault("an empty name", _changed(lambda reply: replace(reply, name=""))),
    Fault("a longer name", _changed(lambda reply: replace(reply, name=reply.name + "x"))),
    Fault("a call for a response", _changed(lambda reply: replace(reply, kind=1))),
    Fault("a oneway call for a response", _changed(lambda reply: replace(reply, kind=4))),
    Fault("a message of unknown type", _changed(lambda reply: replace(reply, kind=77))),
    *(_refusal(kind) for kind in (0, 1, 2, 3, 4, 5, 6, 7, 10, 4711, -1)),
    *(
        Fault(f"exception {number} of the result", _result(_field(12, number, _EXCEPTION) + b"\0"), forwards=False)
        for number in (1, 2, 3, 9, 15)
    ),
    Fault("a frame", respond(lambda exchange: frame(exchange.response))),
    Fault("a frame of 4 GB", always(b"\xff\xff\xff\xff", "hang")),
    Fault("a frame of nothing", always(b"\0\0\0\0", "hang")),
    Fault("a response in HTTP", always(b"HTTP/1.1 400 Bad Request\r\n\r\n", "close")),
    Fault("the compact protocol", always(b"\x82\x41\x01\x0dget_table_req\0")),
    Fault("the JSON protocol", always(b'[1,"get_table_req",2,1,{}]')),
    Fault("the protocol before it was strict", always(b"\0\0\0\x0dget_table_req\x02\0\0\0\1\0")),
    Fault("a version that there is not", respond(lambda exchange: b"\x80\x02" + exchange.response[2:])),
    Fault("an end of login by SASL", always(b"\5\0\0\0\0")),
    Fault("a type that there is not", _result(_field(77, 0, b""))),
    Fault("a string of 2 GB", _result(_field(11, 0, struct.pack(">I", 2**31 - 1)), "hang")),
    Fault("a string of a negative size", _result(_field(11, 0, b"\xff\xff\xff\xff") + b"\0")),
    Fault("a list of 4 billion", _result(_field(15, 0, struct.pack(">BI", 12, 2**32 - 1)), "hang")),
    Fault(
        "a list of 4 billion of nothing",
        _result(_field(15, 9, struct.pack(">BI", 0, 2**31 - 1)) + b"\0"),
        forwards=False,
    ),
    Fault("a map of 4 billion", _result(_field(13, 9, struct.pack(">BBI", 11, 11, 2**31 - 1)), "hang"), forwards=False),
    Fault("a set of unknown type", _result(_field(14, 9, struct.pack(">BI", 99, 1)) + b"\0"), forwards=False),
    Fault("a string over the limit", _result(_field(11, 9, struct.pack(">I", 2**24)) + bytes(2**21)), forwards=False),
    Fault("structs nested 10,000 deep", _result(_field(12, 0, b"") * 10_000)),
    Fault("lists nested 10,000 deep", _result(_field(15, 9, b"") + struct.pack(">BI", 15, 1) * 10_000), forwards=False),
    Fault("a number where the table belongs", _result(_field(8, 0, b"\0\0\0\1") + b"\0")),
    Fault("a string where the table belongs", _result(_field(11, 0, struct.pack(">I", 1) + b"t") + b"\0")),
    Fault("a table of nothing", _result(_field(12, 0, _field(12, 1, b"\0") + b"\0") + b"\0")),
    Fault("a text that is no UTF-8", _result(_field(12, 1, _field(11, 1, b"\0\0\0\2\xff\xfe") + b"\0") + b"\0")),
    Fault("fields of negative number", _result(_field(8, -5, b"\0\0\0\1") + b"\0")),
    Fault("a response before the first call", respond(unchanged), greets=Message(REPLY, "get_table_req", 1).encoded()),
    Fault("noise before the first call", respond(unchanged), greets=b"hello"),
)
"""The faults of Thrift."""
