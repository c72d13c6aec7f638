"""Doing one thing for many items, so many at once, or once for all who want it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import islice
from math import inf
from time import monotonic
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import anyio
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.calls.policy import remaining

K = TypeVar("K")
S = TypeVar("S")
T = TypeVar("T")

with suppress(ImportError):
    # anyio loads it at its first use, which is in the event loop and stalls that for as long as this takes.
    import_module("anyio._backends._asyncio")

_SLICE = 1_000
"""How many items are worked on before other tasks of the event loop have a turn."""

_MORE_TIME = 1.0
"""Seconds that somebody must have more than another for what failed for want of time to be tried again."""


class SingleFlight(Generic[T]):
    """Work that is under way at most once, whatever the number of those who want its outcome.

    Whoever waited for it shares the outcome, failures included, so that a broken server is asked once and not
    by everybody in turn; who comes later does the work again.
    """

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._lock = asyncio.Lock()
        self._rounds = 0
        self._last: T | LanceNamespaceError
        self._last_until = inf

    async def outcome(self, known: Callable[[], T | None]) -> T:
        """What is `known` when it is our turn, or came out while we waited, or else comes of doing the work."""
        seen = self._rounds
        await self._turn()
        try:
            if (found := known()) is not None:
                return found
            if self._rounds == seen:
                return await self._done()
            if not isinstance(self._last, LanceNamespaceError):
                return self._last
            if isinstance(self._last, ServiceUnavailableError) and _until() > self._last_until + _MORE_TIME:
                # It failed for somebody who had less time.
                return await self._done()
            raise type(self._last)(str(self._last)) from self._last
        finally:
            self._lock.release()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(remaining()):
                await self._lock.acquire()
        except TimeoutError:
            message = "its time was over while it waited for what others had asked"
            raise ServiceUnavailableError(f"Service unavailable: the catalog ({message})") from None

    async def _done(self) -> T:
        try:
            result = await self._work()
        except LanceNamespaceError as e:
            self._rounds, self._last, self._last_until = self._rounds + 1, e, _until()
            raise
        self._rounds, self._last = self._rounds + 1, result
        return result


class SingleFlights(Generic[K, T]):
    """Work that is under way at most once for each key."""

    def __init__(self, work: Callable[[K], Awaitable[T]]) -> None:
        self._work = work
        self._flights: WeakValueDictionary[K, SingleFlight[T]] = WeakValueDictionary()

    async def outcome(self, key: K) -> T:
        """What came out for the key while we waited, or comes of doing the work; failures are shared, too."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = SingleFlight(partial(self._work, key))
        return await flight.outcome(lambda: None)


def _until() -> float:
    left = remaining()
    return inf if left is None else monotonic() + left


async def in_slices(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Returns what the function gives for each item; other tasks have a turn after each thousand of them."""
    made: list[T] = []
    waiting = iter(items)
    while True:
        some = [function(item) for item in islice(waiting, _SLICE)]
        made += some
        if len(some) < _SLICE:
            return made
        await asyncio.sleep(0)


async def each(work: Callable[[T], Awaitable[None]], items: Iterable[T], *, max_in_flight: int) -> None:
    """Does `work` for every item, by at most so many workers over one iterator.

    Memory is bounded by the workers, not by the items. The first LanceNamespaceError cancels what is under
    way and is raised as it is, not in a group.
    """
    waiting = iter(items)
    workers = 1
    errors: list[LanceNamespaceError] = []

    async def worker() -> None:
        nonlocal workers
        for item in waiting:
            if workers < max_in_flight:
                workers += 1
                group.start_soon(worker)
            try:
                await work(item)
            except LanceNamespaceError as e:
                errors.append(e)
                group.cancel_scope.cancel()
                return

    try:
        async with anyio.create_task_group() as group:
            await worker()
    except BaseExceptionGroup as several:
        # What a function of the caller's raises is raised as it is, too.
        raise _only(several) from None
    if errors:
        raise errors[0]
    if group.cancel_scope.cancel_called:
        # Cancelled from outside in the turn in which a scope inside was: anyio may take the one for the other.
        raise asyncio.CancelledError


def _only(error: BaseException) -> BaseException:
    """What a group holds, if that is one error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
