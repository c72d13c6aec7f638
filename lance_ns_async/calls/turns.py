"""Turns: calls in one process that work on the same name run one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from threading import RLock
from typing import TypeVar

from lance_ns_async.calls.shared import Shared, SharedByKey
from lance_ns_async.calls.waiting import Waiter, WaiterQueue

T = TypeVar("T")


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
