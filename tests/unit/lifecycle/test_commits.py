"""Tables whose versions the catalog commits: all operations are committed there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import lance_namespace as spec
import pytest
from lance_namespace.errors import TableVersionNotFoundError, UnsupportedOperationError

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.model import Table
from lance_ns_async.storage.threads import THREADS
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.memory import MemoryBackend, over
from tests.support.budget import with_usual
from tests.support.lake import ID, ROWS, stream
from tests.support.polaris import QUICK

pytestmark = pytest.mark.environment


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """Provides a catalog that commits the versions of its tables."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl", **QUICK}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.create_namespace(spec.CreateNamespaceRequest(id=["n"]))
            yield ns


async def test_a_catalog_that_commits_versions_commits_ours(managed: AsyncNamespace) -> None:
    async def version() -> int | None:
        return (await managed.describe_table(spec.DescribeTableRequest(id=ID))).version

    await managed.create_table(spec.CreateTableRequest(id=ID), stream(ROWS))
    await managed.insert_into_table(spec.InsertIntoTableRequest(id=ID), stream(ROWS))
    assert await version() == 2
    again = spec.CreateTableRequest(id=ID, mode="overwrite", properties={"k": "v"})
    await managed.create_table(again, stream(ROWS))
    table = await managed.describe_table(spec.DescribeTableRequest(id=ID))
    assert table.version == 3 and table.managed_versioning and (table.properties or {})["k"] == "v"
    await managed.update_table(spec.UpdateTableRequest(id=ID, updates=[["id", "id + 1"]]))
    assert await version() == 4
    await managed.restore_table(spec.RestoreTableRequest(id=ID, version=2))
    assert (await managed.count_table_rows(spec.CountTableRowsRequest(id=ID))).count == 6
    assert (await managed.count_table_rows(spec.CountTableRowsRequest(id=ID, version=3))).count == 3
    await managed.create_table_tag(spec.CreateTableTagRequest(id=ID, tag="kept", version=1))
    assert list((await managed.list_table_tags(spec.ListTableTagsRequest(id=ID))).tags) == ["kept"]
    assert (await managed.write(ID, ROWS, mode="append")).version == await version() == 6
    with pytest.raises(TableVersionNotFoundError, match=r"^Table version not found: n\$t \(version 9"):
        await managed.open(ID, version=9)


async def test_such_a_catalog_has_no_branches(managed: AsyncNamespace) -> None:
    await managed.create_table(spec.CreateTableRequest(id=ID), stream(ROWS))
    with pytest.raises(UnsupportedOperationError, match=r"^Not supported: branches of n\$t"):
        await managed.create_table_branch(spec.CreateTableBranchRequest(id=ID, name="dev"))


@pytest.mark.parametrize("has_rows", [True, False])
async def test_of_many_that_write_at_once_none_is_lost(managed: AsyncNamespace, has_rows: bool) -> None:
    if has_rows:
        await managed.create_table(spec.CreateTableRequest(id=ID), stream(ROWS))
    else:
        await managed.declare_table(spec.DeclareTableRequest(id=ID))
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(managed.insert_into_table, spec.InsertIntoTableRequest(id=ID), stream(ROWS))
    assert (await managed.count_table_rows(spec.CountTableRowsRequest(id=ID))).count == (15 if has_rows else 12)


async def test_a_dataset_goes_on_when_its_namespace_is_closed(managed: AsyncNamespace) -> None:
    await managed.create_table(spec.CreateTableRequest(id=ID), stream(ROWS))
    dataset = await managed.open(ID)
    await managed.aclose()
    dataset.insert(ROWS)
    assert dataset.version == 2 and dataset.count_rows() == 6


async def test_only_a_namespace_made_by_connect_can_be_called_by_lance() -> None:
    backend, id = MemoryBackend(), TableId(["t"])
    backend.tables[id] = Table(id, "/nowhere", managed_versioning=True)
    ns = over(backend)
    with pytest.raises(UnsupportedOperationError, match=r"^Not supported: t \(its catalog commits its versions"):
        await ns.open(["t"])


@pytest.mark.parametrize("operation", with_usual(["open", "update", "append"], "append"))
def test_more_tables_than_threads_are_used_at_the_same_time(tmp_path: Path, operation: str) -> None:
    # Each operation occupies a thread, in which Lance waits for an operation on versions in the same event loop.
    many = [["n", f"t{number}"] for number in range(2 * THREADS)]
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl", **QUICK}
        with Namespace.connect("iceberg", properties) as ns, ThreadPoolExecutor(len(many)) as pool:
            ns.create_namespace({"id": ["n"]})
            for id in many:
                ns.write(id, ROWS)
            if operation == "open":
                assert len(ns.open_many(many).tables) == len(many)
                return
            changes: list[Future[Any]]
            if operation == "update":
                changes = [pool.submit(ns.update_table, {"id": id, "updates": [["id", "id + 1"]]}) for id in many]
            else:
                changes = [pool.submit(ns.write, id, ROWS, mode="append") for id in many]
            for change in changes:
                change.result()
            described = ns.describe_tables(many)
    assert [table.version for table in described.tables.values()] == [2] * len(many)
