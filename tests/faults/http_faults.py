"""Faults of HTTP and Thrift, with expectations."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from lance_namespace.errors import InternalError, ServiceUnavailableError, UnsupportedOperationError

from tests.fakes.sockets import http
from tests.fakes.thrift import BAD, sasl_message
from tests.fakes.thrift_wire import EXCEPTION, REPLY, Message, Struct, decoded, frame
from tests.faults.faults import LIMIT, LOST, OVER_HTTP, SILENT, TOO_LONG, Expected, Fault, fault
from tests.faults.proxy import PATIENCE, Act, End, Exchange, always, change, let_client_read, respond, respond_with_next

_ROUNDS = 40  # Number of parts that are sent before the time of the attempt passes
OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
_NO_AWS = Expected(InternalError, "an answer in a format that AWS does not use", "reads")
_NO_JSON = Expected(InternalError, "an answer that is no JSON", "reads")
_EMPTY = Expected(InternalError, "an answer of unknown form", "reads")
_OTHER_FORM = Expected(InternalError, "an answer of unknown form", "doubt")
_VOID = Expected(InternalError, "an answer of unknown form", "void")
_BAD_COMPRESSION = Expected(InternalError, "the answer cannot be decompressed", "reads")
_PAGE = "<!DOCTYPE html><html><head><style>p {color: red}</style></head><body><p>Please sign in</p></body></html>"
Alter = Callable[[bytes, bytes], bytes]
"""Returns the faulty response for the head, without its last line, and the body of the correct one."""


def altered(alter: Alter, end: End = "keep") -> Act:
    def response(right: bytes) -> bytes:
        head, _, body = right.partition(b"\r\n\r\n")
        return alter(head, body)

    return change(response, end)


def _content(content: bytes | str, **headers: str) -> Act:
    return always(http(200, content, {name.replace("_", "-"): value for name, value in headers.items()}).data)


def _more(line: bytes) -> Act:
    return altered(lambda head, body: head + b"\r\n" + line + b"\r\n\r\n" + body)


def _status_line(line: bytes) -> Act:
    return altered(lambda head, body: line + b"\r\n" + head.partition(b"\r\n")[2] + b"\r\n\r\n" + body)


def _length(value: bytes, end: End = "close") -> Act:
    def alter(head: bytes, body: bytes) -> bytes:
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
        length = value.replace(b"N", b"%d" % len(body)).replace(b"M", b"%d" % (len(body) // 2))
        return b"\r\n".join([*lines, b"Content-Length: " + length]) + b"\r\n\r\n" + body

    return altered(alter, end)


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(50_000_000))


def _packed(pack: Callable[[bytes], bytes], *encodings: bytes) -> Act:
    def alter(head: bytes, body: bytes) -> bytes:
        data = pack(body)
        lines = b"".join(b"Content-Encoding: %s\r\n" % encoding for encoding in encodings)
        return OK + lines + b"Content-Length: %d\r\n\r\n" % len(data) + data

    return altered(alter)


def _body(make: Callable[[bytes], bytes], line: bytes = b"Content-Type: application/json") -> Act:
    def alter(head: bytes, body: bytes) -> bytes:
        data = make(body)
        return OK + line + b"\r\nContent-Length: %d\r\n\r\n" % len(data) + data

    return altered(alter)


def _chunked(form: Callable[[bytes], bytes], end: End = "keep") -> Act:
    return altered(lambda head, body: _CHUNKED + form(body), end)


def _endless(begin: bytes, more: bytes) -> Act:
    """Returns an action that sends data until the client closes the connection."""

    async def act(exchange: Exchange) -> bool:
        await exchange.send(begin)
        for _ in range(_ROUNDS):
            await exchange.send(more)
            await let_client_read()
        await exchange.pass_time(PATIENCE)
        while not exchange.writer.is_closing() and not exchange.reader.at_eof():
            await exchange.send(more)
            await let_client_read()
        return False

    return act


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _after_a_while(exchange: Exchange) -> bool:
    """Sends what some servers send on an idle connection before they close it."""
    await exchange.send(exchange.response)
    await let_client_read()
    await exchange.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    exchange.writer.close()
    return False


_rest_of_previous = respond_with_next(
    lambda exchange: exchange.response[len(exchange.response) // 2 :],
    lambda exchange: exchange.response + exchange.response[: len(exchange.response) // 2],
)
"""Sends a second response directly after the correct one, and its end after the next request."""


BROKEN: Sequence[Fault] = (
    fault("reset between headers and body", altered(lambda head, body: head + b"\r\n\r\n", "reset"), LOST),
    fault("`Content-Length` too long", _length(b"N9"), LOST),
    fault("a truncated chunk", altered(lambda head, body: _CHUNKED + b"ff\r\n" + body[:9], "close"), LOST),
    fault("a chunk with an invalid length", altered(lambda head, body: _CHUNKED + b"xyz\r\n" + body, "close"), LOST),
    fault("`Content-Length` over the limit", _content(b" " * (LIMIT + 1)), TOO_LONG),
    fault("a body over the limit, of unknown length", always(OK + b"\r\n" + b" " * (2 * LIMIT)), TOO_LONG),
    fault(
        "a compressed body, over the limit when decompressed",
        _packed(lambda body: _bomb(), b"gzip"),
        TOO_LONG,
        glue=_NO_AWS,
    ),
)
"""Incomplete or too long responses, with expectations."""

WRONG_FORMATS: Sequence[Fault] = (
    *(
        fault(name, _content(content), _NO_JSON, glue=_NO_AWS)
        for name, content in (
            ("an HTML page with status 200", _PAGE),
            ("plain text", "hello"),
            ("truncated JSON", '{"a": '),
            ("invalid UTF-8", b'{"metadata": "\xff\xfe"}'),
            ("JSON nested 20,000 deep", "[" * 20_000),
        )
    ),
    fault(
        "invalid compressed data",
        _content(b"\x1f\x8bnonsense", Content_Encoding="gzip"),
        _BAD_COMPRESSION,
        glue=_NO_AWS,
    ),
    fault("an empty body", _content(b""), _EMPTY, glue=_VOID, lists=False),
    fault("status 204", always(b"HTTP/1.1 204 No Content\r\n\r\n"), _EMPTY, glue=_VOID, lists=False),
    fault("`null`", _content("null"), _OTHER_FORM, glue=_NO_AWS, lists=False),
    *(
        fault(name, _content(content), _OTHER_FORM, glue=_NO_AWS)
        for name, content in (("a list", "[]"), ("a string", '"yes"'), ("a number", "7"))
    ),
    fault("an integer of 5,000 digits", _content("9" * 5000), _NO_JSON, glue=_NO_AWS),
)
"""Responses with status 200 and a wrong content, with expectations."""

UNUSUAL: Sequence[Fault] = (
    fault("`100 Continue` before the response", change(lambda right: b"HTTP/1.1 100 Continue\r\n\r\n" + right), None),
    fault(
        "`103 Early Hints` before the response",
        change(lambda right: 2 * b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" + right),
        None,
    ),
    fault("HTTP/1.0", change(lambda right: right.replace(b"HTTP/1.1", b"HTTP/1.0", 1), "close"), None),
    fault("a wrong `Content-Type`", _body(lambda body: body, b"Content-Type: text/html; charset=klingon"), None),
    fault("a header that is not UTF-8", _more(b"X-Odd: \xff"), None, glue=LOST),
)
"""Unusual responses that are understood, with expectations."""

_STALE = OK + b'Content-Length: 28\r\n\r\n{"metadata": {"location": 1}}'
_SAME = change(lambda right: right)
_NOT_UNITY = tuple(impl for impl in OVER_HTTP if impl != "unity")


def _frame(name: str, act: Act, on: Sequence[str] = OVER_HTTP, *, greets: bytes = b"") -> Fault:
    return Fault(name, act, on, greets=greets)


FRAMES: Sequence[Fault] = (
    _frame("lines before the response", change(lambda right: b"\r\n\r\n" + right)),
    _frame("lines after the response", change(lambda right: right + b"\r\n\r\n")),
    _frame("a response before the first request", _SAME, greets=_STALE),
    _frame("noise before the first request", _SAME, greets=b"hello\r\n"),
    _frame("a response that goes on behind the next request", _rest_of_previous),
    _frame("408 on an idle connection", _after_a_while),
    _frame("`Content-Length` too long, and silence", _length(b"N9", "hang")),
    _frame("`Content-Length` too short", _length(b"M", "keep")),
    _frame("`Content-Length` 0", _length(b"0", "keep")),
    _frame("`Content-Length` negative", _length(b"-N")),
    _frame("`Content-Length` with a sign", _length(b"+N")),
    _frame("`Content-Length` in words", _length(b"many")),
    _frame("`Content-Length` of 10^30", _length(b"1" + 30 * b"0")),
    _frame("`Content-Length` of 4 GB", _length(b"4294967296", "hang")),
    _frame("`Content-Length` as a list", _length(b"N, N")),
    _frame("two that differ", _more(b"Content-Length: 7")),
    _frame("`Transfer-Encoding` beside a length", _more(b"Transfer-Encoding: chunked")),
    _frame(
        "chunks and a length that ends before them",
        altered(lambda head, body: OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + _chunk(body)),
    ),
    _frame(
        "a length and the chunks' end behind it", altered(lambda head, body: head + b"\r\n\r\n" + body + b"0\r\n\r\n")
    ),
    _frame("`Transfer-Encoding: xchunked`", _more(b"Transfer-Encoding: xchunked")),
    _frame("`Transfer-Encoding: gzip, chunked`", _more(b"Transfer-Encoding: gzip, chunked")),
    _frame("`Transfer-Encoding` with a tab", _more(b"Transfer-Encoding:\tchunked")),
    _frame("chunks", _chunked(lambda body: _chunk(body) + b"0\r\n\r\n")),
    _frame(
        "chunks of a byte",
        _chunked(lambda body: b"".join(_chunk(body[i : i + 1]) for i in range(len(body))) + b"0\r\n\r\n"),
    ),
    _frame("chunks and trailers", _chunked(lambda body: _chunk(body) + b"0\r\nX-Odd: 1\r\nContent-Length: 3\r\n\r\n")),
    _frame("chunks with extensions", _chunked(lambda body: b"%x;a=b\r\n%s\r\n0;c\r\n\r\n" % (len(body), body))),
    _frame("a chunk of a wrong size", _chunked(lambda body: b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) // 2, body))),
    _frame("a chunk without a size", _chunked(lambda body: b"\r\n" + body + b"\r\n0\r\n\r\n")),
    _frame("a chunk's size negative", _chunked(lambda body: b"-5\r\n" + body)),
    _frame("a chunk of 2^64", _chunked(lambda body: b"ffffffffffffffff\r\n" + body, "hang")),
    _frame("a chunk of 2^68", _chunked(lambda body: b"fffffffffffffffff\r\n" + body, "hang")),
    _frame("chunks that do not end, closed", _chunked(_chunk, "close")),
    _frame("chunks that do not end, silent", _chunked(_chunk, "hang")),
    _frame("chunks without end", _endless(_CHUNKED, _chunk(b" " * 65536))),
    _frame("empty chunk lines without end", _endless(_CHUNKED, b"1;" + b"x" * 4096 + b"\r\n \r\n")),
    _frame("an extension without end", _endless(_CHUNKED + b"5;", b"x" * 65536)),
    _frame("trailers without end", _endless(_CHUNKED + b"0\r\n", b"X-Odd: 1\r\n" * 4096)),
    _frame("headers without end", _endless(OK, b"X-Odd: 1\r\n" * 4096)),
    _frame("a header without end", _endless(OK + b"X-Odd: ", b"x" * 65536)),
    _frame("a status line without end", _endless(b"HTTP/1.1 200 ", b"x" * 65536)),
    _frame("a body without end", _endless(OK + b"\r\n", b" " * 65536)),
    _frame("interim answers without end", _endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" * 1000)),
    _frame("a header of 1 MiB", _more(b"X-Odd: " + b"x" * 2**20)),
    _frame("10,000 headers", _more(b"\r\n".join(b"X-%d: 1" % i for i in range(10_000)))),
    _frame("a header without a colon", _more(b"nonsense")),
    _frame("a header without a name", _more(b": 1")),
    _frame("a zero in a header", _more(b"X-Odd: a\0b")),
    _frame("a lone CR in a header", _more(b"X-Odd: a\rContent-Length: 5")),
    _frame("a lone LF after a header", _more(b"X-Odd: a\nX-More: b")),
    _frame("a folded header", _more(b"X-Odd: a\r\n b")),
    _frame("a blank before the colon", _more(b"X-Odd : a")),
    _frame("a status that is none", _status_line(b"HTTP/1.1 abc OK")),
    _frame("a status of two digits", _status_line(b"HTTP/1.1 20 OK")),
    _frame("a status of four digits", _status_line(b"HTTP/1.1 2000 OK")),
    _frame("no status", _status_line(b"HTTP/1.1")),
    _frame("HTTP/9.9", _status_line(b"HTTP/9.9 200 OK")),
    _frame("ICY", _status_line(b"ICY 200 OK")),
    _frame("HTTP/0.9", altered(lambda head, body: body, "close")),
    _frame("10,000 interim answers", change(lambda right: 10_000 * b"HTTP/1.1 102 P\r\n\r\n" + right)),
    _frame(
        "`101 Switching Protocols`", always(b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nx", "hang")
    ),
    _frame("`Upgrade` beside the response", _more(b"Upgrade: h2c\r\nConnection: Upgrade")),
    *(
        _frame(f"HTTP {code} with the response", _status_line(b"HTTP/1.1 %d Odd" % code))
        for code in (201, 202, 203, 206, 226, 299)
    ),
    _frame("gzip", _packed(gzip.compress, b"gzip")),
    _frame("deflate", _packed(zlib.compress, b"deflate")),
    _frame("gzip twice, in one header", _packed(lambda body: gzip.compress(gzip.compress(body)), b"gzip, gzip")),
    _frame("gzip twice, in two headers", _packed(lambda body: gzip.compress(gzip.compress(body)), b"gzip", b"gzip")),
    _frame("a bomb in a bomb", _packed(lambda body: gzip.compress(_bomb()), b"gzip, gzip")),
    _frame("gzip that breaks off", _packed(lambda body: gzip.compress(body)[:-9], b"gzip")),
    _frame("gzip with noise behind it", _packed(lambda body: gzip.compress(body) + b"noise", b"gzip")),
    _frame("gzip unsaid", _body(gzip.compress)),
    *(
        _frame(f"`{name.decode()}`", _packed(lambda body: body, name))
        for name in (b"br", b"zstd", b"compress", b"x, y")
    ),
    _frame("UTF-16", _body(lambda body: body.decode().encode("utf-16"), b"Content-Type: text/plain; charset=utf-16")),
    _frame("a byte order mark", _body(lambda body: b"\xef\xbb\xbf" + body)),
    _frame("objects nested 10,000 deep", _body(lambda body: 10_000 * b'{"a":')),
    _frame("1e999999", _body(lambda body: b'{"metadata": 1e999999}')),
    _frame("NaN", _body(lambda body: b'{"metadata": NaN}')),
    _frame(
        "keys given twice", _body(lambda body: b'{"name": "other", "metadata": 7, "table": 7, "Table": 7, ' + body[1:])
    ),
    _frame("noise behind the JSON", _body(lambda body: body + b"]")),
    _frame("the JSON twice", _body(lambda body: body + body)),
    _frame("lone surrogates", _body(lambda body: b'{"\\ud800": "\\udfff"}')),
    _frame("blanks around the JSON", _body(lambda body: b" " * 9999 + body + b"\n" * 9999)),
    # To Unity an object without a list is an empty list.
    _frame("a body of {}", _body(lambda body: b"{}"), _NOT_UNITY),
    _frame("`Connection: close`, and stays open", _more(b"Connection: close")),
    _frame("`Keep-Alive: timeout=0`", _more(b"Connection: keep-alive\r\nKeep-Alive: timeout=0, max=0")),
    _frame(
        "`Connection: keep-alive`, and closes",
        altered(lambda h, b: h + b"\r\nConnection: keep-alive\r\n\r\n" + b, "close"),
    ),
    _frame("cookies", _more(b"Set-Cookie: a=b; Path=/\r\nSet-Cookie: \xff=;;;")),
)
"""Other faults of HTTP, which the trial tests."""


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


_UNKNOWN_METHOD = Expected(UnsupportedOperationError, "TApplicationException UNKNOWN_METHOD", "never")
_NO_RESULT = Expected(InternalError, "an answer without a result", "void")
_OTHER_RESULT = Expected(InternalError, "an answer of unknown form", "void")
_NESTED = _internal("more than 64 structs and containers within each other")
_LONG_STRING = _field(11, 9, struct.pack(">I", 2**31 - 1)) + bytes(2 * LIMIT)
_NO_TEXT = _field(12, 1, _field(11, 1, b"\0\0\0\2\xff\xfe") + b"\0") + b"\0"

THRIFT: Sequence[Fault] = tuple(
    Fault(name, act, ("hive3",), {"hive3": expected}, forwards=expected.then != "never")
    for name, act, expected in (
        ("an HTTP server", always(b"HTTP/1.1 400 Bad Request\r\n\r\n"), _NO_REPLY),
        ("the compact protocol", always(b"\x82\x41\x01\x0dget_table_req\0"), _NO_REPLY),
        ("the old binary protocol, which is not strict", always(b"\0\0\0\x0dget_table_req\x02\0\0\0\1\0"), _NO_REPLY),
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
        ("a result of unknown form", _result(_field(12, 0, _field(8, 1, b"\0\0\0\0") + b"\0") + b"\0"), _OTHER_RESULT),
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
