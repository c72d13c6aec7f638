"""`describe_tables`, and the search for the tables that match patterns, in as few calls as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.engine import describe
from lance_ns_async.engine.describe import OnTable
from lance_ns_async.engine.list import Lister, TableFilter
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.many.patterns import Pattern, Selection, What, items, matcher, parse_item
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.session import Session, traced


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search."""

    tables: Sequence[TableId]
    """Matching tables that were listed."""
    guesses: Collection[TableId]
    """Tables that may not exist: their namespace was found, and a pattern contains their exact name."""
    descriptions: Mapping[TableId, Table]
    """Tables whose description was part of a listing."""
    errors: Mapping[NamespaceId, LanceNamespaceError]
    """Namespaces that could not be listed."""
    doubtful: Mapping[TableId, LanceNamespaceError]
    """Matching tables that could not be described, so that their format is unknown."""
    vanished: Collection[TableId] = ()
    """Listed tables that the catalog did not find when they were described."""
    namespaces: Sequence[NamespaceId] = ()
    """The namespaces that can contain a match, also those without any."""


async def search(
    session: Session,
    patterns: Sequence[Pattern],
    *,
    max_in_flight: int,
    on_table: OnTable | None = None,
    include: TableFilter | None = None,
) -> SearchResult:
    """Walks the namespaces that can contain a match concurrently, and lists their tables.

    No listing is made for a namespace or table whose exact name is in a pattern. Namespaces and tables that are dropped
    during the search do not match. `on_table` receives each table of `descriptions` as soon as it is described.
    `include` is asked for each listed table that matches; others are neither described nor in the result.
    """
    if not patterns:
        return SearchResult((), (), {}, {}, {})
    walk = _Walk(session, patterns)
    holding = await walk.run(max_in_flight)
    to_list: list[NamespaceId] = []
    guesses: dict[TableId, None] = {}
    for parent in holding:
        names = {pattern.table_name for pattern in patterns if pattern.holds(parent)}
        if None in names:
            to_list.append(parent)
        guesses.update((parent.table(name), None) for name in names if name is not None)

    matches = matcher(patterns)

    def is_included(id: TableId) -> bool:
        return matches(id) and (include is None or include(id))

    with session.within(None):
        lister = Lister(
            session.backend, max_in_flight=max_in_flight, include=is_included, tolerant=True, on_table=on_table
        )
        listing = await lister.many(to_list)
    for parent, error in listing.errors.items():
        walk.note(parent, error)
    matching = [id for ids in listing.tables.values() for id in ids]
    for id in matching:
        guesses.pop(id, None)
    return SearchResult(
        matching, guesses.keys(), listing.described, walk.errors, listing.doubtful, listing.vanished, holding
    )


