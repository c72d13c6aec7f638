"""Copies of tables whose versions a catalog commits, and of data."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    InsertIntoTableRequest,
)

from lance_ns_async import AsyncNamespace, Table, TableId
from lance_ns_async.fleet.copies import copy
from lance_ns_async.fleet.copy_plan import Mode
from tests.fakes.iceberg import FakeIceberg
from tests.support.lake import ROWS, stream
from tests.support.outcomes import table_counts

Lakes = tuple[AsyncNamespace, AsyncNamespace]
ORDERS = TableId(["sales", "orders"])


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """A catalog that commits the versions of `sales.orders`, which has two."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": (tmp_path / "source").as_uri(), "managed_by": "impl"}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.create_namespace(CreateNamespaceRequest(id=["sales"]))
            await ns.create_table(CreateTableRequest(id=list(ORDERS), properties={"k": "v"}), stream(ROWS))
            await insert(ns)
            yield ns


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """An empty catalog that would commit the versions of tables, too."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": (tmp_path / "target").as_uri(), "managed_by": "impl"}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            yield ns


async def insert(ns: AsyncNamespace) -> None:
    await ns.insert_into_table(InsertIntoTableRequest(id=list(ORDERS)), stream(ROWS))


async def count(ns: AsyncNamespace) -> int | None:
    return (await ns.count_table_rows(CountTableRowsRequest(id=list(ORDERS)))).count


async def describe(ns: AsyncNamespace) -> Table:
    return (await ns.describe_tables([ORDERS])).raise_for_errors().tables[ORDERS]


async def test_versions_that_a_catalog_commits_stay_with_it(source: AsyncNamespace, target: AsyncNamespace) -> None:
    report = await copy(source, target)
    assert table_counts(report) == {"refused": 1} and "use take_over" in str(report.problems)
    assert (await describe(source)).managed_versioning and not await target.exists(ORDERS)


async def test_versions_are_handed_over_to_the_storage(source: AsyncNamespace, target: AsyncNamespace) -> None:
    report = await copy(source, target, take_over=True)
    assert table_counts(report) == {"created": 1}
    for ns in (source, target):
        table = await describe(ns)
        assert not table.managed_versioning and (table.properties or {})["k"] == "v"
        assert await count(ns) == 6
    await insert(target)
    await insert(source)
    assert await count(source) == await count(target) == 12
    assert table_counts(await copy(source, target, take_over=True, mode="sync", delete=True)) == {"unchanged": 1}


async def test_no_hand_over_if_catalog_and_storage_differ(source: AsyncNamespace, target: AsyncNamespace) -> None:
    folder = Path((await describe(source)).location.removeprefix("file://")) / "_versions"
    second = min(folder.iterdir())
    number = 2**64 - 1 - 3
    shutil.copy(second, folder / f"{number:020}.manifest")
    report = await copy(source, target, take_over=True)
    assert "its catalog committed version 2, and the newest manifest" in str(report.problems)
    assert (await describe(source)).managed_versioning and not await target.exists(ORDERS)


async def test_data_is_cloned_to_the_root_of_the_target(
    source: AsyncNamespace, target: AsyncNamespace, tmp_path: Path
) -> None:
    await source.declare_table(DeclareTableRequest(id=["sales", "empty"]))
    report = await copy(source, target, data=True, take_over=False)
    assert table_counts(report) == {"created": 2}
    original, clone = await describe(source), await describe(target)
    assert original.managed_versioning and not clone.managed_versioning
    assert clone.location.startswith((tmp_path / "target").as_uri()) and (clone.properties or {})["k"] == "v"
    assert await target.exists(["sales", "empty"])
    assert table_counts(await copy(source, target, data=True, mode="sync")) == {"unchanged": 2}
    shutil.rmtree(tmp_path / "source")
    assert await count(target) == 6


async def test_a_sync_clones_later_versions_to_a_new_location(source: AsyncNamespace, target: AsyncNamespace) -> None:
    await copy(source, target, data=True)
    earlier = await describe(target)
    await insert(source)
    report = await copy(source, target, data=True)
    assert table_counts(report) == {"conflict": 1}
    assert "its data has version 2, that of the source 3; use mode='sync'" in str(report.problems)
    report = await copy(source, target, data=True, mode="sync")
    assert table_counts(report) == {"changed": 1} and earlier.location in report.rows[0].reason
    later = await describe(target)
    assert later.location != earlier.location and not later.managed_versioning
    assert await count(target) == 9
    assert len(lance.dataset(earlier.location)) == 6
    assert table_counts(await copy(source, target, data=True, mode="sync", delete=True)) == {"unchanged": 1}


@pytest.fixture
async def lakes(tmp_path: Path) -> AsyncIterator[Lakes]:
    """Two directory catalogs with a namespace."""
    async with (
        AsyncNamespace.connect("dir", {"root": str(tmp_path / "a")}) as one,
        AsyncNamespace.connect("dir", {"root": str(tmp_path / "b")}) as other,
    ):
        for ns in (one, other):
            await ns.create_namespace({"id": ["sales"]})
        yield one, other


@pytest.mark.parametrize("mode", ["create", "sync"])
async def test_a_table_of_others_with_the_same_version_is_a_conflict(lakes: Lakes, mode: Mode) -> None:
    source, target = lakes
    others = pa.table({"other": ["a"]})
    await source.write(ORDERS, ROWS)
    await target.write(ORDERS, others)
    report = await copy(source, target, data=True, mode=mode)
    assert table_counts(report) == {"conflict": 1} and "but other files, and it was not cloned" in str(report.problems)
    assert (await target.open(ORDERS)).to_table() == others


@pytest.mark.parametrize("mode", ["create", "sync"])
async def test_a_source_that_was_created_again_is_another_one(lakes: Lakes, mode: Mode) -> None:
    source, target = lakes
    await source.write(ORDERS, ROWS)
    await copy(source, target, data=True)
    await source.drop_table({"id": list(ORDERS)})
    new = ROWS.slice(1)
    await source.write(ORDERS, new)
    report = await copy(source, target, data=True, mode=mode)
    assert table_counts(report) == ({"conflict": 1} if mode == "create" else {"changed": 1})
    assert (await target.open(ORDERS)).to_table() == (ROWS if mode == "create" else new)


async def test_a_clone_that_others_changed_is_a_conflict(lakes: Lakes) -> None:
    """Both sides have the same version afterwards."""
    source, target = lakes
    await source.write(ORDERS, ROWS)
    await copy(source, target, data=True)
    for ns in lakes:
        await insert(ns)
    report = await copy(source, target, data=True, mode="sync")
    assert table_counts(report) == {"conflict": 1} and await count(target) == 6


async def test_a_second_clone_that_fails_leaves_the_first(lakes: Lakes, tmp_path: Path) -> None:
    source, target = lakes
    await source.write(ORDERS, ROWS)
    await copy(source, target, data=True)
    before = sorted(path for path in (tmp_path / "b").rglob("*") if path.is_file())
    await insert(source)
    folder = Path((await describe(source)).location.removeprefix("file://")) / "data"
    max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns).unlink()
    assert table_counts(await copy(source, target, data=True, mode="sync")) == {"failed": 1}
    assert await count(target) == 3
    assert sorted(path for path in (tmp_path / "b").rglob("*") if path.is_file()) == before


async def test_a_clone_at_a_fixed_location_is_a_conflict(tmp_path: Path) -> None:
    async with (
        AsyncNamespace.connect("dir", {"root": str(tmp_path / "a")}) as source,
        AsyncNamespace.connect("dir", {"root": str(tmp_path / "b")}) as target,
    ):
        await source.write(["t"], ROWS)
        await copy(source, target, data=True)
        await source.write(["t"], ROWS, mode="append")
        report = await copy(source, target, data=True, mode="sync")
        assert table_counts(report) == {"conflict": 1} and "drop it to clone the data again" in str(report.problems)


async def test_a_registration_without_data_gets_it_by_a_sync(source: AsyncNamespace, target: AsyncNamespace) -> None:
    await target.create_namespace(CreateNamespaceRequest(id=["sales"]))
    properties = {"managed_by": "storage"}
    await target.declare_table(DeclareTableRequest(id=list(ORDERS), properties=properties))
    report = await copy(source, target, data=True)
    assert table_counts(report) == {"conflict": 1} and "exists without data" in str(report.problems)
    assert table_counts(await copy(source, target, data=True, mode="sync")) == {"created": 1}
    assert await count(target) == 6


async def test_a_clone_that_fails_leaves_nothing(
    source: AsyncNamespace, target: AsyncNamespace, tmp_path: Path
) -> None:
    folder = Path((await describe(source)).location.removeprefix("file://")) / "data"
    max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns).unlink()
    report = await copy(source, target, data=True)
    assert table_counts(report) == {"failed": 1}
    assert not await target.exists(ORDERS)
    assert not [path for path in (tmp_path / "target").rglob("*") if path.is_file()]


async def test_data_is_cloned_into_a_directory(source: AsyncNamespace, tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as lake:
        assert table_counts(await copy(source, lake)) == {"refused": 1}
        assert table_counts(await copy(source, lake, data=True)) == {"created": 1}
        assert await count(lake) == 6
