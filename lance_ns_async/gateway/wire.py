"""Low-level HTTP: the server's own error responses, and sending of large responses."""

from __future__ import annotations

import asyncio

from aiohttp import web
from lance_namespace.errors import ErrorCode

from lance_ns_async.gateway import responses
from lance_ns_async.gateway.responses import RequestError

_PIECE = 1 << 20
"""Number of bytes of a large response to write at once."""


class Server(web.Server):
    """aiohttp's server, with errors in the form of the spec and without library versions."""

    def __call__(self) -> web.RequestHandler:
        """Returns the handler of one connection."""
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ("client_left",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Marks the client as connected."""
        self.client_left = False
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Records whether the client closed the connection; aiohttp clears `transport` if the server closed it."""
        self.client_left = self.transport is not None
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
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


def has_client_left(request: web.BaseRequest) -> bool:
    """Returns whether the client has closed the connection of a request."""
    connection: object = request.protocol
    return isinstance(connection, _Connection) and connection.client_left


async def send(request: web.BaseRequest, answer: web.Response, idle: float) -> web.StreamResponse:
    """Sends a response; aborts the connection of a client that reads nothing for `idle` seconds."""
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
