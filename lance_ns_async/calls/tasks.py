"""Concurrent work over many items, and work that concurrent callers share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import anyio
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.calls.deadline import remaining

K = TypeVar("K")
S = TypeVar("S")
T = TypeVar("T")

with suppress(ImportError):
    # anyio imports its backend at the first use, which would block the event loop for the time of the import.
    import anyio._backends._asyncio

_SLICE = 1_000  # Number of items to process before other tasks of the event loop get a turn.

_MORE_TIME = 1.0  # Seconds of additional time that a caller needs to repeat work that failed with a shorter deadline.


class SingleFlight(Generic[T]):
    """Work that runs at most once at a time, whatever the number of callers.

    Callers that waited share the outcome, failures included, so that a broken server gets one call instead of one
    from each caller. A later caller starts the work again.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._lock = asyncio.Lock()
        self._rounds = 0
        self._last: T | LanceNamespaceError
        self._last_until = inf

    async def outcome(self, find: Callable[[], T | None]) -> T:
        """Returns a known result, the result of a concurrent run, or the result of a new run.

        Args:
            find: Returns the result if it exists already when this caller's turn comes, else None.
        """
        rounds = self._rounds
        await self._turn()
        try:
            if (result := find()) is not None:
                return result
            if self._rounds == rounds:
                return await self._run()
            if not isinstance(self._last, LanceNamespaceError):
                return self._last
            if isinstance(self._last, ServiceUnavailableError) and _until() > self._last_until + _MORE_TIME:
                # The shared run failed for a caller with less time, so this caller repeats it.
                return await self._run()
            raise type(self._last)(str(self._last)) from self._last
        finally:
            self._lock.release()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(remaining()):
                await self._lock.acquire()
        except TimeoutError:
            message = "the operation's time ended while it waited for the same call of another operation"
            raise ServiceUnavailableError(f"Service unavailable: the catalog ({message})") from None

    async def _run(self) -> T:
        try:
            result = await self._work()
        except LanceNamespaceError as e:
            self._rounds, self._last, self._last_until = self._rounds + 1, e, _until()
            raise
        self._rounds, self._last = self._rounds + 1, result
        return result


class SingleFlights(Generic[K, T]):
    """Work that runs at most once at a time for each key."""

    def __init__(self, work: Callable[[K], Awaitable[T]]) -> None:
        self._work = work
        self._flights: WeakValueDictionary[K, SingleFlight[T]] = WeakValueDictionary()

    async def outcome(self, key: K) -> T:
        """Returns the result of a concurrent run for the key, or of a new run; failures are shared, too."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = SingleFlight(partial(self._work, key))
        return await flight.outcome(lambda: None)


def _until() -> float:
    left = remaining()
    return inf if left is None else monotonic() + left


async def in_slices(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Returns the function's result for each item; other tasks get a turn after every `_SLICE` items."""
    results: list[T] = []
    waiting = iter(items)
    while True:
        some = [function(item) for item in islice(waiting, _SLICE)]
        results += some
        if len(some) < _SLICE:
            return results
        await asyncio.sleep(0)


@dataclass(slots=True)
class _Workers:
    """The workers of one `each`; as many may pause in addition as may work."""

    most: int
    start: Callable[[], object]
    """Starts another worker."""
    busy: int = 1
    pausing: int = 0

    def add(self) -> None:
        """Starts another worker if fewer than the maximum are busy."""
        if self.busy < self.most:
            self.busy += 1
            self.start()


_workers: ContextVar[_Workers | None] = ContextVar("workers", default=None)


async def pause(seconds: float) -> None:
    """Sleeps. If a worker of `each` pauses, another one takes its place."""
    workers = _workers.get()
    if workers is None or workers.pausing >= workers.most:
        await asyncio.sleep(seconds)
        return
    workers.pausing += 1
    workers.busy -= 1
    workers.add()
    try:
        await asyncio.sleep(seconds)
    finally:
        workers.busy += 1
        workers.pausing -= 1


async def each(work: Callable[[T], Awaitable[None]], items: Iterable[T], *, max_in_flight: int) -> None:
    """Runs `work` for every item, with at most `max_in_flight` busy workers that share one iterator.

    A worker that pauses before a repetition is not busy. Memory is bounded by the number of workers, not of items.
    """
    waiting = iter(items)
    errors: list[LanceNamespaceError] = []

    async def worker() -> None:
        for item in waiting:
            workers.add()
            try:
                await work(item)
            except LanceNamespaceError as e:
                errors.append(e)
                group.cancel_scope.cancel()
                return
            if workers.busy > workers.most:
                break
        workers.busy -= 1

    try:
        async with anyio.create_task_group() as group:
            workers = _Workers(max_in_flight, lambda: group.start_soon(worker))
            outer = _workers.set(workers)
            try:
                await worker()
            finally:
                _workers.reset(outer)
    except BaseExceptionGroup as several:
        # Errors of functions that the user supplies are also raised without a group.
        raise _only(several) from None
    if errors:
        raise errors[0]
    if group.cancel_scope.cancel_called:
        # An outer and an inner scope were cancelled in the same turn; anyio may confuse the two.
        raise asyncio.CancelledError


@asynccontextmanager
async def each_added(
    work: Callable[[T], Coroutine[Any, Any, None]], *, max_in_flight: int
) -> AsyncIterator[Callable[[T], None]]:
    """Runs `work` for every item that the block adds, while the block runs; waits at the end for all of them.

    Yields:
        A function that adds an item; for the event loop only.
    """
    waiting: deque[T] = deque()
    workers = 0

    def add(item: T) -> None:
        nonlocal workers
        waiting.append(item)
        if workers < max_in_flight:
            workers += 1
            group.start_soon(worker)

    async def worker() -> None:
        nonlocal workers
        while waiting:
            await work(waiting.popleft())
        workers -= 1

    try:
        async with anyio.create_task_group() as group:
            yield add
    except BaseExceptionGroup as several:
        raise _only(several) from None


def _only(error: BaseException) -> BaseException:
    """Returns the error inside a group of one; otherwise the error itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
