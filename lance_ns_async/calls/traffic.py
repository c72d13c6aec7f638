"""The calls under way to one catalog, for all its callers in a process: how many may be, and whether any may."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from threading import Lock, RLock
from time import monotonic
from weakref import WeakSet, WeakValueDictionary

from lance_ns_async.calls.circuit import Budget, Circuit
from lance_ns_async.calls.limiter import Limiter
from lance_ns_async.errors import Failure
from lance_ns_async.model import Id


class Outcome(Enum):
    """What became of a call, as far as it tells of the catalog's strength."""

    ANSWERED = auto()
    """Errors included: a catalog that says no is well."""
    REFUSED = auto()
    """The catalog is there, and would not take it."""
    FAILED = auto()
    """There was no answer."""
    ABANDONED = auto()
    """Nobody waited for the answer."""


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: asyncio.Future[None]
    granted: bool = False


class Traffic:
    """Slots for calls, given in the order of asking, and what outcomes tell. Threads and event loops may share it."""

    def __init__(self, most: int, *, adaptive: bool, patience: float) -> None:
        self._most = most
        self._limiter = Limiter(most) if adaptive else None
        self._circuit = Circuit(patience)
        self._budget = Budget(most)
        self._begin()
        _all.add(self)

    @property
    def limit(self) -> int:
        """Calls that may be in flight just now."""
        return self._most if self._limiter is None else int(self._limiter.limit)

    @property
    def has_room(self) -> bool:
        """Whether a call would get a slot at once."""
        return not self._waiting and self._taken < self.limit

    def may_repeat(self) -> bool:
        """Whether a call that failed may be sent again, which is then counted."""
        with self._lock:
            return self._budget.take()

    def may_hedge(self) -> bool:
        """Whether a call that is under way may be sent a second time, which is then counted."""
        with self._lock:
            return self.has_room and not self._circuit.is_open and self._budget.take()

    def pace(self, sent: float) -> float:
        """See `Limiter.pace`; inf without a limiter."""
        with self._lock:
            return inf if self._limiter is None else self._limiter.pace(sent)

    async def enter(self, operation: str, subject: Id, *, until: float) -> float:
        """Waits for a slot; gives the time, for `leave`.

        Raises a Failure where `until` passes meanwhile, or where the catalog is not to be asked.
        """
        now = monotonic()
        if now >= until:
            raise Failure("deadline", message="its time was over before it was sent", delivered=False)
        with self._lock:
            if self.has_room:
                self._taken += 1
                return self._checked(now, operation, subject)
            # Whoever waits in a loop that was closed is never served, and may hold on to who has a slot there.
            while self._waiting and self._waiting[0].turn.get_loop().is_closed():
                self._waiting.popleft()
            waiter = _Waiter(asyncio.get_running_loop().create_future())
            self._waiting.append(waiter)
        try:
            async with asyncio.timeout(until - now):
                await waiter.turn
        except TimeoutError:
            self._abandon(waiter)
            message = f"its time was over while {self.limit} other calls were in flight"
            raise Failure("deadline", message=message, delivered=False) from None
        except (asyncio.CancelledError, GeneratorExit):
            self._abandon(waiter)
            raise
        with self._lock:
            return self._checked(monotonic(), operation, subject)

    async def leave(
        self, sent: float, operation: str, subject: Id, outcome: Outcome, *, why: str, until: float
    ) -> None:
        """Notes the outcome and gives the slot back, which after a failure stays empty for a moment first."""
        with self._lock:
            now = monotonic()
            rest = min(self._noted(now, sent, operation, subject, outcome, why), until - now)
            if rest <= 0:
                self._give_back()
                return
            self._resting += 1
        try:
            await asyncio.sleep(rest)
        finally:
            with self._lock:
                self._resting -= 1
                self._give_back()

    def _begin(self) -> None:
        # A coroutine that is thrown away gives its slot back wherever it is collected, even in here.
        self._lock = RLock()
        self._waiting: deque[_Waiter] = deque()
        self._taken = 0
        """Slots that are not free, be it that they rest."""
        self._resting = 0

    def _checked(self, now: float, operation: str, subject: Id) -> float:
        if (obstacle := self._circuit.obstacle(now, operation, subject)) is not None:
            self._give_back()
            raise Failure("circuit", message=obstacle, delivered=False)
        return now

    def _noted(self, now: float, sent: float, operation: str, subject: Id, outcome: Outcome, why: str) -> float:
        """How long the slot is to stay empty."""
        if outcome is Outcome.ABANDONED:
            return 0.0
        in_flight = self._taken - self._resting - 1
        if outcome is Outcome.ANSWERED:
            self._circuit.answered()
            self._budget.answered()
            if self._limiter is not None:
                self._limiter.answered(now, sent, in_flight)
            return 0.0
        self._circuit.failed(now, operation, subject, why)
        if self._limiter is None:
            return 0.0
        note = self._limiter.refused if outcome is Outcome.REFUSED else self._limiter.failed
        return note(now, sent, in_flight)

    def _give_back(self) -> None:
        self._taken -= 1
        while self._waiting and self._taken < self.limit:
            waiter = self._waiting.popleft()
            loop = waiter.turn.get_loop()
            # None where it is collected.
            if loop is asyncio._get_running_loop():
                _serve(waiter.turn)
            else:
                try:
                    loop.call_soon_threadsafe(_serve, waiter.turn)
                except RuntimeError:
                    # That loop was closed, and whoever waited there with it.
                    continue
            waiter.granted = True
            self._taken += 1

    def _abandon(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter.granted:
                self._give_back()
            else:
                # Where its loop was closed, it may have been left out.
                with suppress(ValueError):
                    self._waiting.remove(waiter)


def shared(key: Hashable, most: int, *, adaptive: bool, patience: float) -> Traffic:
    """The traffic to one catalog: the same for the same key and limits, as long as anybody uses it."""
    whole = (key, most, adaptive, patience)
    with _finding:
        found = _shared.get(whole)
        if found is None:
            found = _shared[whole] = Traffic(most, adaptive=adaptive, patience=patience)
        return found


def _serve(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _begin_anew() -> None:
    """What is under way belongs to the process that was forked, and so do its locks."""
    global _finding
    _finding = Lock()
    for traffic in list(_all):
        traffic._begin()


_finding = Lock()
_shared: WeakValueDictionary[Hashable, Traffic] = WeakValueDictionary()
_all: WeakSet[Traffic] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
