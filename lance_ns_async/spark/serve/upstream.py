"""Who is asked about what was not prefetched: the catalog, or nobody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, NoReturn, Protocol

import anyio.to_thread
from lance_namespace import (
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    NamespaceExistsResponse,
)
from lance_namespace.errors import TableNotFoundError, UnsupportedOperationError

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.model import Id, NamespaceId, Page, TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.sync import Namespace
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.location_map import LocationMap
from lance_ns_async.spark.resolve.patterns import What


class Resolver(Protocol):
    """What a `LocationResolver` does for a served catalog."""

    @property
    def namespace(self) -> Namespace | AsyncNamespace:
        """The catalog that it asks."""

    async def aprefetch(
        self, what: What, *, pin_versions: bool, on_error: Literal["report", "raise"], progress: bool
    ) -> Mapping[TableId, Location]:
        """Returns the locations of tables, as it remembers them or its catalog says."""

    def forget(self, what: What | None) -> None:
        """Has the tables asked for anew."""


class Upstream(Protocol):
    """Where tables and operations come from that are not known already."""

    renews: bool
    """Whether it can be asked anew about a table that is known."""
    located: int
    """How often it was asked for a table."""
    passed: int
    """Other requests that it was handed."""

    async def locate(self, id: TableId) -> Location:
        """Where a table is."""

    def forget(self, ids: Sequence[TableId]) -> None:
        """Has the tables asked for anew."""

    def has(self, operation: str) -> bool:
        """Whether there is such an operation."""

    async def do(self, operation: str, request: Any, *others: Any) -> Any:
        """The answer to any other operation."""

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """See `AsyncNamespace.observe`."""


class Catalog:
    """A resolver's catalog, asked in the namespace's own event loop."""

    renews = True

    def __init__(self, resolver: Resolver, namespace: Namespace) -> None:
        self._resolver = resolver
        self._namespace = namespace
        self.located = 0
        self.passed = 0

    async def locate(self, id: TableId) -> Location:
        """Where the table is, as the resolver remembers it or its catalog says."""
        self.located += 1
        found = await self._resolver.aprefetch(id, pin_versions=False, on_error="raise", progress=False)
        return found[id]

    def forget(self, ids: Sequence[TableId]) -> None:
        """Has the resolver forget them."""
        self._resolver.forget(ids)

    def has(self, operation: str) -> bool:
        """Whether the namespace serves it."""
        return hasattr(self._namespace, operation)

    async def do(self, operation: str, request: Any, *others: Any) -> Any:
        """What the namespace answers."""
        self.passed += 1
        work = partial(getattr(self._namespace, operation), request, *others)
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """See `AsyncNamespace.observe`; raises InvalidInputError where the namespace is closed."""
        return self._namespace.observe(observer)


class Nobody:
    """No catalog: there are the tables that were prefetched, and nothing else is known or can be done."""

    renews = False
    located = 0
    passed = 0

    def __init__(self, locations: LocationMap) -> None:
        self._ids = tuple(locations)
        self._missing = {problem.subject: problem.reason for problem in locations.report.missing}

    async def locate(self, id: TableId) -> Location:
        """Raises TableNotFoundError for what the prefetch did not find, else UnsupportedOperationError."""
        if (reason := self._missing.get(id)) is not None:
            raise TableNotFoundError(reason)
        refuse(id, "was not prefetched")

    def forget(self, ids: Sequence[TableId]) -> None:
        """Nothing: nobody could be asked."""

    def has(self, operation: str) -> bool:
        """Everything is there to be refused, so that why is told."""
        return True

    async def do(self, operation: str, request: Any, *others: Any) -> Any:
        """Lists the tables and their namespaces; refuses all else."""
        match operation:
            case "list_tables":
                return await self._tables(request)
            case "list_namespaces":
                return await self._namespaces(request)
            case "namespace_exists":
                self._below(NamespaceId(request.id or ()))
                return NamespaceExistsResponse()
        names = getattr(request, "id", None) or ()
        subject = TableId(names) if names and "namespace" not in operation else NamespaceId(names)
        refuse(subject, f"cannot be asked for {operation}")

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """There is nothing to observe."""
        return nullcontext()

    async def _tables(self, request: ListTablesRequest) -> ListTablesResponse:
        parent = NamespaceId(request.id or ())
        depth = len(parent)
        names = {id.name for id in self._below(parent) if len(id) == depth + 1}
        page = await _page(names, request)
        return ListTablesResponse(tables=list(page.items), page_token=page.token)

    async def _namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        parent = NamespaceId(request.id or ())
        depth = len(parent)
        names = {id[depth] for id in self._below(parent) if len(id) > depth + 1}
        page = await _page(names, request)
        return ListNamespacesResponse(namespaces=list(page.items), page_token=page.token)

    def _below(self, parent: NamespaceId) -> Sequence[TableId]:
        found = [id for id in self._ids if id.parent[: len(parent)] == parent]
        if not found:
            refuse(parent, "has no table that was prefetched")
        return found


def refuse(subject: Id, why: str) -> NoReturn:
    """Says that nobody can be asked, and what helps."""
    raise UnsupportedOperationError(
        f"{subject.kind} {subject}: it {why}, and there is no catalog to ask: prefetch what is needed, "
        "or give `serve` a resolver=..."
    )


async def _page(names: Iterable[str], request: ListTablesRequest | ListNamespacesRequest) -> Page[str]:
    ordered = sorted(names)

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return Page(ordered)

    return await take(fetch, keep_all, limit=request.limit, page_token=request.page_token)
