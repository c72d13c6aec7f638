"""Listing the tables of one namespace or of many, Lance tables alone whatever the catalog mixes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.bulk import describe_tables
from lance_ns_async.concurrency import each
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.paging import take, walk


@dataclass(frozen=True, slots=True)
class Listed:
    """The outcome of listing many namespaces: one that fails never spoils the others."""

    tables: Mapping[NamespaceId, Sequence[TableId]] = field(default_factory=dict)
    """The tables of each namespace that could be listed, in the catalog's order."""
    errors: Mapping[NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    described: Mapping[TableId, Table] = field(default_factory=dict)
    """The tables whose description the listing gave for nothing; which they are depends on the catalog."""

    def raise_for_errors(self) -> Listed:
        """Itself where all could be listed; otherwise raises the first error."""
        for error in self.errors.values():
            raise error
        return self


class Lister:
    """Lists through one backend; remembers each table that it had to describe for that in `described`."""

    def __init__(self, backend: Backend, *, max_in_flight: int) -> None:
        self._backend = backend
        self._max_in_flight = max_in_flight
        self.described: dict[TableId, Table] = {}

    async def page(self, parent: NamespaceId, limit: int | None, page_token: str | None) -> Page[str]:
        """At most `limit` names of Lance tables in `parent`, None being all."""

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return self.sorted(await self._backend.list_tables(parent, token, size))

        return await take(fetch, partial(self.keep, parent), limit=limit, page_token=page_token)

    async def all(self, parent: NamespaceId) -> Sequence[TableId]:
        """All Lance tables in `parent`, described where the listing tells their locations."""
        if not self._backend.capabilities.listing_has_locations:
            names = await self.page(parent, None, None)
            return [parent.table(name) for name in names.items]
        found: dict[TableId, Table] = {}
        async with aclosing(walk(partial(self._backend.scan_tables, parent))) as pages:
            async for _, page in pages:
                found.update((table.id, table) for table in page.items)
        self.described.update(found)
        return list(found)

    async def many(self, namespaces: Iterable[NamespaceId]) -> Listed:
        """The tables of each namespace, listed side by side."""
        tables: dict[NamespaceId, Sequence[TableId]] = {}
        errors: dict[NamespaceId, LanceNamespaceError] = {}

        async def work(namespace: NamespaceId) -> None:
            try:
                tables[namespace] = await self.all(namespace)
            except LanceNamespaceError as e:
                errors[namespace] = e

        await each(work, dict.fromkeys(namespaces), max_in_flight=self._max_in_flight)
        return Listed(tables, errors, self.described)

    async def keep(self, parent: NamespaceId, names: Sequence[str]) -> Sequence[str]:
        """Those of the names that are Lance tables; whatever else goes wrong with one of them is raised."""
        if self._backend.capabilities.lists_only_lance:
            return names
        ids = [parent.table(name) for name in names]
        outcome = await describe_tables(self._backend, ids, max_in_flight=self._max_in_flight)
        for error in outcome.errors.values():
            # A table that is gone by now is no longer in the listing either.
            if not isinstance(error, NotALanceTableError | TableNotFoundError):
                raise error
        self.described.update(outcome.tables)
        return [id.name for id in ids if id in outcome.tables]

    def sorted(self, page: Page[str]) -> Page[str]:
        """The page in an order that holds from call to call, where the catalog has no tokens to go on with."""
        return page if self._backend.capabilities.paginates else Page(sorted(page.items), page.token)
