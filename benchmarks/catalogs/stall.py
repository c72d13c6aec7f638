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
"""Seconds between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Stall:
    """What was measured in one process, all in seconds."""

    connect: float
    """`connect` itself, the import of libraries included: it is no coroutine, and the loop stands still."""
    first: float
    """The first call, which builds the client."""
    later: float
    """The next call."""
    again: float
    """The first call of a second namespace."""
    stalled: float
    """The longest time the loop stood still during the first call."""
    stalled_again: float
    """The same during that of the second namespace."""
    collected: float
    """The longest of Python's own garbage collections in either of them: a stall no library can spread."""
    stalled_idle: float
    """The longest stall while nothing was done for as long as the first call took: the machine's own part."""


@dataclass(slots=True)
class Heart:
    """Beats in the event loop, and knows how late it was at most."""

    late: float = field(default=0.0)

    async def beat(self) -> None:
        """Beats until it is cancelled."""
        while True:
            start = time.perf_counter()
            await anyio.sleep(BEAT)
            self.late = max(self.late, time.perf_counter() - start - BEAT)


class Collections:
    """Times Python's garbage collections, which hold every thread."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._start = 0.0

    def note(self, phase: str, _: Mapping[str, int]) -> None:
        """Takes notice of one as it begins and as it ends."""
        if phase == "start":
            self._start = time.perf_counter()
        else:
            self.longest = max(self.longest, time.perf_counter() - self._start)


@asynccontextmanager
async def beating() -> AsyncIterator[Heart]:
    """A heart that beats for as long as the context lasts."""
    heart = Heart()
    async with anyio.create_task_group() as group:
        group.start_soon(heart.beat)
        await anyio.sleep(10 * BEAT)
        heart.late = 0.0
        yield heart
        # The beat that a stall at the very end delays is still to come.
        await anyio.sleep(2 * BEAT)
        group.cancel_scope.cancel()


async def measure(impl: str, properties: Mapping[str, str], id: list[str]) -> Stall:
    """Connects twice and describes a table, beside a beating heart."""
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
    """What is measured, for arguments as they come in JSON."""
    return asyncio.run(measure(**given))


if __name__ == "__main__":
    print(json.dumps(asdict(main(json.loads(sys.argv[1])))))
