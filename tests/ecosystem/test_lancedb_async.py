"""lancedb's async connection on each catalog, both kinds of connection in a running event loop; its documentation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from lance_namespace.errors import TableNotFoundError
from lancedb.index import BTree

from lance_ns_async import Call
from lance_ns_async.registry import BACKENDS
from tests.ecosystem.catalogs import TRIED, Catalog, on_each_kind
from tests.ecosystem.lancedb_tables import ROWS, async_connected, connected, ids
from tests.ecosystem.pages_elsewhere import LANCEDB, read
from tests.ecosystem.test_lancedb import RENAMING
from tests.ecosystem.test_lancedb_errors import CALLS, CASCADING, Target


@pytest.fixture
async def db(catalog: Catalog) -> AsyncIterator[Any]:
    async with async_connected(catalog) as db:
        yield db


async def test_a_table_lives_and_ends(db: Any, home: list[str]) -> None:
    await db.create_table("t", ROWS, namespace_path=home)
    assert await db.table_exists([*home, "t"])
    table = await db.open_table("t", namespace_path=home)
    await table.add([{"id": 10, "vector": [10.0, 0.0]}])
    assert ids(await (await table.search([9.6, 0.0])).limit(2).to_list()) == [9, 10]
    assert ids(await table.query().where("id > 7").to_list()) == [8, 9, 10]
    await table.update({"id": 100}, where="id = 1")
    await table.delete("id < 5")
    await (
        table.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute([{"id": 100, "vector": [1.0, 1.0]}, {"id": 200, "vector": [2.0, 2.0]}])
    )
    assert await table.count_rows() == 8
    await table.create_index("id", config=BTree())
    assert [index.index_type for index in await table.list_indices()] == ["BTree"]
    await table.checkout(1)
    assert await table.count_rows() == 10
    await table.restore()
    assert await (await db.open_table("t", namespace_path=home)).count_rows() == 10
    assert await (await db.open_table("t", namespace_path=home, version=2)).count_rows() == 11
    place = anyio.Path(urlsplit(await table.uri()).path)
    assert await place.is_dir()
    await db.drop_table("t", namespace_path=home)
    assert not await place.exists() and not await db.table_exists([*home, "t"])


async def test_a_sync_connection_works_where_a_loop_runs(catalog: Catalog, home: list[str]) -> None:
    with connected(catalog) as db:
        table = db.create_table("t", ROWS, namespace_path=home)
        assert db.table_exists([*home, "t"]) and db.namespace_exists(home)
        assert ids(table.search([9.0, 0.0]).limit(1).to_list()) == [9]
        assert table.to_lance().count_rows() == 10
        db.drop_table("t", namespace_path=home)
        with pytest.raises(TableNotFoundError):
            db.open_table("t", namespace_path=home)


async def test_the_code_prints_what_the_page_shows(tmp_path: Path) -> None:
    async with read(LANCEDB, tmp_path) as named:
        for db in (*named["connections"].values(), *(named[name] for name in ("db", "copy", "glue"))):
            db.namespace_client().close()
        (await named["adb"].namespace_client()).close()


def test_errors_and_capabilities_are_as_documented() -> None:
    target = Target(Catalog("dir", {}), None, ["sales"])
    assert {what: (error.strip("`"), words.strip("`")) for what, error, words in LANCEDB.table("request")} == {
        what: (error.__name__, words.format(g=target).removesuffix(" (")) for what, (_, error, words) in CALLS.items()
    }
    for impl, (_, _, renames, cascades) in zip(BACKENDS, LANCEDB.table("catalog"), strict=True):
        assert (renames, cascades) == tuple("yes" if impl in able else "no" for able in (RENAMING, CASCADING))


@on_each_kind
def test_costs_are_as_documented(catalog: Catalog) -> None:
    column = TRIED.index(catalog.impl)
    assert {step: costs[column] for step, *costs in LANCEDB.table("step")} == _costs(catalog)


def _costs(catalog: Catalog) -> dict[str, str]:
    home = [*catalog.above, f"costs_{catalog.impl}"]
    calls: list[Call] = []
    costs: dict[str, str] = {}

    def cost(step: str, *results: Any) -> None:
        count, rest = divmod(len(calls), max(len(results), 1))
        assert rest == 0, step
        costs[step] = str(count)
        calls.clear()

    def create(name: str, **options: Any) -> Any:
        return sync.create_table(name, ROWS, namespace_path=home, **options)

    with connected(catalog) as sync, sync.namespace_client().observe(calls.append):
        sync.list_namespaces(list(catalog.above))
        calls.clear()
        cost("`create_namespace`", sync.create_namespace(home))
        cost("`create_namespace`, `exist_ok`, there", sync.create_namespace(home, mode="exist_ok"))
        cost("`describe_namespace`, `namespace_exists`", sync.describe_namespace(home), sync.namespace_exists(home))
        cost("`list_namespaces`", sync.list_namespaces(list(catalog.above)))
        cost("`create_table`", create("a"), create("b"))
        cost("`create_table`, `exist_ok`, there", create("a", exist_ok=True))
        cost("`create_table`, `exist_ok`, not there", create("c", exist_ok=True))
        cost("`create_table`, `overwrite`, there", create("a", mode="overwrite"))
        cost("`create_table`, `overwrite`, not there", create("d", mode="overwrite"))
        table = sync.open_table("a", namespace_path=home)
        cost("`open_table`", table, sync.open_table("a", namespace_path=home, version=1))
        _use(table)
        cost("read, change, index or check out an open table")
        cost("`to_lance`", table.to_lance())
        cost("`table_exists`", sync.table_exists([*home, "a"]))
        cost("`list_tables`, of four", sync.list_tables(home))
        if catalog.impl in RENAMING:
            cost("`rename_table`", sync.rename_table("b", "e", cur_namespace_path=home))
        else:
            costs["`rename_table`"] = "no"
        cost("`drop_table`", sync.drop_table("a", namespace_path=home))
        cost("`drop_all_tables`, of three", sync.drop_all_tables(namespace_path=home))
        cost("`drop_namespace`", sync.drop_namespace(home))
    return costs


def _use(table: Any) -> None:
    table.add(ROWS)
    table.search([1.0, 0.0]).limit(1).to_list()
    table.count_rows()
    table.update(where="id = 1", values={"id": 11})
    table.delete("id = 2")
    table.merge_insert("id").when_not_matched_insert_all().execute(ROWS)
    table.create_index("id")
    table.tags.create("here", 1)
    table.checkout(1)
    table.restore()
    table.list_versions()
    table.to_arrow()
