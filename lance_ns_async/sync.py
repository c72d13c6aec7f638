"""The sync namespace. `.ci/generate_sync.py` generates this file from `client.py`: change it there."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import lance_namespace as spec
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.policy import Policy
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.engine.list import Listed, TableFilter
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import without_inner_calls
from lance_ns_async.facade.base import ByProperties, Facade, Property, documented_by
from lance_ns_async.facade.callbacks import open_with_callbacks
from lance_ns_async.many import bulk, opening, scanning, search, watching
from lance_ns_async.many import rows as many_rows
from lance_ns_async.many.changes import Change
from lance_ns_async.many.engines import OpenedTables
from lance_ns_async.many.patterns import What, in_memory
from lance_ns_async.many.row_results import RankedRows, RowCounts
from lance_ns_async.many.scanning import RowReader
from lance_ns_async.many.schemas import Unify
from lance_ns_async.model import EXAMINE_EVERY, WATCH_EVERY, NamespaceId, Partition, Table, TableId
from lance_ns_async.operations import columns, indexes, namespaces, partitions, refs, requests, rows, tables, versions
from lance_ns_async.operations.partitions import PartitionedDataset
from lance_ns_async.operations.requests import FieldsOrId, several, with_fields
from lance_ns_async.operations.tables import Keep
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.rendering import name_iterators
from lance_ns_async.session import Session
from lance_ns_async.settings import TokenFunction, Transports, conceal
from lance_ns_async.spec.partitions import PartitionSpec
from lance_ns_async.spec.responses import CreateTableResponse
from lance_ns_async.sql import run as sql_run
from lance_ns_async.sql.run import SqlResult

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")


@name_iterators
@documented_by(AsyncNamespace)
class Namespace(Facade, spec.LanceNamespace):
    """A Lance namespace over one catalog, for use from any thread, also within a running event loop.

    The methods have the arguments, results, errors and costs of those of `AsyncNamespace`, and `help` shows them.

    An instance may be shared by threads, used after a fork, and pickled. A pickle contains the properties, including
    secrets: store it accordingly. With a callable as `token`, a namespace can be pickled only if the callable can: a
    function of a module, not a lambda.

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

    @classmethod
    def connect(
        cls,
        impl: str,
        properties: Mapping[str, str | PathLike[str]],
        *,
        policy: Policy | None = None,
        token: TokenFunction | None = None,
        transport: Transports | None = None,
    ) -> Namespace:
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
        return Namespace(impl, properties, policy, token=token, transport=transport)

    def _open_session(self) -> Session:
        return open_with_callbacks(self._impl, self._properties, self._policy)

    def run(self, work: Callable[[AsyncNamespace], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine of the async namespace on the background loop and returns its result.

        Args:
            work: Receives the async namespace, and returns the coroutine.

        Raises:
            InvalidInputError: The namespace is closed.
            InternalError: The calling thread is the thread of the background loop.
        """
        lease = self._lease()
        try:
            return lease.loop.run(work(AsyncNamespace(lease.session)))
        except LanceNamespaceError as e:
            raise without_inner_calls(e) from e.__cause__

    async def arun(self, work: Callable[[AsyncNamespace], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine like `run`, but awaits its result: in any event loop, also in the background loop itself.

        A cancellation cancels the coroutine. Outside the background loop, it does not wait for the rollback.

        Args:
            work: Receives the async namespace, and returns the coroutine.

        Raises:
            InvalidInputError: The namespace is closed.
        """
        lease = self._lease()
        try:
            return await lease.loop.arun(work(AsyncNamespace(lease.session)))
        except LanceNamespaceError as e:
            raise without_inner_calls(e) from e.__cause__

    def list_namespaces(
        self, request: spec.ListNamespacesRequest | FieldsOrId = (), **fields: Any
    ) -> spec.ListNamespacesResponse:
        """Lists the names of the namespaces directly below a namespace."""
        return self._call(namespaces.list_namespaces, with_fields(request, fields))

    def describe_namespace(
        self, request: spec.DescribeNamespaceRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeNamespaceResponse:
        """Describes a namespace."""
        return self._call(namespaces.describe_namespace, with_fields(request, fields))

    def create_namespace(
        self, request: spec.CreateNamespaceRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateNamespaceResponse:
        """Creates a namespace."""
        return self._call(namespaces.create_namespace, with_fields(request, fields))

    def drop_namespace(
        self, request: spec.DropNamespaceRequest | FieldsOrId, *, keep: Keep | None = None, **fields: Any
    ) -> spec.DropNamespaceResponse:
        """Drops an empty namespace. Never deletes data of tables."""
        return self._call(namespaces.drop_namespace, with_fields(request, fields), keep=keep)

    def namespace_exists(
        self, request: spec.NamespaceExistsRequest | FieldsOrId, **fields: Any
    ) -> spec.NamespaceExistsResponse:
        """Checks that a namespace exists; see `exists` for a bool."""
        return self._call(namespaces.namespace_exists, with_fields(request, fields))

    def own_folders(self, parent: Iterable[str]) -> Sequence[str]:
        """Returns the folders in which the catalog itself places the tables of a namespace."""
        return self._call(namespaces.own_folders, parent)

    def list_tables(self, request: spec.ListTablesRequest | FieldsOrId = (), **fields: Any) -> spec.ListTablesResponse:
        """Lists the names of the Lance tables in a namespace."""
        return self._call(tables.list_tables, with_fields(request, fields))

    def list_all_tables(
        self, request: spec.ListTablesRequest | FieldsOrId = (), **fields: Any
    ) -> spec.ListTablesResponse:
        """Lists the Lance tables of a namespace and of all namespaces below it."""
        return self._call(tables.list_all_tables, with_fields(request, fields))

    def describe_table(
        self, request: spec.DescribeTableRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeTableResponse:
        """Returns the location of a table and what is needed to read it."""
        return self._call(tables.describe_table, with_fields(request, fields))

    def table_exists(self, request: spec.TableExistsRequest | FieldsOrId, **fields: Any) -> spec.TableExistsResponse:
        """Checks that a table exists; see `exists` for a bool."""
        return self._call(tables.table_exists, with_fields(request, fields))

    def declare_table(
        self, request: spec.DeclareTableRequest | FieldsOrId, *, schema: pa.Schema | None = None, **fields: Any
    ) -> spec.DeclareTableResponse:
        """Registers a table that has no data yet."""
        return self._call(tables.declare_table, with_fields(request, fields), schema=schema)

    def register_table(
        self, request: spec.RegisterTableRequest | FieldsOrId, **fields: Any
    ) -> spec.RegisterTableResponse:
        """Registers a table whose data is at `location`."""
        return self._call(tables.register_table, with_fields(request, fields))

    def deregister_table(
        self, request: spec.DeregisterTableRequest | FieldsOrId, **fields: Any
    ) -> spec.DeregisterTableResponse:
        """Removes a table from the catalog; its data stays."""
        return self._call(tables.deregister_table, with_fields(request, fields))

    def drop_table(
        self, request: spec.DropTableRequest | FieldsOrId, *, keep: Keep | None = None, **fields: Any
    ) -> spec.DropTableResponse:
        """Removes a table from the catalog, and then deletes the files under its location."""
        return self._call(tables.drop_table, with_fields(request, fields), keep=keep)

    def rename_table(self, request: spec.RenameTableRequest | FieldsOrId, **fields: Any) -> spec.RenameTableResponse:
        """Renames a table, or moves it to another namespace; its data stays at its location."""
        return self._call(tables.rename_table, with_fields(request, fields))

    def create_empty_table(
        self, request: spec.CreateEmptyTableRequest | FieldsOrId, **fields: Any
    ) -> CreateTableResponse:
        """Registers a table that has no data yet; `declare_table` replaces this operation in the spec."""
        return self._call(tables.create_empty_table, with_fields(request, fields))

    def get_table_stats(
        self, request: spec.GetTableStatsRequest | FieldsOrId, **fields: Any
    ) -> spec.GetTableStatsResponse:
        """Returns the size of a table, and the numbers of its rows, indexes and fragments."""
        return self._call(tables.get_table_stats, with_fields(request, fields))

    def create_table(
        self, request: spec.CreateTableRequest | FieldsOrId, request_data: bytes | pa.RecordBatchReader, **fields: Any
    ) -> CreateTableResponse:
        """Declares a table and writes the rows of an Arrow IPC stream to it."""
        return self._call(rows.create_table, with_fields(request, fields), request_data)

    def insert_into_table(
        self,
        request: spec.InsertIntoTableRequest | FieldsOrId,
        request_data: bytes | pa.RecordBatchReader,
        **fields: Any,
    ) -> spec.InsertIntoTableResponse:
        """Inserts the rows of an Arrow IPC stream into a table."""
        return self._call(rows.insert_into_table, with_fields(request, fields), request_data)

    def merge_insert_into_table(
        self,
        request: spec.MergeInsertIntoTableRequest | FieldsOrId,
        request_data: bytes | pa.RecordBatchReader,
        **fields: Any,
    ) -> spec.MergeInsertIntoTableResponse:
        """Merges the rows of an Arrow IPC stream into a table: updates, inserts and deletes in one version."""
        return self._call(rows.merge_insert_into_table, with_fields(request, fields), request_data)

    def update_table(self, request: spec.UpdateTableRequest | FieldsOrId, **fields: Any) -> spec.UpdateTableResponse:
        """Sets columns to the values of SQL expressions, in all rows or in those that match the predicate."""
        return self._call(rows.update_table, with_fields(request, fields))

    def delete_from_table(
        self, request: spec.DeleteFromTableRequest | FieldsOrId, **fields: Any
    ) -> spec.DeleteFromTableResponse:
        """Deletes the rows that match the predicate; old versions keep them."""
        return self._call(rows.delete_from_table, with_fields(request, fields))

    def count_table_rows(
        self, request: spec.CountTableRowsRequest | FieldsOrId, **fields: Any
    ) -> spec.CountTableRowsResponse:
        """Counts all rows, or the rows that match the predicate."""
        return self._call(rows.count_table_rows, with_fields(request, fields))

    def query_table(self, request: spec.QueryTableRequest | FieldsOrId, **fields: Any) -> spec.QueryTableResponse:
        """Searches by vector or by text, or reads the first rows that match a filter."""
        return self._call(rows.query_table, with_fields(request, fields))

    def scan(
        self,
        id: Iterable[str],
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        version: int | None = None,
        branch: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Reads the rows of a table in bounded memory, all from the same version."""
        return self._flatten(
            lambda session: rows.scan_groups(
                session, id, columns=columns, filter=filter, version=version, branch=branch
            )
        )

    def scan_many(
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
    ) -> RowReader:
        """Reads the rows of many tables as one stream, in bounded memory, each from one version."""
        return self._read(
            scanning.scan_many,
            in_memory(what),
            columns=columns,
            filter=filter,
            unify=unify,
            table_column=table_column,
            partial=partial,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    def sql(
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
        """Runs a SELECT statement over tables of the catalog, by DuckDB in this process."""
        return self._call(
            sql_run.sql,
            text,
            parameters=parameters,
            memory_limit=memory_limit,
            threads=threads,
            max_rows=max_rows,
            timeout=timeout,
            progress=progress,
        )

    def explain_table_query_plan(self, request: spec.ExplainTableQueryPlanRequest | FieldsOrId, **fields: Any) -> str:
        """Returns the plan of a query, without running it."""
        return self._call(rows.explain_table_query_plan, with_fields(request, fields))

    def analyze_table_query_plan(self, request: spec.AnalyzeTableQueryPlanRequest | FieldsOrId, **fields: Any) -> str:
        """Runs a query, and returns its plan with the measurements of each step."""
        return self._call(rows.analyze_table_query_plan, with_fields(request, fields))

    def open(self, id: Iterable[str], *, version: int | str | None = None, branch: str | None = None) -> LanceDataset:
        """Opens the dataset of a table."""
        return self._call(opening.open, id, version=version, branch=branch)

    def open_many(
        self,
        what: What,
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> OpenedTables:
        """Opens many tables concurrently, each once."""
        return self._call(
            opening.open_many, in_memory(what), max_in_flight=max_in_flight, timeout=timeout, progress=progress
        )

    def write(
        self,
        id: Iterable[str],
        data: Any,
        *,
        mode: Literal["create", "append", "overwrite"] = "create",
        branch: str | None = None,
    ) -> LanceDataset:
        """Writes Arrow data to a table."""
        return self._call(rows.write, id, data, mode=mode, branch=branch)

    def create_table_index(
        self, request: spec.CreateTableIndexRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableIndexResponse:
        """Creates an index on a column of vectors, scalars or text."""
        return self._call(indexes.create_table_index, with_fields(request, fields))

    def create_table_scalar_index(
        self, request: spec.CreateTableIndexRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableScalarIndexResponse:
        """Creates an index on a column of scalars or text."""
        return self._call(indexes.create_table_scalar_index, with_fields(request, fields))

    def list_table_indices(
        self, request: spec.ListTableIndicesRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableIndicesResponse:
        """Lists the indexes of a table."""
        return self._call(indexes.list_table_indices, with_fields(request, fields))

    def describe_table_index_stats(
        self, request: spec.DescribeTableIndexStatsRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeTableIndexStatsResponse:
        """Returns the statistics of an index: its type, and the numbers of indexed and unindexed rows."""
        return self._call(indexes.describe_table_index_stats, with_fields(request, fields))

    def drop_table_index(
        self, request: spec.DropTableIndexRequest | FieldsOrId, **fields: Any
    ) -> spec.DropTableIndexResponse:
        """Drops an index; older versions that have it keep it."""
        return self._call(indexes.drop_table_index, with_fields(request, fields))

    def alter_table_add_columns(
        self, request: spec.AlterTableAddColumnsRequest | FieldsOrId, **fields: Any
    ) -> spec.AlterTableAddColumnsResponse:
        """Adds columns with the values of SQL expressions. Columns that the catalog stores are not updated."""
        return self._call(columns.alter_table_add_columns, with_fields(request, fields))

    def alter_table_alter_columns(
        self, request: spec.AlterTableAlterColumnsRequest | FieldsOrId, **fields: Any
    ) -> spec.AlterTableAlterColumnsResponse:
        """Changes names, types and nullability of columns, all in one version."""
        return self._call(columns.alter_table_alter_columns, with_fields(request, fields))

    def alter_table_drop_columns(
        self, request: spec.AlterTableDropColumnsRequest | FieldsOrId, **fields: Any
    ) -> spec.AlterTableDropColumnsResponse:
        """Drops columns; old versions keep them."""
        return self._call(columns.alter_table_drop_columns, with_fields(request, fields))

    def update_table_schema_metadata(
        self, request: spec.UpdateTableSchemaMetadataRequest | FieldsOrId, **fields: Any
    ) -> spec.UpdateTableSchemaMetadataResponse:
        """Sets entries of the schema's metadata; other entries stay."""
        return self._call(columns.update_table_schema_metadata, with_fields(request, fields))

    def update_field_metadata(
        self, request: spec.UpdateFieldMetadataRequest | FieldsOrId, **fields: Any
    ) -> spec.UpdateFieldMetadataResponse:
        """Sets or removes entries of the metadata of fields, in all of the requested fields or in none."""
        return self._call(columns.update_field_metadata, with_fields(request, fields))

    def list_table_tags(
        self, request: spec.ListTableTagsRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableTagsResponse:
        """Lists the tags of a table, including those of branches."""
        return self._call(refs.list_table_tags, with_fields(request, fields))

    def get_table_tag_version(
        self, request: spec.GetTableTagVersionRequest | FieldsOrId, **fields: Any
    ) -> spec.GetTableTagVersionResponse:
        """Returns the version of a tag."""
        return self._call(refs.get_table_tag_version, with_fields(request, fields))

    def create_table_tag(
        self, request: spec.CreateTableTagRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableTagResponse:
        """Creates a tag for a version."""
        return self._call(refs.create_table_tag, with_fields(request, fields))

    def update_table_tag(
        self, request: spec.UpdateTableTagRequest | FieldsOrId, **fields: Any
    ) -> spec.UpdateTableTagResponse:
        """Moves an existing tag to another version."""
        return self._call(refs.update_table_tag, with_fields(request, fields))

    def delete_table_tag(
        self, request: spec.DeleteTableTagRequest | FieldsOrId, **fields: Any
    ) -> spec.DeleteTableTagResponse:
        """Deletes a tag; its version stays."""
        return self._call(refs.delete_table_tag, with_fields(request, fields))

    def create_table_branch(
        self, request: spec.CreateTableBranchRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableBranchResponse:
        """Creates a branch that starts at a version of another branch."""
        return self._call(refs.create_table_branch, with_fields(request, fields))

    def list_table_branches(
        self, request: spec.ListTableBranchesRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableBranchesResponse:
        """Lists the branches of a table except main."""
        return self._call(refs.list_table_branches, with_fields(request, fields))

    def delete_table_branch(
        self, request: spec.DeleteTableBranchRequest | FieldsOrId, **fields: Any
    ) -> spec.DeleteTableBranchResponse:
        """Deletes a branch and the data that only this branch uses."""
        return self._call(refs.delete_table_branch, with_fields(request, fields))

    def restore_table(self, request: spec.RestoreTableRequest | FieldsOrId, **fields: Any) -> spec.RestoreTableResponse:
        """Makes an old version the latest one again; the versions in between stay."""
        return self._call(versions.restore_table, with_fields(request, fields))

    def create_table_version(
        self, request: spec.CreateTableVersionRequest | FieldsOrId, **fields: Any
    ) -> spec.CreateTableVersionResponse:
        """Commits a version whose manifest is written, and moves the manifest to its final name."""
        return self._call(versions.create_table_version, with_fields(request, fields))

    def batch_create_table_versions(
        self, request: spec.BatchCreateTableVersionsRequest | FieldsOrId, **fields: Any
    ) -> spec.BatchCreateTableVersionsResponse:
        """Commits one version of each of several tables: all or none."""
        return self._call(versions.batch_create_table_versions, with_fields(request, fields))

    def batch_commit_tables(
        self, request: spec.BatchCommitTablesRequest | FieldsOrId, **fields: Any
    ) -> spec.BatchCommitTablesResponse:
        """Commits one version of each of several tables, like `batch_create_table_versions`."""
        return self._call(versions.batch_commit_tables, with_fields(request, fields))

    def describe_table_version(
        self, request: spec.DescribeTableVersionRequest | FieldsOrId, **fields: Any
    ) -> spec.DescribeTableVersionResponse:
        """Returns the location of the manifest of a version."""
        return self._call(versions.describe_table_version, with_fields(request, fields))

    def list_table_versions(
        self, request: spec.ListTableVersionsRequest | FieldsOrId, **fields: Any
    ) -> spec.ListTableVersionsResponse:
        """Lists the versions whose manifests exist."""
        return self._call(versions.list_table_versions, with_fields(request, fields))

    def batch_delete_table_versions(
        self, request: spec.BatchDeleteTableVersionsRequest | FieldsOrId, **fields: Any
    ) -> spec.BatchDeleteTableVersionsResponse:
        """Deletes versions of the main branch."""
        return self._call(versions.batch_delete_table_versions, with_fields(request, fields))

    def describe_tables(
        self,
        what: What,
        *,
        vend_credentials: bool = False,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> BulkResult[Table]:
        """Describes many tables concurrently, each once."""
        return self._call(
            search.describe_tables,
            in_memory(what),
            vend_credentials=vend_credentials,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    def stream_tables(
        self, ids: Iterable[Iterable[str]], *, max_in_flight: int | None = None
    ) -> Iterator[tuple[TableId, Table | LanceNamespaceError]]:
        """Describes any number of tables in bounded memory, in the order of the ids."""
        return self._stream_tables(ids, max_in_flight=max_in_flight)

    def watch(
        self,
        what: What,
        *,
        since: str | None = None,
        existing: bool = False,
        versions: bool = True,
        every: float | None = WATCH_EVERY,
        examine_every: float = EXAMINE_EVERY,
    ) -> Iterator[Change]:
        """Yields the tables that are created, dropped, renamed or replaced, or have new versions, as it happens."""
        return self._flatten(
            lambda session: watching.changes(
                session,
                what,
                since=since,
                existing=existing,
                versions=versions,
                every=every,
                examine_every=examine_every,
            )
        )

    def watch_token(self, what: What, *, versions: bool = True) -> str:
        """Returns the token from which a watch tells every change from now on."""
        return self._call(watching.token, in_memory(what), versions=versions)

    def partition_by(self, by: Sequence[str | Mapping[str, Any]], *, schema: pa.Schema | None = None) -> PartitionSpec:
        """Divides a new directory into partitions, or divides the new rows of a partitioned one in another way."""
        return self._call(partitions.partition_by, by, schema=schema)

    def write_partitions(self, data: Any, *, max_in_flight: int | None = None) -> Mapping[TableId, int]:
        """Appends rows to their partitions; partitions that do not exist yet are created."""
        return self._call(partitions.write_partitions, data, max_in_flight=max_in_flight)

    def list_partitions(self, where: str | None = None) -> list[Partition]:
        """Returns the partitions that may have rows which match a condition."""
        return self._call(partitions.list_partitions, where)

    def open_partitions(self, where: str | None = None, *, max_in_flight: int | None = None) -> PartitionedDataset:
        """Opens the partitions that may have rows which match a condition, as one dataset."""
        return self._call(partitions.open_partitions, where, max_in_flight=max_in_flight)

    def drop_partitions(self, where: str, *, max_in_flight: int | None = None) -> list[Partition]:
        """Drops the partitions of which all rows match a condition, with their data."""
        return self._call(partitions.drop_partitions, where, max_in_flight=max_in_flight)

    def scan_partitions(
        self, where: str | None = None, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Reads the rows of all partitions that match a condition, in bounded memory."""
        return self._flatten(lambda session: partitions.scan_partitions(session, where, columns=columns))

    def search_many(
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
        """Searches many tables at once, and returns the best rows of all of them."""
        return self._call(
            many_rows.search_many,
            in_memory(what),
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

    def count_many(
        self,
        what: What,
        *,
        filter: str | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> RowCounts:
        """Counts the rows of many tables at once."""
        return self._call(
            many_rows.count_many,
            in_memory(what),
            filter=filter,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    def list_many(
        self,
        namespaces: Iterable[Iterable[str]],
        *,
        include: TableFilter | None = None,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> Listed:
        """Lists the Lance tables of many namespaces concurrently."""
        return self._call(
            bulk.list_many,
            list(several(namespaces)),
            include=include,
            max_in_flight=max_in_flight,
            timeout=timeout,
            progress=progress,
        )

    def iter_tables(self, namespace: Iterable[str] = (), *, recursive: bool = False) -> Iterator[TableId]:
        """Walks the Lance tables of a namespace with concurrent listings."""
        return self._flatten(lambda session: bulk.table_groups(session, namespace, recursive=recursive))

    def register_tables(
        self,
        tables: Iterable[spec.RegisterTableRequest | FieldsOrId],
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: bool | ProgressCallback = False,
    ) -> BulkResult[Table]:
        """Registers many tables concurrently, each like `register_table` in the mode `create`."""
        return self._call(
            bulk.register_tables, list(tables), max_in_flight=max_in_flight, timeout=timeout, progress=progress
        )

    def protect_tables(
        self, namespace: Iterable[str] = (), *, recursive: bool = True, max_in_flight: int | None = None
    ) -> Sequence[TableId]:
        """Prevents other tools of the catalog from deleting the files of registered tables."""
        return self._call(bulk.protect_tables, namespace, recursive=recursive, max_in_flight=max_in_flight)

    def iter_namespaces(self, namespace: Iterable[str] = (), *, recursive: bool = False) -> Iterator[NamespaceId]:
        """Walks the namespaces below a namespace with concurrent listings."""
        return self._flatten(lambda session: bulk.namespace_groups(session, namespace, recursive=recursive))

    def exists(self, id: Iterable[str]) -> bool:
        """Returns whether a Lance table exists, or a namespace if `id` is a NamespaceId."""
        return self._call(bulk.exists, id)

    def alter_table_backfill_columns(
        self, request: spec.AlterTableBackfillColumnsRequest | FieldsOrId
    ) -> spec.AlterTableBackfillColumnsResponse:
        """Starts a job that fills a column."""
        return self._call(requests.run, "alter_table_backfill_columns", request, spec.AlterTableBackfillColumnsResponse)

    def create_materialized_view(
        self, request: spec.CreateMaterializedViewRequest | FieldsOrId
    ) -> spec.CreateMaterializedViewResponse:
        """Creates a materialized view."""
        return self._call(requests.run, "create_materialized_view", request, spec.CreateMaterializedViewResponse)

    def refresh_materialized_view(
        self, request: spec.RefreshMaterializedViewRequest | FieldsOrId
    ) -> spec.RefreshMaterializedViewResponse:
        """Starts a job that refreshes a materialized view."""
        return self._call(requests.run, "refresh_materialized_view", request, spec.RefreshMaterializedViewResponse)

    def describe_transaction(
        self, request: spec.DescribeTransactionRequest | FieldsOrId
    ) -> spec.DescribeTransactionResponse:
        """Describes a transaction."""
        return self._call(requests.run, "describe_transaction", request, spec.DescribeTransactionResponse)

    def alter_transaction(self, request: spec.AlterTransactionRequest | FieldsOrId) -> spec.AlterTransactionResponse:
        """Changes a transaction."""
        return self._call(requests.run, "alter_transaction", request, spec.AlterTransactionResponse)


class DirNamespace(ByProperties, Namespace):
    """The directory catalog, for example `DirNamespace(root="lake")`. Properties: `root`, `storage.*` and limits."""

    impl = "dir"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, root: Property = ..., max_retries: Property = ..., max_in_flight: Property = ...,
            adaptive: Property = ..., circuit_after: Property = ..., hedge_after: Property = ...,
            attempt_timeout: Property = ..., operation_timeout: Property = ..., backoff_initial: Property = ...,
            backoff_max: Property = ..., drop_retention: Property = ..., token: TokenFunction | str | None = None,
            transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class IcebergNamespace(ByProperties, Namespace):
    """An Iceberg REST catalog. Properties: `endpoint`, `warehouse`, `auth_token`, `credential` and others."""

    impl = "iceberg"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, endpoint: Property = ..., warehouse: Property = ..., root: Property = ...,
            metadata_path: Property = ..., gc_enabled: Property = ..., managed_by: Property = ...,
            vend_credentials: Property = ..., rest_table_cache_max_entries: Property = ..., max_retries: Property = ...,
            max_in_flight: Property = ..., adaptive: Property = ..., circuit_after: Property = ...,
            hedge_after: Property = ..., attempt_timeout: Property = ..., operation_timeout: Property = ...,
            backoff_initial: Property = ..., backoff_max: Property = ..., drop_retention: Property = ...,
            auth_token: Property = ..., connect_timeout: Property = ..., read_timeout: Property = ...,
            keep_alive: Property = ..., ca_bundle: Property = ..., client_cert: Property = ...,
            client_key: Property = ..., proxy: Property = ..., max_response_bytes: Property = ...,
            credential: Property = ..., client_secret_file: Property = ..., client_id: Property = ...,
            scope: Property = ..., oauth2_server_uri: Property = ..., audience: Property = ...,
            resource: Property = ..., subject_token: Property = ..., subject_token_file: Property = ...,
            subject_token_type: Property = ..., requested_token_type: Property = ..., auth_token_file: Property = ...,
            auth_command: Property = ..., auth_command_timeout: Property = ..., assume_role_arn: Property = ...,
            assume_role_region: Property = ..., assume_role_external_id: Property = ...,
            assume_role_session_name: Property = ..., assume_role_timeout_sec: Property = ...,
            sts_endpoint: Property = ..., rest_sigv4_enabled: Property = ..., rest_signing_name: Property = ...,
            rest_signing_region: Property = ..., rest_access_key_id: Property = ...,
            rest_secret_access_key: Property = ..., rest_session_token: Property = ...,
            unique_locations: Property = ..., allow_aliases: Property = ..., token: TokenFunction | str | None = None,
            transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class Hive3Namespace(ByProperties, Namespace):
    """A Hive 3.x Metastore. Properties: `uri`, `root`, `client.pool-size`, `ugi` and others."""

    impl = "hive3"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, uri: Property = ..., ugi: Property = ..., root: Property = ...,
            client_pool_size: Property = ..., connect_timeout: Property = ..., read_timeout: Property = ...,
            keep_alive: Property = ..., framed: Property = ..., use_ssl: Property = ..., ca_bundle: Property = ...,
            client_cert: Property = ..., client_key: Property = ..., auth: Property = ..., user: Property = ...,
            password: Property = ..., kerberos_service: Property = ..., max_response_bytes: Property = ...,
            max_retries: Property = ..., max_in_flight: Property = ..., adaptive: Property = ...,
            circuit_after: Property = ..., hedge_after: Property = ..., attempt_timeout: Property = ...,
            operation_timeout: Property = ..., backoff_initial: Property = ..., backoff_max: Property = ...,
            drop_retention: Property = ..., unique_locations: Property = ..., allow_aliases: Property = ...,
            token: TokenFunction | str | None = None, transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class Hive2Namespace(ByProperties, Namespace):
    """A Hive 2.3 Metastore, without catalogs. Properties: `uri`, `root`, `client.pool-size`, `ugi` and others."""

    impl = "hive2"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, max_retries: Property = ..., max_in_flight: Property = ..., adaptive: Property = ...,
            circuit_after: Property = ..., hedge_after: Property = ..., attempt_timeout: Property = ...,
            operation_timeout: Property = ..., backoff_initial: Property = ..., backoff_max: Property = ...,
            drop_retention: Property = ..., unique_locations: Property = ..., allow_aliases: Property = ...,
            uri: Property = ..., ugi: Property = ..., root: Property = ..., client_pool_size: Property = ...,
            connect_timeout: Property = ..., read_timeout: Property = ..., keep_alive: Property = ...,
            framed: Property = ..., use_ssl: Property = ..., ca_bundle: Property = ..., client_cert: Property = ...,
            client_key: Property = ..., auth: Property = ..., user: Property = ..., password: Property = ...,
            kerberos_service: Property = ..., max_response_bytes: Property = ...,
            token: TokenFunction | str | None = None, transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class GlueNamespace(ByProperties, Namespace):
    """The AWS Glue Data Catalog. Properties: `region`, `catalog_id`, `assume_role_arn` and others."""

    impl = "glue"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, catalog_id: Property = ..., root: Property = ..., catalogs: Property = ...,
            bulk_strategy: Property = ..., vend_credentials: Property = ..., credentials_operation: Property = ...,
            credentials_timeout_sec: Property = ..., lake_formation_endpoint: Property = ...,
            max_retries: Property = ..., max_in_flight: Property = ..., adaptive: Property = ...,
            circuit_after: Property = ..., hedge_after: Property = ..., attempt_timeout: Property = ...,
            operation_timeout: Property = ..., backoff_initial: Property = ..., backoff_max: Property = ...,
            drop_retention: Property = ..., assume_role_arn: Property = ..., assume_role_region: Property = ...,
            assume_role_external_id: Property = ..., assume_role_session_name: Property = ...,
            assume_role_timeout_sec: Property = ..., sts_endpoint: Property = ..., region: Property = ...,
            endpoint: Property = ..., access_key_id: Property = ..., secret_access_key: Property = ...,
            session_token: Property = ..., connect_timeout: Property = ..., read_timeout: Property = ...,
            keep_alive: Property = ..., ca_bundle: Property = ..., max_response_bytes: Property = ...,
            unique_locations: Property = ..., allow_aliases: Property = ..., token: TokenFunction | str | None = None,
            transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class PolarisNamespace(ByProperties, Namespace):
    """An Apache Polaris server. Properties: `endpoint`, `auth_token`, `credential` and others."""

    impl = "polaris"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, endpoint: Property = ..., realm: Property = ..., root: Property = ..., catalogs: Property = ...,
            list_style: Property = ..., vend_credentials: Property = ..., filter_tables: Property = ...,
            max_retries: Property = ..., max_in_flight: Property = ..., adaptive: Property = ...,
            circuit_after: Property = ..., hedge_after: Property = ..., attempt_timeout: Property = ...,
            operation_timeout: Property = ..., backoff_initial: Property = ..., backoff_max: Property = ...,
            drop_retention: Property = ..., auth_token: Property = ..., connect_timeout: Property = ...,
            read_timeout: Property = ..., keep_alive: Property = ..., ca_bundle: Property = ...,
            client_cert: Property = ..., client_key: Property = ..., proxy: Property = ...,
            max_response_bytes: Property = ..., credential: Property = ..., client_secret_file: Property = ...,
            client_id: Property = ..., scope: Property = ..., oauth2_server_uri: Property = ...,
            audience: Property = ..., resource: Property = ..., subject_token: Property = ...,
            subject_token_file: Property = ..., subject_token_type: Property = ...,
            requested_token_type: Property = ..., auth_token_file: Property = ..., auth_command: Property = ...,
            auth_command_timeout: Property = ..., assume_role_arn: Property = ..., assume_role_region: Property = ...,
            assume_role_external_id: Property = ..., assume_role_session_name: Property = ...,
            assume_role_timeout_sec: Property = ..., sts_endpoint: Property = ..., rest_sigv4_enabled: Property = ...,
            rest_signing_name: Property = ..., rest_signing_region: Property = ..., rest_access_key_id: Property = ...,
            rest_secret_access_key: Property = ..., rest_session_token: Property = ...,
            unique_locations: Property = ..., allow_aliases: Property = ..., token: TokenFunction | str | None = None,
            transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class LakekeeperNamespace(ByProperties, Namespace):
    """A warehouse of a Lakekeeper server. Properties: `endpoint`, `warehouse`, `auth_token` and others."""

    impl = "lakekeeper"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, warehouse: Property = ..., endpoint: Property = ..., root: Property = ...,
            vend_credentials: Property = ..., max_retries: Property = ..., max_in_flight: Property = ...,
            adaptive: Property = ..., circuit_after: Property = ..., hedge_after: Property = ...,
            attempt_timeout: Property = ..., operation_timeout: Property = ..., backoff_initial: Property = ...,
            backoff_max: Property = ..., drop_retention: Property = ..., auth_token: Property = ...,
            connect_timeout: Property = ..., read_timeout: Property = ..., keep_alive: Property = ...,
            ca_bundle: Property = ..., client_cert: Property = ..., client_key: Property = ..., proxy: Property = ...,
            max_response_bytes: Property = ..., credential: Property = ..., client_secret_file: Property = ...,
            client_id: Property = ..., scope: Property = ..., oauth2_server_uri: Property = ...,
            audience: Property = ..., resource: Property = ..., subject_token: Property = ...,
            subject_token_file: Property = ..., subject_token_type: Property = ...,
            requested_token_type: Property = ..., auth_token_file: Property = ..., auth_command: Property = ...,
            auth_command_timeout: Property = ..., unique_locations: Property = ..., allow_aliases: Property = ...,
            token: TokenFunction | str | None = None, transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class UnityNamespace(ByProperties, Namespace):
    """One catalog of a Unity Catalog server. Properties: `endpoint`, `catalog`, `auth_token` and others."""

    impl = "unity"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, catalog: Property = ..., endpoint: Property = ..., api_path: Property = ...,
            credentials_operation: Property = ..., vend_credentials: Property = ..., root: Property = ...,
            max_retries: Property = ..., max_in_flight: Property = ..., adaptive: Property = ...,
            circuit_after: Property = ..., hedge_after: Property = ..., attempt_timeout: Property = ...,
            operation_timeout: Property = ..., backoff_initial: Property = ..., backoff_max: Property = ...,
            drop_retention: Property = ..., auth_token: Property = ..., connect_timeout: Property = ...,
            read_timeout: Property = ..., keep_alive: Property = ..., ca_bundle: Property = ...,
            client_cert: Property = ..., client_key: Property = ..., proxy: Property = ...,
            max_response_bytes: Property = ..., credential: Property = ..., client_secret_file: Property = ...,
            client_id: Property = ..., scope: Property = ..., oauth2_server_uri: Property = ...,
            audience: Property = ..., resource: Property = ..., subject_token: Property = ...,
            subject_token_file: Property = ..., subject_token_type: Property = ...,
            requested_token_type: Property = ..., auth_token_file: Property = ..., auth_command: Property = ...,
            auth_command_timeout: Property = ..., unique_locations: Property = ..., allow_aliases: Property = ...,
            token: TokenFunction | str | None = None, transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on


class RestNamespace(ByProperties, Namespace):
    """A server of the Lance REST protocol. Properties: `uri`, `delimiter`, `header.*`, `tls.*` and others."""

    impl = "rest"

    if TYPE_CHECKING:
        # fmt: off
        def __init__(
            self, /, *, endpoint: Property = ..., delimiter: Property = ..., min_depth: Property = ...,
            max_depth: Property = ..., data_operations: Property = ..., vend_credentials: Property = ...,
            tls_assert_hostname: Property = ..., max_retries: Property = ..., max_in_flight: Property = ...,
            adaptive: Property = ..., circuit_after: Property = ..., hedge_after: Property = ...,
            attempt_timeout: Property = ..., operation_timeout: Property = ..., backoff_initial: Property = ...,
            backoff_max: Property = ..., drop_retention: Property = ..., auth_token: Property = ...,
            connect_timeout: Property = ..., read_timeout: Property = ..., keep_alive: Property = ...,
            ca_bundle: Property = ..., client_cert: Property = ..., client_key: Property = ..., proxy: Property = ...,
            max_response_bytes: Property = ..., credential: Property = ..., client_secret_file: Property = ...,
            client_id: Property = ..., scope: Property = ..., oauth2_server_uri: Property = ...,
            audience: Property = ..., resource: Property = ..., subject_token: Property = ...,
            subject_token_file: Property = ..., subject_token_type: Property = ...,
            requested_token_type: Property = ..., auth_token_file: Property = ..., auth_command: Property = ...,
            auth_command_timeout: Property = ..., assume_role_arn: Property = ..., assume_role_region: Property = ...,
            assume_role_external_id: Property = ..., assume_role_session_name: Property = ...,
            assume_role_timeout_sec: Property = ..., sts_endpoint: Property = ..., rest_sigv4_enabled: Property = ...,
            rest_signing_name: Property = ..., rest_signing_region: Property = ..., rest_access_key_id: Property = ...,
            rest_secret_access_key: Property = ..., rest_session_token: Property = ..., uri: Property = ...,
            tls_cert_file: Property = ..., tls_key_file: Property = ..., tls_ssl_ca_cert: Property = ...,
            token: TokenFunction | str | None = None, transport: Transports | str | None = None, **properties: Property,
        ) -> None: ...
        # fmt: on
