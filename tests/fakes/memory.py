"""A catalog in memory with the capabilities that a test chooses, and a count of its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import lance_namespace.errors as err

from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import COMMON_ERRORS, not_lance
from lance_ns_async.model import Id, NamespaceId, Page, Table, TableId
from lance_ns_async.session import Session
from lance_ns_async.settings import Settings
from lance_ns_async.storage.opening import Opener

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Size = Callable[[int, int | None], int]
"""Returns the number of names in the n-th page, n from 0; the second argument is the caller's page size."""


def fixed(*sizes: int) -> Size:
    """Returns pages of these sizes in turn, whatever the caller requests; the last size is repeated."""
    return lambda number, limit: sizes[min(number, len(sizes) - 1)]


def as_asked(number: int, limit: int | None) -> int:
    """Returns pages of the requested size; one page with all names if none is requested."""
    return limit or 1_000_000


class MemoryBackend(Backend):
    """A catalog in memory, in the order of creation. Tokens contain positions, so a repeated page begins at the same
    position."""

    settings = Settings
    errors = COMMON_ERRORS
    capabilities = Capabilities(min_depth=0, max_depth=None, replaces=True)

    def __init__(self, size: Size = as_asked) -> None:
        self.size = size
        self.namespaces: dict[NamespaceId, Mapping[str, str]] = {}
        self.tables: dict[TableId, Table] = {}
        self.others: set[TableId] = set()  # Tables of another format than Lance
        self.faults: dict[tuple[str, Id], err.LanceNamespaceError] = {}
        """The errors of operations, by operation and subject."""
        self.unlisted: set[TableId] = set()  # Tables that listings and batches omit, although a describe finds them
        self.endless: set[NamespaceId] = set()  # Namespaces whose listings never end, but return the same token again
        self.calls: list[tuple[str, Id]] = []
        self.on_call: Callable[[str, Id], None] = lambda operation, subject: None
        """Receives each call before its response."""
        self.turns = 1  # The number of turns of the event loop that a call takes
        self.in_flight = 0
        self.most_in_flight = 0

    @classmethod
    def able(cls, capabilities: Capabilities, size: Size = as_asked) -> MemoryBackend:
        backend_class: type[MemoryBackend] = type("AbleBackend", (cls,), {"capabilities": capabilities})
        return backend_class(size)

    @classmethod
    def open(cls, settings: Any, caller: Caller) -> MemoryBackend:
        return cls()

    def add_other_table(self, ids: Iterable[TableId]) -> None:
        """Adds Lance tables to the catalog, with their namespaces."""
        for id in ids:
            self.plant_namespace(id.parent)
            self.tables[id] = Table(id, f"mem://{'/'.join(id)}", {"name": id.name})

    def plant_others(self, ids: Iterable[TableId]) -> None:
        """Adds tables of another format to the catalog, with their namespaces."""
        for id in ids:
            self.plant_namespace(id.parent)
            self.others.add(id)

    def plant_namespace(self, id: NamespaceId) -> None:
        for depth in range(1, len(id) + 1):
            self.namespaces.setdefault(NamespaceId(id[:depth]), {})

    def drop_tree(self, id: NamespaceId) -> None:
        depth = len(id)
        self.namespaces = {n: kept for n, kept in self.namespaces.items() if n[:depth] != id}
        self.tables = {t: table for t, table in self.tables.items() if t[:depth] != id}
        self.others = {t for t in self.others if t[:depth] != id}

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        names = [id.name for id in self.namespaces if id.parent == parent]
        return await self._call("list_namespaces", parent, lambda: self._page(parent, names, token, limit))

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        return await self._call("describe_namespace", id, lambda: self._namespace(id))

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        def work() -> Mapping[str, str]:
            self._namespace(id.parent)
            if id in self.namespaces:
                raise err.NamespaceAlreadyExistsError(f"Namespace already exists: {id}")
            self.namespaces[id] = properties
            return properties

        return await self._call("create_namespace", id, work)

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        def work() -> None:
            self._namespace(id)
            inside = [*self.namespaces, *self.tables, *self.others]
            if any(other != id and other[: len(id)] == id for other in inside) and not cascade:
                raise err.NamespaceNotEmptyError(f"Namespace not empty: {id}")
            self.drop_tree(id)

        await self._call("drop_namespace", id, work)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._call(
            "list_tables", parent, lambda: self._page(parent, self._names(parent, other=True), token, limit)
        )

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        def work() -> Page[Table]:
            page = self._page(parent, self._names(parent, other=False), token, None)
            return Page([self.tables[parent.table(name)] for name in page.items], page.token)

        return await self._call("scan_tables", parent, work)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        return await self._call("describe_table", id, lambda: self._table(id))

    async def describe_tables(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        def work() -> Mapping[str, Table]:
            assert len(names) <= self.capabilities.describe_batch
            self._namespace(parent)
            ids = [parent.table(name) for name in names]
            return {id.name: self.tables[id] for id in ids if id in self.tables and id not in self.unlisted}

        return await self._call("describe_tables", parent, work)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        def work() -> Table:
            self._namespace(id.parent)
            if id in self.tables or id in self.others:
                raise err.TableAlreadyExistsError(f"Table already exists: {id}")
            self.tables[id] = Table(id, location or f"mem://{'/'.join(id)}", properties)
            return self.tables[id]

        return await self._call("declare_table", id, work)

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        """Accepts all tables."""

    async def remove_registration(self, id: TableId) -> None:
        await self._call("deregister_table", id, lambda: self.tables.pop(self._table(id).id))

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        def work() -> Table:
            kept = self._table(old.id)
            if kept.registration != old.registration:
                raise err.ConcurrentModificationError(f"Concurrent modification: {old.id}")
            columns = kept.schema if schema is None else schema
            self.tables[old.id] = replace(kept, location=location, properties=dict(properties), schema=columns)
            return self.tables[old.id]

        return await self._call("replace_table", old.id, work)

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise err.UnsupportedOperationError(f"Not supported: rename_table of {id}")

    async def aclose(self) -> None:
        """Does nothing."""

    async def _call(self, operation: str, subject: Id, work: Callable[[], T]) -> T:
        self.calls.append((operation, subject))
        self.on_call(operation, subject)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            if (fault := self.faults.get((operation, subject))) is not None:
                raise fault
            return work()
        finally:
            self.in_flight -= 1

    def _namespace(self, id: NamespaceId) -> Mapping[str, str]:
        if id and id not in self.namespaces:
            raise err.NamespaceNotFoundError(f"Namespace not found: {id}")
        return self.namespaces.get(id, {})

    def _table(self, id: TableId) -> Table:
        self._namespace(id.parent)
        if id in self.others:
            raise not_lance(id, "it is of another format")
        if id not in self.tables:
            raise err.TableNotFoundError(f"Table not found: {id}")
        return self.tables[id]

    def _names(self, parent: NamespaceId, *, other: bool) -> list[str]:
        ids = [*self.tables, *(self.others if other and not self.capabilities.lists_only_lance else ())]
        return [id.name for id in ids if id.parent == parent and id not in self.unlisted]

    def _page(self, parent: NamespaceId, names: Sequence[str], token: str | None, limit: int | None) -> Page[str]:
        self._namespace(parent)
        if not self.capabilities.paginates:
            return Page(names)
        if parent in self.endless:
            return Page(names[:1], "0/0")
        start, number = map(int, (token or "0/0").split("/"))
        end = start + self.size(number, limit)
        return Page(names[start:end], f"{end}/{number + 1}" if end < len(names) else None)


def over(backend: Backend, caller: Caller | None = None, *, id: str = "memory") -> AsyncNamespace:
    """Returns a namespace over a backend; the default caller has the usual policy and an empty error table."""
    return AsyncNamespace(Session(backend, caller or Caller(Policy(), {}), Opener(), id=id))
