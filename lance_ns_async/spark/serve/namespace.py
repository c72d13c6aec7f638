"""Namespace with prefetched tables, which the driver serves to Spark."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from lance_namespace import (
    DescribeTableRequest,
    DescribeTableResponse,
    ListNamespacesResponse,
    ListTablesResponse,
    NamespaceExistsResponse,
    TableExistsRequest,
    TableExistsResponse,
)
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.calls.slots import CallLoad
from lance_ns_async.model import Id, NamespaceId, Page, TableId
from lance_ns_async.operations import requests
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spec.routes import ROUTES

log: logging.Logger = logging.getLogger(__name__)

OPERATIONS = frozenset(route.operation for route in ROUTES)

SILENT = frozenset({"deregister_table", "drop_table"})
"""Operations whose errors the connector hides, so that Spark reports a drop that has failed as done."""


class PrefetchNamespace:
    """The operations of an AsyncNamespace on prefetched tables, without a catalog.

    It describes and lists these tables, and refuses everything else.

    Args:
        locations: The prefetched tables.
        missing: The messages of the TableNotFoundError of other tables, by id.
    """

    def __init__(self, locations: Mapping[TableId, Location], missing: Mapping[Any, str]) -> None:
        self._locations = dict(locations)
        self._missing = missing
        self.hits: int = 0
        """Number of requests about a table that needed no catalog."""
        self.misses: int = 0
        """Number of requests for a table to the catalog."""
        self.passed: int = 0
        """Number of other requests to the catalog."""

    async def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Describes a table. The requested version is not checked, because the reader opens it or fails."""
        if request.load_detailed_metadata or request.check_declared or request.tag or request.branch:
            response: DescribeTableResponse = await self._pass_on("describe_table", request)
            return response
        at = await self._locate(TableId(request.id or ()))
        # The pinned version is omitted, because a reader without a version reads the latest one.
        table = replace(at.table(), version=None)
        return requests.description(table, with_uri=request.with_table_uri)

    async def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        """Returns an empty response if the table exists; raises TableNotFoundError if not."""
        if request.version is not None:
            response: TableExistsResponse = await self._pass_on("table_exists", request)
            return response
        await self._locate(TableId(request.id or ()))
        return TableExistsResponse()

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[Any]]:
        """Returns any other operation; one that is refused raises an error with the reason."""
        if operation not in OPERATIONS or not self._has(operation):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {operation!r}")
        return partial(self._pass_on, operation)

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Returns an empty context, because there are no remote calls."""
        return nullcontext()

    def snapshot(self) -> CallLoad | None:
        """Returns None, because there are no remote calls."""
        return None

    def _has(self, operation: str) -> bool:
        return True

    async def _locate(self, id: TableId) -> Location:
        if (at := self._locations.get(id)) is not None:
            self.hits += 1
            return at
        if (reason := self._missing.get(id)) is not None:
            raise TableNotFoundError(reason)
        _refuse(id, "was not prefetched")

    async def _pass_on(self, operation: str, request: Any, *others: Any) -> Any:
        try:
            return await self._do(operation, request, *others)
        except LanceNamespaceError as e:
            if operation in SILENT:
                log.warning("table %s was not dropped, but Spark reports no error: %s", TableId(request.id), e)
            raise

    async def _do(self, operation: str, request: Any, *others: Any) -> Any:
        names = getattr(request, "id", None) or ()
        parent = NamespaceId(names)
        match operation:
            case "list_tables":
                tables = [id.name for id in self._below(parent) if len(id) == len(names) + 1]
                page = await _page(tables, request)
                return ListTablesResponse(tables=list(page.items), page_token=page.token)
            case "list_namespaces":
                children = {id[len(names)] for id in self._below(parent) if len(id) > len(names) + 1}
                page = await _page(sorted(children), request)
                return ListNamespacesResponse(namespaces=list(page.items), page_token=page.token)
            case "namespace_exists":
                self._below(parent)
                return NamespaceExistsResponse()
        subject = TableId(names) if names and "namespace" not in operation else parent
        _refuse(subject, f"{operation} needs the catalog")

    def _below(self, parent: NamespaceId) -> Sequence[TableId]:
        ids = sorted(id for id in self._locations if id.parent[: len(parent)] == parent)
        if not ids:
            _refuse(parent, "contains no prefetched table")
        return ids


def _refuse(subject: Id, why: str) -> NoReturn:
    """Raises UnsupportedOperationError for a request that needs the catalog; the message contains a remedy."""
    raise UnsupportedOperationError(
        f"{subject.kind} {subject}: {why}, and `serve` has no resolver; prefetch the tables that you need, "
        "or pass resolver=... to `serve`"
    )


async def _page(items: Sequence[str], request: Any) -> Page[str]:
    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return Page(items)

    return await take(fetch, keep_all, limit=request.limit, page_token=request.page_token)
