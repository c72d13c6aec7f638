"""The sync operations on datasets: the async ones, with one line for each method."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

import pyarrow as pa
from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsRequest,
    AlterTableAlterColumnsResponse,
    AlterTableBackfillColumnsRequest,
    AlterTableBackfillColumnsResponse,
    AlterTableDropColumnsRequest,
    AlterTableDropColumnsResponse,
    AlterTransactionRequest,
    AlterTransactionResponse,
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CountTableRowsResponse,
    CreateEmptyTableRequest,
    CreateMaterializedViewRequest,
    CreateMaterializedViewResponse,
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    CreateTableIndexRequest,
    CreateTableIndexResponse,
    CreateTableRequest,
    CreateTableScalarIndexResponse,
    CreateTableTagRequest,
    CreateTableTagResponse,
    DeleteFromTableRequest,
    DeleteFromTableResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    DescribeTableIndexStatsRequest,
    DescribeTableIndexStatsResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
    DropTableIndexRequest,
    DropTableIndexResponse,
    ExplainTableQueryPlanRequest,
    GetTableStatsRequest,
    GetTableStatsResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    InsertIntoTableRequest,
    InsertIntoTableResponse,
    LanceNamespace,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
    ListTableIndicesRequest,
    ListTableIndicesResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    MergeInsertIntoTableRequest,
    MergeInsertIntoTableResponse,
    QueryTableRequest,
    QueryTableResponse,
    RefreshMaterializedViewRequest,
    RefreshMaterializedViewResponse,
    RestoreTableRequest,
    RestoreTableResponse,
    UpdateFieldMetadataRequest,
    UpdateFieldMetadataResponse,
    UpdateTableRequest,
    UpdateTableResponse,
    UpdateTableSchemaMetadataRequest,
    UpdateTableSchemaMetadataResponse,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)

from lance_ns_async.engine.describe import Progress
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.docstrings import copy_docstrings
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.spec.responses import CreateEmptyTableResponse, CreateTableResponse
from lance_ns_async.tables.open_many import Opened

if TYPE_CHECKING:
    from lance import LanceDataset

P = ParamSpec("P")
T = TypeVar("T")


@copy_docstrings(AsyncNamespace)
class SyncDataOperations(LanceNamespace):
    """The operations of `AsyncNamespace`, which documents them."""

    @abstractmethod
    def _call(
        self,
        operation: Callable[Concatenate[AsyncNamespace, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs an operation on the event loop of the async namespace and returns its result."""

    def create_table(
        self, request: CreateTableRequest | Fields, request_data: bytes | pa.RecordBatchReader
    ) -> CreateTableResponse:
        """See `AsyncNamespace.create_table`."""
        return self._call(AsyncNamespace.create_table, request, request_data)

    def create_empty_table(self, request: CreateEmptyTableRequest | Fields) -> CreateEmptyTableResponse:
        """See `AsyncNamespace.create_empty_table`."""
        return self._call(AsyncNamespace.create_empty_table, request)

    def insert_into_table(
        self, request: InsertIntoTableRequest | Fields, request_data: bytes | pa.RecordBatchReader
    ) -> InsertIntoTableResponse:
        """See `AsyncNamespace.insert_into_table`."""
        return self._call(AsyncNamespace.insert_into_table, request, request_data)

    def merge_insert_into_table(
        self, request: MergeInsertIntoTableRequest | Fields, request_data: bytes | pa.RecordBatchReader
    ) -> MergeInsertIntoTableResponse:
        """See `AsyncNamespace.merge_insert_into_table`."""
        return self._call(AsyncNamespace.merge_insert_into_table, request, request_data)

    def update_table(self, request: UpdateTableRequest | Fields) -> UpdateTableResponse:
        """See `AsyncNamespace.update_table`."""
        return self._call(AsyncNamespace.update_table, request)

    def delete_from_table(self, request: DeleteFromTableRequest | Fields) -> DeleteFromTableResponse:
        """See `AsyncNamespace.delete_from_table`."""
        return self._call(AsyncNamespace.delete_from_table, request)

    def count_table_rows(self, request: CountTableRowsRequest | Fields) -> CountTableRowsResponse:
        """See `AsyncNamespace.count_table_rows`."""
        return self._call(AsyncNamespace.count_table_rows, request)

    def query_table(self, request: QueryTableRequest | Fields) -> QueryTableResponse:
        """See `AsyncNamespace.query_table`."""
        return self._call(AsyncNamespace.query_table, request)

    def explain_table_query_plan(self, request: ExplainTableQueryPlanRequest | Fields) -> str:
        """See `AsyncNamespace.explain_table_query_plan`."""
        return self._call(AsyncNamespace.explain_table_query_plan, request)

    def analyze_table_query_plan(self, request: AnalyzeTableQueryPlanRequest | Fields) -> str:
        """See `AsyncNamespace.analyze_table_query_plan`."""
        return self._call(AsyncNamespace.analyze_table_query_plan, request)

    def open(self, id: Iterable[str], *, version: int | str | None = None, branch: str | None = None) -> LanceDataset:
        """See `AsyncNamespace.open`."""
        return self._call(AsyncNamespace.open, id, version=version, branch=branch)

    def open_many(
        self,
        ids: Iterable[Iterable[str]],
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Opened[LanceDataset]:
        """See `AsyncNamespace.open_many`."""
        return self._call(
            AsyncNamespace.open_many, list(ids), max_in_flight=max_in_flight, timeout=timeout, progress=progress
        )

    def write(
        self,
        id: Iterable[str],
        data: Any,
        *,
        mode: Literal["create", "append", "overwrite"] = "create",
        branch: str | None = None,
    ) -> LanceDataset:
        """See `AsyncNamespace.write`."""
        return self._call(AsyncNamespace.write, id, data, mode=mode, branch=branch)

    def create_table_index(self, request: CreateTableIndexRequest | Fields) -> CreateTableIndexResponse:
        """See `AsyncNamespace.create_table_index`."""
        return self._call(AsyncNamespace.create_table_index, request)

    def create_table_scalar_index(self, request: CreateTableIndexRequest | Fields) -> CreateTableScalarIndexResponse:
        """See `AsyncNamespace.create_table_scalar_index`."""
        return self._call(AsyncNamespace.create_table_scalar_index, request)

    def list_table_indices(self, request: ListTableIndicesRequest | Fields) -> ListTableIndicesResponse:
        """See `AsyncNamespace.list_table_indices`."""
        return self._call(AsyncNamespace.list_table_indices, request)

    def describe_table_index_stats(
        self, request: DescribeTableIndexStatsRequest | Fields
    ) -> DescribeTableIndexStatsResponse:
        """See `AsyncNamespace.describe_table_index_stats`."""
        return self._call(AsyncNamespace.describe_table_index_stats, request)

    def drop_table_index(self, request: DropTableIndexRequest | Fields) -> DropTableIndexResponse:
        """See `AsyncNamespace.drop_table_index`."""
        return self._call(AsyncNamespace.drop_table_index, request)

    def get_table_stats(self, request: GetTableStatsRequest | Fields) -> GetTableStatsResponse:
        """See `AsyncNamespace.get_table_stats`."""
        return self._call(AsyncNamespace.get_table_stats, request)

    def restore_table(self, request: RestoreTableRequest | Fields) -> RestoreTableResponse:
        """See `AsyncNamespace.restore_table`."""
        return self._call(AsyncNamespace.restore_table, request)

    def list_table_tags(self, request: ListTableTagsRequest | Fields) -> ListTableTagsResponse:
        """See `AsyncNamespace.list_table_tags`."""
        return self._call(AsyncNamespace.list_table_tags, request)

    def get_table_tag_version(self, request: GetTableTagVersionRequest | Fields) -> GetTableTagVersionResponse:
        """See `AsyncNamespace.get_table_tag_version`."""
        return self._call(AsyncNamespace.get_table_tag_version, request)

    def create_table_tag(self, request: CreateTableTagRequest | Fields) -> CreateTableTagResponse:
        """See `AsyncNamespace.create_table_tag`."""
        return self._call(AsyncNamespace.create_table_tag, request)

    def update_table_tag(self, request: UpdateTableTagRequest | Fields) -> UpdateTableTagResponse:
        """See `AsyncNamespace.update_table_tag`."""
        return self._call(AsyncNamespace.update_table_tag, request)

    def delete_table_tag(self, request: DeleteTableTagRequest | Fields) -> DeleteTableTagResponse:
        """See `AsyncNamespace.delete_table_tag`."""
        return self._call(AsyncNamespace.delete_table_tag, request)

    def create_table_branch(self, request: CreateTableBranchRequest | Fields) -> CreateTableBranchResponse:
        """See `AsyncNamespace.create_table_branch`."""
        return self._call(AsyncNamespace.create_table_branch, request)

    def list_table_branches(self, request: ListTableBranchesRequest | Fields) -> ListTableBranchesResponse:
        """See `AsyncNamespace.list_table_branches`."""
        return self._call(AsyncNamespace.list_table_branches, request)

    def delete_table_branch(self, request: DeleteTableBranchRequest | Fields) -> DeleteTableBranchResponse:
        """See `AsyncNamespace.delete_table_branch`."""
        return self._call(AsyncNamespace.delete_table_branch, request)

    def alter_table_add_columns(self, request: AlterTableAddColumnsRequest | Fields) -> AlterTableAddColumnsResponse:
        """See `AsyncNamespace.alter_table_add_columns`."""
        return self._call(AsyncNamespace.alter_table_add_columns, request)

    def alter_table_alter_columns(
        self, request: AlterTableAlterColumnsRequest | Fields
    ) -> AlterTableAlterColumnsResponse:
        """See `AsyncNamespace.alter_table_alter_columns`."""
        return self._call(AsyncNamespace.alter_table_alter_columns, request)

    def alter_table_drop_columns(self, request: AlterTableDropColumnsRequest | Fields) -> AlterTableDropColumnsResponse:
        """See `AsyncNamespace.alter_table_drop_columns`."""
        return self._call(AsyncNamespace.alter_table_drop_columns, request)

    def update_table_schema_metadata(
        self, request: UpdateTableSchemaMetadataRequest | Fields
    ) -> UpdateTableSchemaMetadataResponse:
        """See `AsyncNamespace.update_table_schema_metadata`."""
        return self._call(AsyncNamespace.update_table_schema_metadata, request)

    def update_field_metadata(self, request: UpdateFieldMetadataRequest | Fields) -> UpdateFieldMetadataResponse:
        """See `AsyncNamespace.update_field_metadata`."""
        return self._call(AsyncNamespace.update_field_metadata, request)

    def alter_table_backfill_columns(
        self, request: AlterTableBackfillColumnsRequest | Fields
    ) -> AlterTableBackfillColumnsResponse:
        """See `AsyncNamespace.alter_table_backfill_columns`."""
        return self._call(AsyncNamespace.alter_table_backfill_columns, request)

    def create_materialized_view(
        self, request: CreateMaterializedViewRequest | Fields
    ) -> CreateMaterializedViewResponse:
        """See `AsyncNamespace.create_materialized_view`."""
        return self._call(AsyncNamespace.create_materialized_view, request)

    def refresh_materialized_view(
        self, request: RefreshMaterializedViewRequest | Fields
    ) -> RefreshMaterializedViewResponse:
        """See `AsyncNamespace.refresh_materialized_view`."""
        return self._call(AsyncNamespace.refresh_materialized_view, request)

    def describe_transaction(self, request: DescribeTransactionRequest | Fields) -> DescribeTransactionResponse:
        """See `AsyncNamespace.describe_transaction`."""
        return self._call(AsyncNamespace.describe_transaction, request)

    def alter_transaction(self, request: AlterTransactionRequest | Fields) -> AlterTransactionResponse:
        """See `AsyncNamespace.alter_transaction`."""
        return self._call(AsyncNamespace.alter_transaction, request)
