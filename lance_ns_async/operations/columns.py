"""The operations on columns and their metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import lance_namespace as spec
import pyarrow as pa
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from lance_namespace_urllib3_client.models.add_columns_entry import AddColumnsEntry
from lance_namespace_urllib3_client.models.alter_columns_entry import AlterColumnsEntry
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType
from lance_namespace_urllib3_client.models.update_field_metadata_entry import UpdateFieldMetadataEntry
from pydantic import ValidationError

from lance_ns_async.operations.requests import operation, passed_on
from lance_ns_async.session import Session
from lance_ns_async.spec.arrow_json import arrow_type
from lance_ns_async.storage import fields, guard
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.sql_bounds import Texts

if TYPE_CHECKING:
    from lance import LanceDataset

_BY_EXPRESSION = "set an expression"


@passed_on
@operation
async def alter_table_add_columns(
    session: Session, request: spec.AlterTableAddColumnsRequest
) -> spec.AlterTableAddColumnsResponse:
    new = additions(request.new_columns)
    await session.check_sql(Texts(values={f"new_columns: {name}": sql for name, sql in new.items()}))
    snapshot = Snapshot(branch=request.branch)
    return spec.AlterTableAddColumnsResponse(
        version=await session.change(request.id, lambda it, _: add(it, new), snapshot)
    )


@passed_on
@operation
async def alter_table_alter_columns(
    session: Session, request: spec.AlterTableAlterColumnsRequest
) -> spec.AlterTableAlterColumnsResponse:
    changes = alterations(request.alterations)
    snapshot = Snapshot(branch=request.branch)
    return spec.AlterTableAlterColumnsResponse(
        version=await session.change(request.id, lambda it, _: alter(it, changes), snapshot)
    )


@passed_on
@operation
async def alter_table_drop_columns(
    session: Session, request: spec.AlterTableDropColumnsRequest
) -> spec.AlterTableDropColumnsResponse:
    if not request.columns:
        raise InvalidInputError("columns: must not be empty")
    snapshot = Snapshot(branch=request.branch)
    return spec.AlterTableDropColumnsResponse(
        version=await session.change(request.id, lambda it, _: drop(it, request.columns), snapshot)
    )


@passed_on
@operation
async def update_table_schema_metadata(
    session: Session, request: spec.UpdateTableSchemaMetadataRequest
) -> spec.UpdateTableSchemaMetadataResponse:
    entries = request.metadata or {}
    snapshot = Snapshot(branch=request.branch)
    metadata = await session.change(request.id, lambda it, _: update_schema_metadata(it, entries), snapshot)
    return spec.UpdateTableSchemaMetadataResponse(metadata=dict(metadata))


@passed_on
@operation
async def update_field_metadata(
    session: Session, request: spec.UpdateFieldMetadataRequest
) -> spec.UpdateFieldMetadataResponse:
    updates, replace = field_updates(request.updates)
    version, fields = await session.change(
        request.id, lambda it, _: set_field_metadata(it, updates, replace=replace), Snapshot(branch=request.branch)
    )
    return spec.UpdateFieldMetadataResponse(version=version, fields={path: dict(it) for path, it in fields.items()})


def additions(entries: Sequence[AddColumnsEntry]) -> Mapping[str, str]:
    """Returns the SQL expressions of the new columns, keyed by name."""
    expressions: dict[str, str] = {}
    for entry in entries:
        if entry.computed is not None or entry.virtual_column is not None:
            kind = "computed" if entry.computed is not None else "virtual"
            raise UnsupportedOperationError(
                f"Not supported: new_columns: {entry.name} ({kind} columns need a service that fills them); "
                f"{_BY_EXPRESSION}"
            )
        if entry.expression is None:
            raise InvalidInputError(f"new_columns: {entry.name}: {_BY_EXPRESSION}")
        if entry.name in expressions:
            raise InvalidInputError(f"new_columns: {entry.name}: duplicate column")
        fields.check_columns([entry.name], "new_columns")
        expressions[entry.name] = entry.expression
    if not expressions:
        raise InvalidInputError("new_columns: must not be empty")
    return expressions


def alterations(entries: Sequence[AlterColumnsEntry]) -> Sequence[Any]:
    """Returns the column changes as arguments for pylance."""
    changes: list[Mapping[str, Any]] = []
    altered_paths: set[tuple[str, ...]] = set()
    new_paths: set[tuple[str, ...]] = set()
    for entry in entries:
        if entry.virtual_column is not None:
            raise UnsupportedOperationError(
                f"Not supported: alterations: {entry.path} (virtual columns need a service that fills them)"
            )
        path = fields.split_path(entry.path)
        if path in altered_paths:
            raise InvalidInputError(f"alterations: {entry.path}: duplicate column; use one entry for all its changes")
        altered_paths.add(path)
        change: dict[str, Any] = {"path": entry.path}
        if entry.rename is not None:
            new = _path_with_name(path, entry.rename)
            if new in new_paths:
                raise InvalidInputError(
                    f"alterations: {entry.path}: another entry has the same new name {entry.rename!r}"
                )
            new_paths.add(new)
            change["name"] = entry.rename
        if entry.nullable is not None:
            change["nullable"] = entry.nullable
        if entry.data_type is not None:
            change["data_type"] = _type(entry.path, entry.data_type)
        if len(change) == 1:
            raise InvalidInputError(f"alterations: {entry.path}: set rename, data_type or nullable")
        changes.append(change)
    if not changes:
        raise InvalidInputError("alterations: must not be empty")
    return changes


def field_updates(entries: Sequence[UpdateFieldMetadataEntry]) -> tuple[Mapping[str, Mapping[str, str | None]], bool]:
    """Returns the metadata keyed by field path, and whether they replace the existing metadata."""
    if not entries:
        raise InvalidInputError("updates: must not be empty")
    if len({bool(entry.replace) for entry in entries}) > 1:
        # Lance commits each kind separately, and a request must not be applied partially.
        raise InvalidInputError("updates: replace must be the same for all entries; use two requests")
    metadata: dict[str, Mapping[str, str | None]] = {}
    for entry in entries:
        path = fields.join_path(fields.split_path(entry.path))
        if path in metadata:
            raise InvalidInputError(f"updates: {path}: duplicate field")
        metadata[path] = entry.metadata
    return metadata, bool(entries[0].replace)


def add(dataset: LanceDataset, new: Mapping[str, str]) -> int:
    """Adds and fills new columns; returns the new version."""
    guard.current().check_built_values(dataset, Texts({}, new))
    dataset.add_columns(dict(new))
    return _version(dataset)


def alter(dataset: LanceDataset, changes: Sequence[Any]) -> int:
    """Renames columns, and changes their types and nullability; returns the new version."""
    _check_siblings(dataset, changes)
    dataset.alter_columns(*changes)
    return _version(dataset)


def drop(dataset: LanceDataset, names: Sequence[str]) -> int:
    """Removes columns; returns the new version."""
    dataset.drop_columns(list(names))
    return _version(dataset)


def update_schema_metadata(dataset: LanceDataset, entries: Mapping[str, str]) -> Mapping[str, str]:
    """Sets entries of the schema's metadata and leaves the others unchanged; returns all entries."""
    metadata: Mapping[str, str] = dataset.update_schema_metadata(dict(entries))
    return metadata


