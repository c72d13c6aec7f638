"""Concurrent callers of one namespace, and a count of their responses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from benchmarks.catalogs.cell import plain
from benchmarks.catalogs.extent import Extent
from lance_ns_async import AsyncNamespace

MISSING = "missing_"
"""Prefix of the names of missing tables."""

CANCELLED_WITHIN = 0.05
"""Delay in seconds before a cancellation: some calls still wait for a connection, others are in flight or done."""


@dataclass(slots=True)
class Tally:
    """The outcomes of describes."""

    right: int = 0
    cancelled: int = 0
    stale: list[str] = field(default_factory=list)
    """Responses about another table than the requested one."""
    untrue: list[str] = field(default_factory=list)
    """Existing tables that were reported as missing."""
    failed: Counter[str] = field(default_factory=Counter)
    """Other errors, by class name."""

    @property
    def asked(self) -> int:
        """The number of describes."""
        return self.right + self.cancelled + len(self.stale) + len(self.untrue) + self.failed.total()

    def failures(self) -> str:
        """The number of failures, by class name."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.failed.most_common())
        return f"{self.failed.total()} ({kinds})" if kinds else "0"

    def wrong(self) -> str:
        """The number of wrong responses, and the first one."""
        found = [*self.stale, *self.untrue]
        return f"{len(found)}, such as {found[0]}" if found else "0"


class Callers:
    """Callers that describe random tables, one at a time, until another task ends."""

    def __init__(
        self, namespace: AsyncNamespace, extent: Extent, *, cancel: float = 0.0, missing: float = 0.0, seed: int = 0
    ) -> None:
        """A share of the calls is cancelled, and another share requests missing tables."""
        self._namespace = namespace
        self._extent = extent
        self._names = extent.lance()
        self._cancel = cancel
        self._missing = missing
        self._random = random.Random(seed)
        self._over = False
        self._mark, self._reached = 0, anyio.Event()
        self.tally = Tally()

    async def run(self, count: int, during: Callable[[], Awaitable[None]]) -> Tally:
        """Runs concurrent callers until `during` ends."""
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(self._describe_on)
            await during()
            self._over = True
        return self.tally

    async def wait_for_responses(self, count: int) -> None:
        """Waits until the total number of correct responses reaches a number."""
        self._mark, self._reached = count, anyio.Event()
        if self.tally.right < count:
            await self._reached.wait()

    async def _describe_on(self) -> None:
        while not self._over:
            prefix = MISSING if self._random.random() < self._missing else ""
            name = prefix + self._random.choice(self._names)
            if self._random.random() >= self._cancel:
                await self._describe(name)
                continue
            with anyio.move_on_after(self._random.uniform(0, CANCELLED_WITHIN)) as scope:
                await self._describe(name)
            self.tally.cancelled += scope.cancelled_caught

    async def _describe(self, name: str) -> None:
        request = DescribeTableRequest(id=[*self._extent.namespace, name])
        missing = name.startswith(MISSING)
        try:
            table = await self._namespace.describe_table(request)
        except TableNotFoundError as e:
            if missing:
                self._right()
            else:
                self.tally.untrue.append(f"{name}: {e}")
        except LanceNamespaceError as e:
            self.tally.failed[type(e).__name__] += 1
        else:
            if not missing and plain(table.location or "") == plain(self._extent.location(name)):
                self._right()
            else:
                self.tally.stale.append(f"{name}: {table.location}")

    def _right(self) -> None:
        self.tally.right += 1
        if self.tally.right >= self._mark:
            self._reached.set()
