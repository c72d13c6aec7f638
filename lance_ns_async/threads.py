"""Blocking work on a table's storage, done in worker threads and within the operation's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio
from lance_namespace.errors import ServiceUnavailableError

from lance_ns_async.faults import translated
from lance_ns_async.model import Table
from lance_ns_async.policy import remaining

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which a storage that says nothing is given up outside of any operation, which has a time of its own."""

THREADS = 16
"""How many datasets of one event loop are worked on at once."""


async def in_thread(table: Table, work: Callable[[], T], *, changes: bool = False) -> T:
    """What `work` on the table's storage gives, within the operation's time; raises our errors for pylance's.

    Work given up goes on in its thread, because nothing can stop it there: one that `changes` something may yet do so.
    """
    left = remaining()
    seconds = PATIENCE if left is None else left
    try:
        # asyncio's own: anyio's may take a cancellation for its time-out when both come at once.
        async with asyncio.timeout(seconds):
            return await anyio.to_thread.run_sync(
                lambda: _translated(table, work), abandon_on_cancel=True, limiter=_limiter()
            )
    except TimeoutError as e:
        within = f"{seconds:g} s" if left is None else "the operation's time"
        unknown = "; whether it took effect is unknown" if changes else ""
        raise ServiceUnavailableError(
            f"Service unavailable: {table.id} (its storage at {table.location} did not answer within {within}{unknown})"
        ) from e


def _translated(table: Table, work: Callable[[], T]) -> T:
    with translated(table):
        return work()


_THREAD_LIMIT: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("lance_ns_async_threads")


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _THREAD_LIMIT.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(THREADS)
        _THREAD_LIMIT.set(limiter)
        return limiter
