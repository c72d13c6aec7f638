"""Rows of a table: count, insert, merge, update, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import lance
import lance_namespace as spec
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from tests.support.errors import catch
from tests.support.lake import ID, ROWS, Lake, stream

pytestmark = pytest.mark.floors
MORE = pa.table({"id": [3, 4], "text": ["three", "four"], "v": ROWS["v"].slice(0, 2).combine_chunks()})


async def test_rows_are_counted(here: Lake) -> None:
    async def count(**fields: Any) -> int | None:
        return (await here.ns.count_table_rows(spec.CountTableRowsRequest(id=ID, **fields))).count

    await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(MORE))
    assert await count() == 5 and await count(predicate="id = 3") == 2 and await count(version=1) == 3
    assert await count(predicate="text IS NULL", version=1) == 1 and await count(branch="main") == 5


async def test_rows_are_inserted(here: Lake) -> None:
    added = await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(MORE))
    assert (added.num_inserted_rows, added.version) == (2, 2) and await here.values("id") == [1, 2, 3, 3, 4]
    replaced = await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID, mode="Overwrite"), stream(MORE))
    assert (replaced.num_inserted_rows, replaced.version) == (2, 3) and await here.values("id") == [3, 4]
    with pytest.raises(err.InvalidInputError, match=r"^mode 'upsert': unknown, known are append, overwrite"):
        await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID, mode="upsert"), stream(MORE))
    with pytest.raises(err.InvalidInputError, match=r"^request_data: not an Arrow IPC stream"):
        await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), b"garbage")
    assert (await here.dataset()).version == 3


async def test_a_declared_table_gets_its_first_rows(here: Lake) -> None:
    for mode in ("append", "overwrite"):
        id = ["n", mode]
        await here.ns.declare_table(spec.DeclareTableRequest(id=id))
        await catch(err.TableNotFoundError, here.ns.count_table_rows({"id": id}), rf"^Table not found: n\${mode} ")
        added = await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=id, mode=mode), stream(MORE))
        assert (added.num_inserted_rows, added.version) == (2, 1)
        assert (await here.dataset(id)).to_table() == MORE
    with pytest.raises(err.TableNotFoundError, match=r"^Table not found: n\$none "):
        await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=["n", "none"]), stream(MORE))


@pytest.mark.parametrize("rows", [pa.table({"other": [1]}), ROWS.set_column(0, "id", pa.array(["a", "b", "c"]))])
async def test_rows_of_other_columns_are_refused(here: Lake, rows: pa.Table) -> None:
    with pytest.raises(err.TableSchemaValidationError, match=r"^Table schema invalid: n\$t "):
        await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(rows))
    assert (await here.dataset()).version == 1


INSERT = {"when_not_matched_insert_all": True}


def merging(**fields: Any) -> spec.MergeInsertIntoTableRequest:
    return spec.MergeInsertIntoTableRequest(**{"id": ID, "on": ["id"], **fields})


async def test_rows_are_merged(here: Lake) -> None:
    async def merge(**fields: Any) -> tuple[Any, ...]:
        it = await here.ns.merge_insert_into_table(merging(**fields), stream(MORE))
        return it.num_updated_rows, it.num_inserted_rows, it.num_deleted_rows, it.version

    assert await merge(when_matched_update_all=True, use_index=False) == (1, 0, 0, 2)
    assert (await here.dataset()).count_rows("text = 'three'") == 1
    assert await merge(when_not_matched_insert_all=True, timeout="30s") == (0, 1, 0, 3)
    update = {"when_matched_update_all": True, "when_matched_update_all_filt": "target.id > 3"}
    assert await merge(**update) == (1, 0, 0, 4)
    delete = {"when_not_matched_by_source_delete": True, "when_not_matched_by_source_delete_filt": "id = 1"}
    assert await merge(**delete) == (0, 0, 1, 5)
    assert await merge(when_matched_update_all=True, when_not_matched_by_source_delete=True) == (2, 0, 1, 6)
    assert await here.values("id") == [3, 4] and await here.values("id", 1) == [1, 2, 3]


async def test_a_merge_writes_the_first_rows_of_a_declared_table(here: Lake) -> None:
    await here.ns.declare_table(spec.DeclareTableRequest(id=["n", "declared"]))

    async def merge(**fields: Any) -> tuple[Any, ...]:
        it = await here.ns.merge_insert_into_table(merging(id=["n", "declared"], **fields), stream(MORE))
        return it.num_updated_rows, it.num_inserted_rows, it.num_deleted_rows, it.version

    await catch(err.TableNotFoundError, merge(when_matched_update_all=True), r"^Table not found: n\$declared ")
    with pytest.raises(err.TableColumnNotFoundError, match=r"^Table column not found: n\$declared \(on: no: "):
        await merge(on=["no"], when_not_matched_insert_all=True)
    await catch(err.TableNotFoundError, merge(branch="dev", when_not_matched_insert_all=True))
    assert await merge(when_matched_update_all=True, when_not_matched_insert_all=True) == (0, 2, 0, 1)
    assert (await here.dataset(["n", "declared"])).to_table() == MORE
    assert await merge(when_matched_update_all=True, when_not_matched_insert_all=True) == (2, 0, 0, 2)
    with pytest.raises(err.TableNotFoundError, match=r"^Table not found: n\$none "):
        await here.ns.merge_insert_into_table(merging(id=["n", "none"], when_not_matched_insert_all=True), stream(MORE))


async def test_of_many_that_merge_the_first_rows_none_is_lost(here: Lake) -> None:
    await here.ns.declare_table(spec.DeclareTableRequest(id=["n", "declared"]))
    async with anyio.create_task_group() as group:
        for n in range(4):
            request = merging(id=["n", "declared"], when_not_matched_insert_all=True)
            group.start_soon(here.ns.merge_insert_into_table, request, stream(pa.table({"id": [n]})))
    assert sorted((await here.dataset(["n", "declared"])).to_table()["id"].to_pylist()) == [*range(4)]


async def test_a_merge_that_cannot_be_done_is_refused(here: Lake) -> None:
    update = {"when_matched_update_all": True}
    invalid: Sequence[tuple[dict[str, Any], str]] = [
        ({"on": None, **update}, "^on: required"),
        ({}, "^merge: no action is set"),
        ({"when_matched_update_all_filt": "id = 1", **INSERT}, "^when_matched_update_all_filt: allowed only with"),
        ({"when_not_matched_by_source_delete_filt": "a", **INSERT}, "^when_not_matched_by_source_delete_filt: allowed"),
        ({**update, "timeout": "soon"}, "^timeout 'soon': .*not a duration; write e.g."),
    ]
    refused: Sequence[tuple[dict[str, Any], pa.Table, type[err.LanceNamespaceError], str]] = [
        ({"on": ["no"], **update}, MORE, err.TableColumnNotFoundError, r"n\$t"),
        ({**update, "when_matched_update_all_filt": "target.no = 1"}, MORE, err.TableColumnNotFoundError, r"n\$t"),
        (INSERT, pa.table({"other": [1]}), err.TableSchemaValidationError, r"n\$t"),
        (update, pa.concat_tables([MORE, MORE]), err.InvalidInputError, r"n\$t"),
        *((fields, MORE, err.InvalidInputError, message) for fields, message in invalid),
    ]
    for fields, rows, error, message in refused:
        await catch(error, here.ns.merge_insert_into_table(merging(**fields), stream(rows)), message)
    assert (await here.dataset()).version == 1


async def test_rows_are_updated(here: Lake) -> None:
    async def update(*pairs: list[str], predicate: str | None = None) -> tuple[int, int]:
        it = await here.ns.update_table(spec.UpdateTableRequest(id=ID, updates=list(pairs), predicate=predicate))
        return it.updated_rows, it.version

    assert await update(["text", "upper(text)"], ["id", "id * 10"], predicate="id < 3") == (2, 2)
    assert await update(["text", "'x'"]) == (3, 3)
    assert await here.values("id") == [3, 10, 20] and await here.values("text") == ["x", "x", "x"]
    assert (await update(["text", "'y'"], predicate="id = 99"))[0] == 0


async def test_an_update_that_cannot_be_done_is_refused(here: Lake) -> None:
    refused: Sequence[tuple[list[list[str]], str | None, type[err.LanceNamespaceError], str]] = [
        ([], None, err.InvalidInputError, "^updates: must not be empty"),
        ([["id", "1"], ["id", "2"]], None, err.InvalidInputError, "^updates: id: duplicate column"),
        ([["no", "1"]], None, err.TableColumnNotFoundError, "'no'"),
        ([["text", "no + 1"]], None, err.TableColumnNotFoundError, r"\bno\b"),
        ([["text", "'x'"]], "no = 1", err.TableColumnNotFoundError, r"\bno\b"),
        ([["text", "((("]], None, err.InvalidInputError, "sql parser error"),
        ([["id", "'x'"]], None, err.InvalidInputError, "Cannot cast"),
    ]
    for pairs, predicate, error, message in refused:
        await catch(error, here.ns.update_table({"id": ID, "updates": pairs, "predicate": predicate}), message)
    with pytest.raises(err.UnsupportedOperationError, match=r"^Not supported: properties in update_table"):
        await here.ns.update_table(spec.UpdateTableRequest(id=ID, updates=[["id", "1"]], properties={"k": "v"}))
    assert (await here.dataset()).version == 1


async def test_rows_are_deleted(here: Lake) -> None:
    deleted = await here.ns.delete_from_table(spec.DeleteFromTableRequest(id=ID, predicate="id > 1"))
    assert deleted.version == 2 and await here.values("id") == [1] and await here.values("id", 1) == [1, 2, 3]
    with pytest.raises(err.TableColumnNotFoundError, match=r"^Table column not found: n\$t .*\bno\b"):
        await here.ns.delete_from_table(spec.DeleteFromTableRequest(id=ID, predicate="no = 1"))
    with pytest.raises(err.InvalidInputError, match="sql parser error"):
        await here.ns.delete_from_table(spec.DeleteFromTableRequest(id=ID, predicate="id = = 1"))


async def test_a_branch_has_rows_of_its_own(here: Lake) -> None:
    await here.ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="dev"))
    on = {"id": ID, "branch": "dev"}
    await here.ns.insert_into_table(spec.InsertIntoTableRequest(**on), stream(MORE))
    await here.ns.update_table(spec.UpdateTableRequest(**on, updates=[["id", "id + 1"]], predicate="id = 4"))
    await here.ns.delete_from_table(spec.DeleteFromTableRequest(**on, predicate="id = 1"))
    request = spec.MergeInsertIntoTableRequest(**on, on=["id"], when_not_matched_insert_all=True)
    assert (await here.ns.merge_insert_into_table(request, stream(MORE))).num_inserted_rows == 1
    on_branch = (await here.dataset()).checkout_version(("dev", None)).to_table()["id"].to_pylist()
    assert sorted(on_branch) == [2, 3, 3, 4, 5] and await here.values("id") == [1, 2, 3]
    assert (await here.ns.count_table_rows(spec.CountTableRowsRequest(**on))).count == 5


async def test_a_state_that_is_not_there_is_reported(here: Lake) -> None:
    await here.ns.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="dev"))
    branches = r"^Table branch not found: n\$t \(no branch 'no'; there are main, dev"
    missing: Sequence[tuple[dict[str, Any], type[err.LanceNamespaceError], str]] = [
        ({"version": 9}, err.TableVersionNotFoundError, r"^Table version not found: n\$t "),
        ({"branch": "no"}, err.TableBranchNotFoundError, branches),
        ({"branch": "no", "version": 1}, err.TableBranchNotFoundError, branches),
        ({"branch": "dev", "version": 9}, err.TableVersionNotFoundError, r"^Table version not found: n\$t "),
    ]
    for fields, error, message in missing:
        await catch(error, here.ns.count_table_rows(spec.CountTableRowsRequest(id=ID, **fields)), message)
    await catch(err.TableBranchNotFoundError, here.ns.insert_into_table({"id": ID, "branch": "no"}, stream(MORE)))


async def test_writers_that_cannot_both_be_right_are_reported(here: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await here.dataset()
    await here.ns.insert_into_table(spec.InsertIntoTableRequest(id=ID, mode="overwrite"), stream(MORE))
    # As if it had been opened just before the other write.
    monkeypatch.setattr(lance, "dataset", lambda **options: before)
    with pytest.raises(err.ConcurrentModificationError, match=r"^Concurrent modification: n\$t "):
        await here.ns.update_table(spec.UpdateTableRequest(id=ID, updates=[["id", "1"]]))


async def test_writers_that_can_all_be_right_are(here: Lake) -> None:
    async with anyio.create_task_group() as group:
        for n in range(8):
            rows = pa.table({"id": [n], "text": ["x"], "v": ROWS["v"].slice(0, 1).combine_chunks()})
            group.start_soon(here.ns.insert_into_table, spec.InsertIntoTableRequest(id=ID), stream(rows))
    assert await here.values("id") == sorted([1, 2, 3, *range(8)])


async def test_of_many_that_write_the_first_rows_none_is_lost(here: Lake) -> None:
    id = ["n", "declared"]
    for _ in range(4):
        await here.ns.declare_table(spec.DeclareTableRequest(id=id))
        async with anyio.create_task_group() as group:
            for n in range(8):
                rows = stream(pa.table({"id": [n]}))
                group.start_soon(here.ns.insert_into_table, spec.InsertIntoTableRequest(id=id), rows)
        assert sorted((await here.dataset(id)).to_table()["id"].to_pylist()) == [*range(8)]
        # None of the rows of the writers that lost the race for the first version is left.
        data = anyio.Path((await here.location(id)).removeprefix("file://")) / "data"
        assert len([path async for path in data.iterdir()]) == 8
        await here.ns.drop_table(spec.DropTableRequest(id=id))


async def test_rows_that_can_be_read_once_are_not_reported_as_written(here: Lake) -> None:
    await here.ns.declare_table(spec.DeclareTableRequest(id=["n", "declared"]))
    outcomes: list[str] = []

    async def write() -> None:
        reader = pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches())
        try:
            await here.ns.write(["n", "declared"], reader, mode="append")
            outcomes.append("written")
        except err.ConcurrentModificationError as e:
            outcomes.append("again" if "append again" in str(e) else str(e))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(write)
    assert set(outcomes) <= {"written", "again"}
    assert (await here.dataset(["n", "declared"])).count_rows() == 3 * outcomes.count("written")


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("query_table", {"k": 1, "vector": {}, "columns": {"column_names": ["txet"]}}),
        ("count_table_rows", {"predicate": "txet = 'a'"}),
        ("update_table", {"updates": [["txet", "'a'"]]}),
        ("create_table_scalar_index", {"column": "txet", "index_type": "BTREE"}),
        ("alter_table_drop_columns", {"columns": ["txet"]}),
    ],
)
async def test_an_unknown_column_is_reported_with_the_likely_one(here: Lake, operation: str, fields: Any) -> None:
    raised = await catch(err.TableColumnNotFoundError, getattr(here.ns, operation)({"id": ID, **fields}))
    assert str(raised.value) == "Table column not found: n$t (column 'txet': did you mean text?)"
