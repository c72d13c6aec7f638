"""Blocking work on a table's storage, done in worker threads and within the operation's time.

Nothing can stop a thread from outside. Work that was given up goes on in its thread, unless it asks `under_way` and
ends itself: what writes rows does so before each batch of them, and what makes a first version before it commits.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar, get_args

import anyio
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.calls.policy import remaining
from lance_ns_async.errors import shortened
from lance_ns_async.model import Table
from lance_ns_async.storage.locations import check_writable
from lance_ns_async.storage.process_end import Stoppable, before_waiting, native_call, thread_start
from lance_ns_async.storage.pylance_errors import translated

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which a storage that says nothing is given up outside of any operation, which has a time of its own."""

THREADS = 16
"""How many datasets of one event loop are worked on at once, and how many more have rows written to them."""

TIME_TO_END = 1.0
"""Seconds that work which reads rows has to end once it is given up, before whoever waited for it goes on."""

_LONGEST = 400


class Work(Stoppable):
    """Something done in a worker thread, which whoever waits for it may give up."""

    def __init__(self) -> None:
        super().__init__()
        self.began = False
        self.clock: Callable[[bool], None] | None = None
        """Stops the clock by False, and has it begin anew by True."""
        self.unread: BaseException | None = None
        """What came of reading rows from Python, if not rows."""
        self._reads: list[object] = []
        self._over = threading.Event()

    @property
    def will_learn(self) -> bool:
        """Whether it is under way, and asks for rows, by which it learns that it is given up."""
        return bool(self._reads) and not self._over.is_set()

    def waits_for_rows(self, yes: bool) -> None:
        """Says that it waits for rows, which take the time that they take, or that they have come."""
        if self.clock is not None and not self.given_up.is_set():
            self.clock(not yes)

    def will_read(self, rows: object) -> None:
        """Says that Lance calls these back, from threads of its own, until it is over."""
        # Held, for whoever lets go of them last calls Python, too.
        self._reads.append(rows)
        _calling.add(self)

    def end(self) -> None:
        """Says that it is over."""
        self._over.set()
        _calling.discard(self)

    def wait(self, seconds: float) -> None:
        """Waits until it is over, for so long at most."""
        self._over.wait(seconds)


_unfinished: set[Work] = set()
"""What is under way in threads for data, given up or not."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the threads for data of this process are doing."""

    running: int
    """Operations under way that somebody waits for."""
    given_up: int
    """Operations under way that nobody waits for any more."""

    @property
    def is_full(self) -> bool:
        """Whether the next operation would wait, perhaps for ever.

        Either all threads are taken, or as many operations as this machine has processors were given up and go on:
        Lance computes in about so many threads of its own, and those may be all that it has.
        """
        return self.running + self.given_up >= THREADS or self.given_up >= min(os.cpu_count() or 1, THREADS)


def load() -> Load:
    """Returns what the threads for data are doing; writes of rows, which have other threads, are left out."""
    works = _unfinished.copy()
    given_up = sum(work.given_up.is_set() for work in works)
    return Load(len(works) - given_up, given_up)


_calling: set[Work] = set()
"""What calls Python back from threads that Python does not know: fatal, once the interpreter ends."""

_last: list[Work] = []
"""What was under way when the process ended: held, so that nobody lets go of its rows after Python has ended."""

_work: ContextVar[Work] = ContextVar("lance_ns_async_work")


def under_way() -> Work:
    """The work that this thread does for `in_thread`; such that nobody gives up where it does none."""
    return _work.get(Work())


@before_waiting
def _give_up_all() -> None:
    """At the end of the process, has what reads rows from Python end at its next batch."""
    # A copy: what ends meanwhile leaves the set.
    _last.extend(_calling.copy())
    for work in _last:
        work.given_up.set()


if hasattr(os, "register_at_fork"):
    # Its threads are the parent's.
    os.register_at_fork(after_in_child=_calling.clear)
    os.register_at_fork(after_in_child=_unfinished.clear)


