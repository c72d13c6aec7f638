"""lancedb on each catalog: namespaces, and the operations on a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from lance_namespace.errors import TableNotFoundError
from lancedb.index import BTree, IvfFlat

from tests.ecosystem.catalogs import Catalog, on_each_kind
from tests.ecosystem.lancedb_tables import ROWS, ids

RENAMING = ("hive2", "hive3", "iceberg", "lakekeeper")
"""The catalogs that can rename a table."""


@pytest.fixture
def table(db: Any, home: list[str]) -> Any:
    return db.create_table("t", ROWS, namespace_path=home)


@on_each_kind
def test_a_namespace_is_made_found_and_dropped(db: Any, catalog: Catalog, home: list[str]) -> None:
    id = [*catalog.above, f"{home[-1]}_2"]
    assert not db.namespace_exists(id)
    db.create_namespace(id)
    assert db.namespace_exists(id)
    db.create_namespace(id, mode="exist_ok")
    db.create_namespace(id, mode="overwrite")
    assert isinstance(db.describe_namespace(id).properties, dict)
    # Polaris lists the names of a namespace as older clients do: as the whole path, with dots.
    shown = ".".join(id) if catalog.impl == "polaris" else id[-1]
    assert shown in db.list_namespaces(list(catalog.above)).namespaces
    db.drop_namespace(id)
    assert not db.namespace_exists(id)
    db.drop_namespace(id, mode="skip")


@on_each_kind
def test_a_table_lives_and_ends(db: Any, table: Any, home: list[str]) -> None:
    assert db.table_exists([*home, "t"])
    assert db.list_tables(home).tables == ["t"]
    opened = db.open_table("t", namespace_path=home)
    assert opened.to_arrow().to_pylist() == ROWS

    opened.add([{"id": 10, "vector": [10.0, 0.0]}])
    opened.optimize()
    assert ids(opened.search([9.6, 0.0]).limit(2).to_list()) == [9, 10]
    assert ids(opened.search([0.0, 0.0]).where("id > 7").limit(5).to_list()) == [8, 9, 10]
    assert ids(opened.search().where("id > 7").select(["id"]).to_list()) == [8, 9, 10]

    assert opened.update(where="id = 1", values={"id": 100}).rows_updated == 1
    assert opened.delete("id < 5").num_deleted_rows == 4
    merge = opened.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merged = merge.execute([{"id": 100, "vector": [1.0, 1.0]}, {"id": 200, "vector": [2.0, 2.0]}])
    assert (merged.num_updated_rows, merged.num_inserted_rows) == (1, 1)
    assert opened.count_rows() == 8 and opened.count_rows("id >= 100") == 2

    table.checkout_latest()
    assert table.count_rows() == 8
    place = Path(urlsplit(opened.uri).path)
    assert place.is_dir()
    db.drop_table("t", namespace_path=home)
    assert not place.exists()
    assert not db.table_exists([*home, "t"])
    assert db.list_tables(home).tables == []


def test_a_table_is_made_of_a_schema_alone(db: Any, home: list[str]) -> None:
    schema = pa.schema({"id": pa.int64(), "vector": pa.list_(pa.float32(), 2)})
    db.create_table("t", schema=schema, namespace_path=home)
    opened = db.open_table("t", namespace_path=home)
    assert opened.schema == schema and opened.count_rows() == 0


def test_exist_ok_keeps_and_overwrite_replaces_what_is_there(db: Any, table: Any, home: list[str]) -> None:
    assert db.create_table("t", ROWS[:3], namespace_path=home, exist_ok=True).count_rows() == 10
    assert db.create_table("t", ROWS[:3], namespace_path=home, mode="overwrite").count_rows() == 3
    assert db.open_table("t", namespace_path=home, version=1).count_rows() == 10


def test_exist_ok_and_overwrite_make_what_is_not_there(db: Any, home: list[str]) -> None:
    assert db.create_table("a", ROWS, namespace_path=home, exist_ok=True).count_rows() == 10
    assert db.create_table("b", ROWS, namespace_path=home, mode="overwrite").count_rows() == 10
    assert db.list_tables(home).tables == ["a", "b"]


def test_versions_are_listed_looked_at_and_brought_back(db: Any, table: Any, home: list[str]) -> None:
    table.delete("id > 2")
    assert [version["version"] for version in table.list_versions()] == [1, 2]
    table.checkout(1)
    assert table.count_rows() == 10
    table.restore()
    assert table.version == 3
    assert db.open_table("t", namespace_path=home).count_rows() == 10
    assert db.open_table("t", namespace_path=home, version=2).count_rows() == 3


def test_tags_and_branches(db: Any, table: Any, home: list[str]) -> None:
    table.tags.create("first", 1)
    table.branches.create("draft").add(ROWS)
    opened = db.open_table("t", namespace_path=home)
    assert opened.tags.get_version("first") == 1 and set(opened.branches.list()) == {"draft"}
    assert opened.count_rows() == 10
    assert db.open_table("t", namespace_path=home, branch="draft").count_rows() == 20


def test_indexes_are_made_and_used(db: Any, home: list[str]) -> None:
    rows = [{"id": n, "vector": [float(n), 1.0]} for n in range(300)]
    db.create_table("t", rows, namespace_path=home)
    table = db.open_table("t", namespace_path=home)
    table.create_index("id", config=BTree())
    table.create_index("vector", config=IvfFlat(num_partitions=2))
    assert {index.index_type for index in table.list_indices()} == {"BTree", "IvfFlat"}
    assert table.index_stats("vector_idx").num_indexed_rows == 300
    assert "ANN" in table.search([41.0, 1.0]).explain_plan(verbose=True)
    assert ids(table.search([41.0, 1.0]).nprobes(2).limit(1).to_list()) == [41]
    table.drop_index("id_idx")
    assert [index.name for index in table.list_indices()] == ["vector_idx"]


def test_columns_come_change_and_go(table: Any) -> None:
    table.add_columns({"twice": "id * 2"})
    table.alter_columns({"path": "twice", "rename": "double"})
    table.drop_columns(["vector"])
    assert table.search().where("id = 4").to_list() == [{"id": 4, "double": 8}]


def test_a_table_is_a_dataset_of_pylance(table: Any) -> None:
    dataset = table.to_lance()
    assert dataset.count_rows("id < 3") == 3 and dataset.uri == table.uri


def test_tables_come_in_pages(db: Any, home: list[str]) -> None:
    names = [f"t{n}" for n in range(5)]
    for name in names:
        db.create_table(name, ROWS[:1], namespace_path=home)
    result, token = [], None
    while True:
        page = db.list_tables(home, page_token=token, limit=2)
        assert len(page.tables) <= 2
        result += page.tables
        if not (token := page.page_token):
            break
    assert result == db.list_tables(home).tables == names
    # It has the first ten names, which is lancedb's default.
    with pytest.deprecated_call():
        assert list(db.table_names(namespace_path=home)) == names


def test_all_tables_of_a_namespace_are_dropped(db: Any, home: list[str]) -> None:
    places = [Path(urlsplit(db.create_table(n, ROWS, namespace_path=home).uri).path) for n in ("a", "b", "c")]
    db.drop_all_tables(namespace_path=home)
    assert db.list_tables(home).tables == [] and not any(place.exists() for place in places)
    db.drop_namespace(home)


@on_each_kind
def test_a_table_gets_another_name_where_the_catalog_can(
    db: Any, table: Any, catalog: Catalog, home: list[str]
) -> None:
    if catalog.impl not in RENAMING:
        with pytest.raises(
            RuntimeError,
            match=r"UnsupportedOperationError: Not supported: (rename_table of \S+\$t \(|\S+\$t \(rename_table: )",
        ):
            db.rename_table("t", "u", cur_namespace_path=home)
        assert db.list_tables(home).tables == ["t"]
        return
    db.rename_table("t", "u", cur_namespace_path=home)
    assert db.open_table("u", namespace_path=home).count_rows() == 10
    other = [*catalog.above, f"{home[-1]}_2"]
    db.create_namespace(other)
    db.rename_table("u", "v", cur_namespace_path=home, new_namespace_path=other)
    assert db.list_tables(home).tables == [] and db.list_tables(other).tables == ["v"]
    assert db.open_table("v", namespace_path=other).count_rows() == 10
    with pytest.raises(TableNotFoundError):
        db.open_table("t", namespace_path=home)
    db.drop_table("v", namespace_path=other)
