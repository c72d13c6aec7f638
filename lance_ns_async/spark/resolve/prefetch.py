"""The steps of one prefetch or refresh: search, describe, open and report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING

import lance_namespace.errors as err
from lance_namespace import DescribeTableVersionRequest
from lance_namespace.errors import InvalidTableStateError, TableNotFoundError, TableVersionNotFoundError

from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.observers import Call
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.engine.describe import Advance
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import NotALanceTableError, error_about
from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.many.each import open_each
from lance_ns_async.many.engines import OpenedTables
from lance_ns_async.many.patterns import Selection, matcher
from lance_ns_async.many.search import SearchResult, search
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.spark.resolve.location import CacheEntry, Location, LocationCache, without_expiry
from lance_ns_async.spark.resolve.report import PrefetchReport, one_error, report
from lance_ns_async.storage.datasets import Details, Snapshot, read_details
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.options import LEAD
from lance_ns_async.storage.threads import THREADS, in_thread
from lance_ns_async.tabular import Subject

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True, slots=True)
class PrefetchRequest:
    """The arguments of one run; see `LocationResolver.prefetch` and `LocationResolver.refresh`."""

    selection: Selection
    on_error: str
    max_in_flight: int
    timeout: float | None
    vends: bool
    """Whether to request credentials from the catalog."""
    where: str | None = None
    """A condition that only the partitions of a partitioned directory may have to be read for; None for all tables."""
    pin_versions: bool = False
    progress: bool | ProgressCallback = False
    previous: Mapping[TableId, Location] = field(default_factory=dict)
    """Locations whose versions are kept and storage options renewed; all other tables are resolved anew."""
    lasting: float = LEAD
    """Minimum remaining seconds of cached storage options; those that expire sooner are requested again."""

    def __post_init__(self) -> None:
        if self.on_error not in ("report", "raise"):
            raise err.InvalidInputError(f"on_error {self.on_error!r}: must be 'report' or 'raise'")
        if self.max_in_flight < 1:
            raise err.InvalidInputError(f"max_in_flight {self.max_in_flight}: must be at least 1")
        if self.timeout is not None and not self.timeout > 0:
            raise err.InvalidInputError(
                f"timeout {self.timeout}: must be a number of seconds above 0; use None for no limit"
            )
        if not self.lasting >= 0:
            raise err.InvalidInputError(f"lasting {self.lasting}: must be a number of seconds, at least 0")


async def prefetch(
    namespace: AsyncNamespace, *, cache: LocationCache, request: PrefetchRequest
) -> tuple[Sequence[Location], PrefetchReport]:
    """Runs one prefetch or refresh and updates the cache; see `LocationResolver.prefetch`."""
    start = monotonic()
    seconds: list[float] = []
    observers = namespace.session.caller.observers

    def note(call: Call) -> None:
        seconds.append(call.seconds)

    with observers.operation("prefetch"), deadline(request.timeout), observers.with_one(note):
        if request.where is None:
            result = await search(namespace.session, request.selection.patterns, max_in_flight=request.max_in_flight)
        else:
            result = await _partitions(namespace, request.selection, request.where)
            # It is no error if no partition may match.
            request = replace(request, selection=Selection((), ()))
        run = _Run(namespace, cache, request, result)
        with show_progress(request.progress, "resolving tables") as callback:
            steps = Steps(run.total, callback)
            await run.describe(steps)
            run.check_moves()
            if request.pin_versions:
                await run.open(steps)
    errors = [*run.errors(), *run.pattern_errors()]
    locations = run.locations()
    if errors and request.on_error == "raise":
        error = one_error([error for _, error in errors], of=len(locations) + len(errors))
        error.add_note("on_error='report' leaves these items out and lists them in the report")
        raise error
    from_cache = sum(location.id in run.from_cache for location in locations)
    took = monotonic() - start
    return locations, report(len(locations), errors, seconds=took, calls=seconds, from_cache=from_cache)


async def _partitions(namespace: AsyncNamespace, selection: Selection, where: str) -> SearchResult:
    """Returns the selected partitions that may have rows which match a condition."""
    matches, ids = matcher(selection.patterns), frozenset(selection.ids)
    partitions = [it for it in await namespace.list_partitions(where) if it.id in ids or matches(it.id)]
    if (pinned := next((it for it in partitions if it.is_pinned), None)) is not None:
        raise err.UnsupportedOperationError(
            f"Not supported: prefetch of {pinned.id} (the manifest sets the version to read; use open_partitions)"
        )
    tables = {it.id: it.table for it in partitions}
    return SearchResult(list(tables), (), tables, {}, {})


class _Run:
    """State of one run: the tables between their ids and their locations."""

    def __init__(
        self, namespace: AsyncNamespace, cache: LocationCache, request: PrefetchRequest, result: SearchResult
    ) -> None:
        self._namespace = namespace
        self._cache = cache
        self._request = request
        self._result = result
        self.ids = list(dict.fromkeys([*request.selection.ids, *sorted({*result.tables, *result.guesses})]))
        # Errors of namespaces are kept elsewhere, because a table and a namespace with the same names are equal keys.
        self._errors: dict[TableId, err.LanceNamespaceError] = dict(result.doubtful)
        self.entries: dict[TableId, CacheEntry] = {}
        self.from_cache: set[TableId] = set()
        for id in self.ids:
            entry = cache.get(id, lasting=request.lasting)
            table = result.descriptions.get(id)
            # The cached entry has the pinned version, but the table may have been created again at another location.
            if entry is not None and (table is None or table.location == entry.table.location):
                self.entries[id] = entry
                self.from_cache.add(id)
            elif table is not None and not request.vends:
                self.entries[id] = cache.learn(table)

    @property
    def total(self) -> int:
        """Number of steps: one for each table to describe and one for each dataset to open."""
        describes = sum(id not in self.entries for id in self.ids)
        return describes + (sum(map(self._is_to_open, self.ids)) if self._request.pin_versions else 0)

    def _is_to_open(self, id: TableId) -> bool:
        return id not in self._request.previous and (id not in self.entries or self.entries[id].details is None)

    async def describe(self, steps: Steps) -> None:
        """Describes the tables that are not known yet, in as few calls as the catalog allows."""
        unknown = [id for id in self.ids if id not in self.entries]
        if not unknown:
            return
        outcome = await self._namespace.describe_tables(
            unknown,
            vend_credentials=self._request.vends,
            max_in_flight=self._request.max_in_flight,
            progress=steps.part(),
        )
        self.entries.update((id, self._cache.learn(table)) for id, table in outcome.tables.items())
        named = frozenset(self._request.selection.ids)
        for id, error in outcome.errors.items():
            if id in named or id not in self._result.guesses or not _is_absence(error):
                self._errors[id] = error
        if self._request.pin_versions and outcome.errors:
            steps.advance(sum(map(self._is_to_open, outcome.errors)))

    def check_moves(self) -> None:
        """Records an error for each table of a refresh that has moved, because its pinned version is invalid there."""
        for id, old in self._request.previous.items():
            entry = self.entries.get(id)
            if entry is not None and old.version is not None and entry.table.location != old.location:
                self._errors[id] = error_about(
                    err.InvalidTableStateError,
                    id,
                    f"the table has moved from {old.location} to {entry.table.location}, so "
                    f"version {old.version} is no longer valid; prefetch it again",
                )

    async def open(self, steps: Steps) -> None:
        """Opens the datasets of the known tables that are not open yet."""
        entries = {id: entry for id, entry in self.entries.items() if self._is_to_open(id)}
        outcome = await open_tables(
            self._namespace.session.opener,
            (entry.table for entry in entries.values()),
            max_in_flight=self._request.max_in_flight,
            progress=steps.advance,
            finish=self._finish,
        )
        for id, details in outcome.tables.items():
            entries[id].details = details
        self._errors.update(outcome.errors)

    async def _finish(self, id: TableId, version: int) -> None:
        # The writer may have failed before it moved the manifest to where executors look. This call completes the move.
        await self._namespace.describe_table_version(DescribeTableVersionRequest(id=list(id), version=version))

    def errors(self) -> Iterator[tuple[NamespaceId | TableId, err.LanceNamespaceError]]:
        """Yields the errors of namespaces that could not be listed, then those of tables."""
        yield from self._result.errors.items()
        yield from self._errors.items()

    def pattern_errors(self) -> Iterator[tuple[Subject, err.LanceNamespaceError]]:
        """Yields an error for each pattern without a match, unless an error of a namespace may be the cause."""
        ids = [*self._result.doubtful, *(id for id in self.ids if id in self.entries or id in self._errors)]
        for pattern in self._request.selection.patterns:
            blind = any(
                pattern.concerns(at) and (at == pattern.start or not isinstance(error, err.NamespaceNotFoundError))
                for at, error in self._result.errors.items()
            )
            if not blind and not any(map(pattern.matches, ids)):
                yield pattern.item, err.TableNotFoundError(f"Table not found: no table matches {pattern.item}")

    def locations(self) -> list[Location]:
        """Returns the resolved locations, in the order of the request; those of patterns in the order of their ids."""
        return [
            self._location(entry)
            for id in self.ids
            if (entry := self.entries.get(id)) is not None and id not in self._errors
        ]

    def _location(self, entry: CacheEntry) -> Location:
        if (last := self._request.previous.get(entry.table.id)) is not None:
            return last.renewed(entry.table)
        return Location.of(entry.table, entry.details if self._request.pin_versions else None)


def _is_absence(error: err.LanceNamespaceError) -> bool:
    return isinstance(error, err.TableNotFoundError | err.NamespaceNotFoundError | NotALanceTableError)


async def open_tables(
    opener: Opener,
    tables: Iterable[Table],
    *,
    max_in_flight: int = THREADS,
    progress: Advance | None = None,
    finish: Callable[[TableId, int], Awaitable[object]] | None = None,
) -> BulkResult[Details]:
    """Opens each dataset once, at the version of its catalog or else the latest, and reads its details.

    Equal schemas become one shared object. If the storage lacks the version that the catalog names, `finish` is called
    with it, and the dataset is opened again.
    """
    schemas: dict[object, object] = {}

    async def read(table: Table) -> Details:
        def open_now(table: Table) -> Details:
            # The version is known and the credentials are new, so Lance needs no calls to the catalog.
            plain = replace(table, managed_versioning=False, storage_options=without_expiry(table.storage_options))
            return read_details(opener.open(plain, Snapshot(version=table.version)))

        def open_then() -> Details:
            try:
                return open_now(table)
            except (err.UnauthenticatedError, err.PermissionDeniedError):
                # The credentials may have ended while other tables were described and opened.
                if (renewed := opener.renew(table)) is table:
                    raise
                return open_now(renewed)

        return await in_thread(table, open_then)

    async def open_one(table: Table) -> Details:
        try:
            try:
                details = await read(table)
            except (TableNotFoundError, TableVersionNotFoundError):
                if finish is None or table.version is None:
                    raise
                await finish(table.id, table.version)
                details = await read(table)
        except TableNotFoundError:
            # The catalog has the table, so only its data is missing.
            raise error_about(
                InvalidTableStateError, table.id, f"declared, nothing written yet at {table.location}"
            ) from None
        # Metadata that differs between tables would make schemas with the same columns unequal.
        schema = details.schema.remove_metadata()
        return replace(details, schema=schemas.setdefault(schema, schema))

    by_id = {table.id: table for table in tables}
    return await open_each(by_id, open_one, max_in_flight=max_in_flight, progress=progress)


def open_datasets(tables: Collection[Table]) -> OpenedTables:
    """Opens each dataset, at its version if it has one; blocks."""

    async def open_all() -> BulkResult[LanceDataset]:
        async def open_one(table: Table) -> LanceDataset:
            plain = replace(table, storage_options=without_expiry(table.storage_options))
            return await in_thread(table, lambda: opener.open(plain, Snapshot(version=table.version)))

        return await open_each({it.id: it for it in tables}, open_one, max_in_flight=THREADS, progress=None)

    loop, opener = BackgroundLoop.lease(), Opener()
    try:
        result = loop.run(open_all())
    finally:
        loop.release()
        opener.close()
    return OpenedTables(result.tables, result.errors)
