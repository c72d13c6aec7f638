"""Time to build a client, and the longest block of the event loop meanwhile.

`python -m benchmarks.catalogs.stall <json>` measures it once, in a fresh process, with a running catalog.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import anyio

BEAT = 0.001
"""Seconds between two readings of the clock."""


@dataclass(frozen=True, slots=True)
class Stall:
    """The figures of one process, in seconds."""

    connect: float
    """Duration of `connect` itself, including imports of libraries. It is not a coroutine, so it blocks the loop."""
    first: float
    """Duration of the first call, which builds the client."""
    later: float
    """Duration of the next call."""
    again: float
    """Duration of the first call of a second namespace."""
    stalled: float
    """The longest block of the loop during the first call."""
    stalled_again: float
    """The longest block of the loop during the first call of the second namespace."""
    collected: float
    """The longest garbage collection of Python in either call: no library can avoid it."""
    stalled_idle: float
    """The longest block while nothing was done for the duration of the first call: the machine's own share."""


@dataclass(slots=True)
class Heart:
    """A task in the event loop that records its maximum delay."""

    late: float = field(default=0.0)

    async def beat(self) -> None:
        """Runs until it is cancelled."""
        while True:
            start = time.perf_counter()
            await anyio.sleep(BEAT)
            self.late = max(self.late, time.perf_counter() - start - BEAT)


class Collections:
    """Measures Python's garbage collections, which block all threads."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._start = 0.0

    def note(self, phase: str, _: Mapping[str, int]) -> None:
        """Records the beginning and the end of a garbage collection."""
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self.longest = max(self.longest, time.perf_counter() - self._start)


@asynccontextmanager
async def beating() -> AsyncIterator[Heart]:
    """Runs a `Heart` while the context is open."""
    heart = Heart()
    async with anyio.create_task_group() as group:
        group.start_soon(heart.beat)
        await anyio.sleep(10 * BEAT)
        heart.late = 0.0
        yield heart
        # A block at the very end delays the next beat, which is still to come.
        await anyio.sleep(2 * BEAT)
        group.cancel_scope.cancel()


async def measure(impl: str, properties: Mapping[str, str], id: list[str]) -> Stall:
    """Connects twice and describes a table, while a `Heart` is running."""
    from lance_namespace import DescribeTableRequest

    from lance_ns_async import AsyncNamespace

    async def first_call() -> tuple[float, float, float]:
        async with AsyncNamespace.connect(impl, properties) as namespace:
            async with beating() as heart:
                start = time.perf_counter()
                await namespace.describe_table(DescribeTableRequest(id=id))
                first = time.perf_counter() - start
            start = time.perf_counter()
            await namespace.describe_table(DescribeTableRequest(id=id))
            return first, time.perf_counter() - start, heart.late

    start = time.perf_counter()
    AsyncNamespace.connect(impl, properties)
    connect = time.perf_counter() - start
    collections = Collections()
    gc.callbacks.append(collections.note)
    first, later, stalled = await first_call()
    again, _, stalled_again = await first_call()
    gc.callbacks.remove(collections.note)
    async with beating() as heart:
        await anyio.sleep(first)
    return Stall(connect, first, later, again, stalled, stalled_again, collections.longest, heart.late)


def main(given: Any) -> Stall:
    """Returns the figures for arguments in JSON."""
    return asyncio.run(measure(**given))


if __name__ == "__main__":
    print(json.dumps(asdict(main(json.loads(sys.argv[1])))))
