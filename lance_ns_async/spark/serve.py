"""Catalog endpoint inside the driver, which serves prefetched tables to Spark's Lance connector."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import lance_namespace as spec
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.calls.slots import CallLoad
from lance_ns_async.calls.tasks import SingleFlights
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.gateway import Gateway, serving
from lance_ns_async.gateway.renewals import GRACE
from lance_ns_async.many.patterns import What
from lance_ns_async.model import Id, NamespaceId, Page, TableId
from lance_ns_async.operations import requests
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.resolve.report import PrefetchReport
from lance_ns_async.spark.session import CATALOG, check_session, has_connector
from lance_ns_async.spec.routes import ROUTES
from lance_ns_async.storage.options import LEAD
from lance_ns_async.sync import Namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATIONS = frozenset(route.operation for route in ROUTES)

SILENT = frozenset({"deregister_table", "drop_table"})
"""Operations whose errors the connector hides, so that Spark reports a drop that has failed as done."""


class PrefetchNamespace:
    """The operations of an AsyncNamespace on prefetched tables, without a catalog.

    It describes and lists these tables, and refuses everything else. `missing` has the messages of the
    TableNotFoundError of other tables, by id.
    """

    def __init__(self, locations: Mapping[TableId, Location], missing: Mapping[Any, str]) -> None:
        self._locations = dict(locations)
        self._missing = missing
        # See the properties of `CatalogService`.
        self.hits: int = 0
        self.misses: int = 0
        self.passed: int = 0

    async def describe_table(self, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
        """Describes a table. The requested version is not checked, because the reader opens it or fails."""
        if request.load_detailed_metadata or request.check_declared or request.tag or request.branch:
            response: spec.DescribeTableResponse = await self._pass_on("describe_table", request)
            return response
        at = await self._locate(TableId(request.id or ()))
        # The pinned version is omitted, because a reader without a version reads the latest one.
        table = replace(at.table(), version=None)
        return requests.description(table, with_uri=request.with_table_uri)

    async def table_exists(self, request: spec.TableExistsRequest) -> spec.TableExistsResponse:
        """Returns an empty response if the table exists; raises TableNotFoundError if not."""
        if request.version is not None:
            response: spec.TableExistsResponse = await self._pass_on("table_exists", request)
            return response
        await self._locate(TableId(request.id or ()))
        return spec.TableExistsResponse()

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
                return spec.ListTablesResponse(tables=list(page.items), page_token=page.token)
            case "list_namespaces":
                children = {id[len(names)] for id in self._below(parent) if len(id) > len(names) + 1}
                page = await _page(sorted(children), request)
                return spec.ListNamespacesResponse(namespaces=list(page.items), page_token=page.token)
            case "namespace_exists":
                self._below(parent)
                return spec.NamespaceExistsResponse()
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
    if not isinstance(request, spec.RenameTableRequest):
        return [id]
    return [id, TableId([*(request.new_namespace_id or id.parent), request.new_table_name])]


log: logging.Logger = logging.getLogger(__name__)

_NAME = re.compile(r"\w[\w-]*")


@dataclass(frozen=True, slots=True)
class _Address:
    """The port of an endpoint and the token that it requires."""

    port: int
    token: str = field(repr=False)


_addresses: WeakKeyDictionary[SparkSession, dict[str, _Address]] = WeakKeyDictionary()
"""Addresses of served catalogs by session: Spark keeps a catalog's first configuration until the session ends."""


class CatalogService:
    """A catalog that is served to Spark, with its request counts. Its representation is one line."""

    def __init__(self, catalog: str, namespace: PrefetchNamespace) -> None:
        self.catalog = catalog
        """The name of the catalog in SQL."""
        self._namespace = namespace

    @property
    def answered(self) -> int:
        """Number of requests about a table that needed no call to the real catalog."""
        return self._namespace.hits

    @property
    def misses(self) -> int:
        """Number of requests for a table to the real catalog."""
        return self._namespace.misses

    @property
    def passed(self) -> int:
        """Number of other requests that the real catalog handled: listings and changes."""
        return self._namespace.passed

    def __repr__(self) -> str:
        counts = f"{self.answered:,} requests answered from the prefetch, {self.misses:,} by the catalog"
        line = f"catalog {self.catalog}: {counts}"
        return f"{line}, {self.passed:,} other requests" if self.passed else line


