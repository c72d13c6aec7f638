"""Base of the fake servers: a thread with an event loop, delays and holds of requests, restarts on the same port."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

from .faults import Delay, Hold

F = TypeVar("F")


class ThreadedServer(ABC, Generic[F]):
    """A server on 127.0.0.1 and a free port, in a separate thread and event loop.

    Requests are performed one at a time, so one of two concurrent writes wins. A request first waits (`hold`,
    `delay`), then gets the oldest matching fault.
    """

    def __init__(self) -> None:
        self.connections = 0
        """The number of connections that were opened."""
        self.most_in_flight = 0
        """Maximum number of concurrent requests.

        Responses are fast, so use `hold` or `delay` to make requests concurrent.
        """
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
        """Stops like a killed process: refuses connections, resets open ones, drops requests in progress.

        May be called twice.
        """
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

    def delay(self, seconds: float, match: str = "", *, times: int | None = None) -> None:
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
        """Applies the holds and delays that match a request."""
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
