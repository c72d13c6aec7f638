"""The spec's operations on rows, and `open` and `write` for Python data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa
from lance_namespace import (
    AnalyzeTableQueryPlanRequest,
    CountTableRowsRequest,
    CountTableRowsResponse,
    CreateEmptyTableRequest,
    CreateTableRequest,
    DeleteFromTableRequest,
    DeleteFromTableResponse,
    ExplainTableQueryPlanRequest,
    InsertIntoTableRequest,
    InsertIntoTableResponse,
    MergeInsertIntoTableRequest,
    MergeInsertIntoTableResponse,
    QueryTableRequest,
    QueryTableResponse,
    UpdateTableRequest,
    UpdateTableResponse,
)
from lance_namespace.errors import InvalidInputError, TableAlreadyExistsError, UnsupportedOperationError

from lance_ns_async.calls.tasks import in_slices
from lance_ns_async.engine.describe import Progress
from lance_ns_async.model import Table, TableId
from lance_ns_async.namespace import requests
from lance_ns_async.namespace.dataset_operations import DatasetOperations
from lance_ns_async.namespace.remote_operations import passed_on
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.spec.responses import CreateEmptyTableResponse, CreateTableResponse
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import aside, in_thread
from lance_ns_async.tables import arrow, concurrent_changes, creating, reading, searching, writing
from lance_ns_async.tables.creating import Content, TableAndDataset
from lance_ns_async.tables.open_many import Opened, open_many
from lance_ns_async.tables.sql_bounds import Texts

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")


class RowOperations(DatasetOperations):
    """Operations on the rows of tables.

    An operation on rows costs one call, and one open of the dataset in a worker thread. The `Raises` sections omit an
    error that they have in common: TableNotFoundError, if the table does not exist or, except where a method says
    otherwise, nothing was written to it yet.

    A change of a table is never sent twice: after a time-out, the error says that the outcome is unknown.
    """

    @passed_on
    async def create_table(
        self, request: CreateTableRequest | Fields, request_data: bytes | pa.RecordBatchReader
    ) -> CreateTableResponse:
        """Declares a table and writes the rows of an Arrow IPC stream to it.

        If the write fails, neither the registration nor the data stays.

        Args:
            request: With mode ExistOk, a registered table stays as it is, even if nothing was written to it yet. With
                Overwrite, a new version replaces all rows and columns of the table, and its properties if the request
                has any. The default mode is Create.
            request_data: An Arrow IPC stream; or a reader, whose rows a REST server gets while they are read.

        Returns:
            The registration and the version; the version is None if nothing was written to an existing table yet.

        Raises:
            TableAlreadyExistsError: The table is registered, and the mode is Create; or the location contains data that
                is not registered.
            NamespaceNotFoundError: The namespace does not exist.
            ConcurrentModificationError: The table was dropped or deregistered while its first rows were written; the
                message says whether the rows stay.
            InvalidInputError: `request_data` is not an Arrow IPC stream, or the mode is unknown.

        Cost:
            A declaration, a describe before the write and one after it, and one open; in some catalogs one call for the
            default location.
        """
        request = requests.parse(CreateTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("create", "existok", "overwrite"))
        with self._operation():
            rows = await aside(lambda: arrow.rows(request_data))
            result = await self._create(id, mode, Content(rows, request.properties, request.storage_options))
        answer = requests.registration(result.table)
        return CreateTableResponse(
            location=answer.location,
            version=None if result.dataset is None else result.dataset.version,
            storage_options=answer.storage_options,
            properties=answer.properties,
        )

    async def create_empty_table(self, request: CreateEmptyTableRequest | Fields) -> CreateEmptyTableResponse:
        """Registers a table that has no data yet; `declare_table` replaces this operation in the spec.

        Args:
            request: With mode ExistOk, a registered table stays as it is. The default mode is Create.

        Returns:
            The location, the storage options and the properties of the table.

        Raises:
            TableAlreadyExistsError: The table is registered, and the mode is Create.
            NamespaceNotFoundError: The namespace does not exist.
            InvalidInputError: The mode is unknown.
        """
        request = requests.parse(CreateEmptyTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("create", "existok"))
        with self._changing(id):
            try:
                table = await self._backend.declare_table(id, None, request.properties or {})
            except TableAlreadyExistsError:
                if mode != "existok":
                    raise
                table = await self._backend.describe_table(id)
        answer = requests.registration(table)
        return CreateEmptyTableResponse(
            location=answer.location, storage_options=answer.storage_options, properties=answer.properties
        )

    @passed_on
    async def insert_into_table(
        self, request: InsertIntoTableRequest | Fields, request_data: bytes | pa.RecordBatchReader
    ) -> InsertIntoTableResponse:
        """Inserts the rows of an Arrow IPC stream into a table.

        If the table is only declared, this writes its first version.

        Args:
            request: With mode Overwrite, the rows replace all existing ones. The default mode is Append.
            request_data: An Arrow IPC stream; or a reader, whose rows a REST server gets while they are read.

        Returns:
            The number of inserted rows, and the new version.

        Raises:
            TableNotFoundError: The table is not registered.
            TableBranchNotFoundError: The table does not have the branch.
            TableSchemaValidationError: The columns do not match those of the table.
            ConcurrentModificationError: Another writer changed the table, or the table was dropped or deregistered
                while its first rows were written.
            InvalidInputError: `request_data` is not an Arrow IPC stream, or the mode is unknown.

        Cost:
            One call and one open.
        """
        request = requests.parse(InsertIntoTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("append", "overwrite"))
        with self._operation():
            rows = await aside(lambda: arrow.rows(request_data))
            dataset = await self._insert(id, request.branch, rows, mode)
        return InsertIntoTableResponse(num_inserted_rows=rows.num_rows, version=dataset.version)

    @passed_on
    async def merge_insert_into_table(
        self, request: MergeInsertIntoTableRequest | Fields, request_data: bytes | pa.RecordBatchReader
    ) -> MergeInsertIntoTableResponse:
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
            TableBranchNotFoundError: The table does not have the branch.
            TableColumnNotFoundError: A column of `on` does not exist.
            ConcurrentModificationError: Another writer changed the table, or the table was dropped or deregistered
                while its first rows were written.
            InvalidInputError: `request_data` is not an Arrow IPC stream, the request has no `on` or no action, its
                timeout is invalid, or an SQL text is too complex.

        Cost:
            One call and one open.
        """
        request = requests.parse(MergeInsertIntoTableRequest, request)
        id = self._table(request.id)
        timeout = writing.check_merge(request)
        await self._check(writing.merge_texts(request))
        with self._operation():
            rows = await aside(lambda: arrow.rows(request_data))
            counts, version = await self._on_table(
                id, lambda table: writing.merge(self._opener, table, request, rows, timeout)
            )
        return MergeInsertIntoTableResponse(
            num_updated_rows=counts["num_updated_rows"],
            num_inserted_rows=counts["num_inserted_rows"],
            num_deleted_rows=counts["num_deleted_rows"],
            version=version,
        )

    @passed_on
    async def update_table(self, request: UpdateTableRequest | Fields) -> UpdateTableResponse:
        """Sets columns to the values of SQL expressions, in all rows or in those that match the predicate.

        Returns:
            The number of updated rows, and the version.

        Raises:
            TableBranchNotFoundError: The table does not have the branch.
            TableColumnNotFoundError: A column does not exist.
            ConcurrentModificationError: Another writer changed the same rows.
            InvalidInputError: There are no updates, a column appears twice, or an SQL text is invalid or too complex.
            UnsupportedOperationError: The request has properties, or updates a field within a column.
        """
        request = requests.parse(UpdateTableRequest, request)
        new = writing.updates(request.updates)
        if request.properties:
            raise UnsupportedOperationError(
                "Not supported: properties in update_table (the catalog stores them, not the table); "
                "to change them, use register_table with mode Overwrite"
            )
        await self._check(
            Texts({"predicate": request.predicate}, {f"updates: {name}": sql for name, sql in new.items()})
        )
        snapshot = Snapshot(branch=request.branch)
        count, version = await self._change(
            request.id, lambda it, _: writing.update(it, new, request.predicate), snapshot
        )
        return UpdateTableResponse(updated_rows=count, version=version)

    @passed_on
    async def delete_from_table(self, request: DeleteFromTableRequest | Fields) -> DeleteFromTableResponse:
        """Deletes the rows that match the predicate; old versions keep them.

        Returns:
            The new version.

        Raises:
            TableBranchNotFoundError: The table does not have the branch.
            TableColumnNotFoundError: A column does not exist.
            ConcurrentModificationError: Another writer changed the same rows.
            InvalidInputError: The predicate is invalid or too complex.
        """
        request = requests.parse(DeleteFromTableRequest, request)
        await self._check(Texts({"predicate": request.predicate}))
        snapshot = Snapshot(branch=request.branch)
        version = await self._change(request.id, lambda it, _: writing.delete(it, request.predicate), snapshot)
        return DeleteFromTableResponse(version=version)

    @passed_on
    async def count_table_rows(self, request: CountTableRowsRequest | Fields) -> CountTableRowsResponse:
        """Counts all rows, or the rows that match the predicate.

        Returns:
            The number of rows.

        Raises:
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            TableColumnNotFoundError: A column does not exist.
            InvalidInputError: The predicate is invalid or too complex.
        """
        request = requests.parse(CountTableRowsRequest, request)
        await self._check(Texts({"predicate": request.predicate}))
        snapshot = Snapshot(request.version, branch=request.branch)
        count = await self._read(request.id, lambda it, _: reading.count(it, request.predicate), snapshot)
        return CountTableRowsResponse(count=count)

    @passed_on
    async def query_table(self, request: QueryTableRequest | Fields) -> QueryTableResponse:
        """Searches by vector or by text, or reads the first rows that match a filter.

        Args:
            request: `k` is the number of rows. An empty vector means no vector search. With several vectors, the result
                has `k` rows for each.

        Returns:
            The rows as an Arrow IPC file. Rows of a search have a column `_distance` or `_score`; with several vectors,
                the column `query_index` says to which vector a row belongs.

        Raises:
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            TableColumnNotFoundError: A column does not exist.
            InvalidInputError: The query is invalid, or an SQL text is too complex.
        """
        request = requests.parse(QueryTableRequest, request)
        searching.check(request)
        await self._check(searching.texts(request))
        snapshot = Snapshot(request.version, branch=request.branch)
        return QueryTableResponse(data=await self._read(request.id, lambda it, _: reading.query(it, request), snapshot))

    @passed_on
    async def explain_table_query_plan(self, request: ExplainTableQueryPlanRequest | Fields) -> str:
        """Returns the plan of a query, without running it.

        Returns:
            The plan as text.

        Raises:
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            TableColumnNotFoundError: A column does not exist.
            InvalidInputError: The query is invalid, or its id or branch differs from that of the request.
        """
        request = requests.parse(ExplainTableQueryPlanRequest, request)
        query, verbose = request.query, bool(request.verbose)
        searching.check(query)
        await self._check(searching.texts(query))
        id, branch = (_common_value(request, query, field) for field in ("id", "branch"))
        snapshot = Snapshot(query.version, branch=branch)
        return await self._read(id, lambda it, _: reading.explain(it, query, verbose=verbose), snapshot)

    @passed_on
    async def analyze_table_query_plan(self, request: AnalyzeTableQueryPlanRequest | Fields) -> str:
        """Runs a query, and returns its plan with the measurements of each step.

        Returns:
            The plan and the measurements as text.

        Raises:
            TableVersionNotFoundError: The table does not have the version.
            TableBranchNotFoundError: The table does not have the branch.
            TableColumnNotFoundError: A column does not exist.
            InvalidInputError: The query is invalid, or an SQL text is too complex.
        """
        request = requests.parse(AnalyzeTableQueryPlanRequest, request)
        searching.check(request)
        await self._check(searching.texts(request))
        snapshot = Snapshot(request.version, branch=request.branch)
        return await self._read(request.id, lambda it, _: reading.analyze(it, request), snapshot)

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
            TableNotFoundError: The table does not exist, or nothing was written to it yet.
            TableVersionNotFoundError: The table does not have the version.
            TableTagNotFoundError: The table does not have the tag.
            TableBranchNotFoundError: The table does not have the branch.
            InvalidInputError: `version` is neither a number nor a string, or a tag is combined with a branch.

        Cost:
            One call and one open.
        """
        if isinstance(version, str):
            snapshot = Snapshot(tag=version, branch=branch)
        else:
            snapshot = Snapshot(None if version is None else _number(version), branch=branch)
        return await self._read(id, lambda dataset, _: dataset, snapshot)

    async def open_many(
        self,
        ids: Iterable[Iterable[str]],
        *,
        max_in_flight: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> Opened[LanceDataset]:
        """Opens many tables concurrently, each once.

        Args:
            ids: The table ids; each is a sequence of names.
            max_in_flight: See `describe_tables`.
            timeout: See `describe_tables`.
            progress: See `describe_tables`.

        Returns:
            The datasets, and an error for each other id: the failure of one table does not affect the others.

        Raises:
            InvalidInputError: The catalog cannot have an id, or `max_in_flight` or `timeout` is invalid; nothing was
                called.

        Cost:
            One open for each table, and one call for each, or the calls of `describe_tables` if the catalog vends no
            credentials.
        """
        with self._within(timeout):
            table_ids = await in_slices(self._table, ids)
            return await open_many(
                self._backend,
                self._locator,
                self._opener,
                table_ids,
                max_in_flight=self._workers(max_in_flight),
                progress=progress,
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
            TableBranchNotFoundError: The table does not have the branch.
            TableSchemaValidationError: The columns do not match those of the table.
            NamespaceNotFoundError: The namespace does not exist.
            ConcurrentModificationError: Another writer changed the table, or the table was dropped or deregistered
                while its first rows were written.
            InvalidInputError: The data is not Arrow data or cannot be read, the mode is unknown, or `create` has a
                branch.
        """
        table_id = self._table(id)
        how = requests.word(mode, "mode", ("create", "append", "overwrite"))
        if branch is not None and how == "create":
            raise InvalidInputError(
                f"branch {branch!r}: mode create creates a table, which has only the branch main; omit the branch"
            )
        with self._operation():
            content = Content(await aside(lambda: arrow.readable(data)))
            if branch is not None or how == "append":
                return await self._insert(table_id, branch, content.data, how)
            result = await self._create(table_id, how, content)
        assert result.dataset is not None
        return result.dataset

    async def _create(self, id: TableId, mode: str, content: Content) -> TableAndDataset:
        make = {"create": creating.create, "existok": creating.keep_or_create, "overwrite": creating.overwrite}[mode]
        try:
            return await make(self._backend, self._opener, id, content)
        finally:
            self._locator.forget(id)

    async def _insert(self, id: TableId, branch: str | None, rows: Any, mode: str) -> LanceDataset:
        work = partial(writing.insert, self._opener, branch=branch, data=rows, mode=mode)
        return await self._on_table(id, work)

    async def _on_table(self, id: TableId, work: Callable[[Table], T]) -> T:
        """Returns the result of `work`, which may write the first version of the table."""
        table = await self._locator.locate(id)
        async with concurrent_changes.explain(self._backend, table):
            return await in_thread(table, lambda: work(table), changes=True, kind="writing")


def _common_value(request: ExplainTableQueryPlanRequest, query: QueryTableRequest, field: str) -> Any:
    """Returns the value of a field that the request and its query may both have; they must not differ."""
    ours, theirs = getattr(request, field), getattr(query, field)
    if ours and theirs and ours != theirs:
        raise InvalidInputError(f"query.{field} {theirs!r}: the request itself has {ours!r}; omit one of them")
    return ours or theirs


def _number(version: object) -> int:
    try:
        return operator.index(version)  # type: ignore[arg-type]  # other types raise TypeError
    except TypeError:
        raise InvalidInputError(f"version {version!r}: must be a number or the name of a tag") from None
