"""Listing the Lance tables of one or many namespaces, without tables of other formats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import TypeAlias

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.paging import take, walk
from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.engine.describe import Advance, OnTable, describe_tables
from lance_ns_async.engine.results import error_rows
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.rendering import counted
from lance_ns_async.tabular import Row, Tabular

TableFilter: TypeAlias = Callable[[TableId], bool]
"""Returns whether a table belongs in the listing."""


@dataclass(frozen=True, slots=True, repr=False)
class Listed(Tabular):
    """The outcome of listing many namespaces: the failure of one does not affect the others."""

    tables: Mapping[NamespaceId, Sequence[TableId]] = field(default_factory=dict)
    """The tables of each namespace that could be listed, in the catalog's order."""
    errors: Mapping[NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    described: Mapping[TableId, Table] = field(default_factory=dict)
    """Tables that the listing described without further calls; which ones depends on the catalog."""
    doubtful: Mapping[TableId, LanceNamespaceError] = field(default_factory=dict)
    """Listed tables whose format could not be determined, with the error."""
    vanished: Collection[TableId] = ()
    """Listed tables that the catalog did not find: they were dropped meanwhile, or their metadata is gone."""

    def raise_for_errors(self) -> Listed:
        """Returns itself if there are no errors.

        Raises:
            LanceNamespaceError: The first error.
        """
        for error in (*self.errors.values(), *self.doubtful.values()):
            raise error
        return self

    def line(self) -> str:
        """Returns the numbers of tables, namespaces and errors."""
        tables = counted(sum(map(len, self.tables.values())), "tables")
        errors = counted(len(self.errors) + len(self.doubtful), "errors")
        return f"Listed({tables} in {counted(len(self.tables), 'namespaces')}, {errors})"

    def table_rows(self) -> Sequence[Row]:
        """Returns a row for each table, and for each error of a namespace or a table."""
        tables = [id for names in self.tables.values() for id in names]
        locations = {id: table.location for id, table in self.described.items()}
        return [
            *error_rows(self.errors),
            *error_rows(self.doubtful),
            *(Row(id, "vanished", "it was dropped meanwhile, or its metadata is gone") for id in self.vanished),
            *(Row(id, "listed", location=locations.get(id)) for id in tables),
        ]


class Lister:
    """Lists tables through one backend; stores each table that it had to describe in `descriptions`.

    A `tolerant` lister stores errors of describes in `doubtful`; otherwise they are raised. `on_table` receives each
    table as soon as it is described.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        max_in_flight: int,
        include: TableFilter | None = None,
        tolerant: bool = False,
        on_table: OnTable | None = None,
    ) -> None:
        self._backend = backend
        self._on_table = on_table
        self._max_in_flight = max_in_flight
        self._filter = include
        self._tolerant = tolerant
        self.descriptions: dict[TableId, Table] = {}
        self.doubtful: dict[TableId, LanceNamespaceError] = {}
        self.vanished: set[TableId] = set()

    async def page(self, parent: NamespaceId, limit: int | None, page_token: str | None) -> Page[str]:
        """Returns at most `limit` names of Lance tables in `parent`; None for all."""

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return self.sort(await self._backend.list_tables(parent, token, size))

        return await take(fetch, partial(self.keep, parent), limit=limit, page_token=page_token)

    async def everything(self, parent: NamespaceId) -> Sequence[TableId]:
        """Returns all Lance tables in `parent`, and stores their descriptions if the listing has locations."""
        if len(parent) < self._backend.capabilities.min_depth:
            if parent:
                # There are no tables at this level, but the namespace must exist.
                await self._backend.describe_namespace(parent)
            return []
        if not self._backend.capabilities.listing_has_locations:
            names = await self.page(parent, None, None)
            return await in_slices(parent.table, names.items)
        tables: dict[TableId, Table] = {}
        async with aclosing(walk(partial(self._backend.scan_tables, parent))) as pages:
            async for _, page in pages:
                selectors = await in_slices(lambda table: self._wants(table.id), page.items)
                tables.update((table.id, table) for table in compress(page.items, selectors))
        self.descriptions.update(tables)
        if self._on_table is not None:
            for table in tables.values():
                self._on_table(table)
        return list(tables)

    async def many(self, namespaces: Iterable[NamespaceId], progress: Advance | None = None) -> Listed:
        """Lists the tables of each namespace, concurrently; `progress` receives the number of listed namespaces."""
        tables: dict[NamespaceId, Sequence[TableId]] = {}
        errors: dict[NamespaceId, LanceNamespaceError] = {}

        async def work(namespace: NamespaceId) -> None:
            try:
                tables[namespace] = await self.everything(namespace)
            except LanceNamespaceError as e:
                errors[namespace] = e
            if progress is not None:
                progress(1)

        await each(work, dict.fromkeys(namespaces), max_in_flight=self._max_in_flight)
        return Listed(tables, errors, self.descriptions, self.doubtful, self.vanished)

    async def keep(self, parent: NamespaceId, names: Sequence[str]) -> Sequence[str]:
        """Returns the names of Lance tables; raises other errors of a describe unless the lister is tolerant."""
        ids = await in_slices(parent.table, names)
        if self._filter is not None:
            ids = [id for id in ids if self._filter(id)]
        if self._backend.capabilities.lists_only_lance:
            return [id.name for id in ids]
        await self._describe(ids)
        return [id.name for id in ids if id in self.descriptions]

    async def tables(self, parent: NamespaceId, names: Sequence[str]) -> Sequence[Table]:
        """Returns the Lance tables among the names, described; each costs at most one call."""
        ids = await in_slices(parent.table, await self.keep(parent, names))
        await self._describe([id for id in ids if id not in self.descriptions])
        return [self.descriptions[id] for id in ids if id in self.descriptions]

    async def _describe(self, ids: Sequence[TableId]) -> None:
        outcome = await describe_tables(self._backend, ids, max_in_flight=self._max_in_flight, on_table=self._on_table)
        self.descriptions.update(outcome.tables)
        for id, error in outcome.errors.items():
            if isinstance(error, NotALanceTableError):
                continue
            if isinstance(error, TableNotFoundError):
                self.vanished.add(id)
                continue
            if not self._tolerant:
                raise error
            self.doubtful[id] = error

    def _wants(self, id: TableId) -> bool:
        return self._filter is None or self._filter(id)

    def sort(self, page: Page[str]) -> Page[str]:
        """Returns the page, sorted if the catalog has no pages, so that the order is the same in every call."""
        return page if self._backend.capabilities.paginates else Page(sorted(page.items), page.token)
