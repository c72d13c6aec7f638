"""Faults of Thrift servers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from lance_namespace.errors import InternalError, ServiceUnavailableError, UnsupportedOperationError

from tests.fakes.thrift_sasl import BAD, sasl_message
from tests.fakes.thrift_wire import EXCEPTION, Message, Struct, decoded, frame
from tests.faults.bodies import LIMIT
from tests.faults.server import Action, End
from tests.faults.table import LOST, SILENT, Expected, Fault, alone

_NO_REPLY = Expected(InternalError, "not a reply in Thrift's strict binary protocol", "doubt")
_OTHER_CALL = Expected(ServiceUnavailableError, "the reply to another call", "reads")
_TOO_LONG = Expected(InternalError, f"the answer is longer than {LIMIT} bytes (max_response_bytes)", "doubt")


def _with_parts(**parts: str | int) -> Action:
    return Action(lambda right: replace(decoded(right), **parts).encoded())  # type: ignore[arg-type]  # names of its own


def _application_error(kind: int) -> Action:
    def refusal(right: bytes) -> bytes:
        message = decoded(right)
        return Message(EXCEPTION, message.name, message.sequence, Struct({1: "no", 2: kind})).encoded()

    return Action(refusal)


def _with(result: Callable[[bytes], bytes], then: End = "keep") -> Action:
    """Returns an action that responds with the correct header and another result."""

    def respond(right: bytes) -> bytes:
        message = decoded(right)
        return result(Message(2, message.name, message.sequence).encoded()[:-1])

    return Action(respond, then)


def _always(response: bytes) -> Action:
    return Action(lambda right: response)


THRIFT: Sequence[Fault] = tuple(
    alone("hive3", name, action, expected)
    for name, action, expected in (
        ("an HTTP server", _always(b"HTTP/1.1 400 Bad Request\r\n\r\n"), _NO_REPLY),
        ("the compact protocol", _always(b"\x82\x41\x01\x0dget_table_req"), _NO_REPLY),
        ("the old binary protocol, which is not strict", _always(b"\0\0\0\x0dget_table_req\x02"), _NO_REPLY),
        ("framed replies", Action(frame), _NO_REPLY),
        ("a SASL login", _always(sasl_message(BAD, b"Expecting START")), _NO_REPLY),
        ("a call instead of a reply", _with_parts(kind=1), _NO_REPLY),
        ("another sequence id", _with_parts(sequence=4711), _OTHER_CALL),
        ("the name of another method", _with_parts(name="get_all_databases"), _OTHER_CALL),
        (
            "`TApplicationException` UNKNOWN_METHOD",
            _application_error(1),
            Expected(UnsupportedOperationError, "TApplicationException UNKNOWN_METHOD", "never"),
        ),
        (
            "`TApplicationException` INTERNAL_ERROR",
            _application_error(6),
            Expected(InternalError, "TApplicationException INTERNAL_ERROR", "doubt"),
        ),
        (
            "`TApplicationException` of unknown type",
            _application_error(4711),
            Expected(InternalError, "TApplicationException UNKNOWN", "doubt"),
        ),
        (
            "a reply without a result",
            _with(lambda head: head + b"\0"),
            Expected(InternalError, "an answer without a result", "void"),
        ),
        (
            "a string of 2 GB that is not sent",
            _with(lambda head: head + struct.pack(">BhI", 11, 0, 2**31 - 1), "hang"),
            SILENT,
        ),
        (
            "a list of 4 billion elements that is not sent",
            _with(lambda head: head + struct.pack(">BhBI", 15, 0, 12, 2**32 - 1), "hang"),
            SILENT,
        ),
        (
            "a string of 2 GB that is sent",
            _with(lambda head: head + struct.pack(">BhI", 11, 9, 2**31 - 1) + bytes(2 * LIMIT)),
            _TOO_LONG,
        ),
        (
            "an unknown type",
            _with(lambda head: head + struct.pack(">Bh", 77, 0)),
            Expected(InternalError, "a value of type 77, which is unknown", "doubt"),
        ),
        (
            "structs nested 1,000 deep",
            _with(lambda head: head + struct.pack(">Bh", 12, 0) * 1000),
            Expected(InternalError, "more than 64 structs and containers within each other", "doubt"),
        ),
        (
            "a string that is not UTF-8",
            _with(lambda head: head + struct.pack(">BhBhI", 12, 1, 11, 1, 2) + b"\xff\xfe\0\0"),
            Expected(InternalError, "a string that is not UTF-8", "doubt"),
        ),
        (
            "bytes after the reply",
            Action(lambda right: right + b"\0"),
            Expected(InternalError, "1 bytes after the end of the reply", "doubt"),
        ),
        (
            "a result of unknown form",
            _with(lambda head: head + struct.pack(">BhBhB", 12, 0, 8, 1, 0) + b"\0\0\0\0\0"),
            Expected(InternalError, "an answer of unknown form", "void"),
        ),
        ("closed within a number", Action(lambda right: right[:6], "close"), LOST),
    )
)
