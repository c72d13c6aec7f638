"""Namespace with prefetched tables, which the driver serves to Spark."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from time import time
from typing import Any

from lance_namespace import (
    DescribeTableRequest,
    DescribeTableResponse,
    RenameTableRequest,
    TableExistsRequest,
    TableExistsResponse,
)
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.tasks import SingleFlights
from lance_ns_async.calls.traffic import CallLoad
from lance_ns_async.model import TableId
from lance_ns_async.namespace import requests
from lance_ns_async.spark.resolve.cache import LEAD
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.resolve.location_map import LocationMap
from lance_ns_async.spark.serve.upstream import Upstream
from lance_ns_async.spec.routes import ROUTES

log: logging.Logger = logging.getLogger(__name__)

OPERATIONS = frozenset(route.operation for route in ROUTES)

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

SILENT = frozenset({"deregister_table", "drop_table"})
"""Operations whose errors the connector hides, so that Spark reports a drop that has failed as done."""


class PrefetchNamespace:
    """The operations of an AsyncNamespace, with many tables in memory.

    Tables in memory are described without a call, and so are other tables after their first request to the upstream.
    The upstream handles all other operations. An operation that may change a table's location removes the table from
    memory.
    """

    def __init__(self, locations: LocationMap, upstream: Upstream) -> None:
        self._locations: dict[TableId, Location] = dict(locations)
        self._upstream = upstream
        self._evictions = 0
        self._flights = SingleFlights(self._learn)
        self.hits: int = 0
        """Number of requests about a table that needed no upstream."""

    async def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Describes a table. The requested version is not checked, because the reader opens it or fails."""
        if request.load_detailed_metadata or request.check_declared or request.tag or request.branch:
            answer: DescribeTableResponse = await self._upstream.do("describe_table", request)
            return answer
        at = await self._locate(TableId(request.id or ()))
        # The pinned version is omitted, because a reader without a version reads the latest one.
        table = replace(at.table(), version=None)
        return requests.description(table, with_uri=request.with_table_uri)

    async def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        """Returns an empty response if the table exists; raises TableNotFoundError if not."""
        if request.version is not None:
            answer: TableExistsResponse = await self._upstream.do("table_exists", request)
            return answer
        await self._locate(TableId(request.id or ()))
        return TableExistsResponse()

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        """Returns any other operation that the upstream supports."""
        if operation not in OPERATIONS or not self._upstream.has(operation):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {operation!r}")
        return partial(self._pass_on, operation)

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Registers an observer of the remote calls of the upstream while the context is open."""
        return self._upstream.observe(observer)

    def snapshot(self) -> CallLoad | None:
        """Returns the load of the upstream's remote calls; None if there are none."""
        return self._upstream.snapshot()

    async def _locate(self, id: TableId) -> Location:
        at = self._locations.get(id)
        if at is None or (at.expires_at is not None and time() + LEAD > at.expires_at and self._upstream.renews):
            # A request after an eviction does not share a call that started before the eviction.
            return await self._flights.outcome((self._evictions, id))
        self.hits += 1
        return at

    async def _learn(self, key: tuple[int, TableId]) -> Location:
        evictions, id = key
        location = await self._upstream.locate(id)
        if evictions == self._evictions:
            self._locations[id] = location
        return location

    async def _pass_on(self, operation: str, request: Any, *others: Any) -> Any:
        try:
            return await self._upstream.do(operation, request, *others)
        except LanceNamespaceError as e:
            if operation in SILENT:
                log.warning("table %s was not dropped, but Spark reports no error: %s", TableId(request.id), e)
            raise
        finally:
            # This applies to errors, too, because a failed operation may have changed the table.
            if operation in MOVING:
                self._evict(_moved_ids(request))
            elif operation == "drop_namespace":
                self._evict([id for id in self._locations if id[: len(request.id)] == tuple(request.id)])

    def _evict(self, ids: Sequence[TableId]) -> None:
        # Without a catalog nothing was changed, and the tables could not be requested again.
        if self._upstream.renews:
            self._evictions += 1
            for id in ids:
                self._locations.pop(id, None)
            self._upstream.forget(ids)


def _moved_ids(request: Any) -> Sequence[TableId]:
    """Returns the ids whose location a request changes; a rename changes the old and the new id."""
    id = TableId(request.id)
    if not isinstance(request, RenameTableRequest):
        return [id]
    return [id, TableId([*(request.new_namespace_id or id.parent), request.new_table_name])]
