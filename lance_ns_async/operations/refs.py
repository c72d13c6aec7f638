"""The operations on tags and branches."""

from __future__ import annotations

import lance_namespace as spec

from lance_ns_async.operations import dataset_refs as refs
from lance_ns_async.operations import requests
from lance_ns_async.operations.pages import page_of
from lance_ns_async.operations.remote import passed_on
from lance_ns_async.operations.requests import FieldsOrId
from lance_ns_async.session import Session


@passed_on
async def list_table_tags(
    session: Session, request: spec.ListTableTagsRequest | FieldsOrId
) -> spec.ListTableTagsResponse:
    request = requests.parse(spec.ListTableTagsRequest, request)
    tags = await session.read(request.id, lambda it, _: refs.tags(it))
    page, token = await page_of(tags, request.limit, request.page_token)
    return spec.ListTableTagsResponse(tags=page, page_token=token)


@passed_on
async def get_table_tag_version(
    session: Session, request: spec.GetTableTagVersionRequest | FieldsOrId
) -> spec.GetTableTagVersionResponse:
    request = requests.parse(spec.GetTableTagVersionRequest, request)
    tag = await session.read(request.id, lambda it, table: refs.tag(it, table, request.tag))
    return spec.GetTableTagVersionResponse(version=tag.version, branch=tag.branch)


@passed_on
async def create_table_tag(
    session: Session, request: spec.CreateTableTagRequest | FieldsOrId
) -> spec.CreateTableTagResponse:
    request = requests.parse(spec.CreateTableTagRequest, request)
    tag, version, branch = request.tag, request.version, request.branch
    await session.change(request.id, lambda it, table: refs.create_tag(it, table, tag, version, branch))
    return spec.CreateTableTagResponse()


@passed_on
async def update_table_tag(
    session: Session, request: spec.UpdateTableTagRequest | FieldsOrId
) -> spec.UpdateTableTagResponse:
    request = requests.parse(spec.UpdateTableTagRequest, request)
    tag, version, branch = request.tag, request.version, request.branch
    await session.change(request.id, lambda it, table: refs.update_tag(it, table, tag, version, branch))
    return spec.UpdateTableTagResponse()


@passed_on
async def delete_table_tag(
    session: Session, request: spec.DeleteTableTagRequest | FieldsOrId
) -> spec.DeleteTableTagResponse:
    request = requests.parse(spec.DeleteTableTagRequest, request)
    await session.change(request.id, lambda it, _: refs.delete_tag(it, request.tag))
    return spec.DeleteTableTagResponse()


@passed_on
async def create_table_branch(
    session: Session, request: spec.CreateTableBranchRequest | FieldsOrId
) -> spec.CreateTableBranchResponse:
    request = requests.parse(spec.CreateTableBranchRequest, request)
    name, source, version = request.name, request.from_branch, request.from_version
    await session.change(request.id, lambda it, table: refs.create_branch(it, table, name, source, version))
    return spec.CreateTableBranchResponse()


@passed_on
async def list_table_branches(
    session: Session, request: spec.ListTableBranchesRequest | FieldsOrId
) -> spec.ListTableBranchesResponse:
    request = requests.parse(spec.ListTableBranchesRequest, request)
    branches = await session.read(request.id, lambda it, _: refs.branches(it))
    page, token = await page_of(branches, request.limit, request.page_token)
    return spec.ListTableBranchesResponse(branches=page, page_token=token)


@passed_on
async def delete_table_branch(
    session: Session, request: spec.DeleteTableBranchRequest | FieldsOrId
) -> spec.DeleteTableBranchResponse:
    request = requests.parse(spec.DeleteTableBranchRequest, request)
    await session.change(request.id, lambda it, table: refs.delete_branch(it, table, request.name))
    return spec.DeleteTableBranchResponse()
