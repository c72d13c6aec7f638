"""One prefetch from beginning to end: search, describe, open, report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from lance_namespace import DescribeTableVersionRequest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.policy import Call, deadline
from lance_ns_async.spark.locations import Location, Locations
from lance_ns_async.spark.memory import Known, Memory
from lance_ns_async.spark.opening import open_tables
from lance_ns_async.spark.patterns import Wanted
from lance_ns_async.spark.progress import Steps, Tell, told
from lance_ns_async.spark.report import Subject, one_error, report
from lance_ns_async.spark.search import Found, search


@dataclass(frozen=True, slots=True)
class Ask:
    """What one prefetch was asked to do; see `LocationResolver.prefetch`."""

    wanted: Wanted
    pin_versions: bool
    on_error: str
    max_in_flight: int
    timeout: float | None
    progress: bool | Tell

    def __post_init__(self) -> None:
        if self.on_error not in ("report", "raise"):
            raise InvalidInputError(f"on_error {self.on_error!r}: unknown; it is one of report, raise")
        if self.max_in_flight < 1:
            raise InvalidInputError(f"max_in_flight {self.max_in_flight}: at least 1 call must be allowed")
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidInputError(f"timeout {self.timeout}: it is a number of seconds above 0; None for no bound")


async def prefetch(namespace: AsyncNamespace, *, memory: Memory, ask: Ask) -> Locations:
    """Does what was asked and remembers what it learned; see `LocationResolver.prefetch`."""
    started = monotonic()
    until = None if ask.timeout is None else started + ask.timeout
    seconds: list[float] = []

    def note(call: Call) -> None:
        seconds.append(call.seconds)

    with deadline(ask.timeout), namespace.observe(note):
        found = await search(namespace, ask.wanted.patterns, max_in_flight=ask.max_in_flight)
        run = _Run(namespace, memory, ask, found)
        with told(ask.progress) as tell:
            steps = Steps(run.total, tell)
            await run.describe(steps)
            if ask.pin_versions:
                await run.open(steps, None if until is None else until - monotonic())
    errors = [*run.errors(), *run.unmatched()]
    locations = run.locations()
    if errors and ask.on_error == "raise":
        raise one_error([error for _, error in errors], of=len(locations) + len(errors))
    return Locations(locations, report(len(locations), errors, seconds=monotonic() - started, calls=seconds))


class _Run:
    """The tables of one prefetch on their way from ids to locations."""

    def __init__(self, namespace: AsyncNamespace, memory: Memory, ask: Ask, found: Found) -> None:
        self._namespace = namespace
        self._memory = memory
        self._ask = ask
        self._found = found
        self.ids = list(dict.fromkeys([*ask.wanted.ids, *found.tables, *found.guesses]))
        # Apart from those of namespaces: a table and a namespace of the same names are equal keys.
        self._failed: dict[TableId, LanceNamespaceError] = dict(found.doubtful)
        self.known: dict[TableId, Known] = {}
        for id in self.ids:
            remembered = memory.get(id)
            listed = found.described.get(id)
            # What was remembered holds the pinned version, but a table may have been made anew elsewhere.
            if remembered is not None and (listed is None or listed.location == remembered.table.location):
                self.known[id] = remembered
            elif listed is not None:
                self.known[id] = memory.learn(listed)

    @property
    def total(self) -> int:
        """How many steps are to be done: a describe and an open each."""
        describes = len(self.ids) - len(self.known)
        unopened = sum(known.details is None for known in self.known.values())
        return describes + (describes + unopened if self._ask.pin_versions else 0)

    async def describe(self, steps: Steps) -> None:
        """Describes what is not known, in as few calls as the catalog allows."""
        unknown = [id for id in self.ids if id not in self.known]
        if not unknown:
            return
        outcome = await self._namespace.describe_tables(
            unknown, max_in_flight=self._ask.max_in_flight, progress=steps.settle
        )
        self.known.update((id, self._memory.learn(table)) for id, table in outcome.tables.items())
        named = frozenset(self._ask.wanted.ids)
        for id, error in outcome.errors.items():
            if id in named or id not in self._found.guesses or not _is_absence(error):
                self._failed[id] = error
        if self._ask.pin_versions and outcome.errors:
            steps.settle(len(outcome.errors))

    async def open(self, steps: Steps, timeout: float | None) -> None:
        """Opens what is known and was not opened yet."""
        unopened = {id: known for id, known in self.known.items() if known.details is None}
        opened = await open_tables(
            (known.table for known in unopened.values()),
            max_in_flight=self._ask.max_in_flight,
            timeout=timeout,
            settled=steps.settle,
            finish=self._finish,
        )
        for id, details in opened.details.items():
            unopened[id].details = details
        self._failed.update(opened.errors)

    async def _finish(self, id: TableId, version: int) -> None:
        # Its writer may have died before it moved the manifest to where executors look; whoever asks for it does that.
        await self._namespace.describe_table_version(DescribeTableVersionRequest(id=list(id), version=version))

    def errors(self) -> Iterator[tuple[NamespaceId | TableId, LanceNamespaceError]]:
        """The namespaces that could not be looked into, then the tables that were not found or not read."""
        yield from self._found.errors.items()
        yield from self._failed.items()

    def unmatched(self) -> Iterator[tuple[Subject, LanceNamespaceError]]:
        """The patterns that matched nothing, except where a namespace they could match in is an error already."""
        seen = [*self._found.doubtful, *(id for id in self.ids if id in self.known or id in self._failed)]
        for pattern in self._ask.wanted.patterns:
            blind = any(
                pattern.concerns(at) and (at == pattern.start or not isinstance(error, NamespaceNotFoundError))
                for at, error in self._found.errors.items()
            )
            if not blind and not any(map(pattern.matches, seen)):
                yield pattern.asked, TableNotFoundError(f"Table not found: no table matches {pattern.asked}")

    def locations(self) -> list[Location]:
        """What was found, in the order it was asked for."""
        pinned = self._ask.pin_versions
        return [
            Location.of(known.table, known.details if pinned else None)
            for id in self.ids
            if (known := self.known.get(id)) is not None and id not in self._failed
        ]


def _is_absence(error: LanceNamespaceError) -> bool:
    return isinstance(error, TableNotFoundError | NamespaceNotFoundError | NotALanceTableError)
