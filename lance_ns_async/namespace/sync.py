"""The sync namespace: the async namespace on a background event loop, with one line for each method."""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

import pyarrow as pa
from lance_namespace import (
    BatchCommitTablesRequest,
    BatchCommitTablesResponse,
    BatchCreateTableVersionsRequest,
    BatchCreateTableVersionsResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DescribeTableVersionRequest,
    DescribeTableVersionResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    ListTableVersionsRequest,
    ListTableVersionsResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
    TableExistsRequest,
    TableExistsResponse,
)
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.policy import Policy
from lance_ns_async.calls.traffic import CallLoad
from lance_ns_async.engine.declare import Registered
from lance_ns_async.engine.describe import Described, Places, Progress
from lance_ns_async.engine.list import Listed, TableFilter
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.namespace.background_loop import BackgroundLoop, guard
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.docstrings import called_with, copy_docstrings
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.namespace.sync_rows import SyncDataOperations
from lance_ns_async.registry import BACKENDS, CLASS_PATHS
from lance_ns_async.settings import TokenFunction, conceal, with_token

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Session:
    """The async namespace of one process, and its event loop."""

    client: AsyncNamespace
    loop: BackgroundLoop

    def close(self) -> None:
        if self.loop.is_here:
            # A callback on the loop closes the namespace; waiting there would block the loop.
            self.close_soon()
            return
        try:
            self.loop.run(self.client.aclose())
        finally:
            self.loop.release()

    def close_soon(self) -> None:
        self.loop.close_soon(self.client.aclose())


def _how_to_connect(namespace: Namespace) -> str:
    paths = ", ".join(CLASS_PATHS.values())
    return f'use Namespace.connect("dir", {{"root": "lake"}}), or of a class path one of {paths}'