def set_field_metadata(
    dataset: LanceDataset, updates: Mapping[str, Mapping[str, str | None]], *, replace: bool
) -> tuple[int, Mapping[str, Mapping[str, str]]]:
    """Sets entries of fields' metadata; None removes an entry. Returns the new version and the fields' metadata."""
    dataset.update_field_metadata({path: dict(entries) for path, entries in updates.items()}, replace=replace)
    return _version(dataset), {path: _metadata(dataset, path) for path in updates}


def _path_with_name(path: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Returns the path with its last name changed. Raises InvalidInputError for an invalid name at that depth."""
    *above, _ = path
    if above:
        fields.check_name(name, "alterations")
    else:
        fields.check_columns([name], "alterations")
    return (*above, name)


def _check_siblings(dataset: LanceDataset, changes: Sequence[Any]) -> None:
    """Raises InvalidInputError if a sibling field has the new name; Lance does not check this for nested fields."""
    new_names = {fields.split_path(change["path"]): change["name"] for change in changes if "name" in change}
    for (*above, old), name in new_names.items():
        keeping = {it for it in _children(dataset, above) if (*above, it) not in new_names}
        if name in keeping:
            raise InvalidInputError(
                f"alterations: {fields.join_path([*above, old])}: a field {name!r} already exists at this level"
            )


def _children(dataset: LanceDataset, path: Sequence[str]) -> Sequence[str]:
    schema: Any = dataset.lance_schema
    if not path:
        return [field.name() for field in schema.fields()]
    field = schema.field(fields.join_path(path))
    return [] if field is None else [child.name() for child in field.children()]


def _metadata(dataset: LanceDataset, path: str) -> Mapping[str, str]:
    field: Any = dataset.lance_schema.field(path)
    metadata: Mapping[str, str] = field.metadata
    return metadata


def _version(dataset: LanceDataset) -> int:
    version: int = dataset.version
    return version


def _type(path: str, json_type: Mapping[str, Any]) -> pa.DataType:
    try:
        return arrow_type(JsonArrowDataType.model_validate(json_type))
    except ValueError as e:
        if isinstance(e, ValidationError):
            why = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in e.errors(include_url=False))
        else:
            why = str(e)
        raise InvalidInputError(
            f"alterations: {path}: data_type {json.dumps(json_type, default=str)}: not a type in JSON Arrow form "
            f"({why}); write it in the form that describe_table returns for columns"
        ) from e
