"""Namespace with prefetched tables in front of the catalog of a resolver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from time import time
from typing import Any, Literal, Protocol

from lance_namespace import RenameTableRequest
from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.slots import CallLoad
from lance_ns_async.calls.tasks import SingleFlights
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.many.patterns import What
from lance_ns_async.model import TableId
from lance_ns_async.spark.resolve.location import LEAD, Location
from lance_ns_async.spark.serve.namespace import PrefetchNamespace
from lance_ns_async.sync import Namespace

MOVING = frozenset(
    {
        "create_empty_table",
        "create_table",
        "declare_table",
        "deregister_table",
        "drop_table",
        "register_table",
        "rename_table",
    }
)
"""Operations that may change or remove the location of a table."""


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


class CatalogNamespace(PrefetchNamespace):
    """The operations of a resolver's namespace, with many tables in memory.

    Other tables are described once by the catalog, which also handles all other operations. An operation that may
    change a table's location removes the table from memory. Calls run in the event loop of the resolver's namespace.
    """

    def __init__(self, locations: Mapping[TableId, Location], resolver: Resolver) -> None:
        super().__init__(locations, {})
        namespace = resolver.namespace
        if not isinstance(namespace, Namespace):
            raise InvalidInputError(
                "serve: this resolver has an AsyncNamespace, whose event loop is blocked while Spark plans; "
                "create the resolver with a Namespace"
            )
        self._namespace = namespace
        self._resolver = resolver
        self._evictions = 0
        self._flights = SingleFlights(self._learn)

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Registers an observer of remote calls while the context is open."""
        return self._namespace.observe(observer)

    def snapshot(self) -> CallLoad:
        """Returns the load of the namespace's calls."""
        return self._namespace.snapshot()

    def _has(self, operation: str) -> bool:
        return hasattr(self._namespace, operation)

    async def _locate(self, id: TableId) -> Location:
        at = self._locations.get(id)
        if at is None or (at.expires_at is not None and time() + LEAD > at.expires_at):
            # A request after an eviction does not share a call that started before the eviction.
            return await self._flights.outcome((self._evictions, id))
        self.hits += 1
        return at

    async def _learn(self, key: tuple[int, TableId]) -> Location:
        evictions, id = key
        self.misses += 1
        locations = await self._resolver.aprefetch(id, pin_versions=False, on_error="raise", progress=False)
        if evictions == self._evictions:
            self._locations[id] = locations[id]
        return locations[id]

    async def _do(self, operation: str, request: Any, *others: Any) -> Any:
        self.passed += 1
        try:
            return await self._namespace.arun(lambda client: getattr(client, operation)(request, *others))
        finally:
            # This applies to errors, too, because a failed operation may have changed the table.
            if operation in MOVING:
                self._evict(_moved_ids(request))
            elif operation == "drop_namespace":
                self._evict([id for id in self._locations if id[: len(request.id)] == tuple(request.id)])

    def _evict(self, ids: Sequence[TableId]) -> None:
        self._evictions += 1
        for id in ids:
            self._locations.pop(id, None)
        self._resolver.forget(ids)


def _moved_ids(request: Any) -> Sequence[TableId]:
    """Returns the ids whose location a request changes; a rename changes the old and the new id."""
    id = TableId(request.id)
    if not isinstance(request, RenameTableRequest):
        return [id]
    return [id, TableId([*(request.new_namespace_id or id.parent), request.new_table_name])]
