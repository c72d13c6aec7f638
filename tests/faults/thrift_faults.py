"""Faults of Thrift."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from lance_namespace.errors import InternalError, ServiceUnavailableError, UnsupportedOperationError

from tests.fakes.thrift_sasl import BAD, sasl_message
from tests.fakes.thrift_wire import EXCEPTION, REPLY, Message, Struct, decoded, frame
from tests.faults.faults import LIMIT, LOST, SILENT, TOO_LONG, Expected, Fault
from tests.faults.proxy import Act, End, Exchange, always, change, respond

_NO_REPLY = Expected(InternalError, "not a reply in Thrift's strict binary protocol", "doubt")
_OTHER_CALL = Expected(ServiceUnavailableError, "the reply to another call", "reads")


def _internal(message: str) -> Expected:
    return Expected(InternalError, message, "doubt")


def _with_parts(**parts: str | int) -> Act:
    return change(lambda right: replace(decoded(right), **parts).encoded())  # type: ignore[arg-type]  # names of its own


def _with_sequence(number: Callable[[int], int]) -> Act:
    return change(lambda right: replace(decoded(right), sequence=number(decoded(right).sequence)).encoded())


def _refusal(kind: int) -> Act:
    def response(exchange: Exchange) -> bytes:
        call = decoded(exchange.request)
        return Message(EXCEPTION, call.name, call.sequence, Struct({1: "no\r\nway\x1b[31m", 2: kind})).encoded()

    return respond(response)


def _result(body: bytes, end: End = "keep") -> Act:
    """Returns an action that sends the correct header and another body, which must contain its end."""

    def response(exchange: Exchange) -> bytes:
        call = decoded(exchange.request)
        return Message(REPLY, call.name, call.sequence, Struct()).encoded()[:-1] + body

    return respond(response, end)


def _field(type: int, number: int, value: bytes) -> bytes:
    return struct.pack(">Bh", type, number) + value


_OLD = b"\0\0\0\x0dget_table_req\x02\0\0\0\1\0"
_UNKNOWN_METHOD = Expected(UnsupportedOperationError, "TApplicationException UNKNOWN_METHOD", "never")
_NO_RESULT = Expected(InternalError, "an answer without a result", "void")
_OTHER_FORM = Expected(InternalError, "an answer of unknown form", "void")
_NESTED = _internal("more than 64 structs and containers within each other")

_LONG_STRING = _field(11, 9, struct.pack(">I", 2**31 - 1)) + bytes(2 * LIMIT)
_NO_TEXT = _field(12, 1, _field(11, 1, b"\0\0\0\2\xff\xfe") + b"\0") + b"\0"

THRIFT: Sequence[Fault] = tuple(
    Fault(name, act, ("hive3",), {"hive3": expected}, forwards=expected.then != "never")
    for name, act, expected in (
        ("an HTTP server", always(b"HTTP/1.1 400 Bad Request\r\n\r\n"), _NO_REPLY),
        ("the compact protocol", always(b"\x82\x41\x01\x0dget_table_req\0"), _NO_REPLY),
        ("the old binary protocol, which is not strict", always(_OLD), _NO_REPLY),
        ("framed replies", change(frame), _NO_REPLY),
        ("a SASL login", always(sasl_message(BAD, b"Expecting START")), _NO_REPLY),
        ("a call instead of a reply", _with_parts(kind=1), _NO_REPLY),
        ("another sequence id", _with_parts(sequence=4711), _OTHER_CALL),
        ("the name of another method", _with_parts(name="get_all_databases"), _OTHER_CALL),
        ("`TApplicationException` UNKNOWN_METHOD", _refusal(1), _UNKNOWN_METHOD),
        ("`TApplicationException` INTERNAL_ERROR", _refusal(6), _internal("TApplicationException INTERNAL_ERROR")),
        ("`TApplicationException` of unknown type", _refusal(4711), _internal("TApplicationException UNKNOWN")),
        ("a reply without a result", _result(b"\0"), _NO_RESULT),
        ("a string of 2 GB that is not sent", _result(_field(11, 0, struct.pack(">I", 2**31 - 1)), "hang"), SILENT),
        (
            "a list of 4 billion elements that is not sent",
            _result(_field(15, 0, struct.pack(">BI", 12, 2**32 - 1)), "hang"),
            SILENT,
        ),
        ("a string of 2 GB that is sent", _result(_LONG_STRING), TOO_LONG),
        ("an unknown type", _result(_field(77, 0, b"")), _internal("a value of type 77, which is unknown")),
        ("structs nested 1,000 deep", _result(_field(12, 0, b"") * 1000), _NESTED),
        ("a string that is not UTF-8", _result(_NO_TEXT), _internal("a string that is not UTF-8")),
        ("bytes after the reply", change(lambda right: right + b"\0"), _internal("1 bytes after the end of the reply")),
        ("a result of unknown form", _result(_field(12, 0, _field(8, 1, b"\0\0\0\0") + b"\0") + b"\0"), _OTHER_FORM),
        ("closed within a number", change(lambda right: right[:6], "close"), LOST),
    )
)
"""Faults of Thrift with expectations."""

_EXCEPTION = _field(11, 1, struct.pack(">I", 4) + b"oops") + b"\0"


def _fault(name: str, act: Act, *, forwards: bool = True, greets: bytes = b"") -> Fault:
    return Fault(name, act, ("hive3",), forwards=forwards, greets=greets)


OTHER_THRIFT: Sequence[Fault] = (
    _fault("a sequence id one lower", _with_sequence(lambda number: number - 1)),
    _fault("a sequence id one higher", _with_sequence(lambda number: number + 1)),
    _fault("sequence id 0", _with_parts(sequence=0)),
    _fault("a negative sequence id", _with_parts(sequence=-1)),
    _fault("an empty name", _with_parts(name="")),
    _fault("a longer name", change(lambda right: replace(decoded(right), name=decoded(right).name + "x").encoded())),
    _fault("a oneway call for a response", _with_parts(kind=4)),
    _fault("a message of unknown type", _with_parts(kind=77)),
    *(_fault(f"`TApplicationException` {kind}", _refusal(kind), forwards=False) for kind in (0, 2, 3, 4, 5, 7, 10, -1)),
    *(
        _fault(f"exception {number} of the result", _result(_field(12, number, _EXCEPTION) + b"\0"), forwards=False)
        for number in (1, 2, 3, 9, 15)
    ),
    _fault("a frame of 4 GB", always(b"\xff\xff\xff\xff", "hang")),
    _fault("a frame of nothing", always(b"\0\0\0\0", "hang")),
    _fault("the JSON protocol", always(b'[1,"get_table_req",2,1,{}]')),
    _fault("a version that there is not", change(lambda right: b"\x80\x02" + right[2:])),
    _fault("a string of a negative size", _result(_field(11, 0, b"\xff\xff\xff\xff") + b"\0")),
    _fault(
        "a list of 4 billion of nothing",
        _result(_field(15, 9, struct.pack(">BI", 0, 2**31 - 1)) + b"\0"),
        forwards=False,
    ),
    _fault(
        "a map of 4 billion", _result(_field(13, 9, struct.pack(">BBI", 11, 11, 2**31 - 1)), "hang"), forwards=False
    ),
    _fault("a set of unknown type", _result(_field(14, 9, struct.pack(">BI", 99, 1)) + b"\0"), forwards=False),
    _fault(
        "lists nested 10,000 deep", _result(_field(15, 9, b"") + struct.pack(">BI", 15, 1) * 10_000), forwards=False
    ),
    _fault("a number where the table belongs", _result(_field(8, 0, b"\0\0\0\1") + b"\0")),
    _fault("a string where the table belongs", _result(_field(11, 0, struct.pack(">I", 1) + b"t") + b"\0")),
    _fault("a table of nothing", _result(_field(12, 0, _field(12, 1, b"\0") + b"\0") + b"\0")),
    _fault("fields of negative number", _result(_field(8, -5, b"\0\0\0\1") + b"\0")),
    _fault(
        "a response before the first call",
        change(lambda right: right),
        greets=Message(REPLY, "get_table_req", 1).encoded(),
    ),
    _fault("noise before the first call", change(lambda right: right), greets=b"hello"),
)
"""Other faults of Thrift, which the trial tests."""
