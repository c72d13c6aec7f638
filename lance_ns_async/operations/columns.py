"""The operations on columns and their metadata."""

from __future__ import annotations

import lance_namespace as spec
from lance_namespace.errors import (
    InvalidInputError,
)

from lance_ns_async.operations import dataset_columns as columns
from lance_ns_async.operations import requests
from lance_ns_async.operations.remote import passed_on
from lance_ns_async.operations.requests import FieldsOrId
from lance_ns_async.session import Session
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.sql_bounds import Texts


@passed_on
async def alter_table_add_columns(
    session: Session, request: spec.AlterTableAddColumnsRequest | FieldsOrId
) -> spec.AlterTableAddColumnsResponse:
    request = requests.parse(spec.AlterTableAddColumnsRequest, request)
    new = columns.additions(request.new_columns)
    await session.check_sql(Texts(values={f"new_columns: {name}": sql for name, sql in new.items()}))
    snapshot = Snapshot(branch=request.branch)
    return spec.AlterTableAddColumnsResponse(
        version=await session.change(request.id, lambda it, _: columns.add(it, new), snapshot)
    )


@passed_on
async def alter_table_alter_columns(
    session: Session, request: spec.AlterTableAlterColumnsRequest | FieldsOrId
) -> spec.AlterTableAlterColumnsResponse:
    request = requests.parse(spec.AlterTableAlterColumnsRequest, request)
    changes = columns.alterations(request.alterations)
    snapshot = Snapshot(branch=request.branch)
    return spec.AlterTableAlterColumnsResponse(
        version=await session.change(request.id, lambda it, _: columns.alter(it, changes), snapshot)
    )


@passed_on
async def alter_table_drop_columns(
    session: Session, request: spec.AlterTableDropColumnsRequest | FieldsOrId
) -> spec.AlterTableDropColumnsResponse:
    request = requests.parse(spec.AlterTableDropColumnsRequest, request)
    if not request.columns:
        raise InvalidInputError("columns: must not be empty")
    snapshot = Snapshot(branch=request.branch)
    return spec.AlterTableDropColumnsResponse(
        version=await session.change(request.id, lambda it, _: columns.drop(it, request.columns), snapshot)
    )


@passed_on
async def update_table_schema_metadata(
    session: Session, request: spec.UpdateTableSchemaMetadataRequest | FieldsOrId
) -> spec.UpdateTableSchemaMetadataResponse:
    request = requests.parse(spec.UpdateTableSchemaMetadataRequest, request)
    entries = request.metadata or {}
    snapshot = Snapshot(branch=request.branch)
    metadata = await session.change(request.id, lambda it, _: columns.update_schema_metadata(it, entries), snapshot)
    return spec.UpdateTableSchemaMetadataResponse(metadata=dict(metadata))


@passed_on
async def update_field_metadata(
    session: Session, request: spec.UpdateFieldMetadataRequest | FieldsOrId
) -> spec.UpdateFieldMetadataResponse:
    request = requests.parse(spec.UpdateFieldMetadataRequest, request)
    updates, replace = columns.field_updates(request.updates)
    version, fields = await session.change(
        request.id,
        lambda it, _: columns.update_field_metadata(it, updates, replace=replace),
        Snapshot(branch=request.branch),
    )
    return spec.UpdateFieldMetadataResponse(version=version, fields={path: dict(it) for path, it in fields.items()})
