"""The HTTP wire: listening sockets, connections, request bodies, and sending of responses."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from ipaddress import IPv6Address, ip_address
from time import monotonic
from typing import Any, NoReturn

from aiohttp import web
from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import shortened
from lance_ns_async.gateway import responses
from lance_ns_async.gateway.limits import Share
from lance_ns_async.gateway.responses import EventStream, RequestError

log: logging.Logger = logging.getLogger(__name__)

_FULL = (errno.EMFILE, errno.ENFILE)  # Errors of `accept` if the process or the system has no free descriptor.
_LOG_PERIOD = 60.0  # Minimum seconds between two log entries about refused connections.
_PIECE = 1 << 20  # Number of bytes of a large response to write at once.
_DECODED_PIECE = 1 << 18  # Maximum number of bytes per decompression step.
_LARGE = 1 << 20  # Number of bytes from which the parts of a body are joined in a thread.
_SLOWEST = 4096  # Minimum rate of a body, in bytes a second, in addition to the idle time.
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # The zlib `wbits` value that detects gzip or zlib automatically.


class Listener(socket.socket):
    """A listening socket that closes new connections beyond a limit, also those before or during a TLS handshake.

    Without a free descriptor, asyncio would log many attempts to accept a connection, and the clients would wait.
    """

    def __init__(self, family: int, type: int, proto: int, limit: int) -> None:
        super().__init__(family, type, proto)
        self._limit = limit
        self._open: Counter[str] = Counter()
        # Accepts one connection if there is no other free descriptor.
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self._next_log = 0.0
        self._refused = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Returns the next connection and its address."""
        try:
            plain, address = super().accept()
        except OSError as e:
            if e.errno not in _FULL or not self._drop():
                raise
            self._refuse("the process has no free descriptor; raise its limit of open files (ulimit -n)")
        origin = _origin(address[0])
        if self._open[origin] >= self._limit:
            plain.close()
            self._refuse(f"{origin} has {self._limit} connections; see max_connections")
        self._open[origin] += 1
        return _Accepted(plain, self._open, origin), address

    def close(self) -> None:
        """Closes the socket and its spare descriptor."""
        super().close()
        self._release()

    def _refuse(self, reason: str) -> NoReturn:
        self._refused += 1
        if (now := monotonic()) >= self._next_log:
            log.warning("gateway: %d connections refused; the last one, because %s", self._refused, reason)
            self._next_log, self._refused = now + _LOG_PERIOD, 0
        raise BlockingIOError

    def _drop(self) -> bool:
        """Closes the next connection by means of the spare descriptor; returns whether there was such a descriptor."""
        if self._spare is None:
            return False
        self._release()
        with suppress(OSError):
            super().accept()[0].close()
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)
        return True

    def _release(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


class _Accepted(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, plain: socket.socket, counts: Counter[str], origin: str) -> None:
        super().__init__(fileno=plain.detach())
        self._counts: Counter[str] | None = counts
        self._origin = origin

    def close(self) -> None:
        super().close()
        if self._counts is not None:
            self._counts[self._origin] -= 1
            if not self._counts[self._origin]:
                del self._counts[self._origin]
            self._counts = None


async def listeners(host: str, port: int, limit: int) -> list[Listener]:
    """Returns a bound socket for each address of a host; an IPv6 network of 64 bits counts as one client."""
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[Listener] = []
    try:
        for family, type, proto, _, address in dict.fromkeys(infos):
            listener = Listener(family, type, proto, limit)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], port, *address[2:]))
            # The addresses of one name have the same port.
            port = listener.getsockname()[1]
            listener.setblocking(False)
    except OSError:
        for listener in sockets:
            listener.close()
        raise
    return sockets


def is_loopback(host: str) -> bool:
    """Returns whether a server that listens on `host` is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _origin(host: str) -> str:
    """Returns the text by which the connections of one client are counted."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None and not address.is_loopback:
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(address)


