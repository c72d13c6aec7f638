"""All kinds of calls that describe tables, some of them cancelled, and a count of their responses."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing

import anyio
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import LanceNamespaceError

from benchmarks.support.answers import location
from benchmarks.support.cell import table_names
from lance_ns_async import AsyncNamespace, BulkResult, Call, Table, TableId

TABLES = 20_000
BULK = 1000
"""Tables in one bulk call."""
GIVEN_UP = 0.1
"""The share of calls that are cancelled."""
WITHIN = 0.2
"""Maximum delay in seconds before a bulk call is cancelled; a tenth of it for a single call."""


class Calls:
    """Describes until the time `until`, by the monotonic clock."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._ids = [TableId(name) for name in table_names(TABLES)]
        self.until = 0.0
        self.right = 0
        self.wrong = 0
        """Responses about another table than the requested one."""
        self.given_up = 0
        """Calls, including bulk calls, that were cancelled or not read to their end."""
        self.failed: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        """The outcome of each remote call, including those for tokens."""

    @property
    def settled(self) -> int:
        """Tables that were described or failed."""
        return self.right + self.wrong + self.failed.total()

    def some(self, count: int) -> Sequence[TableId]:
        """Returns a number of tables."""
        return self._chance.sample(self._ids, count)

    def observe(self, call: Call) -> None:
        """Counts the outcome of a remote call."""
        self.outcomes[call.outcome] += 1

    def note(self, described: BulkResult[Table]) -> None:
        """Counts the outcomes of a bulk call."""
        for id, table in described.tables.items():
            self._note(id, table.location)
        self.failed.update(type(error).__name__ for error in described.errors.values())

    async def bulk(self, namespace: AsyncNamespace) -> None:
        """Describes many tables at once, repeatedly; some calls end by a time-out or a cancellation."""
        while time.monotonic() < self.until:
            ids = self.some(BULK)
            if self._chance.random() >= GIVEN_UP:
                self.note(await namespace.describe_tables(ids))
            elif self._chance.random() < 0.5:
                try:
                    async with asyncio.timeout(self._chance.uniform(0, WITHIN)):
                        self.note(await namespace.describe_tables(ids))
                except TimeoutError:
                    self.given_up += 1
            else:
                task = asyncio.create_task(namespace.describe_tables(ids))
                await asyncio.wait([task], timeout=self._chance.uniform(0, WITHIN))
                task.cancel()
                await asyncio.wait([task])
                self.given_up += task.cancelled()

    async def stream(self, namespace: AsyncNamespace) -> None:
        """Reads streams of tables; some are not read to their end."""
        while time.monotonic() < self.until:
            enough = self._chance.randrange(2 * BULK)
            async with aclosing(namespace.stream_tables(self.some(BULK))) as tables:
                async for id, outcome in tables:
                    if isinstance(outcome, LanceNamespaceError):
                        self.failed[type(outcome).__name__] += 1
                    else:
                        self._note(id, outcome.location)
                    enough -= 1
                    if not enough:
                        self.given_up += 1
                        break

    async def singles(self, namespace: AsyncNamespace) -> None:
        """Describes one table after another; some calls end by a cancel scope."""
        while time.monotonic() < self.until:
            [id] = self.some(1)
            limit = self._chance.uniform(0, WITHIN / 10) if self._chance.random() < GIVEN_UP else None
            with anyio.move_on_after(limit) as scope:
                try:
                    answer = await namespace.describe_table(DescribeTableRequest(id=list(id)))
                    self._note(id, answer.location or "")
                except LanceNamespaceError as e:
                    self.failed[type(e).__name__] += 1
            self.given_up += scope.cancelled_caught

    def _note(self, id: TableId, found: str) -> None:
        if found == location(*id):
            self.right += 1
        else:
            self.wrong += 1
