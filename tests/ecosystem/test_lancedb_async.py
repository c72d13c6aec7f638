"""lancedb's async connection on each catalog, and both kinds of connection in a running event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from lance_namespace.errors import NamespaceNotEmptyError, TableNotFoundError
from lancedb.index import BTree

from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.lancedb_tables import ROWS, async_connected, connected, ids


@pytest.fixture
async def db(catalog: Catalog) -> AsyncIterator[Any]:
    async with async_connected(catalog) as db:
        yield db


async def test_a_namespace_is_made_found_and_dropped(db: Any, catalog: Catalog, home: list[str]) -> None:
    id = [*catalog.above, f"{home[-1]}_2"]
    await db.create_namespace(id)
    await db.create_namespace(id, mode="exist_ok")
    assert await db.namespace_exists(id)
    assert isinstance((await db.describe_namespace(id)).properties, dict)
    listed = await db.list_namespaces(list(catalog.above))
    assert id[-1] in {name.rpartition(".")[2] for name in listed.namespaces}
    await db.create_table("t", ROWS, namespace_path=id)
    with pytest.raises(NamespaceNotEmptyError):
        await db.drop_namespace(id)
    await db.drop_table("t", namespace_path=id)
    await db.drop_namespace(id)
    assert not await db.namespace_exists(id)


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


async def test_exist_ok_keeps_and_overwrite_replaces_what_is_there(db: Any, home: list[str]) -> None:
    await db.create_table("t", ROWS, namespace_path=home)
    assert await (await db.create_table("t", ROWS[:3], namespace_path=home, exist_ok=True)).count_rows() == 10
    assert await (await db.create_table("t", ROWS[:3], namespace_path=home, mode="overwrite")).count_rows() == 3


async def test_tables_come_in_pages(db: Any, home: list[str]) -> None:
    for name in "abc":
        await db.create_table(name, ROWS[:1], namespace_path=home)
    first = await db.list_tables(home, limit=2)
    rest = await db.list_tables(home, limit=2, page_token=first.page_token)
    assert (first.tables, rest.tables, rest.page_token or None) == (["a", "b"], ["c"], None)


async def test_many_tables_at_once(db: Any, home: list[str]) -> None:
    names = [f"t{n:02}" for n in range(12)]
    counts: dict[str, int] = {}

    async def one(name: str, rows: int) -> None:
        await db.create_table(name, ROWS[:rows], namespace_path=home)
        counts[name] = await (await db.open_table(name, namespace_path=home)).count_rows()

    async with anyio.create_task_group() as group:
        for rows, name in enumerate(names):
            group.start_soon(one, name, rows + 1 if rows < 10 else 10)
    assert (await db.list_tables(home)).tables == names
    assert [counts[name] for name in names] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]


async def test_a_sync_connection_works_where_a_loop_runs(catalog: Catalog, home: list[str]) -> None:
    with connected(catalog) as db:
        table = db.create_table("t", ROWS, namespace_path=home)
        assert db.table_exists([*home, "t"]) and db.namespace_exists(home)
        assert ids(table.search([9.0, 0.0]).limit(1).to_list()) == [9]
        assert table.to_lance().count_rows() == 10
        db.drop_table("t", namespace_path=home)
        with pytest.raises(TableNotFoundError):
            db.open_table("t", namespace_path=home)
