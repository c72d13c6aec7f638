"""Turns: calls in one process that work on the same name run one after another."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TypeVar
from weakref import WeakSet, WeakValueDictionary

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Waiter:
    """A call that waits for its turn in an event loop, or has it."""

    turn: asyncio.Future[None]

    @property
    def is_lost(self) -> bool:
        """Whether its event loop was closed, so that it can neither take nor end a turn."""
        return self.turn.get_loop().is_closed()


@dataclass(slots=True, eq=False)
class _Line:
    """The calls for one name, in the order of their requests."""

    holder: _Waiter | None = None
    waiting: deque[_Waiter] = field(default_factory=deque)
    successes: int = 0


class Turns:
    """Turns by name, shared by threads and event loops. An unused name takes no memory."""

    def __init__(self) -> None:
        self._begin()
        _all.add(self)

    async def run(self, name: Hashable, work: Callable[[bool], Awaitable[T]], *, timeout: float | None) -> T:
        """Runs the work after all earlier calls for the same name have ended.

        Args:
            name: The name on which one call at a time works.
            work: Receives whether another call succeeded while this one waited.
            timeout: Maximum seconds to wait for the turn; None for no limit.

        Raises:
            TimeoutError: The turn did not come in time; the work was not started.
        """
        waiter = _Waiter(asyncio.get_running_loop().create_future())
        line = self._join(name, waiter)
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

    def _begin(self) -> None:
        # A coroutine may be collected, and leave, while this thread holds the lock.
        self._lock = RLock()
        self._lines: dict[Hashable, _Line] = {}

    def _join(self, name: Hashable, waiter: _Waiter) -> _Line:
        with self._lock:
            line = self._lines.setdefault(name, _Line())
            line.waiting.append(waiter)
            self._advance(line)
            return line

    def _leave(self, name: Hashable, line: _Line, waiter: _Waiter) -> None:
        with self._lock:
            if line.holder is waiter:
                line.holder = None
            else:
                # A waiter of a closed loop may be removed already.
                with suppress(ValueError):
                    line.waiting.remove(waiter)
            self._advance(line)
            if line.holder is None and not line.waiting and self._lines.get(name) is line:
                del self._lines[name]

    def _advance(self, line: _Line) -> None:
        """Gives the turn to the first waiter that can take it, if the turn is free."""
        if line.holder is not None and line.holder.is_lost:
            line.holder = None
        while line.holder is None and line.waiting:
            waiter = line.waiting.popleft()
            loop = waiter.turn.get_loop()
            # There may be no running loop while a coroutine is collected.
            if loop is asyncio._get_running_loop():
                _wake(waiter.turn)
            else:
                try:
                    loop.call_soon_threadsafe(_wake, waiter.turn)
                except RuntimeError:
                    # The waiter's loop was closed.
                    continue
            line.holder = waiter


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def turns_for(key: Hashable) -> Turns:
    """Returns the turns of a key: the same object in the whole process, as long as it is in use."""
    with _finding:
        turns = _turns_by_key.get(key)
        if turns is None:
            turns = _turns_by_key[key] = Turns()
        return turns


def _reset_after_fork() -> None:
    """Resets the state in a forked process: calls under way and locks belong to the parent."""
    global _finding
    _finding = Lock()
    for turns in list(_all):
        turns._begin()


_finding = Lock()
_turns_by_key: WeakValueDictionary[Hashable, Turns] = WeakValueDictionary()
_all: WeakSet[Turns] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
