"""lancedb on each catalog: namespaces, and the operations on a table."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import lancedb
import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest, QueryTableRequest
from lance_namespace.errors import TableNotFoundError

from lance_ns_async import Call
from lance_ns_async.gateway.explorer.snippets import snippets
from tests.ecosystem.catalogs import TOKEN, Catalog, on_each_kind, on_one_catalog, on_served
from tests.ecosystem.lancedb_tables import ROWS, async_connected, connected, ids

RENAMING = ("hive2", "hive3", "iceberg", "lakekeeper")  # The catalogs that can rename a table


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


def test_a_table_is_made_of_a_schema_alone_kept_or_replaced(db: Any, home: list[str]) -> None:
    schema = pa.schema({"id": pa.int64(), "vector": pa.list_(pa.float32(), 2)})
    db.create_table("t", schema=schema, namespace_path=home)
    opened = db.open_table("t", namespace_path=home)
    assert opened.schema == schema and opened.count_rows() == 0
    assert db.create_table("u", ROWS, namespace_path=home).count_rows() == 10
    assert db.create_table("u", ROWS[:3], namespace_path=home, exist_ok=True).count_rows() == 10
    assert db.create_table("u", ROWS[:3], namespace_path=home, mode="overwrite").count_rows() == 3
    assert db.open_table("u", namespace_path=home, version=1).count_rows() == 10


def test_tags_and_branches(db: Any, table: Any, home: list[str]) -> None:
    table.tags.create("first", 1)
    table.branches.create("draft").add(ROWS)
    opened = db.open_table("t", namespace_path=home)
    assert opened.tags.get_version("first") == 1 and set(opened.branches.list()) == {"draft"}
    assert opened.count_rows() == 10
    assert db.open_table("t", namespace_path=home, branch="draft").count_rows() == 20


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


REFUSED = "a bytes-like object is required, not 'QueryTableResponse'"


def test_queries_that_are_left_to_us_fail_in_lancedb(catalog: Catalog, home: list[str]) -> None:
    """Our response is the model of the spec, which lancedb 0.40 does not know: it expects bytes."""
    with connected(catalog, "QueryTable") as db:
        table = db.create_table("t", ROWS, namespace_path=home)
        for query in (table.search([1.0, 0.0]), table.search().where("id > 7")):
            with pytest.raises(TypeError, match=REFUSED):
                query.to_list()
        with pytest.raises(TypeError, match=REFUSED):
            table.to_arrow()
        # Operations other than queries are not delegated to us.
        assert table.count_rows() == 10
        assert table.add(ROWS).version == 2
        assert "KNN" in table.search([1.0, 0.0]).explain_plan()
        # The response is available to a client that accepts it.
        request = QueryTableRequest(id=[*home, "t"], k=1, vector={"single_vector": [3.0, 0.0]}, vector_column="vector")
        assert db.namespace_client().query_table(request).data


async def test_so_do_async_ones_but_for_searches_by_vector(catalog: Catalog, home: list[str]) -> None:
    async with async_connected(catalog, "QueryTable") as db:
        table = await db.create_table("t", ROWS, namespace_path=home)
        with pytest.raises(RuntimeError, match="'QueryTableResponse' object is not an instance of 'Sequence'"):
            await table.query().where("id > 7").to_list()
        with pytest.raises(TypeError, match=REFUSED):
            await table.to_arrow()
        assert ids(await (await table.search([9.0, 0.0])).limit(1).to_list()) == [9]
        assert await table.count_rows() == 10


def test_created_tables_are_declared(catalog: Catalog, home: list[str]) -> None:
    calls: list[Call] = []
    with connected(catalog, "CreateTable") as db:
        with db.namespace_client().observe(calls.append):
            assert db.create_table("t", ROWS, namespace_path=home).count_rows() == 10
        assert "declare_table" in [call.operation for call in calls]
        assert db.open_table("t", namespace_path=home).search([3.0, 0.0]).limit(1).to_list()[0]["id"] == 3


WORKER = """
import json, sys
import lancedb
sent = json.load(sys.stdin)
db = lancedb.deserialize_conn(sent["connection"])
table = db.open_table("t", namespace_path=sent["home"])
table.add([{"id": 10, "vector": [10.0, 0.0]}])
print(table.count_rows())
"""


def test_threads_share_a_connection(db: Any, home: list[str]) -> None:
    def live(n: int) -> int:
        name = f"t{n:02}"
        db.create_table(name, ROWS[: n % 10 + 1], namespace_path=home)
        rows: int = db.open_table(name, namespace_path=home).count_rows()
        assert db.table_exists([*home, name])
        with pytest.raises(TableNotFoundError):
            db.open_table(f"no{n}", namespace_path=home)
        if n % 2:
            db.drop_table(name, namespace_path=home)
        return rows

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(live, range(16))) == [n % 10 + 1 for n in range(16)]
    assert db.list_tables(home).tables == [f"t{n:02}" for n in range(0, 16, 2)]


def test_a_connection_is_sent_as_text(db: Any, catalog: Catalog, home: list[str]) -> None:
    db.create_table("t", ROWS, namespace_path=home)
    text = db.serialize()
    sent = json.loads(text)
    assert (sent["namespace_client_impl"], sent["namespace_client_properties"]) == (
        catalog.class_path,
        catalog.properties,
    )
    received = lancedb.deserialize_conn(text)
    with received.namespace_client() as namespace:
        assert received.open_table("t", namespace_path=home).count_rows() == 10
        # A cached description for one is therefore valid for the other.
        assert namespace.namespace_id() == db.namespace_client().namespace_id()


@on_one_catalog
def test_a_connection_works_in_another_process(db: Any, home: list[str]) -> None:
    db.create_table("t", ROWS, namespace_path=home)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WORKER],
        input=json.dumps({"connection": db.serialize(), "home": home}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "11"), done.stderr
    assert db.open_table("t", namespace_path=home).count_rows() == 11


def test_lancedb_itself_pickles_nothing_and_its_namespace_does(db: Any, home: list[str]) -> None:
    for thing in (db, db.create_table("t", ROWS, namespace_path=home)):
        with pytest.raises(TypeError, match="cannot pickle"):
            pickle.dumps(thing)
    with pickle.loads(pickle.dumps(db.namespace_client())) as namespace:
        assert namespace.exists([*home, "t"])


MORE = [{"id": 10, "vector": [10.0, 0.0]}]
PUSHDOWN = pytest.mark.parametrize("pushdown", [[], ["QueryTable"]])


def queries(rest: Mapping[str, str]) -> int:
    request = Request(f"{rest['uri']}/metrics", headers={"x-lance-token": TOKEN})
    with build_opener(ProxyHandler({})).open(request) as answer:
        result = re.search(
            r'lance_ns_requests_total\{operation="query_table",code="200"\} (\d+)', answer.read().decode()
        )
    return int(result[1]) if result else 0


@on_served
@PUSHDOWN
def test_a_served_table_lives_and_ends(
    rest: Mapping[str, str], catalog: Catalog, pushdown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = lancedb.connect_namespace("rest", {**rest}, namespace_client_pushdown_operations=pushdown)
    n = [*catalog.above, "served"]
    db.create_namespace(n)
    db.create_table("t", ROWS, namespace_path=n)
    assert db.list_tables(n).tables == ["t"]
    location: str = db.namespace_client().describe_table(DescribeTableRequest(id=[*n, "t"])).location
    place = Path(urlsplit(location).path)
    assert place.is_dir()
    table = db.open_table("t", namespace_path=n)
    table.add(MORE)
    assert ids(table.search([9.6, 0.0]).limit(2).to_list()) == [9, 10]
    before = queries(rest)
    assert ids(table.search().where("id > 7").to_list()) == [8, 9, 10]
    # lancedb 0.40 runs searches by vector itself in any case.
    assert queries(rest) - before == len(pushdown)
    monkeypatch.setenv("LANCE_NS_TOKEN", TOKEN)
    exec(snippets([*n, "t"], rest["uri"])["lancedb"], code := dict[str, Any]())
    assert code["table"].count_rows() == table.count_rows()
    db.drop_table("t", namespace_path=n)
    assert not place.exists()
    with pytest.raises(TableNotFoundError, match=r"Table not found: .*served\$t"):
        db.open_table("t", namespace_path=n)
    db.drop_namespace(n)


@on_served
@PUSHDOWN
async def test_so_it_does_async(rest: Mapping[str, str], catalog: Catalog, pushdown: list[str]) -> None:
    db = lancedb.connect_namespace_async("rest", {**rest}, namespace_client_pushdown_operations=pushdown)
    n = [*catalog.above, "served"]
    await db.create_namespace(n)
    await db.create_table("t", ROWS, namespace_path=n)
    assert (await db.list_tables(n)).tables == ["t"]
    table = await db.open_table("t", namespace_path=n)
    await table.add(MORE)
    assert ids(await (await table.search([9.6, 0.0])).limit(2).to_list()) == [9, 10]
    assert ids(await table.query().where("id > 7").to_list()) == [8, 9, 10]
    await db.drop_table("t", namespace_path=n)
    with pytest.raises(TableNotFoundError, match=r"Table not found: .*served\$t"):
        await db.open_table("t", namespace_path=n)
    await db.drop_namespace(n)
