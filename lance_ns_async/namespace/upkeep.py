"""The spec's operations on what a table has beside its rows: indexes, tags, branches, columns, metadata."""

from __future__ import annotations

from lance_namespace import (
    AlterTableAddColumnsRequest,
    AlterTableAddColumnsResponse,
    AlterTableAlterColumnsRequest,
    AlterTableAlterColumnsResponse,
    AlterTableDropColumnsRequest,
    AlterTableDropColumnsResponse,
    CreateTableBranchRequest,
    CreateTableBranchResponse,
    CreateTableIndexRequest,
    CreateTableIndexResponse,
    CreateTableScalarIndexResponse,
    CreateTableTagRequest,
    CreateTableTagResponse,
    DeleteTableBranchRequest,
    DeleteTableBranchResponse,
    DeleteTableTagRequest,
    DeleteTableTagResponse,
    DescribeTableIndexStatsRequest,
    DescribeTableIndexStatsResponse,
    DropTableIndexRequest,
    DropTableIndexResponse,
    GetTableStatsRequest,
    GetTableStatsResponse,
    GetTableTagVersionRequest,
    GetTableTagVersionResponse,
    ListTableBranchesRequest,
    ListTableBranchesResponse,
    ListTableIndicesRequest,
    ListTableIndicesResponse,
    ListTableTagsRequest,
    ListTableTagsResponse,
    RestoreTableRequest,
    RestoreTableResponse,
    UpdateFieldMetadataRequest,
    UpdateFieldMetadataResponse,
    UpdateTableSchemaMetadataRequest,
    UpdateTableSchemaMetadataResponse,
    UpdateTableTagRequest,
    UpdateTableTagResponse,
)
from lance_namespace.errors import InvalidInputError

from lance_ns_async.namespace import requests
from lance_ns_async.namespace.dataset_operations import DatasetOperations, page_of
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.tables import columns, indexes, reading, refs
from lance_ns_async.tables.filters import Texts


