"""Columns of tables, their metadata, and a branch with other columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import (
    AlterTableDropColumnsRequest,
    CreateTableBranchRequest,
    CreateTableIndexRequest,
    DropTableIndexRequest,
    GetTableStatsRequest,
    ListTableIndicesRequest,
    RestoreTableRequest,
    UpdateTableSchemaMetadataRequest,
)

from tests.support.errors import catch
from tests.support.lake import ID, ROWS, Lake

pytestmark = [pytest.mark.bare, pytest.mark.environment]


def adding(*columns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": ID, "new_columns": list(columns), **fields}


def typed(path: str, **data_type: Any) -> dict[str, Any]:
    return altering({"path": path, "data_type": data_type})


def altering(*changes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": ID, "alterations": list(changes), **fields}


def annotating(*updates: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": ID, "updates": list(updates), **fields}


async def test_columns_are_added_altered_and_dropped(here: Lake) -> None:
    ns = here.ns
    two = [{"name": "twice", "expression": "id * 2"}, {"name": "loud", "expression": "upper(text)"}]
    assert (await ns.alter_table_add_columns(adding(*two))).version == 2
    assert await here.values("twice") == [2, 4, 6]
    changes: list[dict[str, Any]] = [
        {"path": "twice", "rename": "double", "data_type": {"type": "int32"}},
        {"path": "loud", "rename": "l"},
    ]
    assert (await ns.alter_table_alter_columns(altering(*changes))).version == 3
    assert (await ns.alter_table_alter_columns(altering({"path": "id", "nullable": False}))).version == 4
    schema = (await here.dataset()).schema
    assert schema.field("double").type == pa.int32() and not schema.field("id").nullable
    request = AlterTableDropColumnsRequest(id=ID, columns=["double", "l"])
    assert (await ns.alter_table_drop_columns(request)).version == 5
    assert (await here.dataset()).schema.names == ["id", "text", "v"]


def pairs(word: str) -> dict[str, Any]:
    fields = [{"name": "item", "nullable": True, "type": {"type": word}}]
    return {"type": "fixed_size_list", "fields": fields, "length": 2}


@pytest.mark.parametrize(
    ("path", "data_type", "expected"),
    [
        ("text", {"type": "large_utf8"}, pa.large_string()),
        ("text", {"type": "large_string"}, pa.large_string()),
        ("v", pairs("float64"), pa.list_(pa.float64(), 2)),
        ("v", pairs("halffloat"), pa.list_(pa.float16(), 2)),
    ],
    ids=str,
)
async def test_types_have_the_form_of_the_spec(
    here: Lake, path: str, data_type: dict[str, Any], expected: pa.DataType
) -> None:
    await here.ns.alter_table_alter_columns(altering({"path": path, "data_type": data_type}))
    assert (await here.dataset()).schema.field(path).type == expected


async def test_columns_that_cannot_be_changed_are_reported(here: Lake) -> None:
    many, renamed = {"id": ID, "columns": ["id", "text", "v"]}, {"path": "id", "rename": "q"}
    invalid = (
        ("add", adding(), "^new_columns: must not be empty"),
        ("add", adding({"name": "q"}), "^new_columns: q: set an expression"),
        ("add", adding(*[{"name": "q", "expression": "id"}] * 2), "^new_columns: q: duplicate colum"),
        ("add", adding({"name": "q", "expression": "((("}), "sql parser error"),
        ("add", adding({"name": "id", "expression": "1"}), "id already exists in the dataset"),
        ("alter", altering(), "^alterations: must not be empty"),
        ("alter", altering({"path": "id"}), "^alterations: id: set rename, data_type or nul"),
        ("alter", altering({"path": "text", "nullable": False}), "contains NULL values"),
        ("alter", typed("text", type="date32:day"), "Cannot cast"),
        (
            "alter",
            typed("id", type="number"),
            "^alterations: id: data_type .*unknown type 'number'.*; write it in the form",
        ),
        ("alter", typed("id", kind=1), r"not a type in JSON Arrow form \(type: Field req"),
        ("alter", typed("text", type="date32"), "Cannot cast"),
        (
            "alter",
            altering(renamed, {"path": "`id`", "nullable": False}),
            "^alterations: `id`: duplicate column; use one",
        ),
        (
            "alter",
            altering(renamed, {**renamed, "path": "text"}),
            "^alterations: text: another entry has .* new name 'q'",
        ),
        ("alter", altering({**renamed, "rename": "text"}), "^alterations: id: a field 'text' already exists at this"),
        ("alter", altering({"path": "`id", "rename": "q"}), "^field path '`id': invalid"),
        ("drop", AlterTableDropColumnsRequest(id=ID, columns=[]), "^columns: must not be empty"),
        ("drop", AlterTableDropColumnsRequest(**many), "Cannot drop all columns"),
    )
    computed, unknown = adding({"name": "q", "computed": "id"}), r"n\$t .*\bno\b"
    refused: Sequence[tuple[str, Any, type[err.LanceNamespaceError], str]] = [
        ("add", computed, err.UnsupportedOperationError, r"^Not supported: new_columns: q \(c"),
        ("add", adding({"name": "q", "expression": "no + 1"}), err.TableColumnNotFoundError, unknown),
        ("alter", altering({"path": "no", "rename": "x"}), err.TableColumnNotFoundError, unknown),
        ("drop", AlterTableDropColumnsRequest(id=ID, columns=["no"]), err.TableColumnNotFoundError, unknown),
        *((what, request, err.InvalidInputError, message) for what, request, message in invalid),
    ]
    for what, request, error, message in refused:
        operation = getattr(here.ns, f"alter_table_{what}_columns")
        await catch(error, operation(request), message)
    assert (await here.dataset()).version == 1 and (await here.dataset()).to_table() == ROWS


async def test_columns_may_change_names_with_each_other(here: Lake) -> None:
    changes = [{"path": "id", "rename": "text"}, {"path": "`text`", "rename": "id"}, {"path": "v", "rename": "v"}]
    await here.ns.alter_table_alter_columns(altering(*changes))
    assert (await here.dataset()).schema.names == ["text", "id", "v"] and await here.values("text") == [1, 2, 3]


async def test_fields_and_the_schema_are_annotated(here: Lake) -> None:
    ns = here.ns
    first = await ns.update_field_metadata(annotating({"path": "id", "metadata": {"a": "1", "b": "2"}}))
    assert (first.version, first.fields) == (2, {"id": {"a": "1", "b": "2"}})
    both = [{"path": "id", "metadata": {"a": None, "c": "3"}}, {"path": "text", "metadata": {"x": "y"}}]
    second = await ns.update_field_metadata(annotating(*both))
    assert second.fields == {"id": {"b": "2", "c": "3"}, "text": {"x": "y"}}
    third = await ns.update_field_metadata(annotating({"path": "id", "metadata": {"d": "4"}, "replace": True}))
    assert third.fields == {"id": {"d": "4"}} and (await here.dataset()).schema.field("id").metadata == {b"d": b"4"}
    for metadata, expected in (
        ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}),
        ({"b": "3"}, {"a": "1", "b": "3"}),
        (None, None),
    ):
        request = UpdateTableSchemaMetadataRequest(id=ID, metadata=metadata)
        assert (await here.ns.update_table_schema_metadata(request)).metadata == (expected or {"a": "1", "b": "3"})
    assert (await here.dataset()).schema.metadata == {b"a": b"1", b"b": b"3"}


async def test_fields_that_cannot_be_annotated_are_reported(here: Lake) -> None:
    one = {"path": "id", "metadata": {"a": "1"}}
    refused: Sequence[tuple[dict[str, Any], type[err.LanceNamespaceError], str]] = [
        (annotating(), err.InvalidInputError, "^updates: must not be empty"),
        (annotating(one, one), err.InvalidInputError, "^updates: id: duplicate field"),
        (
            annotating(one, {**one, "path": "v", "replace": True}),
            err.InvalidInputError,
            "^updates: replace must be the",
        ),
        (annotating({**one, "path": "no"}), err.TableColumnNotFoundError, r"n\$t .*\bno\b"),
    ]
    for request, error, message in refused:
        await catch(error, here.ns.update_field_metadata(request), message)
    assert (await here.dataset()).version == 1


async def test_a_branch_is_kept_up_by_itself(here: Lake) -> None:
    ns, on = here.ns, {"id": ID, "branch": "dev"}
    await ns.create_table_branch(CreateTableBranchRequest(id=ID, name="dev"))
    await ns.alter_table_add_columns(adding({"name": "q", "expression": "1"}, branch="dev"))
    await ns.alter_table_alter_columns(altering({"path": "q", "rename": "r"}, branch="dev"))
    await ns.create_table_scalar_index(CreateTableIndexRequest(id=ID, column="id", index_type="BTREE", branch="dev"))
    assert (await ns.get_table_stats(GetTableStatsRequest(**on))).num_indices == 1
    assert [it.index_name for it in (await ns.list_table_indices(ListTableIndicesRequest(**on))).indexes] == ["id_idx"]
    await ns.update_table_schema_metadata(UpdateTableSchemaMetadataRequest(**on, metadata={"a": "b"}))
    await ns.update_field_metadata(annotating({"path": "id", "metadata": {}}, branch="dev"))
    await ns.drop_table_index(DropTableIndexRequest(**on, index_name="id_idx"))
    await ns.alter_table_drop_columns(AlterTableDropColumnsRequest(**on, columns=["r"]))
    await ns.restore_table(RestoreTableRequest(**on, version=2))
    assert (await here.dataset()).checkout_version(("dev", None)).schema.names == ["id", "text", "v", "q"]
    assert (await here.dataset()).version == 1 and (await here.dataset()).to_table() == ROWS
