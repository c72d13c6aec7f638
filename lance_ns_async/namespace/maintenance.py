"""The spec's operations on indexes, tags, branches, columns and metadata of tables."""

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
from lance_ns_async.namespace.remote_operations import passed_on
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.tables import columns, indexes, reading, refs
from lance_ns_async.tables.sql_bounds import Texts


class MaintenanceOperations(DatasetOperations):
    """Operations on indexes, tags, branches, columns and metadata of a table.

    Each costs one call, and one open of the dataset in a worker thread. The `Raises` sections omit an error that they
    have in common: TableNotFoundError, if the table does not exist or nothing was written to it yet.
    """

    @passed_on
    async def create_table_index(self, request: CreateTableIndexRequest | Fields) -> CreateTableIndexResponse:
        """Creates an index on a column of vectors, scalars or text.

        This may take long: set `operation_timeout` accordingly.

        Returns:
            An empty response.

        Raises:
            TableIndexAlreadyExistsError: The table has an index of that name.
            TableColumnNotFoundError: The column does not exist.
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
            InvalidInputError: The index type is unknown, or an option is invalid or not one of that type.
        """
        request = requests.parse(CreateTableIndexRequest, request)
        indexes.check(request)
        await self._change(request.id, lambda it, _: indexes.create(it, request), Snapshot(branch=request.branch))
        return CreateTableIndexResponse()

    @passed_on
    async def create_table_scalar_index(
        self, request: CreateTableIndexRequest | Fields
    ) -> CreateTableScalarIndexResponse:
        """Creates an index on a column of scalars or text.

        This may take long: set `operation_timeout` accordingly.

        Returns:
            An empty response.

        Raises:
            TableIndexAlreadyExistsError: The table has an index of that name.
            TableColumnNotFoundError: The column does not exist.
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
            InvalidInputError: The index type is not one for scalars or text, or an option is invalid or not one of that
                type.
        """
        request = requests.parse(CreateTableIndexRequest, request)
        indexes.check_scalar(request)
        await self._change(request.id, lambda it, _: indexes.create(it, request), Snapshot(branch=request.branch))
        return CreateTableScalarIndexResponse()

    @passed_on
    async def list_table_indices(self, request: ListTableIndicesRequest | Fields) -> ListTableIndicesResponse:
        """Lists the indexes of a table.

        Args:
            request: `limit` is the maximum number of indexes; None returns all.

        Returns:
            The indexes, sorted by name, and a page token if there are more.

        Raises:
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            InvalidInputError: The limit or the page token is invalid.
        """
        request = requests.parse(ListTableIndicesRequest, request)
        snapshot = Snapshot(request.version, branch=request.branch)
        table_indexes = await self._read(request.id, lambda it, _: indexes.list_indexes(it), snapshot)
        page, token = await page_of(table_indexes, request.limit, request.page_token)
        return ListTableIndicesResponse(indexes=list(page.values()), page_token=token)

    @passed_on
    async def describe_table_index_stats(
        self, request: DescribeTableIndexStatsRequest | Fields
    ) -> DescribeTableIndexStatsResponse:
        """Returns the statistics of an index: its type, and the numbers of indexed and unindexed rows.

        Raises:
            TableIndexNotFoundError: The table does not have the index.
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            InvalidInputError: The request has no `index_name`.
        """
        request = requests.parse(DescribeTableIndexStatsRequest, request)
        name = indexes.check_name(request.index_name)
        snapshot = Snapshot(request.version, branch=request.branch)
        return await self._read(request.id, lambda it, _: indexes.stats(it, name), snapshot)

    @passed_on
    async def drop_table_index(self, request: DropTableIndexRequest | Fields) -> DropTableIndexResponse:
        """Drops an index; older versions that have it keep it.

        Returns:
            An empty response.

        Raises:
            TableIndexNotFoundError: The table does not have the index.
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
            InvalidInputError: The request has no `index_name`.
        """
        request = requests.parse(DropTableIndexRequest, request)
        name = indexes.check_name(request.index_name)
        await self._change(request.id, lambda it, _: indexes.drop(it, name), Snapshot(branch=request.branch))
        return DropTableIndexResponse()

    @passed_on
    async def get_table_stats(self, request: GetTableStatsRequest | Fields) -> GetTableStatsResponse:
        """Returns the size of a table, and the numbers of its rows, indexes and fragments.

        Raises:
            TableBranchNotFoundError: The table does not have the branch.
        """
        request = requests.parse(GetTableStatsRequest, request)
        return await self._read(request.id, lambda it, _: reading.stats(it), Snapshot(branch=request.branch))

    @passed_on
    async def restore_table(self, request: RestoreTableRequest | Fields) -> RestoreTableResponse:
        """Makes an old version the latest one again; the versions in between stay.

        Returns:
            An empty response.

        Raises:
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
        """
        request = requests.parse(RestoreTableRequest, request)
        snapshot = Snapshot(request.version, branch=request.branch)
        await self._change(request.id, lambda it, _: refs.restore(it), snapshot)
        return RestoreTableResponse()

    @passed_on
    async def list_table_tags(self, request: ListTableTagsRequest | Fields) -> ListTableTagsResponse:
        """Lists the tags of a table, including those of branches.

        Args:
            request: `limit` is the maximum number of tags; None returns all.

        Returns:
            The tags, sorted by name, and a page token if there are more.

        Raises:
            InvalidInputError: The limit or the page token is invalid.
        """
        request = requests.parse(ListTableTagsRequest, request)
        tags = await self._read(request.id, lambda it, _: refs.tags(it))
        page, token = await page_of(tags, request.limit, request.page_token)
        return ListTableTagsResponse(tags=page, page_token=token)

    @passed_on
    async def get_table_tag_version(self, request: GetTableTagVersionRequest | Fields) -> GetTableTagVersionResponse:
        """Returns the version of a tag.

        Returns:
            The version, and its branch; the branch is None for main.

        Raises:
            TableTagNotFoundError: The table does not have the tag.
        """
        request = requests.parse(GetTableTagVersionRequest, request)
        tag = await self._read(request.id, lambda it, table: refs.tag(it, table, request.tag))
        return GetTableTagVersionResponse(version=tag.version, branch=tag.branch)

    @passed_on
    async def create_table_tag(self, request: CreateTableTagRequest | Fields) -> CreateTableTagResponse:
        """Creates a tag for a version.

        Returns:
            An empty response.

        Raises:
            TableTagAlreadyExistsError: The table has a tag of that name.
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            InvalidInputError: The name is not ASCII, too long, or otherwise invalid.
        """
        request = requests.parse(CreateTableTagRequest, request)
        tag, version, branch = request.tag, request.version, request.branch
        await self._change(request.id, lambda it, table: refs.create_tag(it, table, tag, version, branch))
        return CreateTableTagResponse()

    @passed_on
    async def update_table_tag(self, request: UpdateTableTagRequest | Fields) -> UpdateTableTagResponse:
        """Moves an existing tag to another version.

        Returns:
            An empty response.

        Raises:
            TableTagNotFoundError: The table does not have the tag.
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
        """
        request = requests.parse(UpdateTableTagRequest, request)
        tag, version, branch = request.tag, request.version, request.branch
        await self._change(request.id, lambda it, table: refs.update_tag(it, table, tag, version, branch))
        return UpdateTableTagResponse()

    @passed_on
    async def delete_table_tag(self, request: DeleteTableTagRequest | Fields) -> DeleteTableTagResponse:
        """Deletes a tag; its version stays.

        Returns:
            An empty response.

        Raises:
            TableTagNotFoundError: The table does not have the tag.
        """
        request = requests.parse(DeleteTableTagRequest, request)
        await self._change(request.id, lambda it, _: refs.delete_tag(it, request.tag))
        return DeleteTableTagResponse()

    @passed_on
    async def create_table_branch(self, request: CreateTableBranchRequest | Fields) -> CreateTableBranchResponse:
        """Creates a branch that starts at a version of another branch.

        Args:
            request: `from_branch` None means main; `from_version` None means its latest version.

        Returns:
            An empty response.

        Raises:
            TableBranchAlreadyExistsError: The table has a branch of that name.
            TableBranchNotFoundError: The table does not have the branch `from_branch`.
            TableVersionNotFoundError: The table does not have the version.
            InvalidInputError: The name is too long, or otherwise invalid.
            UnsupportedOperationError: The catalog commits the versions of the table.
        """
        request = requests.parse(CreateTableBranchRequest, request)
        name, source, version = request.name, request.from_branch, request.from_version
        await self._change(request.id, lambda it, table: refs.create_branch(it, table, name, source, version))
        return CreateTableBranchResponse()

    @passed_on
    async def list_table_branches(self, request: ListTableBranchesRequest | Fields) -> ListTableBranchesResponse:
        """Lists the branches of a table except main.

        Args:
            request: `limit` is the maximum number of branches; None returns all.

        Returns:
            The branches, sorted by name, and a page token if there are more.

        Raises:
            InvalidInputError: The limit or the page token is invalid.
        """
        request = requests.parse(ListTableBranchesRequest, request)
        branches = await self._read(request.id, lambda it, _: refs.branches(it))
        page, token = await page_of(branches, request.limit, request.page_token)
        return ListTableBranchesResponse(branches=page, page_token=token)

    @passed_on
    async def delete_table_branch(self, request: DeleteTableBranchRequest | Fields) -> DeleteTableBranchResponse:
        """Deletes a branch and the data that only this branch uses.

        Returns:
            An empty response.

        Raises:
            TableBranchNotFoundError: The table does not have the branch.
            InvalidTableStateError: A tag refers to a version of the branch.
            InvalidInputError: The branch is main.
        """
        request = requests.parse(DeleteTableBranchRequest, request)
        await self._change(request.id, lambda it, table: refs.delete_branch(it, table, request.name))
        return DeleteTableBranchResponse()

    @passed_on
    async def alter_table_add_columns(
        self, request: AlterTableAddColumnsRequest | Fields
    ) -> AlterTableAddColumnsResponse:
        """Adds columns with the values of SQL expressions. Columns that the catalog stores are not updated.

        Returns:
            The new version.

        Raises:
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
            InvalidInputError: There are no columns, one exists or appears twice, or an expression is missing, invalid
                or too complex.
            UnsupportedOperationError: A column is computed or virtual.
        """
        request = requests.parse(AlterTableAddColumnsRequest, request)
        new = columns.additions(request.new_columns)
        await self._check(Texts(values={f"new_columns: {name}": sql for name, sql in new.items()}))
        snapshot = Snapshot(branch=request.branch)
        return AlterTableAddColumnsResponse(
            version=await self._change(request.id, lambda it, _: columns.add(it, new), snapshot)
        )

    @passed_on
    async def alter_table_alter_columns(
        self, request: AlterTableAlterColumnsRequest | Fields
    ) -> AlterTableAlterColumnsResponse:
        """Changes names, types and nullability of columns, all in one version.

        Returns:
            The new version.

        Raises:
            TableColumnNotFoundError: A column does not exist.
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
            InvalidInputError: There are no changes, a column appears twice, or a name or type is invalid.
            UnsupportedOperationError: A column is virtual.
        """
        request = requests.parse(AlterTableAlterColumnsRequest, request)
        changes = columns.alterations(request.alterations)
        snapshot = Snapshot(branch=request.branch)
        return AlterTableAlterColumnsResponse(
            version=await self._change(request.id, lambda it, _: columns.alter(it, changes), snapshot)
        )

    @passed_on
    async def alter_table_drop_columns(
        self, request: AlterTableDropColumnsRequest | Fields
    ) -> AlterTableDropColumnsResponse:
        """Drops columns; old versions keep them.

        Returns:
            The new version.

        Raises:
            TableColumnNotFoundError: A column does not exist.
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
            InvalidInputError: There are no columns.
        """
        request = requests.parse(AlterTableDropColumnsRequest, request)
        if not request.columns:
            raise InvalidInputError("columns: must not be empty")
        snapshot = Snapshot(branch=request.branch)
        return AlterTableDropColumnsResponse(
            version=await self._change(request.id, lambda it, _: columns.drop(it, request.columns), snapshot)
        )

    @passed_on
    async def update_table_schema_metadata(
        self, request: UpdateTableSchemaMetadataRequest | Fields
    ) -> UpdateTableSchemaMetadataResponse:
        """Sets entries of the schema's metadata; other entries stay.

        Returns:
            All entries of the schema's metadata.

        Raises:
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
        """
        request = requests.parse(UpdateTableSchemaMetadataRequest, request)
        entries = request.metadata or {}
        snapshot = Snapshot(branch=request.branch)
        metadata = await self._change(request.id, lambda it, _: columns.update_schema_metadata(it, entries), snapshot)
        return UpdateTableSchemaMetadataResponse(metadata=dict(metadata))

    @passed_on
    async def update_field_metadata(self, request: UpdateFieldMetadataRequest | Fields) -> UpdateFieldMetadataResponse:
        """Sets or removes entries of the metadata of fields, in all of the requested fields or in none.

        Args:
            request: A null value removes an entry.

        Returns:
            The new version, and all entries of these fields.

        Raises:
            TableColumnNotFoundError: A field does not exist.
            TableBranchNotFoundError: The table does not have the branch.
            ConcurrentModificationError: Another writer made a conflicting change.
            InvalidInputError: There are no updates, a field appears twice, or only some of the updates have `replace`.
        """
        request = requests.parse(UpdateFieldMetadataRequest, request)
        updates, replace = columns.field_updates(request.updates)
        version, fields = await self._change(
            request.id,
            lambda it, _: columns.update_field_metadata(it, updates, replace=replace),
            Snapshot(branch=request.branch),
        )
        return UpdateFieldMetadataResponse(version=version, fields={path: dict(it) for path, it in fields.items()})
