"""Low-level HTTP: the server's own error responses, and sending of large responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from aiohttp import web
from lance_namespace.errors import ErrorCode

from lance_ns_async.gateway import responses
from lance_ns_async.gateway.responses import EventStream, RequestError

_PIECE = 1 << 20  # Number of bytes of a large response to write at once.


class HttpServer(web.Server):
    """aiohttp's server, with errors in the form of the spec and without library versions."""

    def __init__(self, handler: Callable[..., Any], *, head_time: float, **options: Any) -> None:
        """Creates a server.

        Args:
            handler: Handles requests.
            head_time: Seconds that a client has for the head of its first request; aiohttp has no such limit.
            options: Options of aiohttp's server.
        """
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
            code = ErrorCode.INVALID_INPUT
        else:
            text, code = "Internal error: the gateway failed; its log has the details", ErrorCode.INTERNAL
        answer = responses.error(RequestError(status, code, text))
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
        return await _send_events(request, answer, idle)
    data = answer.body
    if not isinstance(data, bytes) or len(data) <= _PIECE:
        return answer
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(data)
    await response.prepare(request)
    view = memoryview(data)
    try:
        for start in range(0, len(data), _PIECE):
            async with asyncio.timeout(idle):
                await response.write(view[start : start + _PIECE])
        async with asyncio.timeout(idle):
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response


async def _send_events(request: web.BaseRequest, stream: EventStream, idle: float) -> web.StreamResponse:
    try:
        async with aclosing(stream.rest):
            async with asyncio.timeout(idle):
                await stream.prepare(request)
                await stream.write(stream.first)
            async for part in stream.rest:
                async with asyncio.timeout(idle):
                    await stream.write(part)
        async with asyncio.timeout(idle):
            await stream.write_eof()
    except (TimeoutError, ConnectionError):
        # The client reads nothing, or has left.
        if request.transport is not None:
            request.transport.abort()
    return stream
