"""The async namespace: its documentation, and one line for each method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

import lance_namespace as spec
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.observers import Observer
from lance_ns_async.calls.policy import Policy
from lance_ns_async.calls.slots import CallLoad
from lance_ns_async.calls.tagged_results import CacheUse
from lance_ns_async.engine.list import Listed, TableFilter
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import no_attribute, short_tracebacks
from lance_ns_async.facade.callbacks import open_with_callbacks
from lance_ns_async.many import bulk, opening, scanning, search, watching
from lance_ns_async.many import rows as many_rows
from lance_ns_async.many.changes import Change
from lance_ns_async.many.engines import OpenedTables
from lance_ns_async.many.patterns import What
from lance_ns_async.many.row_results import RankedRows, RowCounts
from lance_ns_async.many.scanning import RowStream
from lance_ns_async.many.schemas import Unify
from lance_ns_async.many.similar_ids import add_hint
from lance_ns_async.model import EXAMINE_EVERY, WATCH_EVERY, NamespaceId, Partition, Table, TableId
from lance_ns_async.operations import columns, indexes, namespaces, partitions, refs, requests, rows, tables, versions
from lance_ns_async.operations.partitions import PartitionedDataset
from lance_ns_async.operations.requests import FieldsOrId, with_fields
from lance_ns_async.operations.tables import Keep
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.rendering import name_iterators
from lance_ns_async.session import Session, with_request_scopes
from lance_ns_async.settings import TokenFunction, Transports, conceal, with_objects
from lance_ns_async.spec.partitions import PartitionSpec
from lance_ns_async.spec.responses import CreateTableResponse
from lance_ns_async.sql import run as sql_run
from lance_ns_async.sql.run import SqlResult

if TYPE_CHECKING:
    from lance import LanceDataset


@short_tracebacks(lambda namespace, error: add_hint(namespace.session, error))
@name_iterators
@with_request_scopes
class AsyncNamespace:
    """A Lance namespace over one catalog, for one event loop, with `async with` and concurrent calls.

    All tasks of the event loop may share it. Other threads and loops use a `Namespace`.

    Each operation of the spec takes a request model of the spec or a dict of the same form; or only the id, if nothing
    else is required. It returns a response model of the spec, and raises errors of `lance_namespace.errors`. Spec:
    https://lance.org/format/namespace/operations. An id is a list of names, such as `["sales", "orders"]`, or its text,
    such as `"sales.orders"`, also in lists of ids; if names have dots, their text is joined by `$`. Fields of a request
    may be passed by name: `create_table_tag("sales.orders", tag="checked", version=3)`.

    In a dict, `id` is a list. An operation without `Args` needs only the id. Two fields mean the same in all requests:
    `branch` is a branch of the table, and None means main; `page_token` is that of the previous response, and returns
    the page after it.

    The `Raises` sections of the methods list the errors that are specific to them. What a request names may be missing:
    NamespaceNotFoundError, TableNotFoundError, TableBranchNotFoundError, TableVersionNotFoundError,
    TableTagNotFoundError, TableIndexNotFoundError and TableColumnNotFoundError say what. A change of a table raises
    ConcurrentModificationError if another writer made a conflicting one. An operation without `Returns` has an empty
    response. All methods that call the catalog may also raise:

    - InvalidInputError: the request is malformed, its limit or page token is invalid, the catalog cannot have such an
      id, or the namespace is closed or belongs to another event loop. For a table of another format, its subclass
      NotALanceTableError.
    - UnauthenticatedError, PermissionDeniedError, ThrottlingError: the catalog or the storage refuses the call.
    - ServiceUnavailableError: there is no connection, or no response within the time of the operation.
    - UnsupportedOperationError: the catalog cannot perform the operation, or the request has an `identity`.
    - InternalError: any other failure.

    Operations on the rows, indexes, columns, tags and branches of a table cost one call, and one open of its dataset in
    a worker thread, except where a method says otherwise. They also raise TableNotFoundError if nothing was
    written to the table yet. A change of a table is never sent twice: after a time-out, the error says
    that the outcome is unknown. A catalog that commits the versions of its tables knows only the main branch.
    """

    def __init__(self, session: Session) -> None:
        """Wraps an open catalog; use `connect`."""
        self.session = session

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str | PathLike[str]],
        *,
        policy: Policy | None = None,
        token: TokenFunction | None = None,
        transport: Transports | None = None,
    ) -> Self:
        """Returns a namespace over a catalog.

        Args:
            impl: The name of the backend, one of `lance_ns_async.registry.BACKENDS`.
            properties: The properties of this backend; a path counts as its text.
            policy: Replaces all limits in the properties; None keeps them.
            token: For catalogs with bearer tokens, a function that returns a token, or a tuple of a token and its
                expiry: in seconds from now, in seconds since 1970, or as a datetime with a time zone. It is called when
                a token is needed, expires or is rejected; in a worker thread, unless it is a coroutine function. Lance
                may call it in other threads for its own connections.
            transport: For catalogs with HTTP, an `httpx.AsyncBaseTransport` that sends the requests, for example a test
                double; TLS and proxies are then its own. None means this package's own. The namespace closes it. A
                transport with connections belongs to one event loop: pass a function that returns one, for example the
                class, if Lance calls the catalog back to renew credentials or commit versions.

        Raises:
            InvalidInputError: The backend is unknown, its extra is not installed, or a property is invalid.

        Cost:
            No call: problems with the server are raised by the first operation. The first namespace of a catalog's kind
                imports its packages, which takes about 0.3 s: in a service, create it before the event loop starts.
        """
        properties = conceal(properties)
        return cls(open_with_callbacks(impl, with_objects(properties, token=token, transport=transport), policy))

    def namespace_id(self) -> str:
        """Returns an id of the catalog that is equal for equal properties within a process, and has no secrets."""
        return self.session.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session.id})"

    if not TYPE_CHECKING:  # Type checkers report unknown attributes themselves.

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, "from lance_ns_async import fleet")

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: it belongs to one event loop and cannot be pickled; pickle a Namespace"
        )

    async def __aenter__(self) -> Self:
        self.session.check_loop()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Releases connections, threads and caches; may be called twice. Open datasets stay open.

        Also called in another event loop, it closes them in the namespace's own loop while that runs.

        Raises:
            InvalidInputError: The event loop of the namespace has ended or does not run; connections cannot be closed
                in another one.
        """
        await self.session.aclose()

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Passes every remote call to `observer` when the call ends, while the context is open.

        Args:
            observer: Receives the calls; runs in the event loop.
        """
        return self.session.caller.observe(observer)

    def snapshot(self) -> CallLoad:
        """Returns the current load of the slots for calls to this catalog.

        Namespaces with equal properties share these slots. Calls for tokens and credentials are not included.

        Cost:
            No call. Any thread may use it, at any time, also after the namespace was closed.
        """
        return self.session.caller.slots.snapshot()

    def table_cache(self) -> CacheUse:
        """Returns the content and the use of the cache of described tables, which belongs to this namespace alone.

        Only `iceberg` has one, and only with the property `rest_table_cache_max_entries`. A forked process has its own.

        Cost:
            No call. Any thread may use it.
        """
        return self.session.backend.table_cache()

    async def list_namespaces(
        self, request: spec.ListNamespacesRequest | FieldsOrId = (), **fields: Any
    ) -> spec.ListNamespacesResponse:
        """Lists the names of the namespaces directly below a namespace.

        Args:
            request: `limit` is the maximum number of names; None returns all.

        Returns:
            The names, and a page token if there may be more.

        Cost:
            One call for each page of the catalog.
        """
        return await namespaces.list_namespaces(self.session, with_fields(request, fields))

    async def describe_namespace(
        self, request: spec.DescribeNamespaceRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeNamespaceResponse:
        """Describes a namespace.

        Returns:
            The properties of the namespace; the root has none.

        Cost:
            One call; none for the root.
        """
        return await namespaces.describe_namespace(self.session, with_fields(request, fields))

    async def create_namespace(
        self, request: spec.CreateNamespaceRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateNamespaceResponse:
        """Creates a namespace.

        Args:
            request: With mode `exist_ok`, an existing namespace stays as it is. With `overwrite`, an existing namespace
                is replaced if it is empty. The default mode is `create`.

        Returns:
            The properties of the namespace.

        Raises:
            NamespaceAlreadyExistsError: The namespace exists, and the mode is `create`; or it is the root.
            NamespaceNotFoundError: The parent namespace does not exist.
            NamespaceNotEmptyError: The namespace is not empty, and the mode is `overwrite`.
            ConcurrentModificationError: Other clients repeatedly create and drop the namespace, and the mode is
                `exist_ok`.
            InvalidInputError: The mode is unknown, or a location among the properties is not allowed.
        """
        return await namespaces.create_namespace(self.session, with_fields(request, fields))

    async def drop_namespace(
        self, request: spec.DropNamespaceRequest | FieldsOrId, *, keep: Keep | None = None, **fields: Any
    ) -> spec.DropNamespaceResponse:
        """Drops an empty namespace. Never deletes data of tables.

        Args:
            request: With mode `skip`, a missing namespace is not an error. With behavior `cascade`, the registrations
                in the namespace are removed, too, if the catalog can do that. The defaults are `fail` and `restrict`.
            keep: With behavior `cascade`, how long the tables in it can be brought back, as in `drop_table`. With 0,
                their registrations are removed without a note.

        Raises:
            NamespaceNotFoundError: The namespace does not exist, and the mode is `fail`.
            NamespaceNotEmptyError: The namespace is not empty, and the behavior is `restrict`.
            InvalidInputError: The namespace is the root, it is not empty and the catalog cannot cascade, or a mode or
                behavior is unknown.
        """
        return await namespaces.drop_namespace(self.session, with_fields(request, fields), keep=keep)

    async def namespace_exists(
        self, request: spec.NamespaceExistsRequest | FieldsOrId, **fields: Any
    ) -> spec.NamespaceExistsResponse:
        """Checks that a namespace exists; see `exists` for a bool.

        Returns:
            An empty response if the namespace exists.

        Cost:
            One call; none for the root.
        """
        return await namespaces.namespace_exists(self.session, with_fields(request, fields))

    async def own_folders(self, parent: Iterable[str]) -> Sequence[str]:
        """Returns the folders in which the catalog itself places the tables of a namespace.

        Args:
            parent: The id of the namespace.

        Returns:
            The configured root, and the folder of the namespace; as URIs, and for catalogs that resolve relative
                locations also as it was configured.

        Raises:
            NamespaceNotFoundError: The namespace does not exist; only if the catalog stores its folder.

        Cost:
            No call, or one if the catalog stores the default location of a namespace.
        """
        return await namespaces.own_folders(self.session, parent)

    async def list_tables(
        self, request: spec.ListTablesRequest | FieldsOrId = (), **fields: Any
    ) -> spec.ListTablesResponse:
        """Lists the names of the Lance tables in a namespace.

        Args:
            request: `limit` is the maximum number of names; None returns all. With `include_declared=False`, tables to
                which nothing was written are left out.

        Returns:
            The names, and a page token if there may be more.

        Cost:
            One call for each page, and one for each name if the catalog's listings contain other formats. With
            `include_declared=False` also one open of each dataset.
        """
        return await tables.list_tables(self.session, with_fields(request, fields))

    async def list_all_tables(
        self, request: spec.ListTablesRequest | FieldsOrId = (), **fields: Any
    ) -> spec.ListTablesResponse:
        """Lists the Lance tables of a namespace and of all namespaces below it.

        Args:
            request: `limit` is the maximum number of tables; None returns all. With `include_declared=False`, tables to
                which nothing was written are left out.

        Returns:
            The table ids, joined by `$`, and a page token if there may be more. They are sorted by name; the tables of
                a namespace come before those of its child namespaces.

        Cost:
            The listings of all these namespaces. With `include_declared=False` also one open of each dataset.
        """
        return await tables.list_all_tables(self.session, with_fields(request, fields))

    async def describe_table(
        self, request: spec.DescribeTableRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeTableResponse:
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
        return await tables.describe_table(self.session, with_fields(request, fields))

    async def table_exists(
        self, request: spec.TableExistsRequest | FieldsOrId, **fields: Any
    ) -> spec.TableExistsResponse:
        """Checks that a table exists; see `exists` for a bool.

        Args:
            request: With a `version`, the dataset is opened, and must have this version.

        Returns:
            An empty response if the table exists.

        Raises:
            TableVersionNotFoundError: The dataset does not have the version of the request.

        Cost:
            One call; with a version also one open of the dataset.
        """
        return await tables.table_exists(self.session, with_fields(request, fields))

    async def declare_table(
        self, request: spec.DeclareTableRequest | FieldsOrId, *, schema: pa.Schema | None = None, **fields: Any
    ) -> spec.DeclareTableResponse:
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
            InvalidInputError: The location is not allowed, or the catalog can never accept such a declaration.
            LanceNamespaceError: The describe for the credentials failed; the error says whether the table stays
                registered.

        Cost:
            One declaration; a describe for `vend_credentials`; one open of the default location if it is checked.
        """
        return await tables.declare_table(self.session, with_fields(request, fields), schema=schema)

    async def register_table(
        self, request: spec.RegisterTableRequest | FieldsOrId, **fields: Any
    ) -> spec.RegisterTableResponse:
        """Registers a table whose data is at `location`.

        Args:
            request: With mode `overwrite`, an existing registration is replaced; its data stays. The default mode is
                `create`.

        Returns:
            The location and the properties of the table.

        Raises:
            TableAlreadyExistsError: The table is registered, and the mode is `create`.
            ConcurrentModificationError: Another client changed the registration during the replacement.
            InvalidInputError: The location is not allowed, or the mode is unknown.
            UnsupportedOperationError: The catalog cannot change a registered table (Polaris, Unity Catalog,
                Lakekeeper), or not its location (Nessie).

        Cost:
            One declaration. To replace a registration, a describe, and one or two calls. Up to two calls for each of
            four ids if the location may be the default one of another table.
        """
        return await tables.register_table(self.session, with_fields(request, fields))

    async def deregister_table(
        self, request: spec.DeregisterTableRequest | FieldsOrId, **fields: Any
    ) -> spec.DeregisterTableResponse:
        """Removes a table from the catalog; its data stays.

        Returns:
            The id, the location and the properties of the table. The location is empty if the catalog's record of it is
                lost or invalid.

        Cost:
            Two calls.
        """
        return await tables.deregister_table(self.session, with_fields(request, fields))

    async def drop_table(
        self, request: spec.DropTableRequest | FieldsOrId, *, keep: Keep | None = None, **fields: Any
    ) -> spec.DropTableResponse:
        """Removes a table from the catalog, and then deletes the files under its location.

        With a retention, the data stays until its end, and `fleet.undrop` brings the table back as it was.

        If a drop is interrupted before the catalog has removed the table, the table stays. If it is interrupted later,
        the remaining files belong to no table; `fleet.audit` with `data_under` lists them. If another table is
        registered at the location, only the registration is removed.

        Args:
            request: Only the id.
            keep: How long the table can be brought back: seconds, a text such as `7d`, or a timedelta; 0 deletes the
                data at once. None means the property `drop_retention`, which is 0 by default.

        Returns:
            The id, the location and the properties of the table. The location is empty if the catalog has lost it.

        Raises:
            InvalidTableStateError: The location contains other tables or files, or is not safe to delete; nothing was
                removed.

        Cost:
            Two calls, the calls for credentials, and listing and deleting the data. If the location was requested, or
            made for another name, also the calls that look for other tables there. With a retention, two or three
                calls and two writes of small files.
        """
        return await tables.drop_table(self.session, with_fields(request, fields), keep=keep)

    async def rename_table(
        self, request: spec.RenameTableRequest | FieldsOrId, **fields: Any
    ) -> spec.RenameTableResponse:
        """Renames a table, or moves it to another namespace; its data stays at its location.

        Args:
            request: `new_namespace_id` is the namespace of the new name; None means the same namespace.

        Raises:
            TableAlreadyExistsError: The new id is registered.
            UnsupportedOperationError: The catalog cannot rename tables.
        """
        return await tables.rename_table(self.session, with_fields(request, fields))

    async def create_empty_table(
        self, request: spec.CreateEmptyTableRequest | FieldsOrId, **fields: Any
    ) -> CreateTableResponse:
        """Registers a table that has no data yet; `declare_table` replaces this operation in the spec.

        Args:
            request: With mode `exist_ok`, a registered table stays as it is. The default mode is `create`.

        Returns:
            The location, the storage options and the properties of the table.

        Raises:
            TableAlreadyExistsError: The table is registered, and the mode is `create`.
            InvalidInputError: The mode is unknown.
        """
        return await tables.create_empty_table(self.session, with_fields(request, fields))

    async def get_table_stats(
        self, request: spec.GetTableStatsRequest | FieldsOrId, **fields: Any
    ) -> spec.GetTableStatsResponse:
        """Returns the size of a table, and the numbers of its rows, indexes and fragments.

        Args:
            request: `branch` None means main.
        """
        return await tables.get_table_stats(self.session, with_fields(request, fields))

    async def create_table(
        self, request: spec.CreateTableRequest | FieldsOrId, request_data: bytes | pa.RecordBatchReader, **fields: Any
    ) -> CreateTableResponse:
        """Declares a table and writes the rows of an Arrow IPC stream to it.

        If the write fails, neither the registration nor the data stays.

        Args:
            request: With mode `exist_ok`, a registered table stays as it is, even if nothing was written to it yet.
                With `overwrite`, a new version replaces all rows and columns of the table, and its properties if the
                request has any. The default mode is `create`.
            request_data: An Arrow IPC stream; or a reader, whose rows a REST server gets while they are read.

        Returns:
            The registration and the version; the version is None if nothing was written to an existing table yet.

        Raises:
            TableAlreadyExistsError: The table is registered, and the mode is `create`; or the location contains data
                that is not registered.
            ConcurrentModificationError: The table was dropped or deregistered while its first rows were written; the
                message says whether the rows stay.
            InvalidInputError: `request_data` is not an Arrow IPC stream, or the mode is unknown.

        Cost:
            A declaration, a describe before the write and one after it, and one open; in some catalogs one call for the
            default location.
        """
        return await rows.create_table(self.session, with_fields(request, fields), request_data)

    async def insert_into_table(
        self,
        request: spec.InsertIntoTableRequest | FieldsOrId,
        request_data: bytes | pa.RecordBatchReader,
        **fields: Any,
    ) -> spec.InsertIntoTableResponse:
        """Inserts the rows of an Arrow IPC stream into a table.

        If the table is only declared, this writes its first version.

        Args:
            request: With mode `overwrite`, the rows replace all existing ones. The default mode is `append`.
            request_data: An Arrow IPC stream; or a reader, whose rows a REST server gets while they are read.

        Returns:
            The number of inserted rows, and the new version.

        Raises:
            TableNotFoundError: The table is not registered.
            TableSchemaValidationError: The columns do not match those of the table.
            ConcurrentModificationError: Another writer changed the table, or the table was dropped or deregistered
                while its first rows were written.
            InvalidInputError: `request_data` is not an Arrow IPC stream, or the mode is unknown.

        Cost:
            One call and one open.
        """
        return await rows.insert_into_table(self.session, with_fields(request, fields), request_data)

    async def merge_insert_into_table(
        self,
        request: spec.MergeInsertIntoTableRequest | FieldsOrId,
        request_data: bytes | pa.RecordBatchReader,
        **fields: Any,
    ) -> spec.MergeInsertIntoTableResponse:
        """Merges the rows of an Arrow IPC stream into a table: updates, inserts and deletes in one version.

        If the table is only declared, and the merge inserts rows, this writes its first version.

        Args:
            request: `on` names the columns that identify equal rows.
            request_data: An Arrow IPC stream; or a reader, whose rows a REST server gets while they are read.

        Returns:
            The numbers of updated, inserted and deleted rows, and the version.

        Raises:
            TableNotFoundError: The table is not registered; or nothing was written to it, and the merge inserts no
                rows.
            TableColumnNotFoundError: A column of `on` does not exist.
            ConcurrentModificationError: Another writer changed the table, or the table was dropped or deregistered
                while its first rows were written.
            InvalidInputError: `request_data` is not an Arrow IPC stream, the request has no `on` or no action, its
                timeout is invalid, or an SQL text is too complex.

        Cost:
            One call and one open.
        """
        return await rows.merge_insert_into_table(self.session, with_fields(request, fields), request_data)

    async def update_table(
        self, request: spec.UpdateTableRequest | FieldsOrId, **fields: Any
    ) -> spec.UpdateTableResponse:
        """Sets columns to the values of SQL expressions, in all rows or in those that match the predicate.

        Args:
            request: `updates` is a list of pairs of a column and an SQL expression. `predicate` is an SQL condition;
                None means all rows. `branch` None means main.

        Returns:
            The number of updated rows, and the version.

        Raises:
            ConcurrentModificationError: Another writer changed the same rows.
            InvalidInputError: There are no updates, a column appears twice, or an SQL text is invalid or too complex.
            UnsupportedOperationError: The request has properties, or updates a field within a column.
        """
        return await rows.update_table(self.session, with_fields(request, fields))

    async def delete_from_table(
        self, request: spec.DeleteFromTableRequest | FieldsOrId, **fields: Any
    ) -> spec.DeleteFromTableResponse:
        """Deletes the rows that match the predicate; old versions keep them.

        Args:
            request: `predicate` is an SQL condition; `true` means all rows. `branch` None means main.

        Returns:
            The new version.

        Raises:
            ConcurrentModificationError: Another writer changed the same rows.
            InvalidInputError: The predicate is invalid or too complex.
        """
        return await rows.delete_from_table(self.session, with_fields(request, fields))

    async def count_table_rows(
        self, request: spec.CountTableRowsRequest | FieldsOrId, **fields: Any
    ) -> spec.CountTableRowsResponse:
        """Counts all rows, or the rows that match the predicate.

        Args:
            request: `predicate` is an SQL condition; None means all rows. `version` None means the latest. `branch`
                None means main.

        Returns:
            The number of rows.

        Raises:
            InvalidInputError: The predicate is invalid or too complex.
        """
        return await rows.count_table_rows(self.session, with_fields(request, fields))

    async def query_table(self, request: spec.QueryTableRequest | FieldsOrId, **fields: Any) -> spec.QueryTableResponse:
        """Searches by vector or by text, or reads the first rows that match a filter.

        Args:
            request: `k` is the number of rows. An empty vector means no vector search. With several vectors, the result
                has `k` rows for each.

        Returns:
            The rows as an Arrow IPC file. Rows of a search have a column `_distance` or `_score`; with several vectors,
                the column `query_index` says to which vector a row belongs.

        Raises:
            InvalidInputError: The query is invalid, or an SQL text is too complex.
        """
        return await rows.query_table(self.session, with_fields(request, fields))

    def scan(
        self,
        id: Iterable[str],
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        version: int | None = None,
        branch: str | None = None,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Reads the rows of a table in bounded memory, all from the same version.

        Args:
            id: The id of the table.
            columns: The names of the columns; None means all.
            filter: An SQL expression that the rows match; None means all rows.
            version: The version; None means the latest one at the beginning.
            branch: The branch; None means main.

        Yields:
            The rows in batches. A batch is as large as a fragment's pages allow; with `data_operations=remote`, the
                batches of one response have about 32 MiB.

        Raises:
            InvalidInputError: The filter is invalid or too complex.

        Cost:
            One call and one open. With `data_operations=remote`, one call for the version, and one for each part; with
            a filter, the server reads the rows before a part again.
        """
        return bulk.flatten(
            rows.scan_groups(self.session, id, columns=columns, filter=filter, version=version, branch=branch)
        )

    async def scan_many(
        self,
        what: What,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        unify: Unify = "strict",
        table_column: str | None = "_table",
        partial: bool = False,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> RowStream:
        """Reads the rows of many tables as one stream, in bounded memory, each from one version.

        The rows of a table are together, and the tables are in the order of the request; those that a pattern matches
        come first. While the rows of one table are used, the next tables are read.

        Args:
            what: See `describe_tables`.
            columns: The names of the columns; None means all.
            filter: A condition in Lance's SQL, such as `amount > 1 AND s = 'x'`; None means all rows. It may use
                columns that are not in `columns`, but not `table_column`.
            unify: "strict" if the tables must have the same columns. "by_name" to read the columns of all tables: they
                are null for a table without them, and types are widened where that loses no value, as from int32 to
                int64. The filter then also sees these nulls and types.
            table_column: The name of an additional column with the table id, its names joined by `$`; None or "" for
                no such column.
            partial: Whether tables that cannot be opened are left out, with their errors in the result; otherwise the
                first error is raised.
            max_in_flight: See `describe_tables`; also the number of tables to read at once, up to 16.
            timeout: Seconds until all tables are open; None means no limit beyond that of each call. Each step of the
                reading has the time of an operation.
            progress: See `describe_tables`; counts opened tables.

        Returns:
            The rows with the requested columns in their order, or all columns in the order of a table with the most
                common columns, with those of other tables after them, and then `table_column`.

        Raises:
            InvalidInputError: There is no table, the tables have different columns or types that cannot be unified, the
                filter is invalid, or another argument is.

        Cost:
            The calls of `describe_tables` with vended credentials, and one open of each table, before the first row.
            With `data_operations=remote`, the calls of `scan` for each table.
        """
        return await scanning.scan_many(
            self.session,
            what,
            columns=columns,
            filter=filter,
            unify=unify,
            table_column=table_column,
            partial=partial,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    async def sql(
        self,
        text: str,
        *,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        memory_limit: str | None = None,
        threads: int | None = None,
        max_rows: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> SqlResult:
        """Runs a SELECT statement over tables of the catalog, by DuckDB in this process.

        Names in FROM are those of tables in the catalog: `sales.orders`, `"sales$orders"`, or `lake.sales.orders`.
        Patterns are many tables with a column `_table` for the id: `sales.*`, `"**.orders_*"`. Their columns are those
        of all tables, as in `scan_many` with `unify="by_name"`. `sales.orders AT (VERSION => 3)` is a version or a tag.
        `nearest('ml.docs', [1.0, 0.5], k => 5)` and `search('ml.docs', 'words', k => 5)` are the rows of `search_many`,
        with further arguments of it. Each table is read from one version, and of it only the columns and rows that the
        statement needs.

        Args:
            text: One SELECT statement of DuckDB's SQL, maybe after EXPLAIN or EXPLAIN ANALYZE. Files, the network,
                settings, extensions and functions that read them are not available.
            parameters: The values of `?`, `$1` or `$name` in the text.
            memory_limit: The memory that DuckDB may use, such as "4GB"; None means most of the machine's. The rows of
                the result are in memory in addition.
            threads: The number of threads of DuckDB; None means that of the machine's processors.
            max_rows: The maximum number of rows of the result; None means all.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call.
            progress: See `describe_tables`; counts opened tables.

        Returns:
            The rows, and the versions of the tables.

        Raises:
            InvalidInputError: The statement is invalid, or needs more memory.
            UnsupportedOperationError: It is not only a SELECT, or the package duckdb is not installed.
            TableNotFoundError: A table does not exist or has no data, or a pattern matches none.

        Cost:
            The calls of `scan_many` for all tables at once, and those of `search_many` for each search.
        """
        return await sql_run.sql(
            self.session,
            text,
            parameters=parameters,
            memory_limit=memory_limit,
            threads=threads,
            max_rows=max_rows,
            timeout=timeout,
            progress=progress,
        )

    async def explain_table_query_plan(
        self, request: spec.ExplainTableQueryPlanRequest | FieldsOrId, **fields: Any
    ) -> str:
        """Returns the plan of a query, without running it.

        Args:
            request: `query` is a request of `query_table`, with the id of the table in it or in the request. With
                `verbose`, the plan has more details.

        Returns:
            The plan as text.

        Raises:
            InvalidInputError: The query is invalid, or its id or branch differs from that of the request.
        """
        return await rows.explain_table_query_plan(self.session, with_fields(request, fields))

    async def analyze_table_query_plan(
        self, request: spec.AnalyzeTableQueryPlanRequest | FieldsOrId, **fields: Any
    ) -> str:
        """Runs a query, and returns its plan with the measurements of each step.

        Args:
            request: The fields of a request of `query_table`.

        Returns:
            The plan and the measurements as text.

        Raises:
            InvalidInputError: The query is invalid, or an SQL text is too complex.
        """
        return await rows.analyze_table_query_plan(self.session, with_fields(request, fields))

    async def open(
        self, id: Iterable[str], *, version: int | str | None = None, branch: str | None = None
    ) -> LanceDataset:
        """Opens the dataset of a table.

        The dataset stays open when this namespace is closed. When its credentials expire, Lance requests new ones from
        the catalog over a separate connection. Reading the dataset blocks: use threads.

        Args:
            id: The id of the table.
            version: A version number or the name of a tag; None means the latest version.
            branch: The branch; None means main.

        Returns:
            The dataset.

        Raises:
            InvalidInputError: `version` is neither a number nor a string, or a tag is combined with a branch.

        Cost:
            One call and one open.
        """
        return await opening.open(self.session, id, version=version, branch=branch)

    async def open_many(
        self,
        what: What,
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> OpenedTables:
        """Opens many tables concurrently, each once.

        Args:
            what: See `describe_tables`.
            max_in_flight: See `describe_tables`.
            timeout: See `describe_tables`.
            progress: See `describe_tables`.

        Returns:
            The datasets, and errors as in `describe_tables`. A table that matches a pattern and has no data yet is left
                out. Its methods `polars` and `duckdb` give all rows to these engines.

        Raises:
            InvalidInputError: See `describe_tables`.

        Cost:
            One open for each table, and the calls of `describe_tables` with vended credentials.
        """
        return await opening.open_many(
            self.session, what, max_in_flight=max_in_flight, timeout=timeout, progress=progress
        )

    async def write(
        self,
        id: Iterable[str],
        data: Any,
        *,
        mode: Literal["create", "append", "overwrite"] = "create",
        branch: str | None = None,
    ) -> LanceDataset:
        """Writes Arrow data to a table.

        After a time-out, a cancellation or an interrupt, the write ends before its next batch of rows and commits
        nothing. If it has read its last batch by then, it may still take effect.

        Args:
            id: The id of the table.
            data: A pyarrow table, batch, reader or dataset, or a data frame with `__arrow_c_stream__`.
            mode: `create` declares the table first; if that or the write fails, neither registration nor data stays.
                `append` requires a registered table. `overwrite` creates the table, or replaces all its rows and
                columns.
            branch: The branch to append to or to overwrite, which must exist; None means main.

        Returns:
            The dataset, as `open` returns it.

        Raises:
            TableAlreadyExistsError: The table is registered, and the mode is `create`; or the location contains data
                that is not registered.
            TableNotFoundError: The table is not registered, and the mode is `append`.
            TableSchemaValidationError: The columns do not match those of the table.
            ConcurrentModificationError: Another writer changed the table, or the table was dropped or deregistered
                while its first rows were written.
            InvalidInputError: The data is not Arrow data or cannot be read, the mode is unknown, or `create` has a
                branch.
        """
        return await rows.write(self.session, id, data, mode=mode, branch=branch)

    async def create_table_index(
        self, request: spec.CreateTableIndexRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableIndexResponse:
        """Creates an index on a column of vectors, scalars or text.

        This may take long: set `operation_timeout` accordingly.

        Args:
            request: `column` and `index_type` are required. `name` is the name of the index; None means one made from
                the column. Which other fields are allowed depends on the type. `branch` None means main.

        Raises:
            TableIndexAlreadyExistsError: The table has an index of that name.
            InvalidInputError: The index type is unknown, or an option is invalid or not one of that type.
        """
        return await indexes.create_table_index(self.session, with_fields(request, fields))

    async def create_table_scalar_index(
        self, request: spec.CreateTableIndexRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableScalarIndexResponse:
        """Creates an index on a column of scalars or text.

        This may take long: set `operation_timeout` accordingly.

        Args:
            request: As in `create_table_index`, with an `index_type` that is not for vectors.

        Raises:
            TableIndexAlreadyExistsError: The table has an index of that name.
            InvalidInputError: The index type is not one for scalars or text, or an option is invalid or not one of that
                type.
        """
        return await indexes.create_table_scalar_index(self.session, with_fields(request, fields))

    async def list_table_indices(
        self, request: spec.ListTableIndicesRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableIndicesResponse:
        """Lists the indexes of a table.

        Args:
            request: `limit` is the maximum number of indexes; None returns all.

        Returns:
            The indexes, sorted by name, and a page token if there are more.
        """
        return await indexes.list_table_indices(self.session, with_fields(request, fields))

    async def describe_table_index_stats(
        self, request: spec.DescribeTableIndexStatsRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeTableIndexStatsResponse:
        """Returns the statistics of an index: its type, and the numbers of indexed and unindexed rows.

        Args:
            request: `index_name` is required. `version` None means the latest. `branch` None means main.

        Raises:
            InvalidInputError: The request has no `index_name`.
        """
        return await indexes.describe_table_index_stats(self.session, with_fields(request, fields))

    async def drop_table_index(
        self, request: spec.DropTableIndexRequest | FieldsOrId, **fields: Any
    ) -> spec.DropTableIndexResponse:
        """Drops an index; older versions that have it keep it.

        Args:
            request: `index_name` is required. `branch` None means main.

        Raises:
            InvalidInputError: The request has no `index_name`.
        """
        return await indexes.drop_table_index(self.session, with_fields(request, fields))

    async def alter_table_add_columns(
        self, request: spec.AlterTableAddColumnsRequest | FieldsOrId, **fields: Any
    ) -> spec.AlterTableAddColumnsResponse:
        """Adds columns with the values of SQL expressions. Columns that the catalog stores are not updated.

        Args:
            request: `new_columns` is a list of dicts with the `name` of a column and the SQL `expression` of its
                values. `branch` None means main.

        Returns:
            The new version.

        Raises:
            InvalidInputError: There are no columns, one exists or appears twice, or an expression is missing, invalid
                or too complex.
            UnsupportedOperationError: A column is computed or virtual.
        """
        return await columns.alter_table_add_columns(self.session, with_fields(request, fields))

    async def alter_table_alter_columns(
        self, request: spec.AlterTableAlterColumnsRequest | FieldsOrId, **fields: Any
    ) -> spec.AlterTableAlterColumnsResponse:
        """Changes names, types and nullability of columns, all in one version.

        Args:
            request: `alterations` is a list of dicts with the `path` of a column and its changes: `rename`, `nullable`,
                and `data_type` as `{"type": "int64"}`. `branch` None means main.

        Returns:
            The new version.

        Raises:
            InvalidInputError: There are no changes, a column appears twice, or a name or type is invalid.
            UnsupportedOperationError: A column is virtual.
        """
        return await columns.alter_table_alter_columns(self.session, with_fields(request, fields))

    async def alter_table_drop_columns(
        self, request: spec.AlterTableDropColumnsRequest | FieldsOrId, **fields: Any
    ) -> spec.AlterTableDropColumnsResponse:
        """Drops columns; old versions keep them.

        Args:
            request: `columns` is a list of names. `branch` None means main.

        Returns:
            The new version.

        Raises:
            InvalidInputError: There are no columns.
        """
        return await columns.alter_table_drop_columns(self.session, with_fields(request, fields))

    async def update_table_schema_metadata(
        self, request: spec.UpdateTableSchemaMetadataRequest | FieldsOrId, **fields: Any
    ) -> spec.UpdateTableSchemaMetadataResponse:
        """Sets entries of the schema's metadata; other entries stay.

        Args:
            request: `metadata` is a dict of the new entries. `branch` None means main.

        Returns:
            All entries of the schema's metadata.
        """
        return await columns.update_table_schema_metadata(self.session, with_fields(request, fields))

    async def update_field_metadata(
        self, request: spec.UpdateFieldMetadataRequest | FieldsOrId, **fields: Any
    ) -> spec.UpdateFieldMetadataResponse:
        """Sets or removes entries of the metadata of fields, in all of the requested fields or in none.

        Args:
            request: A null value removes an entry.

        Returns:
            The new version, and all entries of these fields.

        Raises:
            TableColumnNotFoundError: A field does not exist.
            InvalidInputError: There are no updates, a field appears twice, or only some of the updates have `replace`.
        """
        return await columns.update_field_metadata(self.session, with_fields(request, fields))

    async def list_table_tags(
        self, request: spec.ListTableTagsRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableTagsResponse:
        """Lists the tags of a table, including those of branches.

        Args:
            request: `limit` is the maximum number of tags; None returns all.

        Returns:
            The tags, sorted by name, and a page token if there are more.
        """
        return await refs.list_table_tags(self.session, with_fields(request, fields))

    async def get_table_tag_version(
        self, request: spec.GetTableTagVersionRequest | FieldsOrId, **fields: Any
    ) -> spec.GetTableTagVersionResponse:
        """Returns the version of a tag.

        Args:
            request: `tag` is the name of the tag.

        Returns:
            The version, and its branch; the branch is None for main.
        """
        return await refs.get_table_tag_version(self.session, with_fields(request, fields))

    async def create_table_tag(
        self, request: spec.CreateTableTagRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableTagResponse:
        """Creates a tag for a version.

        Args:
            request: `tag` is the new name, and `version` its version. `branch` None means main.

        Raises:
            TableTagAlreadyExistsError: The table has a tag of that name.
            InvalidInputError: The name is not ASCII, too long, or otherwise invalid.
        """
        return await refs.create_table_tag(self.session, with_fields(request, fields))

    async def update_table_tag(
        self, request: spec.UpdateTableTagRequest | FieldsOrId, **fields: Any
    ) -> spec.UpdateTableTagResponse:
        """Moves an existing tag to another version.

        Args:
            request: `tag` is the name of the tag, and `version` its new version. `branch` None means main.
        """
        return await refs.update_table_tag(self.session, with_fields(request, fields))

    async def delete_table_tag(
        self, request: spec.DeleteTableTagRequest | FieldsOrId, **fields: Any
    ) -> spec.DeleteTableTagResponse:
        """Deletes a tag; its version stays.

        Args:
            request: `tag` is the name of the tag.
        """
        return await refs.delete_table_tag(self.session, with_fields(request, fields))

    async def create_table_branch(
        self, request: spec.CreateTableBranchRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableBranchResponse:
        """Creates a branch that starts at a version of another branch.

        Args:
            request: `from_branch` None means main; `from_version` None means its latest version.

        Raises:
            TableBranchAlreadyExistsError: The table has a branch of that name.
            TableBranchNotFoundError: The table does not have the branch `from_branch`.
            InvalidInputError: The name is too long, or otherwise invalid.
            UnsupportedOperationError: The catalog commits the versions of the table.
        """
        return await refs.create_table_branch(self.session, with_fields(request, fields))

    async def list_table_branches(
        self, request: spec.ListTableBranchesRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableBranchesResponse:
        """Lists the branches of a table except main.

        Args:
            request: `limit` is the maximum number of branches; None returns all.

        Returns:
            The branches, sorted by name, and a page token if there are more.
        """
        return await refs.list_table_branches(self.session, with_fields(request, fields))

    async def delete_table_branch(
        self, request: spec.DeleteTableBranchRequest | FieldsOrId, **fields: Any
    ) -> spec.DeleteTableBranchResponse:
        """Deletes a branch and the data that only this branch uses.

        Args:
            request: `name` is the name of the branch.

        Raises:
            InvalidTableStateError: A tag refers to a version of the branch.
            InvalidInputError: The branch is main.
        """
        return await refs.delete_table_branch(self.session, with_fields(request, fields))

    async def restore_table(
        self, request: spec.RestoreTableRequest | FieldsOrId, **fields: Any
    ) -> spec.RestoreTableResponse:
        """Makes an old version the latest one again; the versions in between stay.

        Args:
            request: `version` is the version to restore. `branch` None means main.
        """
        return await versions.restore_table(self.session, with_fields(request, fields))

    async def create_table_version(
        self, request: spec.CreateTableVersionRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableVersionResponse:
        """Commits a version whose manifest is written, and moves the manifest to its final name.

        The table must have the property `managed_by=impl`. If the outcome of a call is unknown, it may be repeated: a
        version that is already committed with the same manifest is a success.

        Args:
            request: `version` is the new number, and `manifest_path` the place where its manifest was written.
                `manifest_size` is its size in bytes.

        Returns:
            The committed version.

        Raises:
            ConcurrentModificationError: Another version with this number exists.
            InvalidInputError: The manifest is not one of this version, or its name or its folder is wrong.
            UnsupportedOperationError: The catalog does not commit the versions of this table, or the branch is not
                main.

        Cost:
            Two calls.
        """
        return await versions.create_table_version(self.session, with_fields(request, fields))

    async def batch_create_table_versions(
        self, request: spec.BatchCreateTableVersionsRequest | FieldsOrId, **fields: Any
    ) -> spec.BatchCreateTableVersionsResponse:
        """Commits one version of each of several tables: all or none.

        Args:
            request: `entries` is a list of requests of `create_table_version`, each with the id of its table.

        Returns:
            The committed versions, in the order of the request.

        Raises:
            ConcurrentModificationError: Another version with the same number exists for a table.
            InvalidInputError: A table appears twice, or a manifest is not one of its version.
            UnsupportedOperationError: The catalog does not commit the versions of a table, or cannot commit those of
                several tables at once; or a branch is not main.
        """
        return await versions.batch_create_table_versions(self.session, with_fields(request, fields))

    async def batch_commit_tables(
        self, request: spec.BatchCommitTablesRequest | FieldsOrId, **fields: Any
    ) -> spec.BatchCommitTablesResponse:
        """Commits one version of each of several tables, like `batch_create_table_versions`.

        Args:
            request: `operations` is a list of dicts with the key `create_table_version`, whose value is a request of
                this operation.

        Returns:
            The results, in the order of the request.

        Raises:
            ConcurrentModificationError: Another version with the same number exists for a table.
            InvalidInputError: An entry does not have exactly one operation, a table appears twice, or a manifest is not
                one of its version.
            UnsupportedOperationError: An operation is not `create_table_version`; or see `batch_create_table_versions`.
        """
        return await versions.batch_commit_tables(self.session, with_fields(request, fields))

    async def describe_table_version(
        self, request: spec.DescribeTableVersionRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeTableVersionResponse:
        """Returns the location of the manifest of a version.

        Args:
            request: `version` None means the latest version.

        Raises:
            TableVersionNotFoundError: The version does not exist, or its manifest was removed.
            InvalidTableStateError: The manifest of the latest version that the catalog committed is missing.
            UnsupportedOperationError: The catalog commits the versions of the table, and the branch is not main.

        Cost:
            One call, a second one for a version before the latest, and a look-up in the storage. If the storage commits
            the versions, the cost of `list_table_versions`.
        """
        return await versions.describe_table_version(self.session, with_fields(request, fields))

    async def list_table_versions(
        self, request: spec.ListTableVersionsRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableVersionsResponse:
        """Lists the versions whose manifests exist.

        Args:
            request: `limit` is the maximum number of versions; None returns all. With `descending`, the newest version
                comes first, otherwise the oldest.

        Returns:
            The versions, and a page token if there are more. The list is empty if the table has no version, or none
                that its catalog committed.

        Raises:
            InvalidTableStateError: The manifest of the latest version that the catalog committed is missing.
            UnsupportedOperationError: The catalog commits the versions of the table, and the branch is not main.

        Cost:
            One call and a listing in the storage; for the latest version alone (`descending` with `limit=1`) one call
            and a look-up in the storage. If the storage commits the versions, all manifests are read.
        """
        return await versions.list_table_versions(self.session, with_fields(request, fields))

    async def batch_delete_table_versions(
        self, request: spec.BatchDeleteTableVersionsRequest | FieldsOrId, **fields: Any
    ) -> spec.BatchDeleteTableVersionsResponse:
        """Deletes versions of the main branch.

        If the catalog commits the versions, their records and manifests are deleted, and Lance's clean-up later removes
        the files that only they need. Otherwise these files are deleted at once.

        Args:
            request: Each range includes its start and excludes its end; the end -1 means up to the latest version. Such
                a range never includes the latest version.

        Returns:
            The number of deleted versions.

        Raises:
            InvalidTableStateError: A tag or a branch needs one of the versions.
            InvalidInputError: A range is invalid, or includes the latest version.
            UnsupportedOperationError: The branch is not main.

        Cost:
            One call more than `list_table_versions`, and one open of the dataset.
        """
        return await versions.batch_delete_table_versions(self.session, with_fields(request, fields))

    async def describe_tables(
        self,
        what: What,
        *,
        vend_credentials: bool = False,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> BulkResult[Table]:
        """Describes many tables concurrently, each once.

        Args:
            what: One item or many: table ids; patterns such as "sales.*" or "**.orders", where `*` and `?` match within
                a name and `**` any number of namespaces; and NamespaceIds, each for its own tables.
            vend_credentials: Whether the storage options include the credentials that the catalog vends, if it vends
                any. A table for which it refuses them is described without.
            max_in_flight: Maximum number of concurrent calls; None, or more than the policy allows, means the policy's
                limit.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call. Tables that are not
                described in time fail with ServiceUnavailableError.
            progress: Shows a bar in a terminal or notebook; or receives the number of finished tables and their total,
                and runs in the event loop.

        Returns:
            The described tables, an error for each other id, and one for each namespace that a pattern leads to and
                that could not be listed: the failure of one does not affect the others. No match is no error.

        Raises:
            InvalidInputError: The catalog cannot have an id, a pattern is invalid, or `max_in_flight` or `timeout` is;
                nothing was called.

        Cost:
            One call for each table. If the catalog has batch describes, or listings with locations, they replace most
            of these calls, and each id that they do not contain costs one more call. With vended credentials, they do
            not, and some catalogs need more calls for each table. After a 401, the remaining ids fail without a call.
            For patterns, also the listings of the namespaces that can contain a match.
        """
        return await search.describe_tables(
            self.session,
            what,
            vend_credentials=vend_credentials,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    def stream_tables(
        self, ids: Iterable[Iterable[str]], *, max_in_flight: int | None = None
    ) -> AsyncGenerator[tuple[TableId, Table | LanceNamespaceError], None]:
        """Describes any number of tables in bounded memory, in the order of the ids.

        Args:
            ids: The table ids; the iterator may be endless. It is read in groups of 500 ids at first and up to 5,000
                later, each of which is described like in `describe_tables`.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.

        Yields:
            Each id with its table or its error.

        Raises:
            InvalidInputError: The catalog cannot have an id; raised after the results for the ids before it.

        Cost:
            About as many calls as `describe_tables` if the ids are in the order of the catalog's listings, like those
            of `iter_tables`. Otherwise up to one call for each id if the catalog lists tables with their locations,
            because listed tables that belong to other groups are not kept.
        """
        return bulk.stream_tables(self.session, ids, max_in_flight=max_in_flight)

    def watch(
        self,
        what: What,
        *,
        since: str | None = None,
        existing: bool = False,
        versions: bool = True,
        every: float | None = WATCH_EVERY,
        examine_every: float = EXAMINE_EVERY,
    ) -> AsyncGenerator[Change, None]:
        """Yields the tables that are created, dropped, renamed or replaced, or have new versions, as it happens.

        It lists the tables again and again. Each change is seen at least once, in order for each table. What happens
        between two looks is one change: a table that is created and dropped in this time is not seen, and several
        versions are one change. A table that is dropped and declared again meanwhile is `replaced` if its location, its
        registration or a smaller version shows it.

        If something cannot be read, the watch says so once, as `unreadable`, and goes on.

        Args:
            what: Ids and patterns of tables, such as `"sales.**"`. A table need not exist.
            since: The `token` of a change, or of `watch_token`, after which the watch goes on, also in another process;
                None begins now.
            existing: Whether the tables that exist now come first, as `created`; only without `since`.
            versions: Whether to look for new versions.
            every: Seconds between two looks; None looks once and ends.
            examine_every: Seconds in which every table is examined once, a part of them at each look: its latest
                version is read, and it is described again if listings do not show where tables are.

        Yields:
            The changes.

        Raises:
            InvalidInputError: The token is of other tables, or an argument is invalid.
            LanceNamespaceError: Without `since`, something could not be read by the first look.

        Cost:
            At each look, the listings of the matching namespaces. For each table, at most one describe and one listing
            of its versions in `examine_every` seconds.
        """
        return bulk.flatten(
            watching.changes(
                self.session,
                what,
                since=since,
                existing=existing,
                versions=versions,
                every=every,
                examine_every=examine_every,
            )
        )

    async def watch_token(self, what: What, *, versions: bool = True) -> str:
        """Returns the token from which a watch tells every change from now on.

        Args:
            what: As in `watch`.
            versions: As in `watch`.

        Returns:
            The token, for `since`.

        Raises:
            LanceNamespaceError: Something could not be read.

        Cost:
            As a look of `watch` at all tables.
        """
        return await watching.token(self.session, what, versions=versions)

    async def partition_by(
        self, by: Sequence[str | Mapping[str, Any]], *, schema: pa.Schema | None = None
    ) -> PartitionSpec:
        """Divides a new directory into partitions, or divides the new rows of a partitioned one in another way.

        Each partition is a table of its own, in namespaces with random names. Existing partitions stay as they are. If
        new rows are already divided so, nothing is changed.

        Spec: https://lance.org/format/namespace/partitioning-spec.

        Args:
            by: The partition fields: a column, such as `"region"`, or a transform of one: `"year(at)"`, `"month(at)"`
                (1 to 12), `"day(at)"` (of the month), `"hour(at)"`, `"bucket(16, user)"` (also of several columns),
                `"truncate(3, code)"`. A field may also be an object of the spec, for example with an `expression`.
            schema: The columns of all rows, for a new directory; None for a partitioned one.

        Returns:
            The latest version of the partition spec.

        Raises:
            InvalidInputError: A field is invalid, the schema is missing or cannot be stored, or a new directory already
                has tables or namespaces in its manifest.
            UnsupportedOperationError: The catalog is no directory catalog.

        Cost:
            Two commits to the manifest.
        """
        return await partitions.partition_by(self.session, by, schema=schema)

    async def write_partitions(self, data: Any, *, max_in_flight: int | None = None) -> Mapping[TableId, int]:
        """Appends rows to their partitions; partitions that do not exist yet are created.

        Several partitions are not changed at once: readers may see the rows of some of them before those of others, and
        rows that were appended before an error stay.

        Args:
            data: A pyarrow table, batch, reader or dataset, or a data frame with `__arrow_c_stream__`. It is divided in
                parts of about 64 MiB.
            max_in_flight: Maximum number of partitions that are written at a time; None for the policy's limit.

        Returns:
            The number of rows that were appended to each partition, by the ids of their tables.

        Raises:
            TableSchemaValidationError: The columns are not those of the partitions, or a value does not fit.
            InvalidInputError: The directory has no partitions, or the data is not Arrow data.
            InvalidTableStateError: The manifest sets the version of a partition that is read.
            UnsupportedOperationError: The catalog is no directory catalog.
            LanceNamespaceError: Some partitions could not be written; a note names them.

        Cost:
            For each part of the data, a commit to the manifest if there are new partitions, and one append for each
            partition with rows in it.
        """
        return await partitions.write_partitions(self.session, data, max_in_flight=max_in_flight)

    async def list_partitions(self, where: str | None = None) -> list[Partition]:
        """Returns the partitions that may have rows which match a condition.

        The ids of the result are those of tables, for operations such as `search_many` and `describe_tables`. The
        partitions may also have other rows; `drop_partitions` drops those of which all rows match.

        Args:
            where: A condition in Lance's SQL, such as `at >= timestamp '2026-01-01 00:00:00' AND region = 'EU'`. Its
                comparisons of single columns with literals leave out partitions; other parts leave out none. None for
                all partitions.

        Returns:
            The partitions, by the version of their spec and their values; nulls are last.

        Raises:
            InvalidInputError: The directory has no partitions, or the condition is invalid.
            UnsupportedOperationError: The catalog is no directory catalog.

        Cost:
            Two opens of the manifest, and one scan of it if it has changed.
        """
        return await partitions.list_partitions(self.session, where)

    async def open_partitions(
        self, where: str | None = None, *, max_in_flight: int | None = None
    ) -> PartitionedDataset:
        """Opens the partitions that may have rows which match a condition, as one dataset.

        Args:
            where: As in `list_partitions`; it also holds for the rows.
            max_in_flight: Maximum number of datasets to open at once; None for the policy's limit.

        Returns:
            A dataset with `to_table`, `to_reader` and `count_rows`, which is also an Arrow stream. A partition to which
            nothing was written yet has no rows.

        Raises:
            InvalidInputError: The directory has no partitions, or the condition is invalid.
            UnsupportedOperationError: The catalog is no directory catalog.

        Cost:
            As `list_partitions`, and one open for each of these partitions.
        """
        return await partitions.open_partitions(self.session, where, max_in_flight=max_in_flight)

    async def drop_partitions(self, where: str, *, max_in_flight: int | None = None) -> list[Partition]:
        """Drops the partitions of which all rows match a condition, with their data.

        A partition that may also have other rows stays; `delete_from_table` deletes rows of it. Lance counts the
        matching rows of a partition before it is dropped. A write at the same time appends its rows to a new partition.

        Args:
            where: As in `list_partitions`; `"true"` drops all partitions.
            max_in_flight: Maximum number of partitions that are dropped at a time; None for the policy's limit.

        Returns:
            The dropped partitions, also those that another client dropped meanwhile.

        Raises:
            InvalidInputError: The directory has no partitions, or the condition is invalid.
            UnsupportedOperationError: The catalog is no directory catalog.
            LanceNamespaceError: Some partitions could not be dropped; a note names them.

        Cost:
            As `list_partitions`, an open, a count and a `drop_table` for each of them, and one commit to the manifest.
        """
        return await partitions.drop_partitions(self.session, where, max_in_flight=max_in_flight)

    def scan_partitions(
        self, where: str | None = None, *, columns: Sequence[str] | None = None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Reads the rows of all partitions that match a condition, in bounded memory.

        Args:
            where: As in `open_partitions`.
            columns: The names of the columns; None means all.

        Yields:
            The rows in batches, one partition after the other.

        Raises:
            InvalidInputError: The directory has no partitions, or the condition is invalid.
            UnsupportedOperationError: The catalog is no directory catalog.

        Cost:
            As `open_partitions`.
        """
        return bulk.flatten(partitions.scan_partitions(self.session, where, columns=columns))

    async def search_many(
        self,
        what: What,
        *,
        vector: Sequence[float] | None = None,
        column: str | None = None,
        full_text: str | Mapping[str, Any] | None = None,
        k: int = 10,
        filter: str | None = None,
        columns: Sequence[str] | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
        **query: Any,
    ) -> RankedRows:
        """Searches many tables at once, and returns the best rows of all of them.

        With a vector and a text, the best `k` rows of either search are joined by reciprocal rank fusion.

        Args:
            what: Ids and patterns of tables, such as `"sales.**"`. Tables without data are left out.
            vector: The vector to search by; None for a search by text.
            column: The column of the vectors; None means `vector`, or else the only column of vectors of a table.
            full_text: The words to search by, or a `full_text_query` of the spec; None for a search by vector. Scores
                depend on the other texts of a table, so those of different tables are only roughly comparable.
            k: The number of rows.
            filter: An SQL expression that the rows match, applied before the search; None means all rows.
            columns: The names of the columns in the result; None means all. A column that a table lacks is null, unless
                it is named here: then the table is in `errors`.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call. Tables that were
                not searched by then are in `errors`.
            progress: Shows a bar in a terminal or notebook; or receives the number of searched tables and their total.
            **query: Further fields of a `query_table` request, such as `nprobes`, `refine_factor` and `distance_type`.

        Returns:
            The rows, and an error for each table that could not be searched.

        Raises:
            InvalidInputError: The query is invalid, or the catalog cannot have an id; nothing was called. Or the rows
                have columns of one name and of types without a common one.

        Cost:
            The listings, the calls of `describe_tables`, and one open for each table. With `data_operations=remote`,
            one call if the server is the gateway, else the listings and one call for each table.
        """
        return await many_rows.search_many(
            self.session,
            what,
            vector=vector,
            column=column,
            full_text=full_text,
            k=k,
            filter=filter,
            columns=columns,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
            **query,
        )

    async def count_many(
        self,
        what: What,
        *,
        filter: str | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> RowCounts:
        """Counts the rows of many tables at once.

        Args:
            what: See `search_many`.
            filter: An SQL expression that the rows match; None counts all rows.
            max_in_flight: See `search_many`.
            timeout: See `search_many`.
            progress: See `search_many`.

        Returns:
            The number of rows of each table, and an error for each table that could not be counted.

        Raises:
            InvalidInputError: The catalog cannot have an id; nothing was called.

        Cost:
            Those of `search_many`.
        """
        return await many_rows.count_many(
            self.session, what, filter=filter, max_in_flight=max_in_flight, timeout=timeout, progress=progress
        )

    async def list_many(
        self,
        namespaces: Iterable[Iterable[str]],
        *,
        include: TableFilter | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> Listed:
        """Lists the Lance tables of many namespaces concurrently.

        Args:
            namespaces: The namespace ids; each is a sequence of names.
            include: Returns whether a table belongs in the result; None includes all. If the catalog's listings contain
                other formats, a table that does not belong in the result costs no describe.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call.
            progress: Shows a bar in a terminal or notebook; or receives the number of listed namespaces and their
                total.

        Returns:
            The tables by namespace. A namespace that fails is in `errors`, and a table whose format cannot be
                determined is in `doubtful`; neither affects the others.

        Raises:
            InvalidInputError: The catalog cannot have an id, or `max_in_flight` or `timeout` is invalid; nothing was
                called.

        Cost:
            One call for each page, and one for each table if the catalog's listings contain other formats.
        """
        return await bulk.list_many(
            self.session, namespaces, include=include, max_in_flight=max_in_flight, timeout=timeout, progress=progress
        )

    def iter_tables(self, namespace: Iterable[str] = (), *, recursive: bool = False) -> AsyncGenerator[TableId, None]:
        """Walks the Lance tables of a namespace with concurrent listings.

        Holds at most one round of pages in memory. Skips a child namespace that is dropped during the walk.

        Args:
            namespace: The namespace to start at; empty for the root.
            recursive: Whether to include all namespaces below it.

        Yields:
            The table ids, in no particular order between namespaces.

        Raises:
            NamespaceNotFoundError: The start namespace does not exist.
            LanceNamespaceError: The first error of a listing ends the walk.

        Cost:
            One call for each page, and one for each table if the catalog's listings contain other formats.
        """
        return bulk.flatten(bulk.table_groups(self.session, namespace, recursive=recursive))

    async def register_tables(
        self,
        tables: Iterable[spec.RegisterTableRequest | FieldsOrId],
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> BulkResult[Table]:
        """Registers many tables concurrently, each like `register_table` in the mode `create`.

        Args:
            tables: The requests, with different ids.
            max_in_flight: Maximum number of concurrent calls; None, or more than the policy allows, means the policy's
                limit.
            timeout: Seconds for the whole operation; None means no limit beyond that of each call. Tables that are not
                registered in time fail with ServiceUnavailableError.
            progress: Shows a bar in a terminal or notebook; or receives the number of finished tables and their
                total, and runs in the event loop.

        Returns:
            The registered tables, and an error for each other id: the failure of one table does not affect the others.

        Raises:
            InvalidInputError: An id is invalid or occurs twice, a mode is not `create`, or `max_in_flight` or `timeout`
                is invalid; nothing was called.

        Cost:
            One declaration for each table, and the check of its location, as in `register_table`. The directory catalog
            needs one commit for 500 tables. If the process is killed, each of these commits was made completely or not
            at all. After a 401, the remaining tables fail without a call.
        """
        return await bulk.register_tables(
            self.session, tables, max_in_flight=max_in_flight, timeout=timeout, progress=progress
        )

    async def protect_tables(
        self, namespace: Iterable[str] = (), *, recursive: bool = True, max_in_flight: int | None = None
    ) -> Sequence[TableId]:
        """Prevents other tools of the catalog from deleting the files of registered tables.

        On Iceberg catalogs, tables get the property `gc.enabled=false`, unless they have that property with any value.
        Without it, Iceberg's orphan removal and `DROP TABLE ... PURGE` delete the files of Lance. In a Hive Metastore,
        tables that other tools registered without `EXTERNAL=TRUE` get it; without it, Hive deletes the files with the
        table. Other catalogs need no change. May be repeated.

        Args:
            namespace: The namespace of the tables; empty for the root.
            recursive: Whether to include all namespaces below it.
            max_in_flight: Maximum number of concurrent calls; None means the policy's limit.

        Returns:
            The ids of the tables that were changed, sorted.

        Raises:
            LanceNamespaceError: The first error of a table, raised after all other tables were processed.

        Cost:
            A listing, a describe of each table, and a commit for each table that is changed.
        """
        return await bulk.protect_tables(self.session, namespace, recursive=recursive, max_in_flight=max_in_flight)

    def iter_namespaces(
        self, namespace: Iterable[str] = (), *, recursive: bool = False
    ) -> AsyncGenerator[NamespaceId, None]:
        """Walks the namespaces below a namespace with concurrent listings.

        Args:
            namespace: The namespace to start at; empty for the root.
            recursive: Whether to include all depths; otherwise only direct children.

        Yields:
            The namespace ids, parents before their children.

        Raises:
            NamespaceNotFoundError: The start namespace does not exist.
            LanceNamespaceError: The first error of a listing ends the walk.

        Cost:
            One call for each page.
        """
        return bulk.flatten(bulk.namespace_groups(self.session, namespace, recursive=recursive))

    async def exists(self, id: Iterable[str]) -> bool:
        """Returns whether a Lance table exists, or a namespace if `id` is a NamespaceId.

        Args:
            id: The id; a list of names or a text is the id of a table.

        Raises:
            NotALanceTableError: The name belongs to a table of another format.

        Cost:
            One call; none for the root namespace.
        """
        return await bulk.exists(self.session, id)

    async def alter_table_backfill_columns(
        self, request: spec.AlterTableBackfillColumnsRequest | FieldsOrId
    ) -> spec.AlterTableBackfillColumnsResponse:
        """Starts a job that fills a column.

        Args:
            request: `column` is the column to fill. The server defines the other fields.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs run no jobs.
        """
        return await requests.run(
            self.session, "alter_table_backfill_columns", request, spec.AlterTableBackfillColumnsResponse
        )

    async def create_materialized_view(
        self, request: spec.CreateMaterializedViewRequest | FieldsOrId
    ) -> spec.CreateMaterializedViewResponse:
        """Creates a materialized view.

        Args:
            request: `kind`, `source_query` and `output_schema` define the view. The server defines their content.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs run no jobs.
        """
        return await requests.run(
            self.session, "create_materialized_view", request, spec.CreateMaterializedViewResponse
        )

    async def refresh_materialized_view(
        self, request: spec.RefreshMaterializedViewRequest | FieldsOrId
    ) -> spec.RefreshMaterializedViewResponse:
        """Starts a job that refreshes a materialized view.

        Args:
            request: The server defines the fields.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs run no jobs.
        """
        return await requests.run(
            self.session, "refresh_materialized_view", request, spec.RefreshMaterializedViewResponse
        )

    async def describe_transaction(
        self, request: spec.DescribeTransactionRequest | FieldsOrId
    ) -> spec.DescribeTransactionResponse:
        """Describes a transaction.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs keep no transactions.
        """
        return await requests.run(self.session, "describe_transaction", request, spec.DescribeTransactionResponse)

    async def alter_transaction(
        self, request: spec.AlterTransactionRequest | FieldsOrId
    ) -> spec.AlterTransactionResponse:
        """Changes a transaction.

        Args:
            request: `actions` is a list of changes. The server defines them.

        Raises:
            UnsupportedOperationError: The catalog is not a server with this operation; catalogs keep no transactions.
        """
        return await requests.run(self.session, "alter_transaction", request, spec.AlterTransactionResponse)
