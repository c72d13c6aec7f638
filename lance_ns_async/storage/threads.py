"""Blocking work on a table's storage, in worker threads and within the operation's time.

A thread cannot be stopped from outside. Abandoned work continues in its thread, unless it checks `under_way` and ends
itself. Work that writes rows does so before each batch, and work that creates a first version before its commit.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar, get_args

import anyio
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.steps import begin_step
from lance_ns_async.errors import error_about, shortened
from lance_ns_async.model import Table
from lance_ns_async.storage.locations import check_writable
from lance_ns_async.storage.process_end import NativeWork, before_waiting, current_work, native_call, thread_start
from lance_ns_async.storage.pylance_errors import translate_errors

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which a storage that does not respond counts as failed, if the operation has no limit of its own."""

THREADS = 16
"""Maximum number of threads of each kind for one event loop."""

TIME_TO_END = 1.0
"""Seconds that abandoned work which reads rows has to end, before its caller continues."""

_MAX_MESSAGE_LENGTH = 400


Kind = Literal["queries", "writing", "data", "versions", "waiting", "aside", "texts", "states"]
"""The kinds of threads. Work of one kind may wait for work of a later kind in this list, but never of its own kind.

Queries, and work that writes rows, wait for their source, which may work on data. Work on data waits for work on
versions, because Lance calls the namespace to read and commit the versions of a table.
"""

_ALONE: frozenset[Kind] = frozenset({"texts", "states"})
"""Kinds with one thread: work in Python alone, which several threads would not end earlier, and which would delay the
event loop for each of them: texts of callers, and the states of watches.
"""