@traced
async def describe_tables(
    session: Session,
    what: What,
    *,
    vend_credentials: bool = False,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> BulkResult[Table]:
    """See `AsyncNamespace.describe_tables`."""
    with session.within(timeout), show_progress(progress, "describe tables") as show:
        return await describe_selected(
            session,
            await read_selection(session, what),
            vend_credentials=vend_credentials,
            max_in_flight=session.workers(max_in_flight),
            progress=show if progress else None,
        )


async def read_selection(session: Session, what: What) -> Selection:
    """Returns the parsed request, whose ids the catalog can have; other tasks get turns meanwhile."""

    def parse(item: str | Iterable[str]) -> TableId | Pattern:
        parsed = parse_item(item)
        return parsed if isinstance(parsed, Pattern) else session.table(parsed)

    return Selection.of(await in_slices(parse, items(what)))


async def describe_selected(
    session: Session,
    selection: Selection,
    *,
    vend_credentials: bool,
    max_in_flight: int,
    progress: ProgressCallback | None = None,
) -> BulkResult[Table]:
    """Returns the selected tables, and an error for each that was not described and for each unlisted namespace.

    Args:
        session: The session with the catalog.
        selection: The requested tables.
        vend_credentials: Whether the credentials that the catalog vends are requested.
        max_in_flight: Maximum number of concurrent calls.
        progress: Receives the numbers of described and of all tables.
    """
    if selection.patterns:
        selected = await describe_selection(
            session, selection, max_in_flight=max_in_flight, with_credentials=vend_credentials, progress=progress
        )
        errors, unlisted = dict(selected.missing), {}
        for id, error in selected.errors:
            if isinstance(id, NamespaceId):
                unlisted[id] = error
            else:
                errors[id] = error
        return BulkResult(selected.tables, errors, unlisted)
    return await describe.describe_tables(
        session.backend,
        selection.ids,
        max_in_flight=max_in_flight,
        locator=session.locator if vend_credentials else None,
        progress=None if progress is None else Steps(len(selection.ids), progress).advance,
    )


@dataclass(frozen=True, slots=True)
class SelectedTables:
    """The selected tables, described, and what could not be read."""

    tables: Mapping[TableId, Table]
    missing: Mapping[TableId, LanceNamespaceError]
    """Requested tables that do not exist; not those that a pattern could match."""
    errors: Sequence[tuple[NamespaceId | TableId, LanceNamespaceError]]
    """Tables and namespaces that could not be read; if there are none, no selected table is unknown."""
    vanished: Collection[TableId]
    """Listed tables that the catalog did not find: they were dropped meanwhile, or their metadata is gone."""
    namespaces: Sequence[NamespaceId]
    """The namespaces that can contain a match, also those without any."""


async def describe_selection(
    session: Session,
    selection: Selection,
    *,
    max_in_flight: int,
    with_columns: bool = False,
    with_credentials: bool = False,
    on_table: OnTable | None = None,
    include: TableFilter | None = None,
    progress: ProgressCallback | None = None,
) -> SelectedTables:
    """Returns the selected tables, described in as few calls as possible.

    Args:
        session: The session with the catalog.
        selection: The requested tables.
        max_in_flight: Maximum number of concurrent calls.
        with_columns: Whether the columns that the catalog stores are read, too.
        with_credentials: Whether the credentials that the catalog vends are requested.
        on_table: Receives each table as soon as it is described, also of a namespace whose listing fails later.
        include: Returns whether a table may be selected; others do not exist for this selection.
        progress: Receives the numbers of described and of all tables, after the listings.
    """
    backend, capabilities = session.backend, session.backend.capabilities
    requested_ids = dict.fromkeys(session.table(id) for id in selection.ids)
    # Listings have neither columns nor credentials.
    reads_again = (with_columns and capabilities.stores_columns) or (with_credentials and capabilities.vends)
    result = await search(
        session,
        selection.patterns,
        max_in_flight=max_in_flight,
        on_table=None if reads_again else on_table,
        include=include,
    )
    listed = {} if reads_again else result.descriptions
    ids = list(filter(include, dict.fromkeys([*result.tables, *result.guesses, *requested_ids])))
    unlisted = [id for id in ids if id not in listed]
    described = await describe.describe_tables(
        backend,
        unlisted,
        max_in_flight=max_in_flight,
        locator=session.locator if with_credentials else None,
        with_columns=with_columns,
        on_table=on_table,
        progress=None if progress is None else Steps(len(unlisted), progress).advance,
    )
    errors: list[tuple[NamespaceId | TableId, LanceNamespaceError]] = [*result.errors.items(), *result.doubtful.items()]
    missing: dict[TableId, LanceNamespaceError] = {}
    vanished = set(result.vanished)
    for id, error in described.errors.items():
        if not isinstance(error, TableNotFoundError | NamespaceNotFoundError):
            errors.append((id, error))
        elif id in requested_ids:
            missing[id] = error
        elif id not in result.guesses:
            vanished.add(id)
    tables = {id: table for id in ids if (table := listed.get(id) or described.tables.get(id)) is not None}
    return SelectedTables(tables, missing, errors, vanished, result.namespaces)


class _Walk:
    """Walk through the namespaces that patterns lead to, one level at a time."""

    def __init__(self, session: Session, patterns: Sequence[Pattern]) -> None:
        self._session = session
        self._patterns = patterns
        self._starts = dict.fromkeys(pattern.start for pattern in patterns)
        self._below: list[NamespaceId] = []
        self.errors: dict[NamespaceId, LanceNamespaceError] = {}

    async def run(self, max_in_flight: int) -> Sequence[NamespaceId]:
        """Returns the namespaces that can contain a match."""
        namespaces: dict[NamespaceId, None] = {}
        level = self._starts
        while level:
            namespaces.update(level)
            leading = [at for at in level if any(pattern.leads(at) for pattern in self._patterns)]
            self._below = []
            await each(self._visit, leading, max_in_flight=max_in_flight)
            level = dict.fromkeys(child for child in self._below if child not in namespaces)
        return [at for at in namespaces if at not in self.errors and any(p.holds(at) for p in self._patterns)]

    def note(self, at: NamespaceId, error: LanceNamespaceError) -> None:
        """Records an error; a missing namespace is an error only where a pattern starts."""
        if not isinstance(error, NamespaceNotFoundError) or at in self._starts:
            self.errors[at] = error

    async def _visit(self, at: NamespaceId) -> None:
        deepest = self._session.backend.capabilities.max_depth
        if deepest is not None and len(at) >= deepest and any(pattern.holds(at) for pattern in self._patterns):
            # It has no namespaces below it, and the listing of its tables shows whether it exists.
            return
        child_names = [pattern.children(at) for pattern in self._patterns if pattern.leads(at)]
        names = {name for some in child_names if some is not None for name in some}
        if None in child_names:
            try:
                async with aclosing(self._session.tree(at).namespaces(recursive=False)) as groups:
                    async for group in groups:
                        names.update(child.name for child in group)
            except LanceNamespaceError as e:
                self.note(at, e)
                return
        children = map(at.child, names)
        self._below += [child for child in children if any(pattern.concerns(child) for pattern in self._patterns)]
