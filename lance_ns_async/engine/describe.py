"""Bulk describe: planned by a pure function from ids and capabilities, then run concurrently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import TypeAlias

import lance_namespace.errors as err

from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.engine.locate import Locator
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import failure_of
from lance_ns_async.model import NamespaceId, Table, TableId


@dataclass(frozen=True, slots=True)
class One:
    """Describe a single table."""

    id: TableId


@dataclass(frozen=True, slots=True)
class Batch:
    """Describe some tables of one namespace in one call."""

    parent: NamespaceId
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class Scan:
    """Read pages of one namespace's listing until the names are found."""

    parent: NamespaceId
    names: Sequence[str]


Step: TypeAlias = One | Batch | Scan

Advance = Callable[[int], None]
"""Receives the number of ids completed since the last call."""

OnTable: TypeAlias = Callable[[Table], None]
"""Receives each table as soon as it is described."""


@dataclass(frozen=True, slots=True)
class ListingPosition:
    """How far a namespace's listing was read for one group of ids; the next group continues there."""

    token: str | None = None
    """The token of the page that contains the last table of the group; None if that is the first page."""
    size: float = 0
    """Estimated number of tables from about that page on."""


ListingPositions: TypeAlias = dict[NamespaceId, ListingPosition]

_UNREAD = ListingPosition()

_AMONG = 8  # A listing is read only if at least one in this many of its tables is requested.

_BUSY = (err.ServiceUnavailableError, err.ThrottlingError)
"""Errors of a catalog that is down or busy; another call may succeed."""

_OF_ALL = (err.NamespaceNotFoundError, err.UnauthenticatedError, *_BUSY)
"""Errors of a shared call that apply to each of its tables; after any other error, each table gets its own call.

After one of `_BUSY` in a listing, a single describe finds out whether each table can get its own call.
"""


_FIRST_GROUP, _LARGEST_GROUP = 500, 5_000


def groups(ids: Iterable[TableId]) -> Iterator[Sequence[TableId]]:
    """Yields the ids in groups to describe one after another: small ones first, so that first results come early.

    If the iterator raises InvalidInputError, the ids before the error are yielded as a last group first.
    """
    waiting, size = iter(ids), _FIRST_GROUP
    error: err.InvalidInputError | None = None
    while error is None:
        group: list[TableId] = []
        try:
            group.extend(islice(waiting, size))
        except err.InvalidInputError as e:
            error = e
        if not group:
            break
        yield group
        size = min(2 * size, _LARGEST_GROUP)
    if error is not None:
        raise error


def plan(
    ids: Iterable[TableId],
    capabilities: Capabilities,
    places: Mapping[NamespaceId, ListingPosition] = MappingProxyType({}),
) -> Iterator[Step]:
    """Yields the steps that describe each id once, in the cheapest way for the catalog's capabilities."""
    if not (capabilities.listing_has_locations or capabilities.describe_batch):
        yield from map(One, dict.fromkeys(ids))
        return
    # Plain tuples, because creating a validated id for each would take longer than everything else.
    by_parent: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for id in ids:
        by_parent[id[:-1]][id[-1]] = None
    for above, requested_names in by_parent.items():
        parent, names = NamespaceId(above), list(requested_names)
        if capabilities.describe_batch and len(names) >= capabilities.batch_from:
            for start in range(0, len(names), capabilities.describe_batch):
                yield Batch(parent, names[start : start + capabilities.describe_batch])
        elif (
            capabilities.listing_has_locations
            and len(names) > 2 * capabilities.page_worth
            and places.get(parent, _UNREAD).size <= _AMONG * len(names)
        ):
            yield Scan(parent, names)
        else:
            yield from (One(parent.table(name)) for name in names)


async def describe_tables(
    backend: Backend,
    ids: Iterable[TableId],
    *,
    max_in_flight: int,
    locator: Locator | None = None,
    progress: Advance | None = None,
    places: ListingPositions | None = None,
    with_columns: bool = False,
    on_table: OnTable | None = None,
) -> BulkResult[Table]:
    """Describes each id once.

    After a 401, and after the end of the operation's time, the remaining ids fail without a call.

    Args:
        backend: The backend to call.
        ids: The tables to describe; duplicates are ignored.
        max_in_flight: Maximum number of concurrent steps.
        locator: Locates each table with credentials, if the catalog vends any; None for descriptions without.
        progress: Receives the number of completed ids.
        places: The positions in listings after the previous group of ids; updated for the next group.
        with_columns: Whether the tables have the columns that the catalog stores, which its listings do not have.
        on_table: Receives each table as soon as it is described, before the result is complete.

    Cost:
        The calls of `plan`, and one more for each id that no shared response contained. With credentials, the calls of
        `locator` for each id, because no catalog vends credentials for several tables in one call.
    """
    unique_ids = dict.fromkeys(ids)
    places = {} if places is None else places
    if places:
        for parent in places.keys() - {id.parent for id in unique_ids}:
            del places[parent]
    describe = backend.describe_table if locator is None else locator.locate
    run = _Run(backend, describe, progress, places, on_table)
    # Ids that no shared response contained are described individually, to distinguish missing from denied ones.
    can = backend.capabilities_now
    naming = replace(can, listing_has_locations=False, describe_batch=0)
    separate = locator is not None and can.vends
    sharing = naming if separate or (with_columns and can.stores_columns) else can
    await each(run.step, plan(unique_ids, sharing, places), max_in_flight=max_in_flight)
    await each(run.step, plan(run.unseen, naming), max_in_flight=max_in_flight)
    return BulkResult(run.tables, {id: run.errors[id] for id in unique_ids if id in run.errors} if run.errors else {})


