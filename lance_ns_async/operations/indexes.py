"""The operations on indexes."""

from __future__ import annotations

import lance_namespace as spec

from lance_ns_async.operations import dataset_indexes as indexes
from lance_ns_async.operations import requests
from lance_ns_async.operations.pages import page_of
from lance_ns_async.operations.remote import passed_on
from lance_ns_async.operations.requests import FieldsOrId
from lance_ns_async.session import Session
from lance_ns_async.storage.datasets import Snapshot


@passed_on
async def create_table_index(
    session: Session, request: spec.CreateTableIndexRequest | FieldsOrId
) -> spec.CreateTableIndexResponse:
    request = requests.parse(spec.CreateTableIndexRequest, request)
    indexes.check(request)
    await session.change(request.id, lambda it, _: indexes.create(it, request), Snapshot(branch=request.branch))
    return spec.CreateTableIndexResponse()


@passed_on
async def create_table_scalar_index(
    session: Session, request: spec.CreateTableIndexRequest | FieldsOrId
) -> spec.CreateTableScalarIndexResponse:
    request = requests.parse(spec.CreateTableIndexRequest, request)
    indexes.check_scalar(request)
    await session.change(request.id, lambda it, _: indexes.create(it, request), Snapshot(branch=request.branch))
    return spec.CreateTableScalarIndexResponse()


@passed_on
async def list_table_indices(
    session: Session, request: spec.ListTableIndicesRequest | FieldsOrId
) -> spec.ListTableIndicesResponse:
    request = requests.parse(spec.ListTableIndicesRequest, request)
    snapshot = Snapshot(request.version, branch=request.branch)
    table_indexes = await session.read(request.id, lambda it, _: indexes.list_indexes(it), snapshot)
    page, token = await page_of(table_indexes, request.limit, request.page_token)
    return spec.ListTableIndicesResponse(indexes=list(page.values()), page_token=token)


@passed_on
async def describe_table_index_stats(
    session: Session, request: spec.DescribeTableIndexStatsRequest | FieldsOrId
) -> spec.DescribeTableIndexStatsResponse:
    request = requests.parse(spec.DescribeTableIndexStatsRequest, request)
    name = indexes.check_name(request.index_name)
    snapshot = Snapshot(request.version, branch=request.branch)
    return await session.read(request.id, lambda it, _: indexes.stats(it, name), snapshot)


@passed_on
async def drop_table_index(
    session: Session, request: spec.DropTableIndexRequest | FieldsOrId
) -> spec.DropTableIndexResponse:
    request = requests.parse(spec.DropTableIndexRequest, request)
    name = indexes.check_name(request.index_name)
    await session.change(request.id, lambda it, _: indexes.drop(it, name), Snapshot(branch=request.branch))
    return spec.DropTableIndexResponse()