@contextmanager
def serve(
    locations: Mapping[TableId, Location],
    report: PrefetchReport,
    spark: SparkSession,
    catalog: str,
    resolver: Resolver | None,
) -> Iterator[CatalogService]:
    """Serves a catalog to Spark; see `Locations.serve`."""
    if resolver is None:
        namespace = PrefetchNamespace(locations, {problem.subject: problem.reason for problem in report.missing})
    else:
        namespace = CatalogNamespace(locations, resolver)
    _check_session(spark, catalog)
    address = _choose_address(spark, catalog)
    warn_of_expiry(locations.values(), stacklevel=3)
    service = CatalogService(catalog, namespace)
    with ExitStack() as stack:
        # All leases in a process share one loop, so this is also the loop of the namespace.
        loop = BackgroundLoop.lease()
        stack.callback(loop.release)
        # Spark has the rights of this process, and may name any location.
        server = serving(namespace, port=address.port, token=address.token, allow_locations=None, grace=GRACE)
        try:
            gateway = stack.enter_context(loop.keep_open(server))
        except InvalidInputError as e:
            if not isinstance(e.__cause__, OSError):
                raise
            raise InvalidInputError(f"catalog {catalog!r}: {e}; set another name with catalog=...") from e
        stack.callback(log.info, "%r", service)
        for key, value in _settings(catalog, gateway).items():
            spark.conf.set(key, value)
            stack.callback(spark.conf.unset, key)
        _addresses.setdefault(spark, {})[catalog] = _Address(urlsplit(gateway.url).port or 0, address.token)
        yield service


def _settings(catalog: str, gateway: Gateway) -> Mapping[str, str]:
    prefix = f"spark.sql.catalog.{catalog}"
    # The keys contain "token", so Spark redacts the values wherever it shows settings.
    headers = {f"{prefix}.headers.{name}": value for name, value in gateway.headers.items()}
    return {
        **headers,
        f"{prefix}.impl": "rest",
        f"{prefix}.uri": gateway.url,
        # Otherwise the connector makes a call to guess whether ids begin with a namespace.
        f"{prefix}.single_level_ns": "false",
        # Executors cannot reach this endpoint.
        f"{prefix}.executor_credential_refresh": "false",
        prefix: CATALOG,
    }


def _check_session(spark: SparkSession, catalog: str) -> None:
    check_session(spark)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInputError(
            "serve: this is a Spark Connect session, whose server cannot reach an endpoint in this process; "
            "use `dataframe` there, which needs no catalog"
        )
    if not _NAME.fullmatch(catalog):
        raise InvalidInputError(f"catalog {catalog!r}: not a valid catalog name; use letters, digits, '_' and '-'")
    if not has_connector(spark):
        raise InvalidInputError(
            f"serve: the Lance connector is not on Spark's class path, there is no {CATALOG}; start Spark with "
            "local_spark(connector=True), or with its jars in spark.driver.extraClassPath and "
            "spark.executor.extraClassPath"
        )


def _choose_address(spark: SparkSession, catalog: str) -> _Address:
    """Returns the address to serve the catalog at: any port, unless the session has loaded the catalog before."""
    if (there := spark.conf.get(f"spark.sql.catalog.{catalog}", None)) is not None:
        raise InvalidInputError(
            f"catalog {catalog!r}: the session already has a catalog of this name, {there}; "
            "set another name with catalog=..."
        )
    # SQL is used, because the Python API runs a job for the same list.
    if catalog not in {row["catalog"] for row in spark.sql("SHOW CATALOGS").collect()}:
        return _Address(0, secrets.token_urlsafe(32))
    try:
        return _addresses[spark][catalog]
    except KeyError:
        raise InvalidInputError(
            f"catalog {catalog!r}: Spark has loaded a catalog of this name, and keeps it for this session; "
            "set another name with catalog=..."
        ) from None
