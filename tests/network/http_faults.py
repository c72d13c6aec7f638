"""Network faults of HTTP only."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from functools import cache

from tests.fakes.clock import pass_time
from tests.network.faults import End, always, let_client_read, respond, unchanged
from tests.network.proxy import PATIENCE, Act, Exchange, Fault

_ROUNDS = 40
"""Number of parts that are sent before the time of the attempt passes."""

OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

Alter = Callable[[bytes, bytes], bytes]
"""Returns the faulty response for the head, without its last line, and the body of the correct one."""


def altered(alter: Alter, end: End = "keep") -> Act:
    """Returns an action that sends a changed response."""

    def response(exchange: Exchange) -> bytes:
        head, _, body = exchange.response.partition(b"\r\n\r\n")
        return alter(head, body)

    return respond(response, end)


def _more(line: bytes) -> Act:
    """Returns an action that adds a header line."""
    return altered(lambda head, body: head + b"\r\n" + line + b"\r\n\r\n" + body)


def _status_line(line: bytes) -> Act:
    return altered(lambda head, body: line + b"\r\n" + head.partition(b"\r\n")[2] + b"\r\n\r\n" + body)


def _length(value: bytes, end: End = "close") -> Act:
    """Returns an action that sends a wrong Content-Length."""

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
        await pass_time(PATIENCE)
        while not exchange.writer.is_closing() and not exchange.reader.at_eof():
            await exchange.send(more)
            await let_client_read()
        return False

    return act


def _status(code: int, line: bytes = b"", end: End = "keep") -> Fault:
    lines = line + b"\r\n" if line else b""
    response = b"HTTP/1.1 %d Odd\r\n%sContent-Length: 0\r\n\r\n" % (code, lines)
    return Fault(f"HTTP {code} {line.decode()}".strip(), always(response, end), forwards=False)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _after_a_while(exchange: Exchange) -> bool:
    """Sends what some servers send on an idle connection before they close it."""
    await exchange.send(exchange.response)
    await let_client_read()
    await exchange.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    exchange.writer.close()
    return False


async def _rest_of_previous(exchange: Exchange) -> bool:
    """Sends a second response directly after the correct one, and its end after the next request."""
    middle = len(exchange.response) // 2
    await exchange.send(exchange.response + exchange.response[:middle])
    await exchange.reader.read(1)
    await exchange.send(exchange.response[middle:])
    return False


_STALE = OK + b'Content-Length: 28\r\n\r\n{"metadata": {"location": 1}}'

HTTP_FAULTS: Sequence[Fault] = (
    Fault("lines before the response", respond(lambda exchange: b"\r\n\r\n" + exchange.response)),
    Fault("lines after the response", respond(lambda exchange: exchange.response + b"\r\n\r\n")),
    Fault("a response before the first request", respond(unchanged), greets=_STALE),
    Fault("noise before the first request", respond(unchanged), greets=b"hello\r\n"),
    Fault("a response that goes on behind the next request", _rest_of_previous),
    Fault("408 on an idle connection", _after_a_while),
    Fault("`Content-Length` too long", _length(b"N9")),
    Fault("`Content-Length` too long, and silence", _length(b"N9", "hang")),
    Fault("`Content-Length` too short", _length(b"M", "keep")),
    Fault("`Content-Length` 0", _length(b"0", "keep")),
    Fault("`Content-Length` negative", _length(b"-N")),
    Fault("`Content-Length` with a sign", _length(b"+N")),
    Fault("`Content-Length` in words", _length(b"many")),
    Fault("`Content-Length` of 10^30", _length(b"1" + 30 * b"0")),
    Fault("`Content-Length` of 4 GB", _length(b"4294967296", "hang")),
    Fault("`Content-Length` as a list", _length(b"N, N")),
    Fault("two that differ", _more(b"Content-Length: 7")),
    Fault("`Transfer-Encoding` beside a length", _more(b"Transfer-Encoding: chunked")),
    Fault(
        "chunks and a length that ends before them",
        altered(lambda head, body: OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + _chunk(body)),
    ),
    Fault(
        "a length and the chunks' end behind it", altered(lambda head, body: head + b"\r\n\r\n" + body + b"0\r\n\r\n")
    ),
    Fault("`Transfer-Encoding: xchunked`", _more(b"Transfer-Encoding: xchunked")),
    Fault("`Transfer-Encoding: gzip, chunked`", _more(b"Transfer-Encoding: gzip, chunked")),
    Fault("`Transfer-Encoding` with a tab", _more(b"Transfer-Encoding:\tchunked")),
    Fault("chunks", _chunked(lambda body: _chunk(body) + b"0\r\n\r\n")),
    Fault(
        "chunks of a byte",
        _chunked(lambda body: b"".join(_chunk(body[i : i + 1]) for i in range(len(body))) + b"0\r\n\r\n"),
    ),
    Fault("chunks and trailers", _chunked(lambda body: _chunk(body) + b"0\r\nX-Odd: 1\r\nContent-Length: 3\r\n\r\n")),
    Fault("chunks with extensions", _chunked(lambda body: b"%x;a=b\r\n%s\r\n0;c\r\n\r\n" % (len(body), body))),
    Fault("a chunk of a wrong size", _chunked(lambda body: b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) // 2, body))),
    Fault("a chunk without a size", _chunked(lambda body: b"\r\n" + body + b"\r\n0\r\n\r\n")),
    Fault("a chunk's size in words", _chunked(lambda body: b"xyz\r\n" + body)),
    Fault("a chunk's size negative", _chunked(lambda body: b"-5\r\n" + body)),
    Fault("a chunk of 2^64", _chunked(lambda body: b"ffffffffffffffff\r\n" + body, "hang")),
    Fault("a chunk of 2^68", _chunked(lambda body: b"fffffffffffffffff\r\n" + body, "hang")),
    Fault("chunks that do not end, closed", _chunked(_chunk, "close")),
    Fault("chunks that do not end, silent", _chunked(_chunk, "hang")),
    Fault("chunks without end", _endless(_CHUNKED, _chunk(b" " * 65536))),
    Fault("empty chunk lines without end", _endless(_CHUNKED, b"1;" + b"x" * 4096 + b"\r\n \r\n")),
    Fault("an extension without end", _endless(_CHUNKED + b"5;", b"x" * 65536)),
    Fault("trailers without end", _endless(_CHUNKED + b"0\r\n", b"X-Odd: 1\r\n" * 4096)),
    Fault("headers without end", _endless(OK, b"X-Odd: 1\r\n" * 4096)),
    Fault("a header without end", _endless(OK + b"X-Odd: ", b"x" * 65536)),
    Fault("a status line without end", _endless(b"HTTP/1.1 200 ", b"x" * 65536)),
    Fault("a body without end", _endless(OK + b"\r\n", b" " * 65536)),
    Fault("interim answers without end", _endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" * 1000)),
    Fault("a header of 1 MiB", _more(b"X-Odd: " + b"x" * 2**20)),
    Fault("10,000 headers", _more(b"\r\n".join(b"X-%d: 1" % i for i in range(10_000)))),
    Fault("a header without a colon", _more(b"nonsense")),
    Fault("a header without a name", _more(b": 1")),
    Fault("a zero in a header", _more(b"X-Odd: a\0b")),
    Fault("a lone CR in a header", _more(b"X-Odd: a\rContent-Length: 5")),
    Fault("a lone LF after a header", _more(b"X-Odd: a\nX-More: b")),
    Fault("a folded header", _more(b"X-Odd: a\r\n b")),
    Fault("a blank before the colon", _more(b"X-Odd : a")),
    Fault("a header that is no UTF-8", _more(b"X-Odd: \xff\xfe")),
    Fault("a status that is none", _status_line(b"HTTP/1.1 abc OK")),
    Fault("a status of two digits", _status_line(b"HTTP/1.1 20 OK")),
    Fault("a status of four digits", _status_line(b"HTTP/1.1 2000 OK")),
    Fault("no status", _status_line(b"HTTP/1.1")),
    Fault("HTTP/9.9", _status_line(b"HTTP/9.9 200 OK")),
    Fault("HTTP/1.0", _status_line(b"HTTP/1.0 200 OK")),
    Fault("ICY", _status_line(b"ICY 200 OK")),
    Fault("HTTP/0.9", altered(lambda head, body: body, "close")),
    Fault(
        "`100 Continue` before the response",
        respond(lambda exchange: b"HTTP/1.1 100 Continue\r\n\r\n" + exchange.response),
    ),
    Fault("`103 Early Hints` twice", respond(lambda exchange: 2 * b"HTTP/1.1 103 Early\r\n\r\n" + exchange.response)),
    Fault("10,000 interim answers", respond(lambda exchange: 10_000 * b"HTTP/1.1 102 P\r\n\r\n" + exchange.response)),
    Fault(
        "`101 Switching Protocols`", always(b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nx", "hang")
    ),
    Fault("`Upgrade` beside the response", _more(b"Upgrade: h2c\r\nConnection: Upgrade")),
    *(_status(code, b"Location: http://127.0.0.1:1/there") for code in (301, 302, 303, 307, 308)),
    *(_status(code) for code in (300, 304, 305, 400, 402, 405, 406, 410, 412, 413, 414, 415, 417)),
    *(_status(code) for code in (421, 423, 425, 426, 428, 431, 451, 500, 505, 507, 508, 511, 520, 599)),
    _status(401, b"WWW-Authenticate: Negotiate"),
    _status(408, b"Connection: close", "close"),
    _status(429, b"Retry-After: 0"),
    _status(503, b"Retry-After: never"),
    *(
        Fault(f"HTTP {code} with the response", _status_line(b"HTTP/1.1 %d Odd" % code))
        for code in (201, 202, 203, 206, 226, 299)
    ),
    Fault("gzip", _packed(gzip.compress, b"gzip")),
    Fault("deflate", _packed(zlib.compress, b"deflate")),
    Fault("gzip twice, in one header", _packed(lambda body: gzip.compress(gzip.compress(body)), b"gzip, gzip")),
    Fault("gzip twice, in two headers", _packed(lambda body: gzip.compress(gzip.compress(body)), b"gzip", b"gzip")),
    Fault("a bomb", _packed(lambda body: _bomb(), b"gzip")),
    Fault("a bomb in a bomb", _packed(lambda body: gzip.compress(_bomb()), b"gzip, gzip")),
    Fault("gzip that breaks off", _packed(lambda body: gzip.compress(body)[:-9], b"gzip")),
    Fault("gzip with noise behind it", _packed(lambda body: gzip.compress(body) + b"noise", b"gzip")),
    Fault("gzip that is none", _packed(lambda body: body, b"gzip")),
    Fault("gzip unsaid", _body(gzip.compress)),
    *(Fault(f"`{name.decode()}`", _packed(lambda body: body, name)) for name in (b"br", b"zstd", b"compress", b"x, y")),
    Fault("another content type", _body(lambda body: body, b"Content-Type: text/html; charset=klingon")),
    Fault("UTF-16", _body(lambda body: body.decode().encode("utf-16"), b"Content-Type: text/plain; charset=utf-16")),
    Fault("a byte order mark", _body(lambda body: b"\xef\xbb\xbf" + body)),
    Fault("a page", _body(lambda body: b"<html><body>Please sign in</body></html>", b"Content-Type: text/html")),
    Fault("JSON nested 100,000 deep", _body(lambda body: 100_000 * b"[")),
    Fault("objects nested 100,000 deep", _body(lambda body: 100_000 * b'{"a":')),
    Fault("a number of 100,000 digits", _body(lambda body: 100_000 * b"9")),
    Fault("1e999999", _body(lambda body: b'{"metadata": 1e999999}')),
    Fault("NaN", _body(lambda body: b'{"metadata": NaN}')),
    Fault(
        "keys given twice", _body(lambda body: b'{"name": "other", "metadata": 7, "table": 7, "Table": 7, ' + body[1:])
    ),
    Fault("noise behind the JSON", _body(lambda body: body + b"]")),
    Fault("the JSON twice", _body(lambda body: body + body)),
    Fault("lone surrogates", _body(lambda body: b'{"\\ud800": "\\udfff"}')),
    Fault("invalid UTF-8", _body(lambda body: b'{"a": "\xff\xfe\xc0\x80"}')),
    Fault("blanks around the JSON", _body(lambda body: b" " * 9999 + body + b"\n" * 9999)),
    Fault("blanks over the limit", _body(lambda body: body + b" " * 2**21)),
    Fault("a body of []", _body(lambda body: b"[]")),
    Fault("a body of 7", _body(lambda body: b"7")),
    Fault("a body of a text", _body(lambda body: b'"t"')),
    # To Unity an object without a list is an empty list.
    Fault("a body of {}", _body(lambda body: b"{}"), not_on=frozenset({"unity"})),
    Fault("`Connection: close`, and stays open", _more(b"Connection: close")),
    Fault("`Keep-Alive: timeout=0`", _more(b"Connection: keep-alive\r\nKeep-Alive: timeout=0, max=0")),
    Fault(
        "`Connection: keep-alive`, and closes",
        altered(lambda h, b: h + b"\r\nConnection: keep-alive\r\n\r\n" + b, "close"),
    ),
    Fault("cookies", _more(b"Set-Cookie: a=b; Path=/\r\nSet-Cookie: \xff=;;;")),
    Fault(
        "another form of error",
        always(b'HTTP/1.1 500 E\r\nContent-Length: 13\r\n\r\n{"error": [1]}', "close"),
        forwards=False,
    ),
)
"""The faults of HTTP."""
