"""The spec's operations on a table's rows, and opening and writing tables as Python has them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

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

from lance_ns_async.calls.concurrency import in_slices
from lance_ns_async.engine.describe import Progress
from lance_ns_async.engine.locate import located
from lance_ns_async.model import Table, TableId
from lance_ns_async.namespace import requests
from lance_ns_async.namespace.requests import Fields
from lance_ns_async.namespace.unsupported import Unserved
from lance_ns_async.namespace.upkeep import TableUpkeep
from lance_ns_async.responses import CreateEmptyTableResponse, CreateTableResponse
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import aside, in_thread
from lance_ns_async.tables import arrow, creating, meanwhile, reading, searching, writing
from lance_ns_async.tables.creating import Content, Made
from lance_ns_async.tables.filters import Texts
from lance_ns_async.tables.open_many import Opened, open_many

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")


class DataOperations(TableUpkeep, Unserved):
    """What is done with rows. Costs one call, and an open of the dataset in a worker thread.

    Nothing that changes a table is ever sent twice: after a time-out the error says that the outcome is unknown.
    """

    async def create_table(self, request: CreateTableRequest | Fields, request_data: bytes) -> CreateTableResponse:
        """Declares a table and writes the rows of an Arrow IPC stream to it; where that fails, neither stays.

        Mode ExistOk keeps one that is registered, even if nothing was written to it yet; Overwrite writes a version
        that replaces all its rows and columns, and its properties where some are given.
        """
        request = requests.coerced(CreateTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("create", "existok", "overwrite"))
        with self._operation():
            rows = await aside(lambda: arrow.rows(request_data))
            made = await self._made(id, mode, Content(rows, request.properties, request.storage_options))
        answer = requests.registration(made.table)
        return CreateTableResponse(
            location=answer.location,
            version=None if made.dataset is None else made.dataset.version,
            storage_options=answer.storage_options,
            properties=answer.properties,
        )

    async def create_empty_table(self, request: CreateEmptyTableRequest | Fields) -> CreateEmptyTableResponse:
        """What `declare_table` does, which took its place in the spec. Mode ExistOk keeps one that is there."""
        request = requests.coerced(CreateEmptyTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("create", "existok"))
        with self._operation():
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

    async def insert_into_table(
        self, request: InsertIntoTableRequest | Fields, request_data: bytes
    ) -> InsertIntoTableResponse:
        """Adds the rows of an Arrow IPC stream, or with mode Overwrite has them replace all that there are.

        The first version of a table that was only declared is written so, too.
        """
        request = requests.coerced(InsertIntoTableRequest, request)
        id = self._table(request.id)
        mode = requests.word(request.mode, "mode", ("append", "overwrite"))
        with self._operation():
            rows = await aside(lambda: arrow.rows(request_data))
            written = await self._inserted(id, request.branch, rows, mode)
        return InsertIntoTableResponse(num_inserted_rows=rows.num_rows, version=written.version)

    async def merge_insert_into_table(
        self, request: MergeInsertIntoTableRequest | Fields, request_data: bytes
    ) -> MergeInsertIntoTableResponse:
        """Merges the rows of an Arrow IPC stream into a table: updates, inserts, deletes, all in one version.

        Where rows are inserted, the first version of a table that was only declared is written so, too.
        """
        request = requests.coerced(MergeInsertIntoTableRequest, request)
        id = self._table(request.id)
        timeout = writing.check_merge(request)
        await self._check(writing.merge_texts(request))
        with self._operation():
            rows = await aside(lambda: arrow.rows(request_data))
            table, (counts, version, made) = await self._on_table(
                id, lambda table: writing.merge(self._opener, table, request, rows, timeout)
            )
            if made is not None:
                await creating.confirm(self._backend, table, made)
        return MergeInsertIntoTableResponse(
            num_updated_rows=counts["num_updated_rows"],
            num_inserted_rows=counts["num_inserted_rows"],
            num_deleted_rows=counts["num_deleted_rows"],
            version=version,
        )

    async def update_table(self, request: UpdateTableRequest | Fields) -> UpdateTableResponse:
        """Sets columns to what SQL expressions give, in all rows or in those that fit the predicate."""
        request = requests.coerced(UpdateTableRequest, request)
        new = writing.updates(request.updates)
        if request.properties:
            raise UnsupportedOperationError(
                "Not supported: properties in update_table (catalogs keep them, not the table); "
                "register_table with mode Overwrite changes them"
            )
        await self._check(
            Texts({"predicate": request.predicate}, {f"updates: {name}": sql for name, sql in new.items()})
        )
        snapshot = Snapshot(branch=request.branch)
        count, version = await self._change(
            request.id, lambda it, _: writing.update(it, new, request.predicate), snapshot
        )
        return UpdateTableResponse(updated_rows=count, version=version)

    async def delete_from_table(self, request: DeleteFromTableRequest | Fields) -> DeleteFromTableResponse:
        """Deletes the rows that fit the predicate; old versions keep them."""
        request = requests.coerced(DeleteFromTableRequest, request)
        await self._check(Texts({"predicate": request.predicate}))
        snapshot = Snapshot(branch=request.branch)
        version = await self._change(request.id, lambda it, _: writing.delete(it, request.predicate), snapshot)
        return DeleteFromTableResponse(version=version)

    async def count_table_rows(self, request: CountTableRowsRequest | Fields) -> CountTableRowsResponse:
        """How many rows there are, or how many that fit the predicate."""
        request = requests.coerced(CountTableRowsRequest, request)
        await self._check(Texts({"predicate": request.predicate}))
        snapshot = Snapshot(request.version, branch=request.branch)
        count = await self._read(request.id, lambda it, _: reading.count(it, request.predicate), snapshot)
        return CountTableRowsResponse(count=count)

    async def query_table(self, request: QueryTableRequest | Fields) -> QueryTableResponse:
        """The `k` rows nearest to a vector, or best for a text, or the first that fit a filter; an Arrow IPC file.

        An empty vector searches for none. Searched rows come with their `_distance` or `_score`; several vectors
        give `k` rows each, and a column `query_index` tells which is whose.
        """
        request = requests.coerced(QueryTableRequest, request)
        searching.check(request)
        await self._check(searching.texts(request))
        snapshot = Snapshot(request.version, branch=request.branch)
        return QueryTableResponse(data=await self._read(request.id, lambda it, _: reading.query(it, request), snapshot))

    async def explain_table_query_plan(self, request: ExplainTableQueryPlanRequest | Fields) -> str:
        """How a query would be run."""
        request = requests.coerced(ExplainTableQueryPlanRequest, request)
        query, verbose = request.query, bool(request.verbose)
        searching.check(query)
        await self._check(searching.texts(query))
        id, branch = (_agreed(request, query, field) for field in ("id", "branch"))
        snapshot = Snapshot(query.version, branch=branch)
        return await self._read(id, lambda it, _: reading.explain(it, query, verbose=verbose), snapshot)

    async def analyze_table_query_plan(self, request: AnalyzeTableQueryPlanRequest | Fields) -> str:
        """How a query was run, and what each step took; runs it."""
        request = requests.coerced(AnalyzeTableQueryPlanRequest, request)
        searching.check(request)
        await self._check(searching.texts(request))
        snapshot = Snapshot(request.version, branch=request.branch)
        return await self._read(request.id, lambda it, _: reading.analyze(it, request), snapshot)

    async def open(
        self, id: Iterable[str], *, version: int | str | None = None, branch: str | None = None
    ) -> LanceDataset:
        """The dataset of a table, at a version or a tag, or else at the latest version, of a branch or of the main one.

        It stays open when this namespace is closed, and asks the catalog itself for credentials when those it has
        expire, from a connection of its own. Reading it blocks: use threads.
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
    ) -> Opened:
        """Opens many tables side by side, each once; one that fails is in `errors` and spoils no other.

        Costs an open each, and a call each, or what `describe_tables` costs where the catalog has no credentials to
        give. The limits are those of `describe_tables`.
        """
        with self._within(timeout):
            checked = await in_slices(self._table, ids)
            return await open_many(
                self._backend, self._opener, checked, max_in_flight=self._workers(max_in_flight), progress=progress
            )

    async def write(
        self,
        id: Iterable[str],
        data: Any,
        *,
        mode: Literal["create", "append", "overwrite"] = "create",
        branch: str | None = None,
    ) -> LanceDataset:
        """Writes Arrow data to a table and gives its dataset, which is as `open` gives it.

        Create declares the table first, and if it fails neither stays; append needs one that is declared; overwrite
        takes both. A branch must be there. `data` is a pyarrow table, reader or dataset, or a data frame that has
        `__arrow_c_stream__`. Given up, by a time-out, a cancellation or an interrupt, it ends at its next batch of rows
        and commits nothing; once it has read its last, it may take effect.
        """
        checked = self._table(id)
        how = requests.word(mode, "mode", ("create", "append", "overwrite"))
        if branch is not None and how == "create":
            raise InvalidInputError(f"branch {branch!r}: mode create makes a table, whose branch is main; leave it out")
        with self._operation():
            content = Content(await aside(lambda: arrow.readable(data)))
            if branch is not None or how == "append":
                return await self._inserted(checked, branch, content.data, how)
            made = await self._made(checked, how, content)
        assert made.dataset is not None
        return made.dataset

    async def _made(self, id: TableId, mode: str, content: Content) -> Made:
        make = {"create": creating.create, "existok": creating.keep_or_create, "overwrite": creating.overwrite}[mode]
        return await make(self._backend, self._opener, id, content)

    async def _inserted(self, id: TableId, branch: str | None, rows: Any, mode: str) -> LanceDataset:
        work = partial(writing.insert, self._opener, branch=branch, data=rows, mode=mode)
        table, (dataset, made) = await self._on_table(id, work)
        if made is not None:
            await creating.confirm(self._backend, table, made)
        return dataset

    async def _on_table(self, id: TableId, work: Callable[[Table], T]) -> tuple[Table, T]:
        """The table, and what `work` gives, which writes to it though it may have no version yet."""
        table = await located(self._backend, id)
        async with meanwhile.explained(self._backend, table):
            return table, await in_thread(table, lambda: work(table), changes=True, reads=True)


def _agreed(request: ExplainTableQueryPlanRequest, query: QueryTableRequest, field: str) -> Any:
    """What both say of a field, or the one that says anything."""
    ours, theirs = getattr(request, field), getattr(query, field)
    if ours and theirs and ours != theirs:
        raise InvalidInputError(f"query.{field} {theirs!r}: the request itself says {ours!r}; leave one of them out")
    return ours or theirs


def _number(version: object) -> int:
    try:
        return operator.index(version)  # type: ignore[arg-type]  # whatever is none raises
    except TypeError:
        raise InvalidInputError(f"version {version!r}: it is a number, or the name of a tag") from None
