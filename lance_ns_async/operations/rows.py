"""The operations on the rows of tables."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import lance_namespace as spec
import pyarrow as pa
from lance_namespace.errors import InternalError, InvalidInputError, UnsupportedOperationError

from lance_ns_async.lifecycle import concurrent_changes, creating, writing
from lance_ns_async.lifecycle.creating import Content, TableAndDataset
from lance_ns_async.model import Table, TableId
from lance_ns_async.operations import requests, searching
from lance_ns_async.operations.requests import operation, passed_on
from lance_ns_async.operations.tables import describe_table
from lance_ns_async.session import Session
from lance_ns_async.spec.responses import CreateTableResponse, QueryTableResponse
from lance_ns_async.storage import arrow
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.sql_bounds import Texts
from lance_ns_async.storage.threads import aside, in_thread

if TYPE_CHECKING:
    from lance import LanceDataset

T = TypeVar("T")

_PART_BYTES = 32 * 2**20  # Approximate size of the response to a query for a part of a scan.
_FIRST_PART_ROWS = 8
"""Rows of the first part of a scan, from which the number of rows of the following parts is derived."""


@passed_on
@operation
async def create_table(
    session: Session, request: spec.CreateTableRequest, request_data: bytes | pa.RecordBatchReader
) -> CreateTableResponse:
    id = session.table(request.id)
    mode = requests.word(request.mode, "mode", ("create", "exist_ok", "overwrite"))
    with session.operation():
        rows = await aside(lambda: arrow.rows(request_data))
        result = await _create(session, id, mode, Content(rows, request.properties, request.storage_options))
    answer = requests.registration(result.table)
    return CreateTableResponse(
        location=answer.location,
        version=None if result.dataset is None else result.dataset.version,
        storage_options=answer.storage_options,
        properties=answer.properties,
    )


@passed_on
@operation
async def insert_into_table(
    session: Session, request: spec.InsertIntoTableRequest, request_data: bytes | pa.RecordBatchReader
) -> spec.InsertIntoTableResponse:
    id = session.table(request.id)
    mode = requests.word(request.mode, "mode", ("append", "overwrite"))
    with session.operation():
        rows = await aside(lambda: arrow.rows(request_data))
        dataset = await _insert(session, id, request.branch, rows, mode)
    return spec.InsertIntoTableResponse(num_inserted_rows=rows.num_rows, version=dataset.version)


@passed_on
@operation
async def merge_insert_into_table(
    session: Session, request: spec.MergeInsertIntoTableRequest, request_data: bytes | pa.RecordBatchReader
) -> spec.MergeInsertIntoTableResponse:
    id = session.table(request.id)
    timeout = writing.check_merge(request)
    await session.check_sql(writing.merge_texts(request))
    with session.operation():
        rows = await aside(lambda: arrow.rows(request_data))
        counts, version = await _on_table(
            session, id, lambda table: writing.merge(session.opener, table, request, rows, timeout)
        )
    return spec.MergeInsertIntoTableResponse(
        num_updated_rows=counts["num_updated_rows"],
        num_inserted_rows=counts["num_inserted_rows"],
        num_deleted_rows=counts["num_deleted_rows"],
        version=version,
    )


@passed_on
@operation
async def update_table(session: Session, request: spec.UpdateTableRequest) -> spec.UpdateTableResponse:
    new = writing.updates(request.updates)
    if request.properties:
        raise UnsupportedOperationError(
            "Not supported: properties in update_table (the catalog stores them, not the table); "
            "to change them, use register_table with mode overwrite"
        )
    await session.check_sql(
        Texts({"predicate": request.predicate}, {f"updates: {name}": sql for name, sql in new.items()})
    )
    snapshot = Snapshot(branch=request.branch)
    count, version = await session.change(
        request.id, lambda it, _: writing.update(it, new, request.predicate), snapshot
    )
    return spec.UpdateTableResponse(updated_rows=count, version=version)


@passed_on
@operation
async def delete_from_table(session: Session, request: spec.DeleteFromTableRequest) -> spec.DeleteFromTableResponse:
    await session.check_sql(Texts({"predicate": request.predicate}))
    snapshot = Snapshot(branch=request.branch)
    version = await session.change(request.id, lambda it, _: writing.delete(it, request.predicate), snapshot)
    return spec.DeleteFromTableResponse(version=version)


@passed_on
@operation
async def count_table_rows(session: Session, request: spec.CountTableRowsRequest) -> spec.CountTableRowsResponse:
    await session.check_sql(Texts({"predicate": request.predicate}))
    snapshot = Snapshot(request.version, branch=request.branch)
    count = await session.read(request.id, lambda it, _: searching.count(it, request.predicate), snapshot)
    return spec.CountTableRowsResponse(count=count)


@passed_on
@operation
async def query_table(session: Session, request: spec.QueryTableRequest) -> spec.QueryTableResponse:
    searching.check(request)
    await session.check_sql(searching.texts(request))
    snapshot = Snapshot(request.version, branch=request.branch)
    return QueryTableResponse(data=await session.read(request.id, lambda it, _: searching.query(it, request), snapshot))


@passed_on
@operation
async def explain_table_query_plan(session: Session, request: spec.ExplainTableQueryPlanRequest) -> str:
    query, verbose = request.query, bool(request.verbose)
    searching.check(query)
    await session.check_sql(searching.texts(query))
    id, branch = (_common_value(request, query, field) for field in ("id", "branch"))
    snapshot = Snapshot(query.version, branch=branch)
    return await session.read(id, lambda it, _: searching.explain_plan(it, query, verbose=verbose), snapshot)


@passed_on
@operation
async def analyze_table_query_plan(session: Session, request: spec.AnalyzeTableQueryPlanRequest) -> str:
    searching.check(request)
    await session.check_sql(searching.texts(request))
    snapshot = Snapshot(request.version, branch=request.branch)
    return await session.read(request.id, lambda it, _: searching.analyze(it, request), snapshot)


async def scan_groups(
    session: Session,
    id: Iterable[str],
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,
    version: int | None = None,
    branch: str | None = None,
) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    table_id = session.table(id)
    fields = {
        "id": list(table_id),
        "vector": {},
        "k": searching.MAX_ROWS,
        "columns": None if columns is None else {"column_names": list(columns)},
        "filter": filter,
        "version": version,
        "branch": branch,
    }
    request = requests.parse(spec.QueryTableRequest, fields)
    searching.check(request)
    groups = _scan_parts if session.backend.passes_on("query_table") else _scan_batches
    async with aclosing(groups(session, table_id, request)) as scanned:
        async for group in scanned:
            yield group


async def _scan_batches(
    session: Session, id: TableId, query: spec.QueryTableRequest
) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    """Yields the rows of a query as Lance reads them."""
    await session.check_sql(searching.texts(query))
    with session.operation():
        table = await session.locator.locate(id)
        reader = await session.open_and_run(
            table,
            lambda dataset: searching.scan(dataset, query).to_reader(),
            Snapshot(query.version, branch=query.branch),
        )
    while True:
        with session.operation():
            batch = await in_thread(table, lambda: next(reader, None))
        if batch is None:
            return
        yield [batch]


async def _scan_parts(
    session: Session, id: TableId, query: spec.QueryTableRequest
) -> AsyncGenerator[Sequence[pa.RecordBatch], None]:
    """Yields the rows of a query by queries for parts of one version, which the server answers."""
    version = query.version
    if version is None:
        request = spec.DescribeTableRequest(id=list(id), branch=query.branch, load_detailed_metadata=True)
        version = (await describe_table(session, request)).version
    offset, count = 0, _FIRST_PART_ROWS
    while True:
        part = query.model_copy(update={"version": version, "offset": offset, "k": count})
        try:
            data = cast("bytes", (await query_table(session, part)).data)
        except (InvalidInputError, InternalError):
            # The server may limit the size of a response, and `max_response_bytes` does.
            if count == 1:
                raise
            count = max(1, count // 8)
            continue
        rows = await aside(partial(arrow.content, data))
        # A server may return fewer rows than requested, so only an empty part is the end.
        if not rows.num_rows:
            return
        yield rows.to_batches()
        offset += rows.num_rows
        count = max(1, min(rows.num_rows * _PART_BYTES // max(len(data), 1), 10 * rows.num_rows))


async def write(
    session: Session,
    id: Iterable[str],
    data: Any,
    *,
    mode: Literal["create", "append", "overwrite"] = "create",
    branch: str | None = None,
) -> LanceDataset:
    table_id = session.table(id)
    how = requests.word(mode, "mode", ("create", "append", "overwrite"))
    if branch is not None and how == "create":
        raise InvalidInputError(
            f"branch {branch!r}: mode create creates a table, which has only the branch main; omit the branch"
        )
    with session.operation():
        content = Content(await aside(lambda: arrow.readable(data)))
        if branch is not None or how == "append":
            return await _insert(session, table_id, branch, content.data, how)
        result = await _create(session, table_id, how, content)
    assert result.dataset is not None
    return result.dataset


async def _create(session: Session, id: TableId, mode: str, content: Content) -> TableAndDataset:
    make = {"create": creating.create, "exist_ok": creating.keep_or_create, "overwrite": creating.overwrite}[mode]
    try:
        return await make(session.backend, session.opener, id, content)
    finally:
        session.locator.forget(id)


async def _insert(session: Session, id: TableId, branch: str | None, rows: Any, mode: str) -> LanceDataset:
    work = partial(writing.insert, session.opener, branch=branch, data=rows, mode=mode)
    return await _on_table(session, id, work)


async def _on_table(session: Session, id: TableId, work: Callable[[Table], T]) -> T:
    """Returns the result of `work`, which may write the first version of the table."""
    return await _at(session, await session.locator.locate(id), work)


async def append(session: Session, table: Table, rows: Any) -> LanceDataset:
    """Appends rows to a table that is already located."""
    return await _at(session, table, partial(writing.insert, session.opener, branch=None, data=rows, mode="append"))


async def _at(session: Session, table: Table, work: Callable[[Table], T]) -> T:
    async with concurrent_changes.explain_conflict(session.backend, table):
        return await in_thread(table, lambda: work(table), changes=True, kind="writing")


def _common_value(request: spec.ExplainTableQueryPlanRequest, query: spec.QueryTableRequest, field: str) -> Any:
    """Returns the value of a field that the request and its query may both have; they must not differ."""
    ours, theirs = getattr(request, field), getattr(query, field)
    if ours and theirs and ours != theirs:
        raise InvalidInputError(f"query.{field} {theirs!r}: the request itself has {ours!r}; omit one of them")
    return ours or theirs
