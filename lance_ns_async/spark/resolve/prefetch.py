"""The steps of one prefetch or refresh: search, describe, open and report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from lance_namespace import DescribeTableVersionRequest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import deadline
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.dataset_operations import opener_of
from lance_ns_async.spark.resolve.cache import LEAD, Known, Memory
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.locations import Locations
from lance_ns_async.spark.resolve.opening import open_tables
from lance_ns_async.spark.resolve.patterns import Wanted
from lance_ns_async.spark.resolve.progress import Steps, Tell, told
from lance_ns_async.spark.resolve.report import Subject, one_error, report
from lance_ns_async.spark.resolve.search import Found, search


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The arguments of one run; see `LocationResolver.prefetch` and `LocationResolver.refresh`."""

    wanted: Wanted
    pin_versions: bool
    on_error: str
    max_in_flight: int
    timeout: float | None
    progress: bool | Tell
    vends: bool = False
    """Whether to request credentials from the catalog."""
    keeps: Locations | None = None
    """The locations of a refresh, whose versions are kept and storage options renewed; None for a prefetch."""
    lasting: float = LEAD
    """Minimum remaining seconds of cached storage options; those that expire sooner are requested again."""

    def __post_init__(self) -> None:
        if self.on_error not in ("report", "raise"):
            raise InvalidInputError(f"on_error {self.on_error!r}: unknown; it is one of report, raise")
        if self.max_in_flight < 1:
            raise InvalidInputError(f"max_in_flight {self.max_in_flight}: at least 1 call must be allowed")
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidInputError(f"timeout {self.timeout}: it is a number of seconds above 0; None for no bound")
        if not self.lasting >= 0:
            raise InvalidInputError(f"lasting {self.lasting}: it is a number of seconds")


async def prefetch(namespace: AsyncNamespace, *, memory: Memory, ask: Ask) -> Locations:
    """Runs one prefetch or refresh and updates the cache; see `LocationResolver.prefetch`."""
    started = monotonic()
    seconds: list[float] = []

    def note(call: Call) -> None:
        seconds.append(call.seconds)

    with deadline(ask.timeout), namespace.observe(note):
        found = await search(namespace, ask.wanted.patterns, max_in_flight=ask.max_in_flight)
        run = _Run(namespace, memory, ask, found)
        with told(ask.progress) as tell:
            steps = Steps(run.total, tell)
            await run.describe(steps)
            run.check_kept()
            if ask.pin_versions:
                await run.open(steps)
    errors = [*run.errors(), *run.unmatched()]
    locations = run.locations()
    if errors and ask.on_error == "raise":
        error = one_error([error for _, error in errors], of=len(locations) + len(errors))
        error.add_note("on_error='report' leaves them out, and its report tells of each")
        raise error
    remembered = sum(location.id in run.remembered for location in locations)
    took = monotonic() - started
    return Locations(locations, report(len(locations), errors, seconds=took, calls=seconds, remembered=remembered))


