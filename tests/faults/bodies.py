"""Faults of what is sent: answers that break off, that never end, and that are none."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

from lance_namespace.errors import InternalError

from tests.fakes.sockets import http
from tests.faults.server import Deed
from tests.faults.table import (
    LOST,
    NO_AWS,
    NO_JSON,
    OTHER_FORM,
    SILENT,
    Expected,
    Fault,
    fault,
    with_thrift,
)

LIMIT = 65536
"""What `max_response_bytes` is set to."""

_TOO_LONG = Expected(InternalError, f"the answer is longer than {LIMIT} bytes (max_response_bytes)", "doubt")
_BROKEN_PACK = Expected(InternalError, "the answer cannot be decompressed", "doubt")
_VOID = Expected(InternalError, "an answer of unknown form", "void")
_PAGE = "<!DOCTYPE html><html><head><style>p {color: red}</style></head><body><p>Please sign in</p></body></html>"


def body(content: bytes | str, **headers: str) -> Deed:
    """A good status with another body than the right one."""
    answer = http(200, content, {name.replace("_", "-"): value for name, value in headers.items()}).data
    return Deed(lambda right: answer)


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
    with_thrift(fault("closed before the response", Deed(_nothing, "close"), LOST), Deed(_nothing, "close"), LOST),
    with_thrift(fault("reset before the response", Deed(_nothing, "reset"), LOST), Deed(_nothing, "reset"), LOST),
    with_thrift(
        fault("reset within the headers", Deed(lambda right: right[:20], "reset"), LOST),
        Deed(lambda right: right[:9], "reset"),
        LOST,
    ),
    fault("reset between headers and body", Deed(_head, "reset"), LOST),
    with_thrift(
        fault("reset within the body", Deed(lambda right: right[:-9], "reset"), LOST),
        Deed(lambda right: right[:-9], "reset"),
        LOST,
    ),
    with_thrift(fault("reset after the response", Deed(_same, "reset"), None), Deed(_same, "reset"), None),
    with_thrift(fault("closed within the response", Deed(_within, "close"), LOST), Deed(_within, "close"), LOST),
    fault("`Content-Length` too long", Deed(_longer, "close"), LOST),
    fault("a truncated chunk", Deed(_cut_chunk, "close"), LOST),
    fault("a chunk with an invalid length", Deed(_bad_chunk, "close"), LOST),
    with_thrift(fault("no response", Deed(_nothing, "hang"), SILENT), Deed(_nothing, "hang"), SILENT),
    with_thrift(
        fault("a response that stops", Deed(_within, "hang"), SILENT),
        Deed(_within, "hang"),
        SILENT,
    ),
    with_thrift(
        fault("a response that is sent slowly, byte by byte", Deed(_same, "drip"), SILENT),
        Deed(_same, "drip"),
        SILENT,
    ),
    fault("`Content-Length` over the limit", body(b" " * (LIMIT + 1)), _TOO_LONG),
    fault("a body over the limit, of unknown length", Deed(_endless), _TOO_LONG),
    fault("a compressed body, over the limit when decompressed", Deed(_bomb), _TOO_LONG, glue=NO_AWS),
)
"""Answers that do not come whole, or not in bounds."""

NO_ANSWERS: Sequence[Fault] = (
    fault("an HTML page with status 200", body(_PAGE, Content_Type="text/html"), NO_JSON, glue=NO_AWS),
    fault("plain text", body("hello", Content_Type="text/plain"), NO_JSON, glue=NO_AWS),
    fault("truncated JSON", body('{"a": '), NO_JSON, glue=NO_AWS),
    fault("invalid UTF-8", body(b'{"metadata": "\xff\xfe"}'), NO_JSON, glue=NO_AWS),
    fault("JSON nested 20,000 deep", body("[" * 20_000), NO_JSON, glue=NO_AWS),
    fault("invalid compressed data", body(b"\x1f\x8bnonsense", Content_Encoding="gzip"), _BROKEN_PACK, glue=NO_AWS),
    fault("an empty body", body(b""), OTHER_FORM, glue=_VOID, lists=False),
    fault("status 204", Deed(lambda right: b"HTTP/1.1 204 No Content\r\n\r\n"), OTHER_FORM, glue=_VOID, lists=False),
    fault("`null`", body("null"), OTHER_FORM, glue=NO_AWS, lists=False),
    fault("a list", body("[]"), OTHER_FORM, glue=NO_AWS),
    fault("a string", body('"yes"'), OTHER_FORM, glue=NO_AWS),
    fault("a number", body("7"), OTHER_FORM, glue=NO_AWS),
    fault("an integer of 5,000 digits", body("9" * 5000), NO_JSON, glue=NO_AWS),
)
"""Answers with a good status that say nothing of what was asked."""
