"""Faults of response bodies: incomplete, too long, or of unknown form."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

from lance_namespace.errors import InternalError

from tests.fakes.sockets import http
from tests.faults.server import Action
from tests.faults.table import LOST, NO_AWS, NO_JSON, OTHER_FORM, SILENT, Expected, Fault, fault, with_thrift

LIMIT = 65536
"""The value of `max_response_bytes` in the tests."""

_TOO_LONG = Expected(InternalError, f"the answer is longer than {LIMIT} bytes (max_response_bytes)", "doubt")
_BAD_COMPRESSION = Expected(InternalError, "the answer cannot be decompressed", "doubt")
_VOID = Expected(InternalError, "an answer of unknown form", "void")
_PAGE = "<!DOCTYPE html><html><head><style>p {color: red}</style></head><body><p>Please sign in</p></body></html>"


def body(content: bytes | str, **headers: str) -> Action:
    """Returns an action that responds with status 200 and this body."""
    answer = http(200, content, {name.replace("_", "-"): value for name, value in headers.items()}).data
    return Action(lambda right: answer)


def _head(right: bytes) -> bytes:
    return right.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def _body(right: bytes) -> bytes:
    return right.partition(b"\r\n\r\n")[2]


def _longer(right: bytes) -> bytes:
    length = len(_body(right))
    return right.replace(b"Content-Length: %d" % length, b"Content-Length: %d" % (length + 9))


def _cut_chunk(right: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + _body(right)[:9]


def _bad_chunk(right: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n" + _body(right)


def _endless(right: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (2 * LIMIT)


def _bomb(right: bytes) -> bytes:
    return http(200, gzip.compress(bytes(100 * LIMIT)), {"Content-Encoding": "gzip"}).data


def _same(right: bytes) -> bytes:
    return right


def _nothing(right: bytes) -> bytes:
    return b""


def _within(right: bytes) -> bytes:
    return right[: len(right) // 2]


BROKEN: Sequence[Fault] = (
    with_thrift(fault("closed before the response", Action(_nothing, "close"), LOST), Action(_nothing, "close"), LOST),
    with_thrift(fault("reset before the response", Action(_nothing, "reset"), LOST), Action(_nothing, "reset"), LOST),
    with_thrift(
        fault("reset within the headers", Action(lambda right: right[:20], "reset"), LOST),
        Action(lambda right: right[:9], "reset"),
        LOST,
    ),
    fault("reset between headers and body", Action(_head, "reset"), LOST),
    with_thrift(
        fault("reset within the body", Action(lambda right: right[:-9], "reset"), LOST),
        Action(lambda right: right[:-9], "reset"),
        LOST,
    ),
    with_thrift(fault("reset after the response", Action(_same, "reset"), None), Action(_same, "reset"), None),
    with_thrift(fault("closed within the response", Action(_within, "close"), LOST), Action(_within, "close"), LOST),
    fault("`Content-Length` too long", Action(_longer, "close"), LOST),
    fault("a truncated chunk", Action(_cut_chunk, "close"), LOST),
    fault("a chunk with an invalid length", Action(_bad_chunk, "close"), LOST),
    with_thrift(fault("no response", Action(_nothing, "hang"), SILENT), Action(_nothing, "hang"), SILENT),
    with_thrift(fault("a response that stops", Action(_within, "hang"), SILENT), Action(_within, "hang"), SILENT),
    with_thrift(
        fault("a response that is sent slowly, byte by byte", Action(_same, "drip"), SILENT),
        Action(_same, "drip"),
        SILENT,
    ),
    fault("`Content-Length` over the limit", body(b" " * (LIMIT + 1)), _TOO_LONG),
    fault("a body over the limit, of unknown length", Action(_endless), _TOO_LONG),
    fault("a compressed body, over the limit when decompressed", Action(_bomb), _TOO_LONG, glue=NO_AWS),
)
"""Responses that are incomplete or too long."""

WRONG_FORMATS: Sequence[Fault] = (
    fault("an HTML page with status 200", body(_PAGE, Content_Type="text/html"), NO_JSON, glue=NO_AWS),
    fault("plain text", body("hello", Content_Type="text/plain"), NO_JSON, glue=NO_AWS),
    fault("truncated JSON", body('{"a": '), NO_JSON, glue=NO_AWS),
    fault("invalid UTF-8", body(b'{"metadata": "\xff\xfe"}'), NO_JSON, glue=NO_AWS),
    fault("JSON nested 20,000 deep", body("[" * 20_000), NO_JSON, glue=NO_AWS),
    fault("invalid compressed data", body(b"\x1f\x8bnonsense", Content_Encoding="gzip"), _BAD_COMPRESSION, glue=NO_AWS),
    fault("an empty body", body(b""), OTHER_FORM, glue=_VOID, lists=False),
    fault("status 204", Action(lambda right: b"HTTP/1.1 204 No Content\r\n\r\n"), OTHER_FORM, glue=_VOID, lists=False),
    fault("`null`", body("null"), OTHER_FORM, glue=NO_AWS, lists=False),
    fault("a list", body("[]"), OTHER_FORM, glue=NO_AWS),
    fault("a string", body('"yes"'), OTHER_FORM, glue=NO_AWS),
    fault("a number", body("7"), OTHER_FORM, glue=NO_AWS),
    fault("an integer of 5,000 digits", body("9" * 5000), NO_JSON, glue=NO_AWS),
)
"""Responses with status 200 and a wrong content."""
