"""lancedb on tables whose versions the Iceberg catalog commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lance_namespace import ListTableVersionsRequest
from lancedb.index import BTree

from lance_ns_async import Call
from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.lancedb_tables import ROWS, async_connected
from tests.fakes.iceberg import FakeIceberg

HOME = ["sales"]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with FakeIceberg() as server:
        server.add_namespace(HOME)
        yield Catalog("iceberg", {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"})


def versions(db: Any) -> list[int]:
    listed = db.namespace_client().list_table_versions(ListTableVersionsRequest(id=[*HOME, "t"]))
    return sorted(version.version for version in listed.versions)


def test_each_change_is_a_version_that_the_catalog_commits(db: Any) -> None:
    table = db.create_table("t", ROWS, namespace_path=HOME)
    table.add([{"id": 10, "vector": [10.0, 0.0]}])
    table.update(where="id = 1", values={"id": 100})
    table.delete("id < 5")
    table.merge_insert("id").when_not_matched_insert_all().execute(ROWS[:2])
    table.create_index("id", config=BTree())
    assert table.search([9.6, 0.0]).limit(2).to_list()[0]["id"] == 10
    table.checkout(1)
    table.restore()
    assert versions(db) == list(range(1, 8))
    assert db.open_table("t", namespace_path=HOME).count_rows() == 10
    assert db.open_table("t", namespace_path=HOME, version=2).count_rows() == 11
    assert db.create_table("t", ROWS[:3], namespace_path=HOME, mode="overwrite").count_rows() == 3
    assert table.to_lance().count_rows() == 10 and db.open_table("t", namespace_path=HOME).version == 8


def test_a_change_costs_two_calls_and_opening_one_more(db: Any) -> None:
    table = db.create_table("t", ROWS, namespace_path=HOME)
    calls: list[Call] = []
    changes: list[Callable[[], Any]] = [lambda: table.add(ROWS), lambda: table.delete("id < 5")]
    changes.append(lambda: table.create_index("id"))
    with db.namespace_client().observe(calls.append):
        for change in changes:
            calls.clear()
            change()
            assert [call.operation for call in calls] == ["create_table_version"] * 2
        calls.clear()
        db.open_table("t", namespace_path=HOME)
        assert [call.operation for call in calls] == ["describe_table", "list_table_versions"]


def test_writers_at_once_lose_nothing(db: Any) -> None:
    db.create_table("t", ROWS, namespace_path=HOME)

    def add(n: int) -> None:
        db.open_table("t", namespace_path=HOME).add([{"id": n, "vector": [0.0, 0.0]}])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(100, 112)))
    assert db.open_table("t", namespace_path=HOME).count_rows("id >= 100") == 12
    assert versions(db) == list(range(1, 14))


async def test_async(catalog: Catalog) -> None:
    async with async_connected(catalog) as db:
        await (await db.create_table("t", ROWS, namespace_path=HOME)).add(ROWS)
        assert await (await db.open_table("t", namespace_path=HOME)).version() == 2
        await db.drop_table("t", namespace_path=HOME)