class HttpServer(web.Server):
    """aiohttp's server, with errors in the form of the spec, and a limit of the time for the first head."""

    def __init__(self, handler: Callable[..., Any], *, head_time: float, **options: Any) -> None:
        super().__init__(handler, **options)
        self._head_time = head_time

    def __call__(self) -> web.RequestHandler:
        """Returns the handler of one connection."""
        return _Connection(self, self._head_time, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ("_head_time", "_head_timer", "client_left")

    def __init__(self, server: HttpServer, head_time: float, **options: Any) -> None:
        super().__init__(server, **options)
        self._head_time = head_time
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Marks the client as connected, and limits the time for its first request."""
        self.client_left = False
        super().connection_made(transport)
        self._head_timer = asyncio.get_running_loop().call_later(self._head_time, self.force_close)

    def end_head(self) -> None:
        """Ends the time limit for the first request, whose head is complete."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Records whether the client closed the connection; aiohttp clears `transport` if the server closed it."""
        self.client_left = self.transport is not None
        self.end_head()
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Returns the response to a malformed request, and closes the connection afterwards."""
        # The base method logs the error, and raises if a response was started.
        super().handle_error(request, status, exc, message)
        if status < 500:
            text = "Invalid input: the HTTP request is malformed or too long"
        else:
            text = "Internal error: the gateway failed; its log has the details"
        answer = responses.error(RequestError(status, text))
        answer.force_close()
        return answer


def end_head(request: web.BaseRequest) -> None:
    """Ends the time limit for the head of a request; after that, limits of the body and the connection apply."""
    connection: object = request.protocol
    if isinstance(connection, _Connection):
        connection.end_head()


def has_client_left(request: web.BaseRequest) -> bool:
    """Returns whether the client has closed the connection of a request."""
    connection: object = request.protocol
    return isinstance(connection, _Connection) and connection.client_left


async def send(request: web.BaseRequest, answer: web.Response | EventStream, idle: float) -> web.StreamResponse:
    """Sends a response; aborts the connection of a client that reads nothing for `idle` seconds."""
    if isinstance(answer, EventStream):
        response: web.StreamResponse = answer
        first: bytes | memoryview = answer.first
        rest: AsyncGenerator[bytes | memoryview, None] = answer.rest
    elif isinstance(answer.body, bytes) and len(answer.body) > _PIECE:
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(answer.body)
        rest = _pieces(answer.body)
        first = await anext(rest)
    else:
        return answer
    try:
        async with aclosing(rest):
            async with asyncio.timeout(idle):
                await response.prepare(request)
                await response.write(first)
            async for part in rest:
                async with asyncio.timeout(idle):
                    await response.write(part)
        async with asyncio.timeout(idle):
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        # The client reads nothing, or has left.
        if request.transport is not None:
            request.transport.abort()
    return response


async def _pieces(data: bytes) -> AsyncGenerator[bytes | memoryview, None]:
    view = memoryview(data)
    for start in range(0, len(data), _PIECE):
        yield view[start : start + _PIECE]


async def body(request: web.BaseRequest, limit: int, idle: float, what: str, share: Share) -> bytes:
    """Returns the decompressed body, whose bytes are counted in `share`.

    `idle` is the maximum of seconds without any data, and for a body in addition to the time at the minimum rate.
    """
    if (request.content_length or 0) > limit:
        raise _too_long(limit, what)
    decoder = _Decoder(request.headers.get("Content-Encoding", ""))
    await _invite(request)
    parts: list[bytes] = []
    size = 0
    clock = asyncio.get_running_loop().time
    # A client that sends a few bytes now and then would hold its connection without end.
    end = clock() + idle
    try:
        while not request.content.at_eof():
            async with asyncio.timeout_at(min(end, clock() + idle)):
                raw = await request.content.readany()
            end += len(raw) / _SLOWEST
            for part in decoder.pieces(raw):
                size += len(part)
                if size > limit:
                    raise _too_long(limit, what)
                share.take(len(part))
                parts.append(part)
                # Each step takes about a millisecond, and there may be many.
                await asyncio.sleep(0)
        decoder.end()
    except TimeoutError:
        message = f"Invalid input: the body is incomplete; no data arrived for {idle:g} s, or too little"
        raise RequestError(408, message, {"Connection": "close"}) from None
    except web.RequestPayloadError as e:
        raise InvalidInputError("body: does not match its headers") from e
    share.take(size)
    # Python copies in parallel if it is that much.
    return await asyncio.to_thread(b"".join, parts) if size >= _LARGE else b"".join(parts)


class _Decoder:
    """Decoder of a body with this Content-Encoding."""

    def __init__(self, encoding: str) -> None:
        self._zlib: zlib._Decompress | None = None
        match encoding.strip().lower():
            case "" | "identity":
                pass
            case "gzip" | "x-gzip" | "deflate":
                self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)
            case _:
                # Nested encodings are not supported either.
                message = (
                    f"Invalid input: Content-Encoding {shortened(encoding, 40)!r} is not supported; use gzip or deflate"
                )
                raise RequestError(415, message, {"Accept-Encoding": "gzip, deflate"})

    def pieces(self, raw: bytes) -> Iterator[bytes]:
        """Yields the decoded bytes."""
        if self._zlib is None:
            yield raw
            return
        try:
            while raw:
                if self._zlib.eof:
                    # A gzip file may have several members.
                    self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)
                yield self._zlib.decompress(raw, _DECODED_PIECE)
                raw = self._zlib.unconsumed_tail or self._zlib.unused_data
        except zlib.error as e:
            raise InvalidInputError(f"body: not in the format of its Content-Encoding ({e})") from e

    def end(self) -> None:
        """Raises InvalidInputError if the compressed data is incomplete."""
        if self._zlib is not None and not self._zlib.eof:
            raise InvalidInputError("body: the compressed data is incomplete")


async def _invite(request: web.BaseRequest) -> None:
    """Sends `100 Continue` to a client that waits for it before it sends the body."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # These bytes are not part of the response.
        request.writer.output_size = 0


def _too_long(limit: int, what: str) -> RequestError:
    message = f"Invalid input: the body exceeds the limit of {limit} bytes for {what}; send less at once"
    return RequestError(413, message, {"Connection": "close"})
