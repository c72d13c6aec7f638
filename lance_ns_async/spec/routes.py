"""The Lance REST Namespace protocol: method, path, request model and content of each operation.

The gateway serves these routes, and the `rest` backend calls them. Spec: https://lance.org/format/namespace/rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import lance_namespace as spec
from pydantic import BaseModel

from lance_ns_async.spec.extensions import DescribeTablesRequest, SearchTablesRequest, WatchRequest

HttpMethod = Literal["GET", "POST"]
Body = Literal["json", "rows", "metadata"]
"""Content of a request body: all fields; an Arrow IPC stream, with the fields in the query; or the metadata mapping."""
Answer = Literal["fields", "count", "file", "text", "metadata", "events"]
"""Content of a response body: all fields; a number, an Arrow IPC file, a string or a mapping; or events."""


@dataclass(frozen=True, slots=True)
class Route:
    """The HTTP route of an operation, with the form of its request and response."""

    operation: str
    """The namespace method that serves the operation."""
    method: HttpMethod
    path: str
    request: type[BaseModel]
    body: Body = "json"
    answer: Answer = "fields"
    changes: bool = True
    """Whether the operation changes data; it then runs to its end even if the client leaves."""

    def fill(self, **names: str) -> str:
        """Returns the path with these names, which are percent-encoded."""
        return self.path.format_map(names)


def _reading(
    operation: str, path: str, request: type[BaseModel], answer: Answer = "fields", *, method: HttpMethod = "POST"
) -> Route:
    return Route(operation, method, path, request, answer=answer, changes=False)


def _changing(operation: str, path: str, request: type[BaseModel]) -> Route:
    return Route(operation, "POST", path, request)


def _writing(operation: str, path: str, request: type[BaseModel]) -> Route:
    return Route(operation, "POST", path, request, body="rows")


_NAMESPACE = "/v1/namespace/{id}"
_TABLE = "/v1/table/{id}"
_INDEX = f"{_TABLE}/index/{{index_name}}"
_VIEW = "/v1/materialized_view/{id}"
_TRANSACTION = "/v1/transaction/{id}"

ROUTES = (
    _reading("list_namespaces", f"{_NAMESPACE}/list", spec.ListNamespacesRequest, method="GET"),
    _reading("describe_namespace", f"{_NAMESPACE}/describe", spec.DescribeNamespaceRequest),
    _changing("create_namespace", f"{_NAMESPACE}/create", spec.CreateNamespaceRequest),
    _changing("drop_namespace", f"{_NAMESPACE}/drop", spec.DropNamespaceRequest),
    _reading("namespace_exists", f"{_NAMESPACE}/exists", spec.NamespaceExistsRequest),
    _reading("list_tables", f"{_NAMESPACE}/table/list", spec.ListTablesRequest, method="GET"),
    _reading("list_all_tables", "/v1/table", spec.ListTablesRequest, method="GET"),
    _reading("describe_table", f"{_TABLE}/describe", spec.DescribeTableRequest),
    _reading("table_exists", f"{_TABLE}/exists", spec.TableExistsRequest),
    _changing("declare_table", f"{_TABLE}/declare", spec.DeclareTableRequest),
    _changing("create_empty_table", f"{_TABLE}/create-empty", spec.CreateEmptyTableRequest),
    _changing("register_table", f"{_TABLE}/register", spec.RegisterTableRequest),
    _changing("deregister_table", f"{_TABLE}/deregister", spec.DeregisterTableRequest),
    _changing("drop_table", f"{_TABLE}/drop", spec.DropTableRequest),
    _changing("rename_table", f"{_TABLE}/rename", spec.RenameTableRequest),
    _writing("create_table", f"{_TABLE}/create", spec.CreateTableRequest),
    _writing("insert_into_table", f"{_TABLE}/insert", spec.InsertIntoTableRequest),
    _writing("merge_insert_into_table", f"{_TABLE}/merge_insert", spec.MergeInsertIntoTableRequest),
    _changing("update_table", f"{_TABLE}/update", spec.UpdateTableRequest),
    _changing("delete_from_table", f"{_TABLE}/delete", spec.DeleteFromTableRequest),
    _reading("count_table_rows", f"{_TABLE}/count_rows", spec.CountTableRowsRequest, "count"),
    _reading("query_table", f"{_TABLE}/query", spec.QueryTableRequest, "file"),
    _reading("explain_table_query_plan", f"{_TABLE}/explain_plan", spec.ExplainTableQueryPlanRequest, "text"),
    _reading("analyze_table_query_plan", f"{_TABLE}/analyze_plan", spec.AnalyzeTableQueryPlanRequest, "text"),
    _changing("create_table_index", f"{_TABLE}/create_index", spec.CreateTableIndexRequest),
    _changing("create_table_scalar_index", f"{_TABLE}/create_scalar_index", spec.CreateTableIndexRequest),
    _reading("list_table_indices", f"{_TABLE}/index/list", spec.ListTableIndicesRequest),
    _reading("describe_table_index_stats", f"{_INDEX}/stats", spec.DescribeTableIndexStatsRequest),
    _changing("drop_table_index", f"{_INDEX}/drop", spec.DropTableIndexRequest),
    _reading("get_table_stats", f"{_TABLE}/stats", spec.GetTableStatsRequest),
    _reading("list_table_versions", f"{_TABLE}/version/list", spec.ListTableVersionsRequest),
    _reading("describe_table_version", f"{_TABLE}/version/describe", spec.DescribeTableVersionRequest),
    _changing("create_table_version", f"{_TABLE}/version/create", spec.CreateTableVersionRequest),
    _changing("batch_create_table_versions", "/v1/table/version/batch-create", spec.BatchCreateTableVersionsRequest),
    _changing("batch_delete_table_versions", f"{_TABLE}/version/delete", spec.BatchDeleteTableVersionsRequest),
    _changing("batch_commit_tables", "/v1/table/batch-commit", spec.BatchCommitTablesRequest),
    _changing("restore_table", f"{_TABLE}/restore", spec.RestoreTableRequest),
    _reading("list_table_tags", f"{_TABLE}/tags/list", spec.ListTableTagsRequest),
    _reading("get_table_tag_version", f"{_TABLE}/tags/version", spec.GetTableTagVersionRequest),
    _changing("create_table_tag", f"{_TABLE}/tags/create", spec.CreateTableTagRequest),
    _changing("update_table_tag", f"{_TABLE}/tags/update", spec.UpdateTableTagRequest),
    _changing("delete_table_tag", f"{_TABLE}/tags/delete", spec.DeleteTableTagRequest),
    _changing("create_table_branch", f"{_TABLE}/branches/create", spec.CreateTableBranchRequest),
    _reading("list_table_branches", f"{_TABLE}/branches/list", spec.ListTableBranchesRequest),
    _changing("delete_table_branch", f"{_TABLE}/branches/delete", spec.DeleteTableBranchRequest),
    _changing("alter_table_add_columns", f"{_TABLE}/add_columns", spec.AlterTableAddColumnsRequest),
    _changing("alter_table_alter_columns", f"{_TABLE}/alter_columns", spec.AlterTableAlterColumnsRequest),
    _changing("alter_table_drop_columns", f"{_TABLE}/drop_columns", spec.AlterTableDropColumnsRequest),
    _changing("alter_table_backfill_columns", f"{_TABLE}/backfill_column", spec.AlterTableBackfillColumnsRequest),
    Route(
        "update_table_schema_metadata",
        "POST",
        f"{_TABLE}/schema_metadata/update",
        spec.UpdateTableSchemaMetadataRequest,
        body="metadata",
        answer="metadata",
    ),
    _changing("update_field_metadata", f"{_TABLE}/update_field_metadata", spec.UpdateFieldMetadataRequest),
    _changing("create_materialized_view", f"{_VIEW}/create", spec.CreateMaterializedViewRequest),
    _changing("refresh_materialized_view", f"{_VIEW}/refresh", spec.RefreshMaterializedViewRequest),
    _reading("describe_transaction", f"{_TRANSACTION}/describe", spec.DescribeTransactionRequest),
    _changing("alter_transaction", f"{_TRANSACTION}/alter", spec.AlterTransactionRequest),
)
"""All operations of the spec; the namespace decides which of them are supported."""

EXTENSIONS = (
    _reading("describe_tables", f"{_NAMESPACE}/table/batch-describe", DescribeTablesRequest),
    _reading("search_many", "/v1/table/search", SearchTablesRequest, "file"),
    _reading("watch", "/v1/table/watch", WatchRequest, "events"),
)
"""Operations that only servers of this package have."""

BY_OPERATION: Mapping[str, Route] = {route.operation: route for route in (*ROUTES, *EXTENSIONS)}


def match(path: str) -> tuple[Route, Mapping[str, str]] | None:
    """Returns the route of a path and the encoded names in the path; None if there is no such route.

    The path is as it was sent, percent-encoded.
    """
    # The rest of a longer path is one segment, of no route.
    segments = path.split("/", _MAX_SEGMENTS)
    for places in _PLACES:
        key = tuple("{}" if place in places else part for place, part in enumerate(segments))
        if (route := _BY_PATH.get(key)) is not None:
            template = route.path.split("/")
            return route, {template[place].strip("{}"): segments[place] for place in places}
    return None


def _key(path: str) -> tuple[str, ...]:
    return tuple("{}" if part.startswith("{") else part for part in path.split("/"))


_BY_PATH: Mapping[tuple[str, ...], Route] = {_key(route.path): route for route in BY_OPERATION.values()}
_MAX_SEGMENTS = max(map(len, _BY_PATH))
# A name may equal a fixed segment such as "batch-commit", so paths with the fewest names are tried first.
_PLACES = sorted({tuple(i for i, part in enumerate(key) if part == "{}") for key in _BY_PATH})
