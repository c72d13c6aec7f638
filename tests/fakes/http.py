"""Base of the fake HTTP catalogs: a server in a separate thread, with recorded requests and faults on demand."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Self

from aiohttp import web

from .faults import Answer, Delay, Fault, Hold, RateLimit, Received, When


class FakeServer(ABC):
    """An HTTP server on 127.0.0.1 and a free port, in a separate thread and event loop.

    Requests are performed one at a time, so one of two concurrent writes wins. A request first waits (`hold`,
    `delay`), then gets the oldest matching fault.
    """

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        """The number of connections that were opened."""
        self.most_in_flight = 0
        """Maximum number of concurrent requests.

        Responses are fast, so use `hold` or `delay` to make requests concurrent.
        """
        self._in_flight = 0
        self._carried_out = 0
        self._lock = threading.RLock()
        self._faults: list[Fault] = []
        self._delays: list[Delay] = []
        self._holds: list[Hold] = []
        self._port = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts to listen; after a stop, on the same port and with the same content."""
        started: Future[int] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(started),), daemon=True)
        self._thread.start()
        self._port = started.result()

    def stop(self) -> None:
        """Stops like a killed process: refuses connections, resets open ones, drops requests in progress.

        May be called twice.
        """
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

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
        missing: int = 0,
        times: int | None = 1,
        match: str = "",
        when: When = "before",
    ) -> None:
        """Answers with these bytes; the connection ends `missing` bytes before the announced Content-Length."""
        raw = body.encode() if isinstance(body, str) else body
        answer = Answer(status, raw, {"Content-Type": content_type}, missing)
        self._add(Fault(match, times, when, answer))

    def delay(self, seconds: float, *, times: int | None = None, match: str = "") -> None:
        """Delays requests before they are performed, like a slow server or network."""
        with self._lock:
            self._delays.append(Delay(match, times, seconds))

    @contextmanager
    def hold(self, match: str = "") -> Iterator[Hold]:
        """Makes requests wait until the hold is released, or its context ends."""
        hold = Hold(match)
        with self._lock:
            self._holds.append(hold)
        try:
            yield hold
        finally:
            with self._lock:
                self._holds.remove(hold)
            hold.release()

    def heal(self) -> None:
        """Removes pending faults and delays."""
        with self._lock:
            self._faults.clear()
            self._delays.clear()

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    async def _serve(self, started: Future[int]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        # The low-level server is used because a router would decode `%2F` and `%2E` in paths.
        server = web.Server(self._respond, access_log=None)

        def connection() -> asyncio.Protocol:
            self.connections += 1
            return server()

        try:
            listener = await self._loop.create_server(connection, "127.0.0.1", self._port)
        except OSError as e:
            started.set_exception(e)
            return
        started.set_result(listener.sockets[0].getsockname()[1])
        await self._stopping.wait()
        for listening in listener.sockets:
            self._loop.remove_reader(listening.fileno())
        # Python 3.11 loses a connection that is being accepted when its listener closes.
        await _turns()
        listener.close()
        for open_connection in server.connections:
            _reset(open_connection.transport)
        # aiohttp's handlers suppress the cancellation that ends the loop, unless they know that their connection is
        # lost.
        await _turns()

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
            if answer.missing:
                return await _broken_off(wire, answer)
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        finally:
            self._in_flight -= 1

    async def _wait(self, request: Received) -> None:
        with self._lock:
            holds = list(self._holds)
            seconds = sum(delay.seconds for delay in self._delays if delay.takes(request))
        for hold in holds:
            await hold.pass_by(request)
        if seconds:
            await asyncio.sleep(seconds)

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


async def _turns() -> None:
    """Lets the loop continue its work; it takes several turns to accept a connection."""
    for _ in range(10):
        await asyncio.sleep(0)


async def _broken_off(wire: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(answer.body) + answer.missing
    await response.prepare(wire)
    await response.write(answer.body)
    if wire.transport is not None:
        wire.transport.close()
    return response


def _reset(transport: asyncio.BaseTransport | None) -> None:
    if not isinstance(transport, asyncio.Transport):
        return
    # A socket without lingering is closed with RST, which clients see as a reset and not as an end.
    wire = transport.get_extra_info("socket")
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