@copy_docstrings(AsyncNamespace)
class Namespace(SyncDataOperations):
    """A Lance namespace over one catalog, for use from any thread, also within a running event loop.

    The methods are those of `AsyncNamespace`, which documents them. An instance may be shared by threads, used after a
    fork, and pickled. A pickle contains the properties, including secrets: store it accordingly. With a callable as
    `token`, a namespace can be pickled only if the callable can: a function of a module, not a lambda.
    """

    @called_with(_how_to_connect)
    def __init__(
        self,
        impl: str,
        properties: Mapping[str, str],
        policy: Policy | None = None,
        *,
        token: TokenFunction | None = None,
    ) -> None:
        properties = conceal(properties)
        self._impl = impl
        # For the repr of a namespace that could not be connected.
        self._namespace_id = f"lance_ns_async:{impl}"
        self._properties = dict(with_token(properties, token))
        self._policy = policy
        self._sessions: dict[int, tuple[_Session, weakref.finalize[[], Namespace]]] = {}
        self._is_closed = False
        self._first_client: AsyncNamespace | None = self._connect()
        self._namespace_id = self._first_client.namespace_id()
        # All clients of this namespace share it, also those in forked processes.
        self._traffic = self._first_client._caller.traffic

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str],
        *,
        policy: Policy | None = None,
        token: TokenFunction | None = None,
    ) -> Namespace:
        """See `AsyncNamespace.connect`; `token` is called in the background thread, or in a worker thread."""
        properties = conceal(properties)
        return Namespace(impl, properties, policy, token=token)

    def namespace_id(self) -> str:
        """See `AsyncNamespace.namespace_id`."""
        return self._namespace_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._namespace_id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self._impl, self._properties, self._policy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases connections, threads and the background loop; may be called twice. Not required at process end."""
        with guard():
            self._is_closed = True
            mine = self._sessions.pop(os.getpid(), None)
        if mine is not None:
            session, finalizer = mine
            if finalizer.detach():
                session.close()

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """See `AsyncNamespace.observe`; `observer` is called in the background thread."""
        return self._open().client.observe(observer)

    def snapshot(self) -> CallLoad:
        """See `AsyncNamespace.snapshot`."""
        return self._traffic.snapshot()

    def list_namespaces(self, request: ListNamespacesRequest | Fields) -> ListNamespacesResponse:
        """See `AsyncNamespace.list_namespaces`."""
        return self._call(AsyncNamespace.list_namespaces, request)

    def describe_namespace(self, request: DescribeNamespaceRequest | Fields) -> DescribeNamespaceResponse:
        """See `AsyncNamespace.describe_namespace`."""
        return self._call(AsyncNamespace.describe_namespace, request)

    def create_namespace(self, request: CreateNamespaceRequest | Fields) -> CreateNamespaceResponse:
        """See `AsyncNamespace.create_namespace`."""
        return self._call(AsyncNamespace.create_namespace, request)

    def drop_namespace(self, request: DropNamespaceRequest | Fields) -> DropNamespaceResponse:
        """See `AsyncNamespace.drop_namespace`."""
        return self._call(AsyncNamespace.drop_namespace, request)

    def namespace_exists(self, request: NamespaceExistsRequest | Fields) -> NamespaceExistsResponse:
        """See `AsyncNamespace.namespace_exists`."""
        return self._call(AsyncNamespace.namespace_exists, request)

    def list_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        """See `AsyncNamespace.list_tables`."""
        return self._call(AsyncNamespace.list_tables, request)

    def list_all_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        """See `AsyncNamespace.list_all_tables`."""
        return self._call(AsyncNamespace.list_all_tables, request)

    def describe_table(self, request: DescribeTableRequest | Fields) -> DescribeTableResponse:
        """See `AsyncNamespace.describe_table`."""
        return self._call(AsyncNamespace.describe_table, request)

    def table_exists(self, request: TableExistsRequest | Fields) -> TableExistsResponse:
        """See `AsyncNamespace.table_exists`."""
        return self._call(AsyncNamespace.table_exists, request)

    def declare_table(
        self, request: DeclareTableRequest | Fields, *, schema: pa.Schema | None = None
    ) -> DeclareTableResponse:
        """See `AsyncNamespace.declare_table`."""
        return self._call(AsyncNamespace.declare_table, request, schema=schema)

    def register_table(self, request: RegisterTableRequest | Fields) -> RegisterTableResponse:
        """See `AsyncNamespace.register_table`."""
        return self._call(AsyncNamespace.register_table, request)

    def deregister_table(self, request: DeregisterTableRequest | Fields) -> DeregisterTableResponse:
        """See `AsyncNamespace.deregister_table`."""
        return self._call(AsyncNamespace.deregister_table, request)

    def drop_table(self, request: DropTableRequest | Fields) -> DropTableResponse:
        """See `AsyncNamespace.drop_table`."""
        return self._call(AsyncNamespace.drop_table, request)

    def own_folders(self, parent: Iterable[str]) -> Sequence[str]:
        """See `AsyncNamespace.own_folders`."""
        return self._call(AsyncNamespace.own_folders, parent)

    def rename_table(self, request: RenameTableRequest | Fields) -> RenameTableResponse:
        """See `AsyncNamespace.rename_table`."""
        return self._call(AsyncNamespace.rename_table, request)

    def list_table_versions(self, request: ListTableVersionsRequest | Fields) -> ListTableVersionsResponse:
        """See `AsyncNamespace.list_table_versions`."""
        return self._call(AsyncNamespace.list_table_versions, request)

    def describe_table_version(self, request: DescribeTableVersionRequest | Fields) -> DescribeTableVersionResponse:
        """See `AsyncNamespace.describe_table_version`."""
        return self._call(AsyncNamespace.describe_table_version, request)

    def create_table_version(self, request: CreateTableVersionRequest | Fields) -> CreateTableVersionResponse:
        """See `AsyncNamespace.create_table_version`."""
        return self._call(AsyncNamespace.create_table_version, request)

    def batch_create_table_versions(
        self, request: BatchCreateTableVersionsRequest | Fields
    ) -> BatchCreateTableVersionsResponse:
        """See `AsyncNamespace.batch_create_table_versions`."""
        return self._call(AsyncNamespace.batch_create_table_versions, request)

    def batch_commit_tables(self, request: BatchCommitTablesRequest | Fields) -> BatchCommitTablesResponse:
        """See `AsyncNamespace.batch_commit_tables`."""
        return self._call(AsyncNamespace.batch_commit_tables, request)

    def batch_delete_table_versions(
        self, request: BatchDeleteTableVersionsRequest | Fields
    ) -> BatchDeleteTableVersionsResponse:
        """See `AsyncNamespace.batch_delete_table_versions`."""
        return self._call(AsyncNamespace.batch_delete_table_versions, request)

    def describe_tables(
        self,
        ids: Iterable[Iterable[str]],
        *,
        vend_credentials: bool = False,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Described:
        """See `AsyncNamespace.describe_tables`; `progress` is called in the background thread."""
        return self._call(
            AsyncNamespace.describe_tables,
            # The ids are read in this thread, because an iterator of this namespace would wait for the loop on the
            # loop.
            list(ids),
            vend_credentials=vend_credentials,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    def register_tables(
        self,
        tables: Iterable[RegisterTableRequest | Fields],
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Registered:
        """See `AsyncNamespace.register_tables`; `progress` is called in the background thread."""
        return self._call(
            AsyncNamespace.register_tables,
            list(tables),
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    def list_many(
        self,
        namespaces: Iterable[Iterable[str]],
        *,
        wanted: TableFilter | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
    ) -> Listed:
        """See `AsyncNamespace.list_many`."""
        return self._call(
            AsyncNamespace.list_many, list(namespaces), wanted=wanted, max_in_flight=max_in_flight, timeout=timeout
        )

    def stream_tables(
        self, ids: Iterable[Iterable[str]], *, max_in_flight: int | None = None
    ) -> Iterator[tuple[TableId, Table | LanceNamespaceError]]:
        """See `AsyncNamespace.stream_tables`."""
        places: Places = {}
        for group in self._open().client._id_groups(ids):
            result = self._call(AsyncNamespace._describe_group, group, places, max_in_flight=max_in_flight)
            for id in group:
                yield id, result.outcome(id)

    def iter_tables(self, namespace: Iterable[str] = (), *, recursive: bool = False) -> Iterator[TableId]:
        """See `AsyncNamespace.iter_tables`."""
        return self._flat(lambda client: client._table_groups(namespace, recursive=recursive))

    def protect_tables(
        self, namespace: Iterable[str] = (), *, recursive: bool = True, max_in_flight: int | None = None
    ) -> Sequence[TableId]:
        """See `AsyncNamespace.protect_tables`."""
        return self._call(AsyncNamespace.protect_tables, namespace, recursive=recursive, max_in_flight=max_in_flight)

    def iter_namespaces(self, namespace: Iterable[str] = (), *, recursive: bool = False) -> Iterator[NamespaceId]:
        """See `AsyncNamespace.iter_namespaces`."""
        return self._flat(lambda client: client._namespace_groups(namespace, recursive=recursive))

    def exists(self, id: Iterable[str]) -> bool:
        """See `AsyncNamespace.exists`."""
        return self._call(AsyncNamespace.exists, id)

    def run(self, work: Callable[[AsyncNamespace], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine of the async namespace on the background loop and returns its result.

        Args:
            work: Receives the async namespace, and returns the coroutine.

        Raises:
            InvalidInputError: The namespace is closed.
            InternalError: The calling thread is the thread of the background loop.
        """
        return self._call(work)

    async def arun(self, work: Callable[[AsyncNamespace], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine like `run`, but awaits its result: in any event loop, also in the background loop itself.

        A cancellation cancels the coroutine. Outside the background loop, it does not wait for the rollback.

        Args:
            work: Receives the async namespace, and returns the coroutine.

        Raises:
            InvalidInputError: The namespace is closed.
        """
        session = self._open()
        return await session.loop.arun(work(session.client))

    def _connect(self) -> AsyncNamespace:
        return AsyncNamespace.connect(self._impl, self._properties, policy=self._policy)

    def _open(self) -> _Session:
        process = os.getpid()
        with guard():
            if self._is_closed:
                raise InvalidInputError(f"namespace {self._namespace_id}: it is closed; connect anew")
            if process not in self._sessions:
                # A forked child has its own copy of an unused client; clients in use belong to the parent.
                client, self._first_client = self._first_client or self._connect(), None
                session = _Session(client, BackgroundLoop.lease())
                self._sessions[process] = session, weakref.finalize(self, session.close_soon)
            return self._sessions[process][0]

    def _call(
        self,
        operation: Callable[Concatenate[AsyncNamespace, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        session = self._open()
        return session.loop.run(operation(session.client, *args, **kwargs))

    def _flat(self, groups_of: Callable[[AsyncNamespace], AsyncGenerator[Sequence[T], None]]) -> Iterator[T]:
        # The session opens with the first item, because a fork may come between the creation and the use of an
        # iterator.
        session = self._open()
        groups = groups_of(session.client)
        try:
            while (group := session.loop.run(_following(groups))) is not None:
                yield from group
        finally:
            session.loop.finish_soon(groups)


def _how_to_name(namespace: _Named) -> str:
    example = ", ".join(f'{name}="{value}"' for name, value in BACKENDS[namespace.impl].example.items())
    return f"it takes properties by name, for example {example}"


class _Named(Namespace):
    """A namespace of one backend, which is constructed from properties only, like `lance_namespace.connect` does."""

    impl: ClassVar[str]

    @called_with(_how_to_name)
    def __init__(self, /, *, token: TokenFunction | str | None = None, **properties: str) -> None:
        """Connects to the catalog.

        Args:
            token: For catalogs with bearer tokens, a function that returns one; see `AsyncNamespace.connect`. Pass
                a token itself as the property `auth_token`.
            **properties: The properties by name; a name with a dot as `**{"storage.region": "eu"}`. The documentation
                of each catalog lists them, including the limits of calls.

        Raises:
            InvalidInputError: A property is invalid; the message lists the known properties or the likely name.
            TypeError: An argument is not a keyword argument.
        """
        properties = dict(conceal(properties))
        # A string is rejected by the check of the properties.
        super().__init__(self.impl, properties, token=cast("TokenFunction | None", token))


class DirNamespace(_Named):
    """The directory catalog, for example `DirNamespace(root="lake")`. Properties: `root`, `storage.*` and limits."""

    impl = "dir"


class IcebergNamespace(_Named):
    """An Iceberg REST catalog. Properties: `endpoint`, `warehouse`, `auth_token`, `credential` and others."""

    impl = "iceberg"


class Hive3Namespace(_Named):
    """A Hive 3.x Metastore. Properties: `uri`, `root`, `client.pool-size`, `ugi` and others."""

    impl = "hive3"


class GlueNamespace(_Named):
    """The AWS Glue Data Catalog. Properties: `region`, `catalog_id`, `assume_role_arn` and others."""

    impl = "glue"


class PolarisNamespace(_Named):
    """An Apache Polaris server. Properties: `endpoint`, `auth_token`, `credential` and others."""

    impl = "polaris"


class LakekeeperNamespace(_Named):
    """A warehouse of a Lakekeeper server. Properties: `endpoint`, `warehouse`, `auth_token` and others."""

    impl = "lakekeeper"


class RestNamespace(_Named):
    """A server of the Lance REST Namespace protocol. Properties: `uri`, `delimiter`, `header.*`, `tls.*` and others."""

    impl = "rest"


class UnityNamespace(_Named):
    """One catalog of a Unity Catalog server. Properties: `endpoint`, `catalog`, `auth_token` and others."""

    impl = "unity"


def __getattr__(name: str) -> Any:
    # A backend that has no class above gets one from the registry.
    impl = next((impl for impl, path in CLASS_PATHS.items() if path == f"lance_ns_async.{name}"), None)
    if impl is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    attributes = {"impl": impl, "__module__": __name__, "__doc__": f"A catalog of the backend {impl!r}."}
    return globals().setdefault(name, type(name, (_Named,), attributes))


def _unpickle(cls: type[Namespace], impl: str, properties: Mapping[str, str], policy: Policy | None) -> Namespace:
    namespace = cls.__new__(cls)
    Namespace.__init__(namespace, impl, properties, policy)
    return namespace


async def _following(groups: AsyncGenerator[Sequence[T], None]) -> Sequence[T] | None:
    return await anext(groups, None)
