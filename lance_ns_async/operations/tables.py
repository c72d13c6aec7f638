"""The operations on the registrations of tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TypeAlias, cast

import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa

from lance_ns_async.backends import operations
from lance_ns_async.calls.paging import take
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.engine.describe import describe_tables
from lance_ns_async.engine.list import Lister
from lance_ns_async.engine.locate import locate
from lance_ns_async.lifecycle import creating, dropping, replacing, retention
from lance_ns_async.lifecycle.claims import Claims
from lance_ns_async.model import DELIMITER, NamespaceId, Page, Table, TableId
from lance_ns_async.operations import requests, searching
from lance_ns_async.operations.requests import operation, pass_on, passed_on
from lance_ns_async.session import Session, traced
from lance_ns_async.settings import seconds as seconds_of
from lance_ns_async.spec.responses import CreateTableResponse, ListTablesResponse
from lance_ns_async.storage import datasets
from lance_ns_async.storage.datasets import LATEST, Snapshot

Keep: TypeAlias = float | str | timedelta
"""How long a dropped table can be brought back: seconds, a text such as `7d`, or a timedelta."""


def retention_of(session: Session, keep: Keep | None) -> float:
    """Returns the seconds for which a dropped table is kept; None means the property of the catalog."""
    return session.drop_retention if keep is None else seconds_of("keep", keep)


@traced
@operation
async def list_tables(session: Session, request: spec.ListTablesRequest) -> spec.ListTablesResponse:
    if request.include_declared is False and session.backend.passes_on("list_tables"):
        return cast(spec.ListTablesResponse, await pass_on(session, "list_tables", request))
    parent, limit, token = session.namespace(request.id), request.limit, request.page_token
    lister = session.lister()

    async def fetch(token: str | None, size: int | None) -> Page[str]:
        return lister.sort(await session.backend.list_tables(parent, token, size))

    with session.operation():
        if len(parent) < session.backend.capabilities.min_depth:
            await operations.describe_namespace(session.backend, parent)
            return ListTablesResponse(tables=[])
        if request.include_declared is False:
            page = await take(fetch, partial(_select_written, session, lister, parent), limit=limit, page_token=token)
        else:
            page = await lister.page(parent, limit, token)
    return ListTablesResponse(tables=list(page.items), page_token=page.token)


@traced
@operation
async def list_all_tables(session: Session, request: spec.ListTablesRequest) -> spec.ListTablesResponse:
    keep = partial(_select_written, session, session.lister()) if request.include_declared is False else None
    with session.operation():
        page = await session.tree(request.id).page(request.limit, request.page_token, keep)
    return ListTablesResponse(tables=[DELIMITER.join(id) for id in page.items], page_token=page.token)


@operation
async def describe_table(session: Session, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
    is_latest = request.version is None and request.tag is None and request.branch is None
    snapshot = LATEST if is_latest else Snapshot(request.version, request.tag, request.branch)
    with_details = bool(request.load_detailed_metadata or snapshot != LATEST)
    opens = with_details or bool(request.check_declared)
    if opens and session.backend.passes_on("describe_table"):
        return cast(spec.DescribeTableResponse, await pass_on(session, "describe_table", request))
    details, is_only_declared = None, None
    with session.operation():
        table = await _describe(session, session.table(request.id), request.vend_credentials, opens=opens)
        if request.check_declared:
            is_only_declared = table.version is None and await datasets.is_only_declared(table)
        if with_details and not is_only_declared:
            details = await session.open_and_run(table, datasets.read_details, snapshot)
    return requests.description(
        table,
        with_uri=request.with_table_uri,
        details=details,
        is_only_declared=is_only_declared,
        wants_schema=request.load_detailed_metadata,
    )


@operation
async def table_exists(session: Session, request: spec.TableExistsRequest) -> spec.TableExistsResponse:
    if request.version is not None and session.backend.passes_on("table_exists"):
        return cast(spec.TableExistsResponse, await pass_on(session, "table_exists", request))
    with session.operation():
        table = await _describe(session, session.table(request.id), None, opens=request.version is not None)
        if request.version is not None:
            await session.open_and_run(table, lambda dataset: None, Snapshot(request.version))
    return spec.TableExistsResponse()


@operation
async def declare_table(
    session: Session, request: spec.DeclareTableRequest, *, schema: pa.Schema | None = None
) -> spec.DeclareTableResponse:
    id = session.table(request.id)
    if request.location is not None:
        session.backend.check_location(id, request.location)
    with session.changing(id):
        can = session.backend.capabilities
        place = request.location
        if place is not None:
            session.backend.check_declaration(id, place, request.properties or {})
            await Claims(session.backend).check_unclaimed(id, place)
        else:
            session.backend.check_declaration(id, None, request.properties or {})
            try:
                place, _ = await creating.check_default_location(session.backend, id)
            except creating.DataThereError:
                raise
            except (
                err.InternalError,
                err.PermissionDeniedError,
                err.ServiceUnavailableError,
                err.UnauthenticatedError,
            ):
                # Credentials for the catalog may not be valid for the storage. Data of another table is likely at
                # the location only if the catalog can rename tables.
                if can.renames:
                    raise
        table = await creating.declare_at(session.backend, id, place, request.properties or {}, schema)
        vends = can.vends_by_default if request.vend_credentials is None else request.vend_credentials
        if can.vends and vends:
            async with rollback(partial(creating.undo_declaration, session.backend, table)):
                table = await locate(session.backend, id)
    return requests.registration(table)


@operation
async def register_table(session: Session, request: spec.RegisterTableRequest) -> spec.RegisterTableResponse:
    id = session.table(request.id)
    mode = requests.word(request.mode, "mode", ("create", "overwrite"))
    properties = request.properties or {}
    session.backend.check_location(id, request.location)
    with session.changing(id):
        session.backend.check_declaration(id, request.location, properties)
        await Claims(session.backend).check_unclaimed(id, request.location)
        if mode == "overwrite":
            table = await replacing.register(session.backend, id, request.location, properties)
        else:
            table = await session.backend.register_table(id, request.location, properties)
    answer = requests.registration(table)
    return spec.RegisterTableResponse(location=answer.location, properties=answer.properties)


@operation
async def deregister_table(session: Session, request: spec.DeregisterTableRequest) -> spec.DeregisterTableResponse:
    id = session.table(request.id)
    with session.changing(id):
        table = await session.backend.deregister_table(id)
    answer = requests.registration(table)
    return spec.DeregisterTableResponse(id=list(table.id), location=answer.location, properties=answer.properties)


@operation
async def drop_table(
    session: Session, request: spec.DropTableRequest, *, keep: Keep | None = None
) -> spec.DropTableResponse:
    id = session.table(request.id)
    seconds = retention_of(session, keep)

    async def retain(table: Table) -> None:
        await retention.drop(session.backend, table, session.catalog, seconds)

    with session.changing(id):
        table = await dropping.drop(session.backend, id, retain if seconds else None)
    answer = requests.registration(table)
    return spec.DropTableResponse(id=list(table.id), location=answer.location, properties=answer.properties)


@operation
async def rename_table(session: Session, request: spec.RenameTableRequest) -> spec.RenameTableResponse:
    id = session.table(request.id)
    to = session.table([*(request.new_namespace_id or id.parent), request.new_table_name])
    with session.changing(id, to):
        await session.backend.describe_table(id)
        await session.backend.rename_table(id, to)
    return spec.RenameTableResponse()


@operation
async def create_empty_table(session: Session, request: spec.CreateEmptyTableRequest) -> CreateTableResponse:
    id = session.table(request.id)
    mode = requests.word(request.mode, "mode", ("create", "exist_ok"))
    with session.changing(id):
        try:
            table = await session.backend.declare_table(id, None, request.properties or {})
        except err.TableAlreadyExistsError:
            if mode != "exist_ok":
                raise
            table = await session.backend.describe_table(id)
    answer = requests.registration(table)
    return CreateTableResponse(
        location=answer.location, storage_options=answer.storage_options, properties=answer.properties
    )


@passed_on
@operation
async def get_table_stats(session: Session, request: spec.GetTableStatsRequest) -> spec.GetTableStatsResponse:
    return await session.read(request.id, lambda it, _: searching.stats(it), Snapshot(branch=request.branch))


async def _describe(session: Session, id: TableId, vend: bool | None, *, opens: bool) -> Table:
    if vend:
        return await session.locator.renew(id)
    if vend is None and (opens or session.backend.capabilities.vends_by_default):
        return await session.locator.locate(id)
    return await session.backend.describe_table(id)


async def _select_written(session: Session, lister: Lister, parent: NamespaceId, names: Sequence[str]) -> Sequence[str]:
    """Returns the names that belong to tables with data."""
    tables = await lister.tables(parent, names)
    if session.backend.capabilities.vends:
        ids, workers = [table.id for table in tables], session.workers()
        result = await describe_tables(session.backend, ids, max_in_flight=workers, locator=session.locator)
        for error in result.errors.values():
            # A table that was dropped meanwhile is no longer in the listing either.
            if not isinstance(error, err.TableNotFoundError):
                raise error
        tables = [result.tables[id] for id in ids if id in result.tables]
    return [table.id.name for table in await datasets.select_written(tables)]
