"""Handlers for requests about anything that was not prefetched: the catalog, or a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NoReturn, Protocol

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
from lance_ns_async.calls.traffic import CallLoad
from lance_ns_async.model import Id, NamespaceId, Page, TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.patterns import What
from lance_ns_async.namespace.sync import Namespace
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.location_map import LocationMap


class Resolver(Protocol):
    """The part of `LocationResolver` that a served catalog needs."""

    @property
    def namespace(self) -> Namespace | AsyncNamespace:
        """The namespace of the catalog."""

    async def aprefetch(
        self, what: What, *, pin_versions: bool, on_error: Literal["report", "raise"], progress: bool
    ) -> Mapping[TableId, Location]:
        """Returns the locations of tables from the cache or the catalog."""

    def forget(self, what: What | None) -> None:
        """Removes tables from the cache."""


class Upstream(Protocol):
    """Handler of tables and operations that the prefetched locations do not cover."""

    renews: bool
    """Whether a known table can be requested again."""
    table_requests: int
    """Number of requests for a table."""
    other_requests: int
    """Number of other requests."""

    async def locate(self, id: TableId) -> Location:
        """Returns the location of a table."""

    def forget(self, ids: Sequence[TableId]) -> None:
        """Removes tables from the cache."""

    def has(self, operation: str) -> bool:
        """Returns whether the operation is available."""

    async def do(self, operation: str, request: Any, *others: Any) -> Any:
        """Returns the response to any other operation."""

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Registers an observer of remote calls; see `AsyncNamespace.observe`."""

    def snapshot(self) -> CallLoad | None:
        """Returns the load of remote calls; None if there are no remote calls."""


class CatalogUpstream:
    """The catalog of a resolver; its calls run in the event loop of the namespace."""

    renews = True

    def __init__(self, resolver: Resolver, namespace: Namespace) -> None:
        self._resolver = resolver
        self._namespace = namespace
        self.table_requests: int = 0
        self.other_requests: int = 0

    async def locate(self, id: TableId) -> Location:
        """Returns the location of the table from the resolver's cache or the catalog."""
        self.table_requests += 1
        locations = await self._resolver.aprefetch(id, pin_versions=False, on_error="raise", progress=False)
        return locations[id]

    def forget(self, ids: Sequence[TableId]) -> None:
        """Removes the tables from the resolver's cache."""
        self._resolver.forget(ids)

    def has(self, operation: str) -> bool:
        """Returns whether the namespace has the operation."""
        return hasattr(self._namespace, operation)

    async def do(self, operation: str, request: Any, *others: Any) -> Any:
        """Returns the response of the namespace's operation."""
        self.other_requests += 1
        return await self._namespace.arun(lambda client: getattr(client, operation)(request, *others))

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Registers an observer of remote calls; see `AsyncNamespace.observe`.

        Raises:
            InvalidInputError: The namespace is closed.
        """
        return self._namespace.observe(observer)

    def snapshot(self) -> CallLoad:
        """Returns the load of the namespace's calls."""
        return self._namespace.snapshot()


class PrefetchOnly:
    """Upstream without a catalog: lists the prefetched tables and refuses everything else."""

    renews = False
    table_requests = 0
    other_requests = 0

    def __init__(self, locations: LocationMap) -> None:
        self._ids = tuple(locations)
        self._missing = {problem.subject: problem.reason for problem in locations.report.missing}

    async def locate(self, id: TableId) -> Location:
        """Refuses the table.

        Raises:
            TableNotFoundError: The prefetch did not find the table.
            UnsupportedOperationError: The table was not prefetched.
        """
        if (reason := self._missing.get(id)) is not None:
            raise TableNotFoundError(reason)
        refuse(id, "was not prefetched")

    def forget(self, ids: Sequence[TableId]) -> None:
        """Does nothing, because there is no catalog to request the tables from."""

    def has(self, operation: str) -> bool:
        """Returns True, so that a refused operation raises an error with the reason."""
        return True

    async def do(self, operation: str, request: Any, *others: Any) -> Any:
        """Lists the prefetched tables and their namespaces.

        Raises:
            UnsupportedOperationError: Another operation, or a namespace without prefetched tables.
        """
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
        refuse(subject, f"{operation} needs the catalog")

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Returns an empty context, because there are no remote calls."""
        return nullcontext()

    def snapshot(self) -> None:
        """Returns None, because there are no remote calls."""

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
        ids = [id for id in self._ids if id.parent[: len(parent)] == parent]
        if not ids:
            refuse(parent, "contains no prefetched table")
        return ids


def refuse(subject: Id, why: str) -> NoReturn:
    """Raises UnsupportedOperationError for a request that needs the catalog; the message contains a remedy."""
    raise UnsupportedOperationError(
        f"{subject.kind} {subject}: {why}, and `serve` has no resolver; prefetch the tables that you need, "
        "or pass resolver=... to `serve`"
    )


async def _page(names: Iterable[str], request: ListTablesRequest | ListNamespacesRequest) -> Page[str]:
    items = sorted(names)

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return Page(items)

    return await take(fetch, keep_all, limit=request.limit, page_token=request.page_token)