class Work(NativeWork):
    """Blocking work in a worker thread, which its caller may abandon. See `NativeWork` for the arguments."""

    def __init__(self, subject: str, *, stoppable: bool = False) -> None:
        super().__init__(subject, stoppable=stoppable)
        self.has_begun: bool = False
        self.clock: Callable[[bool], None] | None = None
        """Stops the clock of the time-out for False, and starts it again for True."""
        self.unread: BaseException | None = None
        """The error of reading rows from Python, if there was one."""
        self._rows: list[object] = []
        self._reads = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._then: Callable[[], None] | None = None

    async def run(self, function: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
        """Returns the result of `function`; if this is cancelled, its thread continues."""
        self._loop = asyncio.get_running_loop()
        with thread_start():
            # The thread empties the list, because it may outlive this call, and the function may refer to rows.
            return await anyio.to_thread.run_sync(self._run, [function], abandon_on_cancel=True, limiter=limiter)

    def is_over(self, then: Callable[[], None]) -> bool:
        """Returns whether the work is over or will never begin; if not, `then` is called on the loop at its end."""
        with self._lock:
            if self.has_begun and not self._over.is_set():
                self._then = then
                return False
            self._over.set()
            return True

    @property
    def will_learn(self) -> bool:
        """Whether the work is in progress and reads rows, by which it notices that it was abandoned."""
        return self._reads and not self._over.is_set()

    def waits_for_rows(self, yes: bool) -> None:
        """Stops the clock while the work waits for rows, and starts it again when they have arrived."""
        if self.clock is not None and not self.given_up.is_set():
            self.clock(not yes)

    def will_read(self, rows: object) -> None:
        """Registers rows that Lance reads by callbacks from its own threads, until the work has ended."""
        # A reference is kept, because releasing the last one calls Python, too.
        self._rows.append(rows)
        self._reads = True
        _calling.add(self)

    def wait(self, seconds: float) -> None:
        """Waits at most `seconds` for the end of the work."""
        self._over.wait(seconds)

    def _run(self, functions: list[Callable[[], T]]) -> T:
        with self._lock:
            if self._over.is_set():
                raise RuntimeError("it was abandoned before it started")
            self.has_begun = True
        try:
            with native_call(self):
                # A reader that is released after the end of the interpreter aborts the process.
                try:
                    return functions.pop()()
                finally:
                    self._rows.clear()
        finally:
            _calling.discard(self)
            with self._lock:
                self._over.set()
                then = self._then
            if then is not None and self._loop is not None:
                # The loop may already be closed, and then nothing waits for this work.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(then)


_in_progress: set[Work] = set()  # The work in progress in threads for data, including abandoned work.


@dataclass(frozen=True, slots=True)
class Load:
    """The load of this process's threads for data."""

    running: int
    """Operations in progress whose callers wait."""
    given_up: int
    """Operations in progress that were abandoned."""

    @property
    def is_full(self) -> bool:
        """Whether the next operation would wait, perhaps for ever.

        Either all threads are in use, or as many abandoned operations continue as the machine has processors: Lance
        computes in about that number of its own threads, and these operations may occupy all of them.
        """
        return self.running + self.given_up >= THREADS or self.given_up >= min(os.cpu_count() or 1, THREADS)


def load() -> Load:
    """Returns the load of the threads for data; threads of other kinds are not included."""
    works = _in_progress.copy()
    given_up = sum(work.given_up.is_set() for work in works)
    return Load(len(works) - given_up, given_up)


_calling: set[Work] = set()
"""Work that calls Python from threads that Python does not know, which is fatal once the interpreter ends."""

_last: list[Work] = []
"""The work in progress when the process ended; kept, so that its rows are not released after Python has ended."""


def under_way() -> Work:
    """Returns the work of this thread; in threads of others, work that is never abandoned."""
    work = current_work()
    return work if isinstance(work, Work) else Work("")


@before_waiting
def _give_up_all() -> None:
    """Stops work that reads rows from Python, at its next batch, because the process ends."""
    # A copy, because work that ends meanwhile leaves the set.
    _last.extend(_calling.copy())
    for work in _last:
        work.given_up.set()


if hasattr(os, "register_at_fork"):
    # The threads of this work belong to the parent.
    os.register_at_fork(after_in_child=_calling.clear)
    os.register_at_fork(after_in_child=_in_progress.clear)


async def in_thread(table: Table, work: Callable[[], T], *, changes: bool = False, kind: Kind = "data") -> T:
    """Returns the result of blocking `work` on the table's storage, within the operation's time.

    Abandoned work continues in its thread until it checks. If it `changes` something, its outcome is then unknown.

    Args:
        table: The table.
        work: The work; errors of pylance are converted to those of the spec.
        changes: Whether the work changes the storage.
        kind: The threads to use. Work of the kind "writing" reads rows from Python: its time restarts with each batch,
            and does not include the wait for a batch.
    """
    if kind == "data" and len(_in_progress) >= THREADS and (count := load().given_up) >= THREADS:
        raise error_about(
            ServiceUnavailableError,
            table.id,
            f"{count} abandoned operations on data are still in progress, so that "
            "no other can start; nothing was done; try again later, or restart this process",
        )
    if changes:
        check_writable(table)
    left = remaining()
    seconds = PATIENCE if left is None else left
    mine = Work(str(table.id))
    to_do = partial(_on_storage, table, work, mine if kind == "data" else None)
    try:
        # This is asyncio's time-out, because anyio's may treat a cancellation as its time-out if both come at once.
        async with begin_step(kind, table.location, changes=changes), asyncio.timeout(seconds) as bound:
            if kind == "writing":
                mine.clock = partial(_set, asyncio.get_running_loop(), bound, seconds)
            return await mine.run(to_do, _limiter(kind))
    except TimeoutError as e:
        raise ServiceUnavailableError(f"Service unavailable: {_late(mine, table, left, kind, changes=changes)}") from e
    except LanceNamespaceError:
        if mine.unread is None:
            raise
        if isinstance(mine.unread, LanceNamespaceError):
            raise mine.unread from None
        problem = shortened(f"{type(mine.unread).__name__}: {mine.unread}", _MAX_MESSAGE_LENGTH)
        raise InvalidInputError(f"data: the rows for {table.id} could not be read ({problem})") from mine.unread
    finally:
        mine.given_up.set()
        if mine.will_learn:
            # The work ends with its current batch; after that, the caller may have to roll back what it began.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(mine.wait, TIME_TO_END, limiter=_limiter("waiting"))


def _set(loop: asyncio.AbstractEventLoop, bound: asyncio.Timeout, seconds: float, runs: bool) -> None:
    """Starts or stops the clock of work that reads rows; called in the thread that reads them."""

    def reschedule() -> None:
        # The time-out may already have ended.
        with suppress(RuntimeError):
            bound.reschedule(loop.time() + seconds if runs else None)

    # The loop may be closed; then there is no caller any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(reschedule)


def _late(work: Work, table: Table, left: float | None, kind: Kind, *, changes: bool) -> str:
    within = f"{PATIENCE:g} s" if left is None else "the operation's time"
    if not work.has_begun:
        return f"{table.id} (all {THREADS} threads for {kind} were busy for {within}; nothing was done)"
    unknown = "; whether it took effect is unknown" if changes else ""
    return f"{table.id} (its storage at {table.location} did not answer within {within}{unknown})"


def _on_storage(table: Table, work: Callable[[], T], counted: Work | None) -> T:
    if counted is not None:
        _in_progress.add(counted)
    try:
        with translate_errors(table):
            return work()
    finally:
        if counted is not None:
            _in_progress.discard(counted)


async def aside(work: Callable[[], T], kind: Kind = "aside") -> T:
    """Returns the result of blocking work that accesses no storage, within the operation's time."""
    try:
        async with begin_step(kind, ""), asyncio.timeout(remaining()):
            return await Work("data in memory").run(work, _limiter(kind))
    except TimeoutError as e:
        raise ServiceUnavailableError("Service unavailable: the data was not read within the operation's time") from e


_LIMITERS: anyio.lowlevel.RunVar[Mapping[Kind, anyio.CapacityLimiter]] = anyio.lowlevel.RunVar("lance_ns_async_threads")


def _limiter(kind: Kind) -> anyio.CapacityLimiter:
    try:
        limiters = _LIMITERS.get()
    except LookupError:
        limiters = {kind: anyio.CapacityLimiter(1 if kind in _ALONE else THREADS) for kind in get_args(Kind)}
        _LIMITERS.set(limiters)
    return limiters[kind]
