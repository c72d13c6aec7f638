"""The async namespace: converts Lance requests into calls of a backend, and the results into Lance responses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

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
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    UnauthenticatedError,
)

from lance_ns_async.backends import derived
from lance_ns_async.calls.paging import keep_all, take
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.engine.describe import describe_tables
from lance_ns_async.engine.list import Lister
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import spelled
from lance_ns_async.model import DELIMITER, NamespaceId, Page, Table, TableId
from lance_ns_async.namespace import requests
from lance_ns_async.namespace.bulk import BulkOperations
from lance_ns_async.namespace.maintenance import MaintenanceOperations
from lance_ns_async.namespace.remote_operations import pass_on
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.namespace.rows import RowOperations
from lance_ns_async.namespace.unsupported import UnsupportedOperations
from lance_ns_async.namespace.versions import VersionOperations
from lance_ns_async.storage import datasets
from lance_ns_async.storage.datasets import LATEST, Snapshot
from lance_ns_async.storage.locations import check_location
from lance_ns_async.tables import creating, dropping, replacing
from lance_ns_async.tables.claims import Claims


class AsyncNamespace(BulkOperations, VersionOperations, RowOperations, MaintenanceOperations, UnsupportedOperations):
    """A Lance namespace over one catalog, for one event loop, with `async with` and concurrent calls.

    Each operation of the spec takes a request model of the spec or a dict of the same form, returns a response model of
    the spec, and raises errors of `lance_namespace.errors`. Spec: https://lance.org/format/namespace/operations.

    The `Raises` sections of the methods list the errors that are specific to them. All methods that call the catalog
    may also raise:

    - InvalidInputError: the request is malformed, the catalog cannot have such an id, or the namespace is closed or
      belongs to another event loop. For a table of another format, its subclass NotALanceTableError.
    - UnauthenticatedError, PermissionDeniedError, ThrottlingError: the catalog or the storage refuses the call.
    - ServiceUnavailableError: there is no connection, or no response within the time of the operation.
    - UnsupportedOperationError: the catalog cannot perform the operation, or the request has an `identity`.
    - InternalError: any other failure.
    """

    async def list_namespaces(self, request: ListNamespacesRequest | Fields) -> ListNamespacesResponse:
        """Lists the names of the namespaces directly below a namespace.

        Args:
            request: `limit` is the maximum number of names; None returns all.

        Returns:
            The names, and a page token if there may be more.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
            InvalidInputError: The limit or the page token is invalid.

        Cost:
            One call for each page of the catalog.
        """
        request = requests.parse(ListNamespacesRequest, request)
        parent = self._namespace(request.id)

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return self._lister().sort(await self._backend.list_namespaces(parent, token, size))

        with self._operation():
            if self._is_deepest(parent):
                await derived.describe_namespace(self._backend, parent)
                return ListNamespacesResponse(namespaces=[])
            page = await take(fetch, keep_all, limit=request.limit, page_token=request.page_token)
        names = [self._backend.listed_name(parent.child(name)) for name in page.items]
        return ListNamespacesResponse(namespaces=names, page_token=page.token)

    async def describe_namespace(self, request: DescribeNamespaceRequest | Fields) -> DescribeNamespaceResponse:
        """Describes a namespace.

        Returns:
            The properties of the namespace; the root has none.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.

        Cost:
            One call; none for the root.
        """
        request = requests.parse(DescribeNamespaceRequest, request)
        with self._operation():
            properties = await derived.describe_namespace(self._backend, self._namespace(request.id))
        return DescribeNamespaceResponse(properties=dict(properties))

    async def create_namespace(self, request: CreateNamespaceRequest | Fields) -> CreateNamespaceResponse:
        """Creates a namespace.

        Args:
            request: With mode ExistOk, an existing namespace stays as it is. With Overwrite, an existing namespace is
                replaced if it is empty. The default mode is Create.

        Returns:
            The properties of the namespace.

        Raises:
            NamespaceAlreadyExistsError: The namespace exists, and the mode is Create; or it is the root.
            NamespaceNotFoundError: The parent namespace does not exist.
            NamespaceNotEmptyError: The namespace is not empty, and the mode is Overwrite.
            ConcurrentModificationError: Other clients repeatedly create and drop the namespace, and the mode is
                ExistOk.
            InvalidInputError: The mode is unknown, or a location among the properties is not allowed.
        """
        request = requests.parse(CreateNamespaceRequest, request)
        id = self._namespace(request.id)
        mode = requests.word(request.mode, "mode", ("create", "existok", "overwrite"))
        properties = request.properties or {}
        for key in self._backend.capabilities.location_properties:
            if key in properties:
                check_location(f"namespace {spelled(id)}", properties[key], folder=True)
        with self._changing() if mode == "overwrite" else self._operation():
            if mode == "overwrite":
                result = await replacing.namespace(self._backend, id, properties)
            elif mode == "existok":
                result = await derived.keep_or_create_namespace(self._backend, id, properties)
            else:
                result = await derived.create_namespace(self._backend, id, properties)
        return CreateNamespaceResponse(properties=dict(result))

    async def drop_namespace(self, request: DropNamespaceRequest | Fields) -> DropNamespaceResponse:
        """Drops an empty namespace. Never deletes data of tables.

        Args:
            request: With mode Skip, a missing namespace is not an error. With behavior Cascade, the registrations in
                the namespace are removed, too, if the catalog can do that. The defaults are Fail and Restrict.

        Returns:
            An empty response.

        Raises:
            NamespaceNotFoundError: The namespace does not exist, and the mode is Fail.
            NamespaceNotEmptyError: The namespace is not empty, and the behavior is Restrict.
            InvalidInputError: The namespace is the root, it is not empty and the catalog cannot cascade, or a mode or
                behavior is unknown.
        """
        request = requests.parse(DropNamespaceRequest, request)
        id = self._namespace(request.id)
        mode = requests.word(request.mode, "mode", ("fail", "skip"))
        behavior = requests.word(request.behavior, "behavior", ("restrict", "cascade"))
        if not id:
            raise InvalidInputError("namespace id []: the root cannot be dropped")
        can_cascade = self._backend.capabilities.cascades
        with self._changing():
            try:
                await self._backend.drop_namespace(id, cascade=behavior == "cascade" and can_cascade)
            except NamespaceNotFoundError:
                if mode != "skip":
                    raise
            except NamespaceNotEmptyError as e:
                if behavior == "restrict" or can_cascade:
                    raise
                raise InvalidInputError(
                    f"behavior {request.behavior!r}: this catalog drops empty namespaces only; drop what is in {id} "
                    f"first ({e})"
                ) from e
        return DropNamespaceResponse()

    async def namespace_exists(self, request: NamespaceExistsRequest | Fields) -> NamespaceExistsResponse:
        """Checks that a namespace exists; see `exists` for a bool.

        Returns:
            An empty response if the namespace exists.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.

        Cost:
            One call; none for the root.
        """
        request = requests.parse(NamespaceExistsRequest, request)
        with self._operation():
            await derived.describe_namespace(self._backend, self._namespace(request.id))
        return NamespaceExistsResponse()

    async def list_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        """Lists the names of the Lance tables in a namespace.

        Args:
            request: `limit` is the maximum number of names; None returns all. With `include_declared=False`, tables to
                which nothing was written are left out.

        Returns:
            The names, and a page token if there may be more.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
            InvalidInputError: The limit or the page token is invalid.

        Cost:
            One call for each page, and one for each name if the catalog's listings contain other formats. With
            `include_declared=False` also one open of each dataset.
        """
        request = requests.parse(ListTablesRequest, request)
        if request.include_declared is False and self._backend.passes_on("list_tables"):
            return cast(ListTablesResponse, await pass_on(self, "list_tables", request))
        parent, limit, token = self._namespace(request.id), request.limit, request.page_token
        lister = self._lister()

        async def fetch(token: str | None, size: int | None) -> Page[str]:
            return lister.sort(await self._backend.list_tables(parent, token, size))

        with self._operation():
            if len(parent) < self._backend.capabilities.min_depth:
                await derived.describe_namespace(self._backend, parent)
                return ListTablesResponse(tables=[])
            if request.include_declared is False:
                page = await take(fetch, partial(self._select_written, lister, parent), limit=limit, page_token=token)
            else:
                page = await lister.page(parent, limit, token)
        return ListTablesResponse(tables=list(page.items), page_token=page.token)

    async def list_all_tables(self, request: ListTablesRequest | Fields) -> ListTablesResponse:
        """Lists the Lance tables of a namespace and of all namespaces below it.

        Args:
            request: `limit` is the maximum number of tables; None returns all. With `include_declared=False`, tables to
                which nothing was written are left out.

        Returns:
            The table ids, joined by `$`, and a page token if there may be more. They are sorted by name; the tables of
                a namespace come before those of its child namespaces.

        Raises:
            NamespaceNotFoundError: The namespace does not exist.
            InvalidInputError: The limit or the page token is invalid.

        Cost:
            The listings of all these namespaces. With `include_declared=False` also one open of each dataset.
        """
        request = requests.parse(ListTablesRequest, request)
        keep = partial(self._select_written, self._lister()) if request.include_declared is False else None
        with self._operation():
            page = await self._tree(request.id).page(request.limit, request.page_token, keep)
        return ListTablesResponse(tables=[DELIMITER.join(id) for id in page.items], page_token=page.token)

    async def describe_table(self, request: DescribeTableRequest | Fields) -> DescribeTableResponse:
        """Returns the location of a table and what is needed to read it.

        Args:
            request: With `vend_credentials`, the storage options contain the credentials that the catalog vends, if it
                vends any. If `vend_credentials` is None, they contain them if the property of that name says so, or if
                the dataset is opened. A version, a tag or a branch, `load_detailed_metadata` and `check_declared` open
                the dataset.

        Returns:
            The description of the table. A response with credentials may be up to one second old: such a response is an
                error, or has credentials that are valid for more than the minute in which Lance requests new ones.

        Raises:
            TableNotFoundError: The table does not exist; or its dataset is requested, and nothing was written to it
                yet.
            TableVersionNotFoundError: The dataset does not have the version.
            TableTagNotFoundError: The dataset does not have the tag.
            TableBranchNotFoundError: The dataset does not have the branch.
            InvalidInputError: A tag is combined with a version or a branch.
            UnsupportedOperationError: `load_detailed_metadata` is set, and the spec cannot represent the schema.

        Cost:
            One call; some catalogs need more for credentials. One open of the dataset if an option requires it.
        """
        request = requests.parse(DescribeTableRequest, request)
        snapshot = Snapshot(request.version, request.tag, request.branch)
        with_details = bool(request.load_detailed_metadata or snapshot != LATEST)
        opens = with_details or bool(request.check_declared)
        if opens and self._backend.passes_on("describe_table"):
            return cast(DescribeTableResponse, await pass_on(self, "describe_table", request))
        details, is_only_declared = None, None
        with self._operation():
            table = await self._describe(self._table(request.id), request.vend_credentials, opens=opens)
            if request.check_declared:
                is_only_declared = table.version is None and await datasets.is_only_declared(table)
            if with_details and not is_only_declared:
                details = await self._open_and_run(table, datasets.read_details, snapshot)
        return requests.description(
            table,
            with_uri=request.with_table_uri,
            details=details,
            is_only_declared=is_only_declared,
            wants_schema=request.load_detailed_metadata,
        )

    async def table_exists(self, request: TableExistsRequest | Fields) -> TableExistsResponse:
        """Checks that a table exists; see `exists` for a bool.

        Returns:
            An empty response if the table exists.

        Raises:
            TableNotFoundError: The table does not exist.
            TableVersionNotFoundError: The dataset does not have the version of the request.

        Cost:
            One call; with a version also one open of the dataset.
        """
        request = requests.parse(TableExistsRequest, request)
        if request.version is not None and self._backend.passes_on("table_exists"):
            return cast(TableExistsResponse, await pass_on(self, "table_exists", request))
        with self._operation():
            table = await self._describe(self._table(request.id), None, opens=request.version is not None)
            if request.version is not None:
                await self._open_and_run(table, lambda dataset: None, Snapshot(request.version))
        return TableExistsResponse()

    async def declare_table(
        self, request: DeclareTableRequest | Fields, *, schema: pa.Schema | None = None
    ) -> DeclareTableResponse:
        """Registers a table that has no data yet.

        If the default location is local, or its storage can be reached with the configured storage options
        (`storage.*`) or the environment, it is checked first: it may hold data of a table that was renamed or
        deregistered. If the catalog cannot rename tables, the table is declared even if the storage refuses this check
        or does not respond.

        Args:
            request: `location` is where the data will be; None means the default location of the catalog. With
                `vend_credentials`, the table is described after its declaration.
            schema: The columns, for catalogs that store columns (Unity Catalog); other catalogs ignore them.

        Returns:
            The location and the properties, and with `vend_credentials` the storage options of a describe.

        Raises:
            TableAlreadyExistsError: The table is registered, or the default location contains data.
            NamespaceNotFoundError: The namespace does not exist.
            InvalidInputError: The location is not allowed, or the catalog can never accept such a declaration.
            LanceNamespaceError: The describe for the credentials failed; the error says whether the table stays
                registered.

        Cost:
            One declaration; a describe for `vend_credentials`; one open of the default location if it is checked.
        """
        request = requests.parse(DeclareTableRequest, request)
        id = self._table(request.id)
        self._check_location(id, request.location)
        with self._changing(id):
            can = self._backend.capabilities
            place = request.location
            if place is not None:
                self._backend.check_declaration(id, place, request.properties or {})
                await Claims(self._backend).check_unclaimed(id, place)
            else:
                self._backend.check_declaration(id, None, request.properties or {})
                try:
                    place, _ = await creating.look_before(self._backend, id)
                except creating.DataThereError:
                    raise
                except (InternalError, PermissionDeniedError, ServiceUnavailableError, UnauthenticatedError):
                    # Credentials for the catalog may not be valid for the storage. Data of another table is likely at
                    # the location only if the catalog can rename tables.
                    if can.renames:
                        raise
            table = await creating.declare_at(self._backend, id, place, request.properties or {}, schema)
            vends = can.vends_unasked if request.vend_credentials is None else request.vend_credentials
            if can.vends and vends:
                async with rollback(partial(creating.take_back, self._backend, table)):
                    table = await locate(self._backend, id)
        return requests.registration(table)

    async def register_table(self, request: RegisterTableRequest | Fields) -> RegisterTableResponse:
        """Registers a table whose data is at `location`.

        Args:
            request: With mode Overwrite, an existing registration is replaced; its data stays. The default mode is
                Create.

        Returns:
            The location and the properties of the table.

        Raises:
            TableAlreadyExistsError: The table is registered, and the mode is Create.
            NamespaceNotFoundError: The namespace does not exist.
            ConcurrentModificationError: Another client changed the registration during the replacement.
            InvalidInputError: The location is not allowed, or the mode is unknown.
            UnsupportedOperationError: The catalog cannot change a registered table (Polaris, Unity Catalog,
                Lakekeeper), or not its location (Nessie).

        Cost:
            One declaration. To replace a registration, a describe, and one or two calls. Up to two calls for each of
            four ids if the location may be the default one of another table.
        """
        request = requests.parse(RegisterTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("create", "overwrite"))
        properties = request.properties or {}
        self._check_location(id, request.location)
        with self._changing(id):
            self._backend.check_declaration(id, request.location, properties)
            await Claims(self._backend).check_unclaimed(id, request.location)
            if mode == "overwrite":
                table = await replacing.register(self._backend, id, request.location, properties)
            else:
                table = await self._backend.register_table(id, request.location, properties)
        answer = requests.registration(table)
        return RegisterTableResponse(location=answer.location, properties=answer.properties)

    async def deregister_table(self, request: DeregisterTableRequest | Fields) -> DeregisterTableResponse:
        """Removes a table from the catalog; its data stays.

        Returns:
            The id, the location and the properties of the table. The location is empty if the catalog's record of it is
                lost or invalid.

        Raises:
            TableNotFoundError: The table does not exist.

        Cost:
            Two calls.
        """
        request = requests.parse(DeregisterTableRequest, request)
        id = self._table(request.id)
        with self._changing(id):
            table = await derived.deregister(self._backend, id)
        answer = requests.registration(table)
        return DeregisterTableResponse(id=list(table.id), location=answer.location, properties=answer.properties)

    async def drop_table(self, request: DropTableRequest | Fields) -> DropTableResponse:
        """Removes a table from the catalog, and then deletes the files under its location.

        If a drop is interrupted before the catalog has removed the table, the table stays. If it is interrupted later,
        the remaining files belong to no table; `fleet.audit` with `data_under` lists them. If another table is
        registered at the location, only the registration is removed.

        Returns:
            The id, the location and the properties of the table. The location is empty if the catalog has lost it.

        Raises:
            TableNotFoundError: The table does not exist.
            InvalidTableStateError: The location contains other tables or files, or is not safe to delete; nothing was
                removed.

        Cost:
            Two calls, the calls for credentials, and listing and deleting the data. If the location was requested, or
            made for another name, also the calls that look for other tables there.
        """
        request = requests.parse(DropTableRequest, request)
        id = self._table(request.id)
        with self._changing(id):
            table = await dropping.drop(self._backend, id)
        answer = requests.registration(table)
        return DropTableResponse(id=list(table.id), location=answer.location, properties=answer.properties)

    async def rename_table(self, request: RenameTableRequest | Fields) -> RenameTableResponse:
        """Renames a table, or moves it to another namespace; its data stays at its location.

        Args:
            request: `new_namespace_id` is the namespace of the new name; None means the same namespace.

        Returns:
            An empty response.

        Raises:
            TableNotFoundError: The table does not exist.
            TableAlreadyExistsError: The new id is registered.
            UnsupportedOperationError: The catalog cannot rename tables.
        """
        request = requests.parse(RenameTableRequest, request)
        id = self._table(request.id)
        to = self._table([*(request.new_namespace_id or id.parent), request.new_table_name])
        with self._changing(id, to):
            await self._backend.describe_table(id)
            await self._backend.rename_table(id, to)
        return RenameTableResponse()

    def _check_location(self, id: TableId, location: str | None) -> None:
        """Raises InvalidInputError for a requested location that is not allowed in any catalog."""
        if location is not None:
            self._backend.check_location(id, location)

    async def _describe(self, id: TableId, vend: bool | None, *, opens: bool) -> Table:
        if vend:
            return await self._locator.renew(id)
        if vend is None and (opens or self._backend.capabilities.vends_unasked):
            return await self._locator.locate(id)
        return await self._backend.describe_table(id)

    async def _select_written(self, lister: Lister, parent: NamespaceId, names: Sequence[str]) -> Sequence[str]:
        """Returns the names that belong to tables with data."""
        tables = await lister.tables(parent, names)
        if self._backend.capabilities.vends:
            ids, workers = [table.id for table in tables], self._workers(None)
            result = await describe_tables(self._backend, ids, max_in_flight=workers, locator=self._locator)
            for error in result.errors.values():
                # A table that was dropped meanwhile is no longer in the listing either.
                if not isinstance(error, TableNotFoundError):
                    raise error
            tables = [result.tables[id] for id in ids if id in result.tables]
        return [table.id.name for table in await datasets.select_written(tables)]

    def _is_deepest(self, id: NamespaceId) -> bool:
        deepest = self._backend.capabilities.max_depth
        return deepest is not None and len(id) >= deepest
