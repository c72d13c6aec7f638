"""Listing the tables of one namespace or of many, Lance tables alone whatever the catalog mixes in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.concurrency import each, in_slices
from lance_ns_async.calls.paging import take, walk
from lance_ns_async.engine.describe import describe_tables
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import NamespaceId, Page, Table, TableId

Wanted: TypeAlias = Callable[[TableId], bool]
"""Whether a table is to be listed at all."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The outcome of listing many namespaces: one that fails never spoils the others."""

    tables: Mapping[NamespaceId, Sequence[TableId]] = field(default_factory=dict)
    """The tables of each namespace that could be listed, in the catalog's order."""
    errors: Mapping[NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    described: Mapping[TableId, Table] = field(default_factory=dict)
    """The tables whose description the listing gave for nothing; which they are depends on the catalog."""
    doubtful: Mapping[TableId, LanceNamespaceError] = field(default_factory=dict)
    """What the catalog lists among other formats, and could not be told to be a Lance table or not."""

    def raise_for_errors(self) -> Listed:
        """Itself where all could be listed; otherwise raises the first error."""
        for error in (*self.errors.values(), *self.doubtful.values()):
            raise error
        return self


class Lister:
    """Lists through one backend; remembers each table that it had to describe for that in `described`.

    One that is `tolerant` notes what it could not describe in `doubtful`, where another raises.
    """

    def __init__(
        self, backend: Backend, *, max_in_flight: int, wanted: Wanted | None = None, tolerant: bool = False
    ) -> None:
        self._backend = backend
        self._max_in_flight = max_in_flight
        self._wanted = wanted
        self._tolerant = tolerant
        self.described: dict[TableId, Table] = {}
        self.doubtful: dict[TableId, LanceNamespaceError] = {}

    async def page(self, parent: NamespaceId, limit: int | None, page_token: str | None) -> Page[str]:
        """At most `limit` names of Lance tables in `parent`, None being all."""

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return self.ordered(await self._backend.list_tables(parent, token, size))

        return await take(fetch, partial(self.keep, parent), limit=limit, page_token=page_token)

    async def everything(self, parent: NamespaceId) -> Sequence[TableId]:
        """All Lance tables in `parent`, described where the listing tells their locations."""
        if len(parent) < self._backend.capabilities.min_depth:
            if parent:
                # It must be there all the same.
                await self._backend.describe_namespace(parent)
            return []
        if not self._backend.capabilities.listing_has_locations:
            names = await self.page(parent, None, None)
            return await in_slices(parent.table, names.items)
        found: dict[TableId, Table] = {}
        async with aclosing(walk(partial(self._backend.scan_tables, parent))) as pages:
            async for _, page in pages:
                found.update((table.id, table) for table in page.items if self._wants(table.id))
        self.described.update(found)
        return list(found)

    async def many(self, namespaces: Iterable[NamespaceId]) -> Listed:
        """The tables of each namespace, listed side by side."""
        tables: dict[NamespaceId, Sequence[TableId]] = {}
        errors: dict[NamespaceId, LanceNamespaceError] = {}

        async def work(namespace: NamespaceId) -> None:
            try:
                tables[namespace] = await self.everything(namespace)
            except LanceNamespaceError as e:
                errors[namespace] = e

        await each(work, dict.fromkeys(namespaces), max_in_flight=self._max_in_flight)
        return Listed(tables, errors, self.described, self.doubtful)

    async def keep(self, parent: NamespaceId, names: Sequence[str]) -> Sequence[str]:
        """Those of the names that are Lance tables; whatever else goes wrong with one of them is raised."""
        ids = await in_slices(parent.table, names)
        if self._wanted is not None:
            ids = [id for id in ids if self._wanted(id)]
        if self._backend.capabilities.lists_only_lance:
            return [id.name for id in ids]
        await self._describe(ids)
        return [id.name for id in ids if id in self.described]

    async def tables(self, parent: NamespaceId, names: Sequence[str]) -> Sequence[Table]:
        """Those of the names that are Lance tables, described; each is asked for at most once."""
        ids = await in_slices(parent.table, await self.keep(parent, names))
        await self._describe([id for id in ids if id not in self.described])
        return [self.described[id] for id in ids if id in self.described]

    async def _describe(self, ids: Sequence[TableId]) -> None:
        outcome = await describe_tables(self._backend, ids, max_in_flight=self._max_in_flight)
        self.described.update(outcome.tables)
        for id, error in outcome.errors.items():
            # A table that is gone by now is no longer in the listing either.
            if isinstance(error, NotALanceTableError | TableNotFoundError):
                continue
            if not self._tolerant:
                raise error
            self.doubtful[id] = error

    def _wants(self, id: TableId) -> bool:
        return self._wanted is None or self._wanted(id)

    def ordered(self, page: Page[str]) -> Page[str]:
        """The page in an order that holds from call to call, where the catalog has no tokens to go on with."""
        return page if self._backend.capabilities.paginates else Page(sorted(page.items), page.token)
