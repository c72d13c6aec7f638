"""Turns: of all calls in a process that want one name, one works at a time."""

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
        """Whether its event loop was closed, so that it neither takes a turn nor ends one."""
        return self.turn.get_loop().is_closed()


@dataclass(slots=True, eq=False)
class _Line:
    """The calls that want one name, in the order of asking."""

    holder: _Waiter | None = None
    waiting: deque[_Waiter] = field(default_factory=deque)
    successes: int = 0


class Turns:
    """Turns by name, which threads and event loops may share. A name that nobody wants takes no memory."""

    def __init__(self) -> None:
        self._begin()
        _all.add(self)

    async def run(self, name: Hashable, work: Callable[[bool], Awaitable[T]], *, timeout: float | None) -> T:
        """Does the work when the calls that asked before for the same name are over.

        Args:
            name: What one call at a time works on.
            work: Is told whether another call succeeded while this one waited.
            timeout: Seconds to wait for the turn at most; None for no bound.

        Raises:
            TimeoutError: The turn did not come within that time; the work was not begun.
        """
        waiter = _Waiter(asyncio.get_running_loop().create_future())
        line = self._join(name, waiter)
        # Not a context manager: a coroutine that is thrown away ends its turn where it is collected, even after its
        # loop was closed, which an asynchronous generator does not.
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
        """Returns how many names calls want just now."""
        return len(self._lines)

    def _begin(self) -> None:
        # A coroutine may be collected, and leave, while this thread is in here.
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
                # One whose loop was closed may have been left out already.
                with suppress(ValueError):
                    line.waiting.remove(waiter)
            self._advance(line)
            if line.holder is None and not line.waiting and self._lines.get(name) is line:
                del self._lines[name]

    def _advance(self, line: _Line) -> None:
        """Gives the turn to the first in the line that can take it, if nobody has it."""
        if line.holder is not None and line.holder.is_lost:
            line.holder = None
        while line.holder is None and line.waiting:
            waiter = line.waiting.popleft()
            loop = waiter.turn.get_loop()
            # Outside of any loop while a coroutine is collected.
            if loop is asyncio._get_running_loop():
                _wake(waiter.turn)
            else:
                try:
                    loop.call_soon_threadsafe(_wake, waiter.turn)
                except RuntimeError:
                    # Its loop was closed.
                    continue
            line.holder = waiter


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def shared(key: Hashable) -> Turns:
    """Returns the turns of that key: the same ones in the whole process, as long as anybody uses them."""
    with _finding:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = Turns()
        return found


def _begin_anew() -> None:
    """Forgets, in a process that was forked, the calls of the parent and the locks its threads held."""
    global _finding
    _finding = Lock()
    for turns in list(_all):
        turns._begin()


_finding = Lock()
_shared: WeakValueDictionary[Hashable, Turns] = WeakValueDictionary()
_all: WeakSet[Turns] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
