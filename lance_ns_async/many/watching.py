"""Watching a catalog: looks at it again and again, and says what has changed between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import ceil
from typing import TypeVar

import lance_namespace.errors as err

from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.describe import describe_tables
from lance_ns_async.errors import NotALanceTableError, error_about, raise_first
from lance_ns_async.lifecycle import manifests
from lance_ns_async.many.changes import (
    MAX_TABLES,
    MAX_TOKEN,
    CatalogState,
    Change,
    ChangeKind,
    Observation,
    SeenTable,
    with_tokens,
)
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.many.search import search
from lance_ns_async.model import Id, NamespaceId, Table, TableId, local_path, place_of
from lance_ns_async.session import Session
from lance_ns_async.storage.threads import THREADS, aside

K = TypeVar("K", TableId, NamespaceId)
T = TypeVar("T")

_INLINE = 1_000  # Number of tables that are compared in the event loop; more are compared in a thread.

_GROUP = 64  # Number of local tables whose versions are read in one thread.


async def changes(
    session: Session,
    what: What,
    *,
    since: str | None = None,
    existing: bool = False,
    versions: bool = True,
    every: float | None,
    examine_every: float,
) -> AsyncGenerator[Sequence[Change], None]:
    """Yields the changes of each look that sees any; see `AsyncNamespace.watch`."""
    if not (every is None or every > 0) or not examine_every > 0:
        raise err.InvalidInputError(f"every {every}, examine_every {examine_every}: must be numbers of seconds above 0")
    watch = Watch(session, what, versions=versions)
    if since is None:
        new_changes = await watch.begin()
        if not existing:
            new_changes = []
    else:
        watch.resume(since)
        new_changes = await watch.look()
    while True:
        if new_changes:
            yield new_changes
        if every is None:
            return
        await asyncio.sleep(every)
        new_changes = await watch.look(min(1.0, every / examine_every))


async def token(session: Session, what: What, *, versions: bool = True) -> str:
    """See `AsyncNamespace.watch_token`."""
    watch = Watch(session, what, versions=versions)
    await watch.begin()
    return watch.state.token()


@dataclass(slots=True)
class _Look:
    """What one look has read."""

    tables: dict[TableId, Table] = field(default_factory=dict)
    """The tables that exist, as far as they were described."""
    gone: set[TableId] = field(default_factory=set)
    """Tables that do not exist, or have another format."""
    errors: dict[TableId, err.LanceNamespaceError] = field(default_factory=dict)
    """The tables that could not be read."""
    unlisted: dict[NamespaceId, err.LanceNamespaceError] = field(default_factory=dict)
    """The namespaces that could not be listed."""
    versions: dict[TableId, int | None] = field(default_factory=dict)
    """The latest versions that were read."""

    def note(self, errors: Mapping[TableId, err.LanceNamespaceError]) -> None:
        """Adds the outcome of tables that were not described."""
        for id, error in errors.items():
            if isinstance(error, err.TableNotFoundError | err.NamespaceNotFoundError | NotALanceTableError):
                self.gone.add(id)
            else:
                self.errors[id] = error


class Watch:
    """The tables of a selection, as the last look saw them.

    Args:
        session: The catalog.
        what: The selection.
        versions: Whether to look for new versions.
        may_see: Returns whether a table, or an error of a namespace, may be seen; others do not exist for this watch.
        catalog: The name of the catalog in tokens; None for one that has its address.
    """

    def __init__(
        self,
        session: Session,
        what: What,
        *,
        versions: bool,
        may_see: Callable[[Id], bool] = lambda _: True,
        catalog: str | None = None,
    ) -> None:
        self._session = session
        self._backend = session.backend
        self._selection = Selection.read(what)
        self._requested = [session.table(id) for id in self._selection.ids]
        self._may_see = may_see
        self._with_versions = versions
        items = [*map(str, self._requested), *(str(it.item) for it in self._selection.patterns)]
        self.state: CatalogState = CatalogState([catalog or session.catalog, *sorted(items)])
        self._locations: dict[TableId, str] = {}
        """The locations that the catalog or a trusted token has shown; no others are read."""
        self._foreign: dict[TableId, None] = {}
        """Listed tables of other formats, which are described again when it is their turn."""
        self._reported_tables: dict[TableId, type[err.LanceNamespaceError]] = {}
        self._reported_namespaces: dict[NamespaceId, type[err.LanceNamespaceError]] = {}
        """The errors that were told, until what failed can be read; apart, because ids of both kinds can be equal."""

    @property
    def unlisted(self) -> Collection[NamespaceId]:
        """The namespaces that the last look could not list."""
        return self._reported_namespaces.keys()

    async def begin(self) -> Sequence[Change]:
        """Returns every table as created."""
        new_changes = await self.look()
        raise_first([it.error for it in new_changes if it.error is not None], len(new_changes))
        return new_changes

    def resume(
        self, token: str, *, max_bytes: int = MAX_TOKEN, max_tables: int = MAX_TABLES, is_trusted: bool = True
    ) -> None:
        """Goes on after the change of a token; the next look must be complete.

        Args:
            token: The token.
            max_bytes: Maximum size of its content.
            max_tables: Maximum number of its tables.
            is_trusted: Whether locations of the token may be read, because nobody else can have written it.
        """
        self.state = CatalogState.read(token, self.state.of, max_bytes=max_bytes, max_tables=max_tables)
        self._locations = {id: table.location for id, table in self.state.tables.items()} if is_trusted else {}

    async def look(self, share: float = 1.0) -> Sequence[Change]:
        """Returns what has changed since the last look.

        Args:
            share: The share of tables that are examined although the listing shows no change: those that were not
                examined for the longest time.
        """
        before = self.state
        due = await self._work(lambda: set(_first(before.tables, share)))
        for id in _first(self._foreign, share):
            del self._foreign[id]
        with self._session.caller.observers.operation("watch"), self._session.within(None):
            try:
                look = await self._list(due)
            except err.InvalidInputError:
                raise
            except err.LanceNamespaceError as e:
                look = _Look(unlisted={NamespaceId(): e})
                due = set()
            await self._work(partial(self._note_locations, look))
            if self._with_versions:
                await self._read_versions(look, due)
        return await self._work(partial(self._conclude, look, due))

    async def _work(self, work: Callable[[], T]) -> T:
        """Returns the result of work on all tables; for many, it would hold up the event loop."""
        return work() if len(self.state.tables) <= _INLINE else await aside(work, "states")

    def _note_locations(self, look: _Look) -> None:
        # A token may have tables that this watch may not see.
        look.gone.update(id for id in self.state.tables if not self._may_see(id))
        self._locations.update((id, table.location) for id, table in look.tables.items())
        for id in look.gone:
            self._locations.pop(id, None)

    def _conclude(self, look: _Look, due: Collection[TableId]) -> Sequence[Change]:
        """Returns what has changed, and goes on from there."""
        before = self.state
        observations = [*self._compare(look), *self._tell(look)]
        last = before.after(observations)
        # The others have their turn before those that were examined now.
        self.state = last.with_at_the_end(due)
        return with_tokens(observations, before, self.state)

    async def _list(self, due: Collection[TableId]) -> _Look:
        """Lists the tables, and describes those that are new or due, unless the listing has described them."""
        last_tables, look = self.state.tables, _Look()
        describes_listed = not self._backend.capabilities.listing_has_locations
        listed: set[TableId] = set()
        included: set[TableId] = set()

        def is_unknown(id: TableId) -> bool:
            return id not in last_tables or id in due

        def include(id: TableId) -> bool:
            if not self._may_see(id):
                return False
            listed.add(id)
            if describes_listed and (not is_unknown(id) or id in self._foreign):
                return False
            included.add(id)
            return True

        workers = self._session.workers()
        result = await search(self._session, self._selection.patterns, max_in_flight=workers, include=include)
        named = filter(self._may_see, [*result.guesses, *self._requested])
        candidates = dict.fromkeys([*result.tables, *named])
        look.tables.update(result.descriptions)
        await self._describe(look, [id for id in candidates if is_unknown(id) and id not in look.tables])
        look.note(result.doubtful)
        # A missing namespace has no tables.
        failed = {id: e for id, e in result.errors.items() if not isinstance(e, err.NamespaceNotFoundError)}
        look.unlisted.update((id, e) for id, e in failed.items() if self._may_see(id))
        foreign = included.difference(result.tables, result.doubtful, result.vanished)
        self._foreign.update(dict.fromkeys(foreign))
        look.gone.update(foreign, result.vanished)

        def note_unseen() -> None:
            for id in last_tables:
                is_seen = id in look.tables or id in listed or id in candidates
                if not (is_seen or any(NamespaceId(id[:depth]) in look.unlisted for depth in range(len(id)))):
                    look.gone.add(id)

        await self._work(note_unseen)
        if (
            last_tables
            and look.gone >= last_tables.keys()
            and not await self._backend.may_have_dropped(last_tables.keys())
        ):
            raise err.ServiceUnavailableError("Service unavailable: the storage of the catalog itself is gone")
        return look

    async def _describe(self, look: _Look, ids: Sequence[TableId]) -> None:
        result = await describe_tables(self._backend, ids, max_in_flight=self._session.workers())
        look.tables.update(result.tables)
        look.note(result.errors)

    async def _read_versions(self, look: _Look, due: Collection[TableId]) -> None:
        """Reads the versions of the tables that are new, replaced or due."""

        def select() -> list[Table]:
            for id in (due & self._locations.keys()) - look.tables.keys() - look.gone - look.errors.keys():
                options = self._backend.configured_options
                registration = self.state.tables[id].registration
                look.tables[id] = Table(id, self._locations[id], None, options, registration=registration)
            to_read: list[Table] = []
            for id, table in look.tables.items():
                last = self.state.tables.get(id)
                if table.managed_versioning:
                    look.versions[id] = table.version
                elif last is None or id in due or not last.is_of(table):
                    to_read.append(table)
            return to_read

        async def read(group: Sequence[Table]) -> None:
            results: Mapping[TableId, int | err.LanceNamespaceError | None]
            try:
                with self._session.operation():
                    results = await manifests.find_latest([await self._session.with_credentials(it) for it in group])
            except err.LanceNamespaceError as e:
                results = dict.fromkeys((table.id for table in group), e)
            for id, result in results.items():
                if result is None and (last := self._last_version(look.tables[id])) is not None:
                    text = f"it had version {last}, and has none now: its data was removed, or its disk is not mounted"
                    look.errors[id] = error_about(err.InvalidTableStateError, id, text)
                elif not isinstance(result, err.LanceNamespaceError):
                    look.versions[id] = result
                elif not isinstance(result, err.TableNotFoundError):
                    look.errors[id] = result
                # Otherwise it was dropped meanwhile, and the next look sees it.

        await each(read, _groups(await self._work(select)), max_in_flight=min(self._session.workers(), THREADS))

    def _last_version(self, table: Table) -> int | None:
        """Returns the version that was seen last, if the table is still the same."""
        last = self.state.tables.get(table.id)
        return last.version if last is not None and last.is_of(table) else None

    def _compare(self, look: _Look) -> Iterator[Observation]:
        last_tables = self.state.tables
        gone = {id: last_tables[id].location for id in last_tables if id in look.gone}
        by_place = {place_of(location): id for id, location in gone.items()}
        created: list[Observation] = []
        for id, table in look.tables.items():
            last, version = last_tables.get(id), look.versions.get(id)
            now = SeenTable(table.location, table.registration, version)
            if last is None:
                old_id = by_place.pop(place_of(table.location), None)
                kind = ChangeKind.CREATED if old_id is None else ChangeKind.RENAMED
                created.append((Change(kind, id, table.location, version, old_id=old_id), now))
                if old_id is not None:
                    del gone[old_id]
            elif not last.is_of(table) or (id in look.versions and (version or 0) < (last.version or 0)):
                yield Change(ChangeKind.REPLACED, id, table.location, version), now
            elif id in look.versions and version != last.version:
                yield Change(ChangeKind.VERSION, id, table.location, version, last.version), now
        for id, location in gone.items():
            yield Change(ChangeKind.DROPPED, id, location), None
        yield from created

    def _tell(self, look: _Look) -> Iterator[Observation]:
        """Yields the errors that were not told yet, and forgets those of what was read since."""
        read = look.gone | (look.versions.keys() if self._with_versions else look.tables.keys())
        for id in (self._reported_tables.keys() & read) - look.errors.keys():
            del self._reported_tables[id]
        for namespace in self._reported_namespaces.keys() - look.unlisted.keys():
            del self._reported_namespaces[namespace]
        yield from _unreported(look.unlisted, self._reported_namespaces)
        yield from _unreported(look.errors, self._reported_tables)


def _unreported(
    errors: Mapping[K, err.LanceNamespaceError], reported: dict[K, type[err.LanceNamespaceError]]
) -> Iterator[Observation]:
    for id, error in errors.items():
        if reported.get(id) is not type(error):
            reported[id] = type(error)
            yield Change(ChangeKind.UNREADABLE, id, error=error), None


def _groups(tables: Sequence[Table]) -> Iterator[Sequence[Table]]:
    """Yields groups of tables for one thread: many local tables, whose listings take less than the way to a thread."""
    local = [table for table in tables if local_path(table.location) is not None]
    yield from ([table] for table in tables if local_path(table.location) is None)
    yield from (local[start : start + _GROUP] for start in range(0, len(local), _GROUP))


def _first(items: Collection[T], share: float) -> Sequence[T]:
    return list(islice(items, ceil(len(items) * share)))