class TableUpkeep(DatasetOperations):
    """What is asked and changed of a dataset beside its rows. Costs one call, and an open of the dataset."""

    async def create_table_index(self, request: CreateTableIndexRequest | Fields) -> CreateTableIndexResponse:
        """Makes an index of a column of vectors, scalars or text; may take long, so mind `operation_timeout`."""
        request = requests.coerced(CreateTableIndexRequest, request)
        indexes.check(request)
        await self._change(request.id, lambda it, _: indexes.create(it, request), Snapshot(branch=request.branch))
        return CreateTableIndexResponse()

    async def create_table_scalar_index(
        self, request: CreateTableIndexRequest | Fields
    ) -> CreateTableScalarIndexResponse:
        """Makes an index of a column of scalars, or of its text; may take long, so mind `operation_timeout`."""
        request = requests.coerced(CreateTableIndexRequest, request)
        indexes.check_scalar(request)
        await self._change(request.id, lambda it, _: indexes.create(it, request), Snapshot(branch=request.branch))
        return CreateTableScalarIndexResponse()

    async def list_table_indices(self, request: ListTableIndicesRequest | Fields) -> ListTableIndicesResponse:
        """The indexes of a table, sorted by name."""
        request = requests.coerced(ListTableIndicesRequest, request)
        snapshot = Snapshot(request.version, branch=request.branch)
        found = await self._read(request.id, lambda it, _: indexes.described(it), snapshot)
        page, token = await page_of(found, request.limit, request.page_token)
        return ListTableIndicesResponse(indexes=list(page.values()), page_token=token)

    async def describe_table_index_stats(
        self, request: DescribeTableIndexStatsRequest | Fields
    ) -> DescribeTableIndexStatsResponse:
        """How much of a table an index covers."""
        request = requests.coerced(DescribeTableIndexStatsRequest, request)
        name = indexes.check_name(request.index_name)
        snapshot = Snapshot(request.version, branch=request.branch)
        return await self._read(request.id, lambda it, _: indexes.stats(it, name), snapshot)

    async def drop_table_index(self, request: DropTableIndexRequest | Fields) -> DropTableIndexResponse:
        """Removes an index; versions that had it keep it."""
        request = requests.coerced(DropTableIndexRequest, request)
        name = indexes.check_name(request.index_name)
        await self._change(request.id, lambda it, _: indexes.drop(it, name), Snapshot(branch=request.branch))
        return DropTableIndexResponse()

    async def get_table_stats(self, request: GetTableStatsRequest | Fields) -> GetTableStatsResponse:
        """What a table holds, and in what pieces."""
        request = requests.coerced(GetTableStatsRequest, request)
        return await self._read(request.id, lambda it, _: reading.stats(it), Snapshot(branch=request.branch))

    async def restore_table(self, request: RestoreTableRequest | Fields) -> RestoreTableResponse:
        """Makes an old version the latest once more; the versions between stay."""
        request = requests.coerced(RestoreTableRequest, request)
        snapshot = Snapshot(request.version, branch=request.branch)
        await self._change(request.id, lambda it, _: refs.restore(it), snapshot)
        return RestoreTableResponse()

    async def list_table_tags(self, request: ListTableTagsRequest | Fields) -> ListTableTagsResponse:
        """The tags of a table, those of branches among them, sorted by name."""
        request = requests.coerced(ListTableTagsRequest, request)
        found = await self._read(request.id, lambda it, _: refs.tags(it))
        page, token = await page_of(found, request.limit, request.page_token)
        return ListTableTagsResponse(tags=page, page_token=token)

    async def get_table_tag_version(self, request: GetTableTagVersionRequest | Fields) -> GetTableTagVersionResponse:
        """The version that a tag names, and its branch if that is not the main one."""
        request = requests.coerced(GetTableTagVersionRequest, request)
        found = await self._read(request.id, lambda it, table: refs.tag(it, table, request.tag))
        return GetTableTagVersionResponse(version=found.version, branch=found.branch)

    async def create_table_tag(self, request: CreateTableTagRequest | Fields) -> CreateTableTagResponse:
        """Gives a version a name."""
        request = requests.coerced(CreateTableTagRequest, request)
        tag, version, branch = request.tag, request.version, request.branch
        await self._change(request.id, lambda it, table: refs.create_tag(it, table, tag, version, branch))
        return CreateTableTagResponse()

    async def update_table_tag(self, request: UpdateTableTagRequest | Fields) -> UpdateTableTagResponse:
        """Has a tag that is there name another version."""
        request = requests.coerced(UpdateTableTagRequest, request)
        tag, version, branch = request.tag, request.version, request.branch
        await self._change(request.id, lambda it, table: refs.update_tag(it, table, tag, version, branch))
        return UpdateTableTagResponse()

    async def delete_table_tag(self, request: DeleteTableTagRequest | Fields) -> DeleteTableTagResponse:
        """Removes a tag; the version that it named stays."""
        request = requests.coerced(DeleteTableTagRequest, request)
        await self._change(request.id, lambda it, _: refs.delete_tag(it, request.tag))
        return DeleteTableTagResponse()

    async def create_table_branch(self, request: CreateTableBranchRequest | Fields) -> CreateTableBranchResponse:
        """Makes a branch that begins at a version of another, and without one at its latest."""
        request = requests.coerced(CreateTableBranchRequest, request)
        name, source, version = request.name, request.from_branch, request.from_version
        await self._change(request.id, lambda it, table: refs.create_branch(it, table, name, source, version))
        return CreateTableBranchResponse()

    async def list_table_branches(self, request: ListTableBranchesRequest | Fields) -> ListTableBranchesResponse:
        """The branches of a table beside the main one, sorted by name."""
        request = requests.coerced(ListTableBranchesRequest, request)
        found = await self._read(request.id, lambda it, _: refs.branches(it))
        page, token = await page_of(found, request.limit, request.page_token)
        return ListTableBranchesResponse(branches=page, page_token=token)

    async def delete_table_branch(self, request: DeleteTableBranchRequest | Fields) -> DeleteTableBranchResponse:
        """Removes a branch and what only it holds; not while a tag names a version of it."""
        request = requests.coerced(DeleteTableBranchRequest, request)
        await self._change(request.id, lambda it, table: refs.delete_branch(it, table, request.name))
        return DeleteTableBranchResponse()

    async def alter_table_add_columns(
        self, request: AlterTableAddColumnsRequest | Fields
    ) -> AlterTableAddColumnsResponse:
        """Adds columns that SQL expressions fill. A catalog that keeps columns is not told."""
        request = requests.coerced(AlterTableAddColumnsRequest, request)
        new = columns.additions(request.new_columns)
        await self._check(Texts(values={f"new_columns: {name}": sql for name, sql in new.items()}))
        snapshot = Snapshot(branch=request.branch)
        return AlterTableAddColumnsResponse(
            version=await self._change(request.id, lambda it, _: columns.add(it, new), snapshot)
        )

    async def alter_table_alter_columns(
        self, request: AlterTableAlterColumnsRequest | Fields
    ) -> AlterTableAlterColumnsResponse:
        """Renames columns, and changes their types and whether they may be null, all in one version."""
        request = requests.coerced(AlterTableAlterColumnsRequest, request)
        changes = columns.alterations(request.alterations)
        snapshot = Snapshot(branch=request.branch)
        return AlterTableAlterColumnsResponse(
            version=await self._change(request.id, lambda it, _: columns.alter(it, changes), snapshot)
        )

    async def alter_table_drop_columns(
        self, request: AlterTableDropColumnsRequest | Fields
    ) -> AlterTableDropColumnsResponse:
        """Removes columns; old versions keep them."""
        request = requests.coerced(AlterTableDropColumnsRequest, request)
        if not request.columns:
            raise InvalidInputError("columns: none was given")
        snapshot = Snapshot(branch=request.branch)
        return AlterTableDropColumnsResponse(
            version=await self._change(request.id, lambda it, _: columns.drop(it, request.columns), snapshot)
        )

    async def update_table_schema_metadata(
        self, request: UpdateTableSchemaMetadataRequest | Fields
    ) -> UpdateTableSchemaMetadataResponse:
        """Sets entries of the schema's metadata and leaves the others; gives all."""
        request = requests.coerced(UpdateTableSchemaMetadataRequest, request)
        given = request.metadata or {}
        snapshot = Snapshot(branch=request.branch)
        found = await self._change(request.id, lambda it, _: columns.update_schema_metadata(it, given), snapshot)
        return UpdateTableSchemaMetadataResponse(metadata=dict(found))

    async def update_field_metadata(self, request: UpdateFieldMetadataRequest | Fields) -> UpdateFieldMetadataResponse:
        """Sets entries of fields' metadata, null removing one; gives all that the fields have now."""
        request = requests.coerced(UpdateFieldMetadataRequest, request)
        given, replace = columns.field_updates(request.updates)
        version, fields = await self._change(
            request.id,
            lambda it, _: columns.update_field_metadata(it, given, replace=replace),
            Snapshot(branch=request.branch),
        )
        return UpdateFieldMetadataResponse(version=version, fields={path: dict(it) for path, it in fields.items()})
