"""The async namespace: Lance requests become calls on a backend, and answers become Lance responses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from lance_namespace import (
    CreateNamespaceRequest,
    CreateNamespaceResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    DropNamespaceRequest,
    DropNamespaceResponse,
    DropTableRequest,
    DropTableResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    RegisterTableRequest,
    RegisterTableResponse,
    RenameTableRequest,
    RenameTableResponse,
    TableExistsRequest,
    TableExistsResponse,
)
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
)

from lance_ns_async.backends import derived
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.calls.policy import rollback
from lance_ns_async.engine.list import Lister
from lance_ns_async.engine.locate import located, located_many
from lance_ns_async.errors import spelled
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.namespace import requests
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.namespace.rows import DataOperations
from lance_ns_async.namespace.versions import TableVersions
from lance_ns_async.storage import datasets
from lance_ns_async.storage.datasets import LATEST, Snapshot
from lance_ns_async.storage.locations import check_location
from lance_ns_async.tables import creating, dropping, replacing


class AsyncNamespace(TableVersions, DataOperations):
    """A Lance namespace over one catalog, for use in one event loop, `async with` and many calls at once.

    Every operation takes and gives the models of the Lance Namespace spec and raises
    `lance_namespace.errors`; a request may also be a dict of the same form. What no catalog can do raises
    UnsupportedOperationError. Spec: https://lance.org/format/namespace/operations.
    """

    async def list_namespaces(self, request: ListNamespacesRequest | Fields) -> ListNamespacesResponse:
        """The names of the namespaces directly below one; costs a call a page of the catalog's."""
        request = requests.coerced(ListNamespacesRequest, request)
        parent = self._namespace(request.id)

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return self._lister().ordered(await self._backend.list_namespaces(parent, token, size))

        with self._operation():
            if self._is_deepest(parent):
                await derived.describe_namespace(self._backend, parent)
                return ListNamespacesResponse(namespaces=[])
            page = await take(fetch, keep_all, limit=request.limit, page_token=request.page_token)
        names = [self._backend.listed_name(parent.child(name)) for name in page.items]
        return ListNamespacesResponse(namespaces=names, page_token=page.token)

    async def describe_namespace(self, request: DescribeNamespaceRequest | Fields) -> DescribeNamespaceResponse:
        """The properties of a namespace; the root has none, and costs no call."""
        request = requests.coerced(DescribeNamespaceRequest, request)
        with self._operation():
            found = await derived.describe_namespace(self._backend, self._namespace(request.id))
        return DescribeNamespaceResponse(properties=dict(found))

    async def create_namespace(self, request: CreateNamespaceRequest | Fields) -> CreateNamespaceResponse:
        """Makes a namespace. Mode ExistOk keeps one that is there; Overwrite replaces one that is empty."""
        request = requests.coerced(CreateNamespaceRequest, request)
        id = self._namespace(request.id)
        mode = requests.word(request.mode, "mode", ("create", "existok", "overwrite"))
        given = request.properties or {}
        for key in self._backend.capabilities.location_properties:
            if key in given:
                check_location(f"namespace {spelled(id)}", given[key], folder=True)
        with self._operation():
            if mode == "overwrite":
                made = await replacing.namespace(self._backend, id, given)
            else:
                try:
                    made = await derived.create_namespace(self._backend, id, given)
                except NamespaceAlreadyExistsError:
                    if mode != "existok":
                        raise
                    made = await derived.describe_namespace(self._backend, id)
        return CreateNamespaceResponse(properties=dict(made))

    async def drop_namespace(self, request: DropNamespaceRequest | Fields) -> DropNamespaceResponse:
        """Removes a namespace that is empty; mode Skip accepts a missing one. Data of tables is never touched."""
        request = requests.coerced(DropNamespaceRequest, request)
        id = self._namespace(request.id)
        mode = requests.word(request.mode, "mode", ("fail", "skip"))
        behavior = requests.word(request.behavior, "behavior", ("restrict", "cascade"))
        if not id:
            raise InvalidInputError("namespace id []: the root cannot be dropped")
        if behavior == "cascade" and not self._backend.capabilities.cascades:
            raise InvalidInputError(
                f"behavior {request.behavior!r}: this catalog drops empty namespaces only; drop what is in {id} first"
            )
        with self._operation():
            try:
                await self._backend.drop_namespace(id, cascade=behavior == "cascade")
            except NamespaceNotFoundError:
                if mode != "skip":
                    raise
        return DropNamespaceResponse()

    async def namespace_exists(self, request: NamespaceExistsRequest | Fields) -> NamespaceExistsResponse:
        """Answers if the namespace exists, and raises NamespaceNotFoundError if not; see `exists` for a bool."""
        request = requests.coerced(NamespaceExistsRequest, request)
        with self._operation():
            await derived.describe_namespace(self._backend, self._namespace(request.id))
        return NamespaceExistsResponse()

    async def list_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        """The names of the Lance tables in a namespace.

        Costs a call a page, and one more for each name where the catalog mixes other formats in; with
        `include_declared=False` also an open of each dataset.
        """
        request = requests.coerced(ListTablesRequest, request)
        parent, limit, token = self._namespace(request.id), request.limit, request.page_token
        lister = self._lister()

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return lister.ordered(await self._backend.list_tables(parent, token, size))

        with self._operation():
            if len(parent) < self._backend.capabilities.min_depth:
                await derived.describe_namespace(self._backend, parent)
                return ListTablesResponse(tables=[])
            if request.include_declared is False:
                page = await take(fetch, partial(self._written, lister, parent), limit=limit, page_token=token)
            else:
                page = await lister.page(parent, limit, token)
        return ListTablesResponse(tables=list(page.items), page_token=page.token)

    async def list_all_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        """The Lance tables of a namespace and of all below it, as ids joined by `$`.

        Sorted by name, the tables of a namespace before those of the namespaces in it. With `include_declared=False`
        each costs an open, too.
        """
        request = requests.coerced(ListTablesRequest, request)
        keep = partial(self._written, self._lister()) if request.include_declared is False else None
        with self._operation():
            page = await self._tree(request.id).page(request.limit, request.page_token, keep)
        return ListTablesResponse(tables=[str(id) for id in page.items], page_token=page.token)

    async def describe_table(self, request: DescribeTableRequest | Fields) -> DescribeTableResponse:
        """Where a table is and how to read it; costs one call.

        With `vend_credentials` the storage options hold the credentials that the catalog gives out, if it does; where
        that is left open they do if the property of that name says so, or the dataset is opened. Some catalogs need
        more calls for them. An answer with credentials may be up to a second old: an error, or credentials that are
        good for more than the minute in which Lance asks for new ones. A version, tag or branch,
        `load_detailed_metadata` and `check_declared` cost an open of the dataset.
        """
        request = requests.coerced(DescribeTableRequest, request)
        snapshot = Snapshot(request.version, request.tag, request.branch)
        detailed = bool(request.load_detailed_metadata or snapshot != LATEST)
        opens = detailed or bool(request.check_declared)
        details, declared = None, None
        with self._operation():
            table = await self._described(self._table(request.id), request.vend_credentials, opens=opens)
            if request.check_declared:
                declared = table.version is None and await datasets.is_only_declared(table)
            if detailed and not declared:
                details = await self._opened(table, datasets.told, snapshot)
        return requests.described(
            table,
            with_uri=request.with_table_uri,
            details=details,
            declared=declared,
            wants_schema=request.load_detailed_metadata,
        )

    async def table_exists(self, request: TableExistsRequest | Fields) -> TableExistsResponse:
        """Answers if the table exists, and raises TableNotFoundError if not; see `exists` for a bool.

        Costs one call, and with a version, where TableVersionNotFoundError is another answer, an open of the dataset.
        """
        request = requests.coerced(TableExistsRequest, request)
        with self._operation():
            table = await self._described(self._table(request.id), None, opens=request.version is not None)
            if request.version is not None:
                await self._opened(table, lambda dataset: None, Snapshot(request.version))
        return TableExistsResponse()

    async def declare_table(
        self, request: DeclareTableRequest | Fields, *, schema: pa.Schema | None = None
    ) -> DeclareTableResponse:
        """Registers a table that has no data yet, at `location` or at the catalog's default place.

        A `schema` is kept where the catalog keeps columns, which is Unity Catalog, and of no use elsewhere. With
        `vend_credentials` the storage options are those of a describe, which it costs; if that fails, the error says
        whether the table stays registered.
        The default place may hold data, of a table that was renamed or deregistered: if it is local, or `storage.*`
        tells how to reach it, it is looked at before, and refused by TableAlreadyExistsError. Where tables cannot be
        renamed, a storage that refuses to be looked at is no hindrance.
        """
        request = requests.coerced(DeclareTableRequest, request)
        id = self._table(request.id)
        self._check_location(id, request.location)
        with self._operation():
            can = self._backend.capabilities
            place = request.location
            self._backend.check_declaration(id, place, request.properties or {})
            if place is None:
                try:
                    place, _ = await creating.look_before(self._backend, id)
                except creating.DataThereError:
                    raise
                except (InternalError, PermissionDeniedError, ServiceUnavailableError, UnauthenticatedError):
                    # Keys that reach the catalog need not reach the storage. Only where tables are renamed is another
                    # table's data likely there.
                    if can.renames:
                        raise
            table = await self._backend.declare_table(id, place, request.properties or {}, schema)
            vends = can.vends_unasked if request.vend_credentials is None else request.vend_credentials
            if can.vends and vends:
                async with rollback(partial(creating.take_back, self._backend, table)):
                    table = await located(self._backend, id)
            if request.location is not None:
                await dropping.disown(self._backend, table)
        return requests.registration(table)

    async def register_table(self, request: RegisterTableRequest | Fields) -> RegisterTableResponse:
        """Registers a table whose data is at `location`; mode Overwrite replaces a registration, not its data.

        The data is the table's own from then on: a drop of another name that died there is not finished any more.
        """
        request = requests.coerced(RegisterTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("create", "overwrite"))
        given = request.properties or {}
        self._check_location(id, request.location)
        with self._operation():
            if mode == "overwrite":
                table = await replacing.register(self._backend, id, request.location, given)
            else:
                table = await self._backend.declare_table(id, request.location, given)
            await dropping.disown(self._backend, table)
        answer = requests.registration(table)
        return RegisterTableResponse(location=answer.location, properties=answer.properties)

    async def deregister_table(self, request: DeregisterTableRequest | Fields) -> DeregisterTableResponse:
        """Removes a table from the catalog and leaves its data; tells where that is.

        Costs two calls and a listing of the place, and those for credentials where the catalog gives them out.
        """
        request = requests.coerced(DeregisterTableRequest, request)
        with self._operation():
            disown = partial(dropping.disown, self._backend)
            table = await derived.deregister(self._backend, self._table(request.id), disown)
        answer = requests.registration(table)
        return DeregisterTableResponse(id=list(table.id), location=answer.location, properties=answer.properties)

    async def drop_table(self, request: DropTableRequest | Fields) -> DropTableResponse:
        """Removes a table from the catalog, and then its data with everything under its location.

        Raises InvalidTableStateError, and removes nothing, where other tables lie under it, or where its place is the
        default place of another table that is registered there. Costs two calls, those for credentials, and listing
        and deleting what is stored.

        A drop that is cut off before the catalog removed the table leaves it; after that, the next declaration of the
        name, or another drop, deletes what is left at its default place.
        """
        request = requests.coerced(DropTableRequest, request)
        with self._operation():
            table = await dropping.drop(self._backend, self._table(request.id))
        answer = requests.registration(table)
        return DropTableResponse(id=list(table.id), location=answer.location, properties=answer.properties)

    async def rename_table(self, request: RenameTableRequest | Fields) -> RenameTableResponse:
        """Gives a table another name, and with `new_namespace_id` another namespace; its data stays where it is."""
        request = requests.coerced(RenameTableRequest, request)
        id = self._table(request.id)
        to = self._table([*(request.new_namespace_id or id.parent), request.new_table_name])
        with self._operation():
            await dropping.disown(self._backend, await self._backend.describe_table(id))
            await self._backend.rename_table(id, to)
        return RenameTableResponse()

    def _check_location(self, id: TableId, location: str | None) -> None:
        """Raises InvalidInputError for a location of the caller's that no catalog is told."""
        if location is not None:
            relative = self._backend.capabilities.relative_locations
            check_location(f"table {spelled(id)}", location, relative=relative)

    async def _described(self, id: TableId, vend: bool | None, *, opens: bool) -> Table:
        if vend:
            return await self._backend.renewed(id)
        if vend is None and (opens or self._backend.capabilities.vends_unasked):
            return await located(self._backend, id)
        return await self._backend.describe_table(id)

    async def _written(self, lister: Lister, parent: NamespaceId, names: Sequence[str]) -> Sequence[str]:
        """Those of the names that are tables which hold data."""
        tables = await lister.tables(parent, names)
        if self._backend.capabilities.vends:
            tables = await located_many(self._backend, tables, max_in_flight=self._workers(None))
        return [table.id.name for table in await datasets.written(tables)]

    def _is_deepest(self, id: NamespaceId) -> bool:
        deepest = self._backend.capabilities.max_depth
        return deepest is not None and len(id) >= deepest
