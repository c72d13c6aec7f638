"""Costs and limits of operations on tables: storage requests, turns of the event loop, threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import CountTableRowsRequest, CreateNamespaceRequest, InsertIntoTableRequest
from lance_namespace.errors import TableNotFoundError

from lance_ns_async import AsyncNamespace, Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.engine import locate
from lance_ns_async.storage import opening, threads
from tests.documentation.pages import Page
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.memory import MemoryBackend, over
from tests.fakes.s3 import FakeS3
from tests.support.lake import ID, ROWS, lake, stream
from tests.support.polaris import QUICK

pytestmark = [pytest.mark.bare, pytest.mark.environment]
COUNT = CountTableRowsRequest(id=ID)


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as running:
        yield running


@asynccontextmanager
async def on(s3: FakeS3) -> AsyncIterator[AsyncNamespace]:
    """Provides a catalog whose only table is in that storage."""
    stored = {f"storage.{key}": value for key, value in s3.options.items()}
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": "s3://lake", **stored, **QUICK}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.create_namespace(CreateNamespaceRequest(id=ID[:-1]))
            await ns.write(ID, ROWS)
            yield ns


async def test_an_open_costs_one_listing(s3: FakeS3) -> None:
    """As much as the check of an open dataset for a newer version."""
    async with on(s3) as ns:
        dataset = await ns.open(ID)
        await ns.count_table_rows(COUNT)
        calls: list[Call] = []
        s3.clear()
        with ns.observe(calls.append):
            assert (await ns.count_table_rows(COUNT)).count == 3
        requests = [str(request) for request in s3.requests]
        s3.clear()
        await asyncio.to_thread(dataset.checkout_latest)
        assert requests == [str(request) for request in s3.requests]
    assert [call.operation for call in calls] == ["describe_table"]
    (listing,) = requests
    assert listing.startswith("GET /lake?") and "list-type=2" in listing


@pytest.mark.parametrize(("managed", "read", "change"), [(False, 1, 1), (True, 2, 4)])
async def test_costs_where_the_catalog_commits_versions(tmp_path: Path, managed: bool, read: int, change: int) -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), **QUICK}
        async with AsyncNamespace.connect("iceberg", properties | ({"managed_by": "impl"} if managed else {})) as ns:
            await ns.create_namespace(CreateNamespaceRequest(id=ID[:-1]))
            await ns.write(ID, ROWS)
            server.clear()
            await ns.count_table_rows(COUNT)
            assert len(server.requests) == read
            server.clear()
            await ns.insert_into_table(InsertIntoTableRequest(id=ID), stream(ROWS))
            assert len(server.requests) == change


async def test_no_more_datasets_are_worked_on_at_once_than_there_are_threads(s3: FakeS3) -> None:
    many = 3 * threads.THREADS
    async with on(s3) as ns:
        s3.clear()
        # So that as many as possible are concurrent.
        s3.delay(0.05)
        with s3.hold() as hold:
            async with asyncio.TaskGroup() as group:
                counts = [group.create_task(ns.count_table_rows(COUNT)) for _ in range(many)]
                await hold.reached(threads.THREADS)
                hold.release()
        assert [task.result().count for task in counts] == [3] * many
        assert s3.most_in_flight == threads.THREADS


class Frame:
    """A data frame for Arrow that provides columns and rows only while the event loop is running."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __arrow_c_stream__(self, schema: object = None) -> object:
        self._turn()
        return pa.RecordBatchReader.from_batches(ROWS.schema, self._batches()).__arrow_c_stream__(schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in ROWS.to_batches(max_chunksize=1):
            self._turn()
            yield batch

    def _turn(self) -> None:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(timeout=10)


async def test_the_loop_turns_while_rows_come(tmp_path: Path) -> None:
    async with lake(tmp_path) as here:
        for mode in ("create", "append", "overwrite"):
            await here.ns.write(ID, Frame(), mode=mode)
        assert (await here.dataset()).version == 3


async def turns(work: Coroutine[Any, Any, Any]) -> int:
    """Returns the number of turns of the event loop until the call returns TableNotFoundError."""

    async def missed() -> None:
        with pytest.raises(TableNotFoundError):
            await work

    async with asyncio.TaskGroup() as group:
        task, result = group.create_task(missed()), 0
        while not task.done():
            await asyncio.sleep(0)
            result += 1
    return result


async def test_the_loop_turns_while_rows_are_moved_in_memory() -> None:
    """The table does not exist, so nothing else is waited for; with a blocked loop, there would be two turns."""
    data = stream(pa.table({"d": pa.repeat(pa.scalar(Decimal("1.5"), pa.decimal128(20, 3)), 2_000_000)}))
    with pa.ipc.open_stream(pa.py_buffer(memoryview(bytes(8) + data)[8:])) as reader:
        rows = reader.read_all()
    _, values = rows["d"].chunk(0).buffers()
    assert values.address % 16 == 8
    ns = over(MemoryBackend())
    assert await turns(ns.write(["t"], rows, mode="append")) > 4
    assert await turns(ns.insert_into_table(InsertIntoTableRequest(id=["t"]), data)) > 4


def test_the_page_names_the_bounds() -> None:
    text = " ".join(Page("operations.md").text.split())
    assert f"indexes (up to {opening.INDEX_CACHE_BYTES >> 20} MiB)" in text
    assert f"manifests ({opening.METADATA_CACHE_BYTES >> 20} MiB)" in text
    assert f"work on at most {threads.THREADS} datasets concurrently" in text
    assert f"`operation_timeout` limits each operation, by default to {Policy().operation_timeout:g} s" in text
    assert f"remembered for {locate.REMEMBERED_TABLES:,} tables" in text
    assert locate.REMEMBERED_SECONDS == 1 and "within one second after" in text
