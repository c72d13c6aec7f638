"""Names of columns that would make a table unreadable: refused by each operation that sets names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import lance
import lance_namespace as spec
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from tests.support.errors import catch
from tests.support.lake import ID, ROWS, Lake, lake, stream

pytestmark = pytest.mark.environment
RESERVED = "_rowid _rowaddr _rowoffset _row_created_at_version _row_last_updated_at_version _distance _score".split()
NAMES = {
    **{name: f"{name}: reserved by Lance" for name in RESERVED},
    **{"": "a name must not be empty", "a`b": "a`b: Lance cannot read names with a backtick"},
}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as opened:
        await opened.create()
        await opened.ns.declare_table(spec.DeclareTableRequest(id=["n", "declared"]))
        yield opened


def adding(name: str) -> dict[str, Any]:
    return {"id": ID, "new_columns": [{"name": name, "expression": "1"}]}


def renaming(path: str, name: str, id: list[str] = ID) -> dict[str, Any]:
    return {"id": id, "alterations": [{"path": path, "rename": name}]}


@pytest.mark.parametrize("name", NAMES)
async def test_a_column_is_not_given_such_a_name(here: Lake, name: str) -> None:
    await catch(InvalidInputError, here.ns.alter_table_add_columns(adding(name)), f"^new_columns: {NAMES[name]}")
    with pytest.raises(InvalidInputError, match=f"^alterations: {NAMES[name]}"):
        await here.ns.alter_table_alter_columns(renaming("text", name))
    assert (await here.dataset()).version == 1


@pytest.mark.parametrize("name", NAMES)
async def test_a_table_is_not_written_with_such_a_name(here: Lake, name: str) -> None:
    rows = pa.table({"id": [1], name: [1]})
    for id, mode in ((["n", "new"], "create"), (ID, "overwrite")):
        await catch(InvalidInputError, here.create(id, rows, mode=mode), f"^columns: {NAMES[name]}")
    await catch(InvalidInputError, here.ns.write(["n", "new"], rows), f"^columns: {NAMES[name]}")
    for request in ({"id": ID, "mode": "overwrite"}, {"id": ["n", "declared"]}):
        await catch(InvalidInputError, here.ns.insert_into_table(request, stream(rows)), f"^columns: {NAMES[name]}")
    merge = spec.MergeInsertIntoTableRequest(id=["n", "declared"], on=["id"], when_not_matched_insert_all=True)
    await catch(InvalidInputError, here.ns.merge_insert_into_table(merge, stream(rows)), f"^columns: {NAMES[name]}")
    assert (await here.dataset()).version == 1 and not await here.ns.exists(["n", "new"])


async def test_a_table_that_has_such_a_name_gets_more_rows_and_nested_fields_may_have_one(here: Lake) -> None:
    rows = pa.table({"id": [1], "_score": [1.5]})
    await here.ns.declare_table(spec.DeclareTableRequest(id=["n", "old"]))
    lance.write_dataset(rows, await here.location(["n", "old"]))
    await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=["n", "old"]), stream(rows))
    assert (await here.dataset(["n", "old"])).count_rows() == 2
    id = ["n", "nested"]
    await here.create(id, pa.table({"in": [{"a": 1, "b": 2}]}))
    await here.ns.alter_table_alter_columns(renaming("in.a", "_rowid", id))
    refused: list[tuple[str, str, str]] = [
        ("in._rowid", "b", "^alterations: in._rowid: a field 'b' already exists at this level"),
        ("`in`.b", "", "^alterations: a name must not be empty"),
    ]
    for path, name, message in refused:
        await catch(InvalidInputError, here.ns.alter_table_alter_columns(renaming(path, name, id)), message)
    assert (await here.dataset(id)).to_table().to_pylist() == [{"in": {"_rowid": 1, "b": 2}}]
    assert ROWS.schema.names == (await here.dataset()).schema.names