async def in_thread(table: Table, work: Callable[[], T], *, changes: bool = False, reads: bool = False) -> T:
    """What `work` on the table's storage gives, within the operation's time; raises our errors for pylance's.

    Work given up goes on in its thread until it asks: one that `changes` something may yet have done so. What
    `reads` rows from Python has threads of its own, as whoever gives the rows may want others for that; and the time
    begins anew with each batch, and does not count while one is waited for.
    """
    if not reads and (lost := load().given_up) >= THREADS:
        raise ServiceUnavailableError(
            f"Service unavailable: {table.id} ({lost} operations on data that were given up still run, and no more are "
            "begun beside them; nothing was done; try again later, or start this process anew)"
        )
    if changes:
        check_writable(table)
    left = remaining()
    seconds = PATIENCE if left is None else left
    mine = Work()
    token = _work.set(mine)
    limiter = _limiter("writing" if reads else "data")
    try:
        # asyncio's own: anyio's may take a cancellation for its time-out when both come at once.
        async with asyncio.timeout(seconds) as bound:
            if reads:
                mine.clock = partial(_set, asyncio.get_running_loop(), bound, seconds)
            with thread_start():
                return await anyio.to_thread.run_sync(
                    lambda: _done(mine, table, work, counts=not reads), abandon_on_cancel=True, limiter=limiter
                )
    except TimeoutError as e:
        raise ServiceUnavailableError(f"Service unavailable: {_late(mine, table, left, changes=changes)}") from e
    finally:
        _work.reset(token)
        mine.given_up.set()
        if mine.will_learn:
            # It ends with the batch it is at, and whoever gave it up may have to put right what it had begun.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(mine.wait, TIME_TO_END, limiter=_limiter("waiting"))


def _set(loop: asyncio.AbstractEventLoop, bound: asyncio.Timeout, seconds: float, runs: bool) -> None:
    """Has the clock of work that reads rows run or stand; called in the thread that reads them."""

    def reschedule() -> None:
        # It may be over by now.
        with suppress(RuntimeError):
            bound.reschedule(loop.time() + seconds if runs else None)

    # The loop may be closed by now, and then nobody waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(reschedule)


def _late(work: Work, table: Table, left: float | None, *, changes: bool) -> str:
    within = f"{PATIENCE:g} s" if left is None else "the operation's time"
    if not work.began:
        return f"{table.id} (all {THREADS} threads for data were busy for {within}; nothing was done)"
    unknown = "; whether it took effect is unknown" if changes else ""
    return f"{table.id} (its storage at {table.location} did not answer within {within}{unknown})"


def _done(mine: Work, table: Table, work: Callable[[], T], *, counts: bool) -> T:
    mine.began = True
    if counts:
        _unfinished.add(mine)
    try:
        with native_call(str(table.id)), translated(table):
            return work()
    except LanceNamespaceError:
        if mine.unread is None:
            raise
        if isinstance(mine.unread, LanceNamespaceError):
            raise mine.unread from None
        told = shortened(f"{type(mine.unread).__name__}: {mine.unread}", _LONGEST)
        raise InvalidInputError(f"data: the rows for {table.id} could not be read ({told})") from mine.unread
    finally:
        _unfinished.discard(mine)
        mine.end()


async def aside(work: Callable[[], T]) -> T:
    """What blocking work that asks no storage gives, within the operation's time."""
    try:
        async with asyncio.timeout(remaining()):
            with thread_start():
                return await anyio.to_thread.run_sync(_aside, work, abandon_on_cancel=True, limiter=_limiter("aside"))
    except TimeoutError as e:
        raise ServiceUnavailableError("Service unavailable: the data did not come within the operation's time") from e


def _aside(work: Callable[[], T]) -> T:
    with native_call("data in memory"):
        return work()


Kind = Literal["data", "writing", "waiting", "aside"]
"""What waits for none of its own kind may wait for another."""

_LIMITERS: anyio.lowlevel.RunVar[Mapping[Kind, anyio.CapacityLimiter]] = anyio.lowlevel.RunVar("lance_ns_async_threads")


def _limiter(kind: Kind) -> anyio.CapacityLimiter:
    try:
        kept = _LIMITERS.get()
    except LookupError:
        kept = {kind: anyio.CapacityLimiter(THREADS) for kind in get_args(Kind)}
        _LIMITERS.set(kept)
    return kept[kind]
