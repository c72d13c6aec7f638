"""The selected tables of a catalog, described with as few calls as possible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.backends import operations
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import each, each_added
from lance_ns_async.engine.describe import OnTable, describe_tables
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.fleet.run import Run, failure_row
from lance_ns_async.many.patterns import Selection
from lance_ns_async.many.search import describe_selection
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.session import Session
from lance_ns_async.storage.threads import THREADS
from lance_ns_async.tabular import Row


@dataclass(frozen=True, slots=True)
class Reading:
    """The tables of a selection, and what could not be read of it."""

    tables: Mapping[TableId, Table]
    namespaces: Mapping[NamespaceId, Mapping[str, str]]
    """The properties of the namespaces of the tables, and of those that can contain a selected table."""
    capabilities: Capabilities
    missing: Sequence[TableId] = ()
    """Requested tables that do not exist."""
    errors: Sequence[tuple[NamespaceId | TableId, LanceNamespaceError]] = ()
    """Tables and namespaces that could not be read; if there are none, no selected table is unknown."""
    unread_properties: Mapping[NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    """Namespaces whose properties could not be read."""
    vanished: Collection[TableId] = ()
    """Listed tables that the catalog did not find: they were dropped meanwhile, or their metadata is gone."""

    @property
    def ids(self) -> set[TableId]:
        """All tables that exist, also those that could not be described."""
        return {*self.tables, *(id for id, _ in self.errors if isinstance(id, TableId))}

    def failure_rows(self) -> Iterator[Row]:
        """Yields a row for each table that does not exist, and for everything that could not be read."""
        for id in self.missing:
            yield failure_row(id, TableNotFoundError(f"Table not found: {id}"))
        for item, error in self.errors:
            yield failure_row(item, error)


async def read_tables(
    session: Session, selection: Selection, *, with_columns: bool = False, on_table: OnTable | None = None
) -> Reading:
    """Returns the selected tables of a catalog, described, and the properties of their namespaces.

    `on_table` receives each table as soon as it is described, also of a namespace whose listing fails later.

    Cost: the listings of the matching namespaces, a bulk describe, and one call for each namespace.
    """
    with session.within(None):
        selected = await describe_selection(
            session, selection, max_in_flight=session.workers(), with_columns=with_columns, on_table=on_table
        )
    namespaces, unread = await describe_namespaces(session, namespaces_of(selected.tables, selected.namespaces))
    # A namespace can contain readable tables, although its own properties are not readable.
    namespaces = {**{id: {} for id in unread}, **namespaces}
    return Reading(
        selected.tables,
        namespaces,
        session.backend.capabilities,
        list(selected.missing),
        selected.errors,
        unread,
        selected.vanished,
    )


async def describe(session: Session, ids: Iterable[TableId], *, with_columns: bool = False) -> BulkResult[Table]:
    """Describes tables, with the columns that the catalog stores if they are requested. Cost: a bulk describe."""
    with session.within(None):
        return await describe_tables(session.backend, ids, max_in_flight=session.workers(), with_columns=with_columns)


async def list_names(session: Session, parents: Iterable[NamespaceId]) -> Mapping[NamespaceId, Collection[str]]:
    """Returns the names of all listed tables; none for a missing namespace. Cost: a listing for each namespace."""
    names: dict[NamespaceId, set[str]] = {}

    async def work(parent: NamespaceId) -> None:
        names[parent] = set()
        with suppress(NamespaceNotFoundError), session.operation():
            async with aclosing(walk(lambda token: session.backend.list_tables(parent, token, None))) as pages:
                async for _, page in pages:
                    names[parent].update(page.items)

    await each(work, parents, max_in_flight=session.workers())
    return names


async def read_and_examine(
    session: Session,
    selection: Selection,
    examine: Callable[[Table], Awaitable[None]],
    run: Run,
    *,
    with_columns: bool = False,
) -> Reading:
    """Returns the selected tables; each one is examined as soon as it is described, also if it is dropped meanwhile."""

    async def work(table: Table) -> None:
        await examine(table)
        run.advance()

    def on_table(table: Table) -> None:
        run.expect(1)
        add(table)

    with session.within(None):
        async with each_added(work, max_in_flight=THREADS) as add:
            reading = await read_tables(session, selection, with_columns=with_columns, on_table=on_table)
    run.counters["tables"] = len(reading.tables)
    return reading


def namespaces_of(tables: Iterable[TableId], namespaces: Iterable[NamespaceId] = ()) -> Sequence[NamespaceId]:
    """Returns all namespaces that tables and other namespaces need, without the root, parents first."""
    needed: dict[NamespaceId, None] = {}
    for id in dict.fromkeys([*(id.parent for id in tables), *namespaces]):
        for depth in range(1, len(id) + 1):
            needed[NamespaceId(id[:depth])] = None
    return sorted(needed, key=len)


async def describe_namespaces(
    session: Session, ids: Iterable[NamespaceId]
) -> tuple[Mapping[NamespaceId, Mapping[str, str]], Mapping[NamespaceId, LanceNamespaceError]]:
    """Returns the properties of the namespaces that exist, and the errors of those that could not be described."""
    present: dict[NamespaceId, Mapping[str, str]] = {}
    errors: dict[NamespaceId, LanceNamespaceError] = {}

    async def describe(id: NamespaceId) -> None:
        try:
            with session.operation():
                present[id] = await operations.describe_namespace(session.backend, id)
        except NamespaceNotFoundError:
            return
        except LanceNamespaceError as e:
            errors[id] = e

    await each(describe, ids, max_in_flight=session.workers())
    return present, errors
