"""Base of the fake servers: a thread with an event loop; faults, delays and holds of requests; restarts on its port."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Generic, Literal, Self, TypeVar

from multidict import CIMultiDictProxy

When = Literal["before", "after"]
"""Whether a fault occurs before the operation is performed, or after it but before the response."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it was received."""

    method: str
    path: str  # Path and query, undecoded
    headers: CIMultiDictProxy[str]
    body: bytes
    arrived: int = field(default=0, compare=False)
    """Number of requests that the server had performed when this one arrived."""

    @property
    def json(self) -> Any:
        """The JSON value of the body; None if there is no body."""
        return json.loads(self.body) if self.body else None

    def __str__(self) -> str:
        # One S3 request can delete many objects, which its body names.
        keys = re.findall("<Key>(.*?)</Key>", self.body.decode()) if self.path.endswith("?delete") else []
        return " ".join([self.method, self.path, *keys])


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Any, status: int = 200) -> Answer:
        """Returns a response with bytes or text as HTML, or another value as JSON."""
        match body:
            case bytes():
                return cls(status, body, {"Content-Type": "text/html"})
            case str():
                return cls(status, body.encode(), {"Content-Type": "text/html;charset=utf-8"})
            case _:
                return cls(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def with_headers(self, headers: Mapping[str, str]) -> Answer:
        return replace(self, headers={**self.headers, **headers})


@dataclass(slots=True)
class Rule:
    """Selects the requests whose `METHOD raw_path` matches the regular expression `match`."""

    match: str
    times: int | None  # Remaining number of requests that it applies to; None for all

    def takes(self, request: Received) -> bool:
        """Returns whether the rule applies to this request, which is then counted."""
        if self.times == 0 or not re.search(self.match, str(request)):
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class Fault(Rule):
    """Sends a response other than that of the server."""

    when: When
    answer: Answer | None  # None to reset the connection


class RateLimit(Fault):
    """A token bucket, which is full at first: requests that find it empty get the response."""

    def __init__(self, rate: float, burst: float, match: str, answer: Answer) -> None:
        super().__init__(match, None, "before", answer)
        self._rate, self._burst = rate, burst
        self._tokens, self._filled_at = burst, monotonic()
        self.refusals = 0

    def takes(self, request: Received) -> bool:
        # In a subclass of a dataclass with slots, super() does not work without arguments.
        if not Fault.takes(self, request):
            return False
        now = monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return False
        self.refusals += 1
        return True


@dataclass(slots=True)
class Delay(Rule):
    """Delays a request before it is performed."""

    seconds: float


class Hold:
    """Makes matching requests wait until `release`."""

    def __init__(self, match: str) -> None:
        self._match = match
        self._changed = threading.Condition()
        self._waiting: set[asyncio.Future[None]] = set()
        self._released = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def wait_for(self, count: int = 1, within: float = 10.0) -> None:
        """Blocks the calling thread until `count` requests wait; raises TimeoutError after `within` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.waiting >= count, within):
                raise TimeoutError(f"{self.waiting} of {count} requests came to wait at {self._match!r}")

    async def reached(self, count: int = 1, within: float = 10.0) -> None:
        await asyncio.to_thread(self.wait_for, count, within)

    def release(self) -> None:
        """Lets the waiting requests continue, and later ones pass."""
        with self._changed:
            self._released = True
            for turn in self._waiting:
                turn.get_loop().call_soon_threadsafe(_wake, turn)

    async def pass_by(self, request: Received) -> None:
        """Returns when the request may continue; awaited in the server's own loop."""
        if not re.search(self._match, str(request)):
            return
        turn = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._released:
                return
            self._waiting.add(turn)
            self._changed.notify_all()
        try:
            await turn
        finally:
            with self._changed:
                self._waiting.discard(turn)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


F = TypeVar("F")


class ThreadedServer(ABC, Generic[F]):
    """A server on 127.0.0.1 and a free port, in a separate thread and event loop. Requests are performed one at a time,
    so one of two concurrent writes wins. A request first waits (`hold`, `delay`), then gets the oldest matching
    fault."""

    def __init__(self) -> None:
        self.connections = 0  # The number of connections that were opened
        self.most_in_flight = 0
        """Maximum number of concurrent requests. Responses are fast, so use `hold` or `delay` to make requests
        concurrent."""
        self._in_flight = 0
        self._lock = threading.RLock()
        self._faults: list[F] = []
        self._delays: list[Delay] = []
        self._holds: list[Hold] = []
        self._port = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    @abstractmethod
    async def _listen(self) -> asyncio.Server:
        """Starts to listen on the port; 0 is any free one."""

    @abstractmethod
    async def _end_connections(self) -> None:
        """Resets the open connections."""

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
        """Stops like a killed process: refuses connections, resets open ones, drops requests in progress. May be called
        twice."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

    def delay(self, seconds: float, match: str = "", *, times: int | None = None) -> None:
        with self._lock:
            self._delays.append(Delay(match, times, seconds))

    @contextmanager
    def hold(self, match: str = "") -> Iterator[Hold]:
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
        with self._lock:
            self._faults.clear()
            self._delays.clear()

    async def _serve(self, started: Future[int]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            listener = await self._listen()
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
        await self._end_connections()
        await _turns()

    async def _wait(self, request: Any) -> None:
        with self._lock:
            holds = list(self._holds)
            seconds = sum(delay.seconds for delay in self._delays if delay.takes(request))
        for hold in holds:
            await hold.pass_by(request)
        if seconds:
            await asyncio.sleep(seconds)


async def _turns() -> None:
    """Lets the loop continue its work; it takes several turns to accept a connection."""
    for _ in range(10):
        await asyncio.sleep(0)