class _Run:
    """State of one run: the tables between their ids and their locations."""

    def __init__(self, namespace: AsyncNamespace, memory: Memory, ask: Ask, found: Found) -> None:
        self._namespace = namespace
        self._memory = memory
        self._ask = ask
        self._found = found
        self.ids = list(dict.fromkeys([*ask.wanted.ids, *found.tables, *found.guesses]))
        # Errors of namespaces are kept elsewhere, because a table and a namespace with the same names are equal keys.
        self._failed: dict[TableId, LanceNamespaceError] = dict(found.doubtful)
        self.known: dict[TableId, Known] = {}
        self.remembered: set[TableId] = set()
        for id in self.ids:
            remembered = memory.get(id, lasting=ask.lasting)
            listed = found.described.get(id)
            # The cached entry has the pinned version, but the table may have been created again at another location.
            if remembered is not None and (listed is None or listed.location == remembered.table.location):
                self.known[id] = remembered
                self.remembered.add(id)
            elif listed is not None and not ask.vends:
                self.known[id] = memory.learn(listed)

    @property
    def total(self) -> int:
        """Number of steps: one for each table to describe and one for each dataset to open."""
        describes = len(self.ids) - len(self.known)
        unopened = sum(known.details is None for known in self.known.values())
        return describes + (describes + unopened if self._ask.pin_versions else 0)

    async def describe(self, steps: Steps) -> None:
        """Describes the tables that are not known yet, in as few calls as the catalog allows."""
        unknown = [id for id in self.ids if id not in self.known]
        if not unknown:
            return
        outcome = await self._namespace.describe_tables(
            unknown,
            vend_credentials=self._ask.vends,
            max_in_flight=self._ask.max_in_flight,
            progress=steps.settle,
        )
        self.known.update((id, self._memory.learn(table)) for id, table in outcome.tables.items())
        named = frozenset(self._ask.wanted.ids)
        for id, error in outcome.errors.items():
            if id in named or id not in self._found.guesses or not _is_absence(error):
                self._failed[id] = error
        if self._ask.pin_versions and outcome.errors:
            steps.settle(len(outcome.errors))

    def check_kept(self) -> None:
        """Records an error for each table of a refresh that has moved, because its pinned version is invalid there."""
        for id, old in (self._ask.keeps or {}).items():
            known = self.known.get(id)
            if known is not None and old.version is not None and known.table.location != old.location:
                self._failed[id] = InvalidTableStateError(
                    f"Invalid table state: {id} (it was at {old.location} and is at {known.table.location} now, where "
                    f"version {old.version} is not what it was: prefetch it anew)"
                )

    async def open(self, steps: Steps) -> None:
        """Opens the datasets of the known tables that are not open yet."""
        unopened = {id: known for id, known in self.known.items() if known.details is None}
        opened = await open_tables(
            opener_of(self._namespace),
            (known.table for known in unopened.values()),
            max_in_flight=self._ask.max_in_flight,
            progress=steps.settle,
            finish=self._finish,
        )
        for id, details in opened.datasets.items():
            unopened[id].details = details
        self._failed.update(opened.errors)

    async def _finish(self, id: TableId, version: int) -> None:
        # The writer may have failed before it moved the manifest to where executors look. This call completes the move.
        await self._namespace.describe_table_version(DescribeTableVersionRequest(id=list(id), version=version))

    def errors(self) -> Iterator[tuple[NamespaceId | TableId, LanceNamespaceError]]:
        """Yields the errors of namespaces that could not be listed, then those of tables."""
        yield from self._found.errors.items()
        yield from self._failed.items()

    def unmatched(self) -> Iterator[tuple[Subject, LanceNamespaceError]]:
        """Yields an error for each pattern without a match, unless an error of a namespace may be the cause."""
        seen = [*self._found.doubtful, *(id for id in self.ids if id in self.known or id in self._failed)]
        for pattern in self._ask.wanted.patterns:
            blind = any(
                pattern.concerns(at) and (at == pattern.start or not isinstance(error, NamespaceNotFoundError))
                for at, error in self._found.errors.items()
            )
            if not blind and not any(map(pattern.matches, seen)):
                yield pattern.asked, TableNotFoundError(f"Table not found: no table matches {pattern.asked}")

    def locations(self) -> list[Location]:
        """Returns the resolved locations, in the order of the request."""
        return [
            self._location(known)
            for id in self.ids
            if (known := self.known.get(id)) is not None and id not in self._failed
        ]

    def _location(self, known: Known) -> Location:
        if self._ask.keeps is not None:
            return self._ask.keeps[known.table.id].renewed(known.table)
        return Location.of(known.table, known.details if self._ask.pin_versions else None)


def _is_absence(error: LanceNamespaceError) -> bool:
    return isinstance(error, TableNotFoundError | NamespaceNotFoundError | NotALanceTableError)
