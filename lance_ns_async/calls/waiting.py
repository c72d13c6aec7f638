"""Queues of calls, in any thread and event loop, that wait for a slot, or for their turn on a name."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeVar

from lance_ns_async.calls.shared import Shared, SharedByKey

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Waiter:
    """A call that waits for its turn in an event loop, or has it."""

    turn: asyncio.Future[None]
    client: str
    has_turn: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether its event loop was closed, so that it can neither take nor end a turn."""
        return self.turn.get_loop().is_closed()


def set_client(name: str) -> None:
    """Names the client for which this task calls from now on: a busy client does not delay the calls of others."""
    _client.set(name)


class WaiterQueue(dict[str, deque[Waiter]]):
    """Waiters by client in the order of their requests; the first client has the next turn. Its owner locks it."""

    def count(self) -> int:
        """Returns the number of waiters."""
        return sum(map(len, self.values()))

    def join(self) -> Waiter:
        """Adds a waiter of the running event loop, and returns it."""
        client = _client.get()
        line = self.setdefault(client, deque())
        # A lost waiter may keep alive a call that has a turn.
        while line and line[0].is_lost:
            line.popleft()
        waiter = Waiter(asyncio.get_running_loop().create_future(), client)
        line.append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Removes a waiter that has no turn; a lost one may be removed already."""
        if line := self.get(waiter.client):
            with suppress(ValueError):
                line.remove(waiter)
            if not line:
                del self[waiter.client]

    def advance(self) -> Waiter | None:
        """Gives the turn to the next waiter that can take it, and returns it; None if there is none."""
        while self:
            client = next(iter(self))
            line = self.pop(client)
            waiter = line.popleft()
            if line:
                self[client] = line
            loop = waiter.turn.get_loop()
            # A loop that was closed raises this error, and its waiter is lost.
            with suppress(RuntimeError):
                if loop is _running_loop():
                    _wake(waiter.turn)
                else:
                    loop.call_soon_threadsafe(_wake, waiter.turn)
                waiter.has_turn = True
                return waiter
        return None


_client: ContextVar[str] = ContextVar("client", default="")
"""The client of a gateway for which calls are made; empty for calls of the process itself."""


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # There may be none while a coroutine is collected.
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


@dataclass(slots=True, eq=False)
class _Line:
    """The calls for one name, in the order of their requests."""

    holder: Waiter | None = None
    waiting: WaiterQueue = field(default_factory=WaiterQueue)
    successes: int = 0


class Turns(Shared):
    """Turns by name, shared by threads and event loops. An unused name takes no memory."""

    async def run(self, name: Hashable, work: Callable[[bool], Awaitable[T]], *, timeout: float | None) -> T:
        """Runs the work alone for its name, after all earlier calls of the same client have ended.

        Args:
            name: The name on which one call at a time works.
            work: Receives whether another call succeeded while this one waited.
            timeout: Maximum seconds to wait for the turn; None for no limit.
        """
        line, waiter = self._join(name)
        # This is not a context manager: if a coroutine is garbage-collected, `finally` ends the turn, even after its
        # loop was closed. The asynchronous generator of a context manager would not do that.
        try:
            before = line.successes
            if not waiter.turn.done():
                async with asyncio.timeout(timeout):
                    await waiter.turn
            result = await work(line.successes != before)
            line.successes += 1
            return result
        finally:
            self._leave(name, line, waiter)

    def __len__(self) -> int:
        """Returns the number of names in use."""
        return len(self._lines)

    def reset(self) -> None:
        # A coroutine may be collected, and leave, while this thread holds the lock.
        self._lock = RLock()
        self._lines: dict[Hashable, _Line] = {}

    def _join(self, name: Hashable) -> tuple[_Line, Waiter]:
        with self._lock:
            line = self._lines.setdefault(name, _Line())
            waiter = line.waiting.join()
            self._advance(line)
            return line, waiter

    def _leave(self, name: Hashable, line: _Line, waiter: Waiter) -> None:
        with self._lock:
            if line.holder is waiter:
                line.holder = None
            else:
                line.waiting.remove(waiter)
            self._advance(line)
            if line.holder is None and not line.waiting and self._lines.get(name) is line:
                del self._lines[name]

    def _advance(self, line: _Line) -> None:
        if line.holder is None or line.holder.is_lost:
            line.holder = line.waiting.advance()


def turns_for(key: Hashable) -> Turns:
    """Returns the turns of a key: the same object in the whole process, as long as it is in use."""
    return _by_key.find_or_create(key, Turns)


_by_key: SharedByKey[Turns] = SharedByKey()
