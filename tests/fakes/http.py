"""Base of the fake HTTP catalogs: a server on its own thread, a request log, faults on demand."""

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
    """An HTTP server on 127.0.0.1 and a free port, run by its own thread and event loop.

    Requests are carried out one at a time, so of two racing writes one wins. A request waits first (`hold`,
    `delay`), then meets the oldest fault that matches it.
    """

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        """How many connections were opened."""
        self.most_in_flight = 0
        """How many requests were under way at once at most. Answers are quick: `hold` or `delay` lets them gather."""
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
        """Carries a request out; called with the lock held, on the server's thread."""

    def error(self, status: int) -> Answer:
        """The body a server of this kind sends with an error status."""
        return Answer.of(HTTPStatus(status).phrase, status)

    @property
    def url(self) -> str:
        """Scheme, host and port; they stay the same when the server is stopped and started again."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listens; after a stop, on the same port and with everything it held."""
        started: Future[int] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(started),), daemon=True)
        self._thread.start()
        self._port = started.result()

    def stop(self) -> None:
        """Dies: refuses connections, resets the open ones, drops what is under way. May be called twice."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

    def clear(self) -> None:
        """Forgets the requests and counts from nothing again."""
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
        """Answers an error status: text and bytes as HTML, other values as JSON, None as `error` has it."""
        answer = self.error(status) if body is None else Answer.of(body, status)
        self._add(Fault(match, times, when, answer.with_headers(headers or {})))

    def limit_rate(self, rate: float, *, burst: float | None = None, match: str = "") -> RateLimit:
        """Answers 429 without Retry-After beyond `rate` requests per second, after a burst of one second's worth.

        This is how the rate limiter of Apache Polaris works.
        """
        limit = RateLimit(rate, rate if burst is None else burst, match, self.error(429))
        self._add(limit)
        return limit

    def cut(self, *, times: int | None = 1, match: str = "", when: When = "before") -> None:
        """Resets the connection instead of answering."""
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
        """Answers these bytes as they are; the connection ends `missing` bytes before Content-Length says."""
        raw = body.encode() if isinstance(body, str) else body
        answer = Answer(status, raw, {"Content-Type": content_type}, missing)
        self._add(Fault(match, times, when, answer))

    def delay(self, seconds: float, *, times: int | None = None, match: str = "") -> None:
        """Makes requests wait before they are carried out: a slow server, or the way to a far one."""
        with self._lock:
            self._delays.append(Delay(match, times, seconds))

    @contextmanager
    def hold(self, match: str = "") -> Iterator[Hold]:
        """Makes requests wait until the hold is released, or its `with` block ends."""
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
        """Forgets the faults and delays that are still to come."""
        with self._lock:
            self._faults.clear()
            self._delays.clear()

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    async def _serve(self, started: Future[int]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        # The low-level server: it has no router, which would decode `%2F` and `%2E` in paths.
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
        # Python 3.11 loses a connection that is still being accepted when its listener closes.
        await _turns()
        listener.close()
        for open_connection in server.connections:
            _reset(open_connection.transport)
        # aiohttp's handlers swallow the cancellation that ends the loop unless they know that theirs is lost.
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
    """Lets the loop do what it has begun; accepting a connection takes it several turns."""
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
    # A socket that does not linger is closed with RST, which clients see as a reset and not as an end.
    wire = transport.get_extra_info("socket")
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
