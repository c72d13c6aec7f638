"""Base of the fake HTTP catalogs: recorded requests and faults on demand."""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import abstractmethod
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web

from .faults import Answer, Fault, RateLimit, Received, When
from .server import ThreadedServer


class FakeServer(ThreadedServer[Fault]):
    """An HTTP server with recorded requests."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Received] = []
        self._carried_out = 0

    @abstractmethod
    def handle(self, request: Received) -> Answer:
        """Performs a request; called with the lock held, in the server's thread."""

    def error(self, status: int) -> Answer:
        """Returns the body of an error response of this kind of server."""
        return Answer.of(HTTPStatus(status).phrase, status)

    @property
    def url(self) -> str:
        """Scheme, host and port; they stay the same after a restart."""
        return f"http://127.0.0.1:{self._port}"

    def clear(self) -> None:
        """Clears the recorded requests and all counts."""
        self.requests.clear()
        self.connections = 0
        self.most_in_flight = self._in_flight

    def fail(
        self,
        status: int,
        *,
        times: int | None = 1,
        match: str = "",
        when: When = "before",
        headers: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> None:
        """Answers with an error status: text and bytes as HTML, other values as JSON, None for the body of `error`."""
        answer = self.error(status) if body is None else Answer.of(body, status)
        self._add(Fault(match, times, when, answer.with_headers(headers or {})))

    def limit_rate(self, rate: float, *, burst: float | None = None, match: str = "") -> RateLimit:
        """Answers with 429 without Retry-After beyond `rate` requests per second, after a burst of one second's worth.

        This is how the rate limiter of Apache Polaris works.
        """
        limit = RateLimit(rate, rate if burst is None else burst, match, self.error(429))
        self._add(limit)
        return limit

    def cut(self, *, times: int | None = 1, match: str = "", when: When = "before") -> None:
        """Resets the connection instead of a response."""
        self._add(Fault(match, times, when, None))

    def reply(
        self,
        body: bytes | str,
        *,
        status: int = 200,
        content_type: str = "application/json",
        times: int | None = 1,
        match: str = "",
        when: When = "before",
    ) -> None:
        """Answers with these bytes."""
        raw = body.encode() if isinstance(body, str) else body
        self._add(Fault(match, times, when, Answer(status, raw, {"Content-Type": content_type})))

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    async def _listen(self) -> asyncio.Server:
        # The low-level server is used because a router would decode `%2F` and `%2E` in paths.
        self._web = web.Server(self._respond, access_log=None)

        def connection() -> asyncio.Protocol:
            self.connections += 1
            return self._web()

        return await self._loop.create_server(connection, "127.0.0.1", self._port)

    async def _end_connections(self) -> None:
        # aiohttp's handlers suppress the cancellation that ends the loop, unless they know that their connection is
        # lost.
        for open_connection in self._web.connections:
            _reset(open_connection.transport)

    async def _respond(self, wire: web.BaseRequest) -> web.StreamResponse:
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            request = Received(wire.method, wire.raw_path, wire.headers, await wire.content.read(), self._carried_out)
            self.requests.append(request)
            await self._wait(request)
            answer = self._answer(request)
            if answer is None:
                _reset(wire.transport)
                return web.Response()
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        finally:
            self._in_flight -= 1

    def _answer(self, request: Received) -> Answer | None:
        with self._lock:
            fault = next((fault for fault in self._faults if fault.takes(request)), None)
            if fault is None:
                return self._carried(request)
            if fault.when == "after":
                self._carried(request)
            return fault.answer

    def _carried(self, request: Received) -> Answer:
        try:
            return self.handle(request)
        finally:
            self._carried_out += 1


def _reset(transport: asyncio.BaseTransport | None) -> None:
    if not isinstance(transport, asyncio.Transport):
        return
    # A socket without lingering is closed with RST, which clients see as a reset and not as an end.
    wire = transport.get_extra_info("socket")
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
