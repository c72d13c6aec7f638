"""Operations on rows work through each catalog."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, TableId
from tests.contract.conftest import Children, Parent
from tests.contract.site import Site
from tests.support.errors import catch
from tests.support.lake import ROWS, in_file, stream

pytestmark = [pytest.mark.bare, pytest.mark.environment, pytest.mark.floors]


async def _count(ns: AsyncNamespace, id: list[str]) -> int | None:
    return (await ns.count_table_rows({"id": id})).count


async def test_a_table_is_created_read_changed_and_dropped(ns: AsyncNamespace, parent: Parent) -> None:
    id = parent.table("t")
    made = await ns.create_table({"id": id}, stream(ROWS))
    assert made.version == 1 and made.location and lance.dataset(made.location).to_table() == ROWS
    added = await ns.insert_into_table({"id": id}, stream(ROWS))
    assert (added.num_inserted_rows, added.version) == (3, 2) and await _count(ns, id) == 6
    query = {"id": id, "k": 1, "vector": {"single_vector": [1.0, 0.0]}, "filter": "id = 2"}
    (row,) = in_file((await ns.query_table(query)).data)
    assert row == {"id": 2, "text": "green pear", "v": [1.0, 0.0], "_distance": 0.0}
    await ns.delete_from_table({"id": id, "predicate": "id > 1"})
    assert await _count(ns, id) == 2
    await ns.drop_table({"id": id})
    await catch(err.TableNotFoundError, _count(ns, id))
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(made.location)


async def test_a_scan_yields_the_rows_of_one_version(ns: AsyncNamespace, parent: Parent) -> None:
    id = parent.table("t")
    for _ in range(3):
        await ns.write(id, ROWS, mode="overwrite" if not await ns.exists(id) else "append")
    scanned: list[pa.RecordBatch] = []
    async for batch in ns.scan(id):
        if not scanned:
            await ns.write(id, ROWS.slice(0, 1), mode="overwrite")
        scanned.append(batch)
    assert pa.Table.from_batches(scanned) == pa.concat_tables([ROWS] * 3)
    some = [batch async for batch in ns.scan(id, columns=["text", "id"], filter="id = 2", version=2)]
    assert pa.Table.from_batches(some).to_pylist() == [{"text": "green pear", "id": 2}] * 2
    assert [batch async for batch in ns.scan(id, filter="id = 77")] == []
    with pytest.raises(err.TableNotFoundError):
        [batch async for batch in ns.scan(parent.table("none"))]


async def test_many_tables_are_searched_and_counted(ns: AsyncNamespace, parent: Parent) -> None:
    for name in ("a", "b"):
        await ns.write(parent.table(name), ROWS)
    await ns.declare_table({"id": parent.table("empty")})
    found = (await ns.search_many([parent.id], vector=[1.0, 0.0], k=3, columns=["id"])).raise_for_errors()
    tables = [TableId(parent.table(name)) for name in ("a", "b")]
    assert found.rows["id"].to_pylist()[:2] == [2, 2] and set(found.searched) == set(tables)
    assert found.rows["_table"].to_pylist()[:2] == [str(table) for table in tables]
    assert (await ns.count_many([parent.id], filter="id > 1")).raise_for_errors().counts == dict.fromkeys(tables, 2)


async def test_many_tables_are_one_stream(ns: AsyncNamespace, parent: Parent) -> None:
    for name in ("a", "b"):
        await ns.write(parent.table(name), ROWS)
    await ns.declare_table({"id": parent.table("empty")})
    stream = await ns.scan_many(parent.id, columns=["text"], filter="id > 1")
    names = [str(id) for id in parent.tables("a", "b")]
    expected = [{"text": text, "_table": name} for name in names for text in ROWS["text"].to_pylist()[1:]]
    result = [row async for batch in stream for row in batch.to_pylist()]
    assert sorted(result, key=lambda row: str(row["_table"])) == expected
    await catch(err.TableNotFoundError, ns.scan_many(parent.tables("a", "none")))


async def test_one_that_is_there_is_kept_overwritten_or_an_error(ns: AsyncNamespace, parent: Parent) -> None:
    id, other = parent.table("t"), pa.table({"id": [9], "more": ["x"]})
    await ns.create_table({"id": id, "properties": {"k": "v"}}, stream(ROWS))
    await catch(err.TableAlreadyExistsError, ns.create_table({"id": id}, stream(other)))
    kept = await ns.create_table({"id": id, "mode": "ExistOk"}, stream(other))
    assert kept.version == 1 and await _count(ns, id) == 3
    replaced = await ns.create_table({"id": id, "mode": "Overwrite"}, stream(other))
    assert replaced.version == 2 and (await ns.open(id)).to_table() == other
    assert (await ns.open(id, version=1)).to_table() == ROWS
    result = await ns.describe_table({"id": id})
    assert result.properties is not None and result.properties["k"] == "v"


async def test_a_table_that_cannot_be_written_is_not_left_in_the_catalog(ns: AsyncNamespace, parent: Parent) -> None:
    no_column = stream(pa.table({"a.b": [1]}))
    for data, error in ((b"garbage", err.InvalidInputError), (no_column, err.TableSchemaValidationError)):
        await catch(error, ns.create_table({"id": parent.table("t")}, data))
        assert not await ns.exists(parent.table("t"))
    await ns.create_table({"id": parent.table("t")}, stream(ROWS))
    assert await _count(ns, parent.table("t")) == 3


async def test_what_is_missing_is_reported(ns: AsyncNamespace, parent: Parent, children: Children) -> None:
    await catch(err.NamespaceNotFoundError, ns.create_table({"id": children.child("none", "t")}, stream(ROWS)))
    for operation in (
        ns.insert_into_table({"id": parent.table("none")}, stream(ROWS)),
        ns.count_table_rows({"id": parent.table("none")}),
        ns.open(parent.table("none")),
        ns.write(parent.table("none"), ROWS, mode="append"),
    ):
        await catch(err.TableNotFoundError, operation, r"^Table not found: ")


async def test_python_writes_and_opens_the_same(ns: AsyncNamespace, parent: Parent) -> None:
    for name in ("t", "u"):
        assert (await ns.write(parent.table(name), ROWS)).version == 1
    request = {"id": parent.table("t"), "new_columns": [{"name": "twice", "expression": "id * 2"}]}
    assert (await ns.alter_table_add_columns(request)).version == 2
    opened = await ns.open_many([parent.table(name) for name in ("t", "u", "none")])
    assert {id.name: dataset.schema.names for id, dataset in opened.tables.items()} == {
        "t": ["id", "text", "v", "twice"],
        "u": ["id", "text", "v"],
    }
    assert [type(error) for error in opened.errors.values()] == [err.TableNotFoundError]


async def test_searches_are_asked_for_as_by_sparks_connector(ns: AsyncNamespace, parent: Parent) -> None:
    """Its HYBRID_SEARCH merges a VECTOR_SEARCH and a SEARCH by their row ids."""
    id = parent.table("t")
    await ns.create_table({"id": id}, stream(ROWS))
    await ns.create_table_index({"id": id, "column": "text", "index_type": "FTS"})

    async def search(**fields: object) -> list[dict[str, Any]]:
        query = {"id": id, "k": 2, "columns": {"column_names": ["id", "text"]}, "with_row_id": True, **fields}
        return in_file((await ns.query_table(query)).data)

    nearest = await search(vector={"single_vector": [1.0, 0.0]}, vector_column="v", distance_type="l2", prefilter=True)
    assert [row["id"] for row in nearest] == [2, 1]
    assert nearest[0].keys() == {"id", "text", "_distance", "_rowid"}
    text = {"string_query": {"query": "pear", "columns": ["text"]}}
    empty: list[dict[str, object]] = [{}, {"single_vector": None, "multi_vector": None}, {"single_vector": []}]
    for nothing in empty:
        (found,) = await search(vector=nothing, full_text_query=text)
        assert found.keys() == {"id", "text", "_score", "_rowid"} and found["text"] == "green pear"
        assert found["_rowid"] == nearest[0]["_rowid"]
    structured: object = {"structured_query": {"query": {"match": {"terms": "pear", "column": "text"}}}}
    assert [row["id"] for row in await search(vector={}, full_text_query=structured)] == [2]


async def test_a_catalog_has_partitions_or_says_it_has_none(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    await ns.write(parent.table("t"), ROWS)
    # The directory has the parent, so that it cannot be divided.
    kind: type[Exception] = err.UnsupportedOperationError
    message = "only a directory catalog has partitions; connect with 'dir'"
    if site.can.has_partitions:
        kind, message = err.InvalidInputError, "this directory has no partitions"
    await catch(kind, ns.list_partitions("id = 1"), message)
    await catch(kind, ns.open_partitions(), message)
    await catch(kind, ns.write_partitions(ROWS), message)
    with pytest.raises(kind, match=message):
        async for _ in ns.scan_partitions():
            pass
    await catch(kind, ns.partition_by(["id"], schema=pa.schema({"id": pa.int64()})))
    assert (await ns.open(parent.table("t"))).count_rows() == ROWS.num_rows