class _Run:
    def __init__(
        self,
        backend: Backend,
        describe: Callable[[TableId], Awaitable[Table]],
        progress: Advance | None,
        places: ListingPositions,
        on_table: OnTable | None,
    ) -> None:
        self._on_table = on_table
        self._backend = backend
        self._describe = describe
        self._progress = progress
        self._places = places
        self.tables: dict[TableId, Table] = {}
        self.errors: dict[TableId, err.LanceNamespaceError] = {}
        self.unseen: list[TableId] = []
        self._end: err.LanceNamespaceError | None = None

    async def step(self, step: Step) -> None:
        if (error := self._futile()) is not None:
            ids = [step.id] if isinstance(step, One) else await in_slices(step.parent.table, step.names)
            self.errors.update(dict.fromkeys(ids, error))
            count = len(ids)
        else:
            match step:
                case One(id):
                    await self._one(id)
                    count = 1
                case Batch(parent, names):
                    count = await self._describe_shared(parent, names, self._batch(parent, names))
                case Scan(parent, names):
                    count = await self._describe_shared(parent, names, self._scan(parent, names), probes=True)
        if self._progress is not None and count:
            self._progress(count)

    def _futile(self) -> err.LanceNamespaceError | None:
        """Returns the error that makes further calls useless; None if they may succeed."""
        left = remaining()
        if left is not None and left <= 0:
            why = "the operation's time ended before this table was described; set a longer timeout"
            return err.ServiceUnavailableError(f"Service unavailable: the catalog (describe_tables: {why})")
        return self._end

    def _note(self, error: err.LanceNamespaceError) -> None:
        """Records whether an error makes further calls useless."""
        if isinstance(error, err.UnauthenticatedError):
            # A 401 applies to every table.
            why = f"this table was not described, because another call was not authenticated: {error}"
            self._end = err.UnauthenticatedError(f"Unauthenticated: the catalog (describe_tables: {why})")

    async def _one(self, id: TableId) -> None:
        try:
            self._add(id, await self._describe(id))
        except err.LanceNamespaceError as e:
            self.errors[id] = without_traceback(e)
            self._note(e)

    async def _describe_shared(
        self, parent: NamespaceId, names: Sequence[str], work: Awaitable[None], *, probes: bool = False
    ) -> int:
        """Runs work that describes many names at once; returns how many of them it completed.

        Args:
            probes: Whether, after a failure of a busy catalog, one of the other names is described individually; if
                that succeeds, all others are, too.
        """
        error: err.LanceNamespaceError | None = None
        try:
            await work
        except err.LanceNamespaceError as e:
            error = without_traceback(e)
            self._note(error)
        # A scan that fails may have found some of the tables before.
        unseen = [id for id in await in_slices(parent.table, names) if id not in self.tables]
        if probes and unseen and isinstance(error, _BUSY) and self._futile() is None:
            # One failed listing of many pages does not mean that the catalog is down.
            probe, *unseen = unseen
            await self._one(probe)
            if not isinstance(self.errors.get(probe), _BUSY):
                self.unseen += unseen
                return len(names) - len(unseen)
        if isinstance(error, _OF_ALL):
            self.errors.update(dict.fromkeys(unseen, error))
            return len(names)
        self.unseen += unseen
        return len(names) - len(unseen)

    async def _batch(self, parent: NamespaceId, names: Sequence[str]) -> None:
        tables = await self._backend.describe_tables(parent, names)
        for name in names:
            if name in tables:
                self._add(parent.table(name), tables[name])

    def _add(self, id: TableId, table: Table) -> None:
        self.tables[id] = table
        if self._on_table is not None:
            self._on_table(table)

    async def _scan(self, parent: NamespaceId, names: Sequence[str]) -> None:
        """Reads the listing until all names are found, or until concurrent describes would have cost less."""
        can = self._backend.capabilities
        missing = {name.lower() if can.folds_case else name: name for name in names}
        # If the scan fails, the next group starts at the beginning.
        start = self._places.pop(parent, _UNREAD)
        last = start.token
        worth = read = 0
        async with aclosing(walk(partial(self._backend.scan_tables, parent), start.token)) as listing:
            async for token, page in listing:
                worth += can.page_worth
                read += len(page.items)
                for table in page.items:
                    if (name := missing.pop(table.id.name, None)) is not None:
                        match = replace(table, id=parent.table(name)) if can.folds_case else table
                        self._add(match.id, match)
                        last = token
                if worth >= max(len(missing), len(names) - len(missing)) or not missing:
                    break
        count = len(names) - len(missing)
        # If no table was found from a later page on, the tables may be on earlier pages.
        if count or start.token is None:
            self._places[parent] = ListingPosition(last, read * len(names) / count if count else inf)


def without_traceback(error: err.LanceNamespaceError) -> err.LanceNamespaceError:
    """Removes the tracebacks of an error, which keep 10 to 20 KB of its call's objects alive; returns the error."""
    rest: list[BaseException | None] = [error]
    while rest:
        if (link := rest.pop()) is not None and link.__traceback__ is not None:
            link.__traceback__ = None
            rest += (link.__cause__, link.__context__, failure_of(link))
    return error
