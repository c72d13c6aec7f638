"""Writes that are abandoned: rows that were not committed by then never are, and none of their files is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError, ThrottlingError

from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage import arrow, threads
from tests.fakes.clock import pass_time
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import FakeS3
from tests.support.budget import with_usual
from tests.support.lake import ROWS, stream

pytestmark = [pytest.mark.environment, pytest.mark.long]
ID = ["t"]
AGES = 1000.0
"""Seconds; no operation takes as long."""

SCRIPT = """
import sys
import pyarrow as pa
from lance_ns_async import Namespace
from lance_ns_async.storage import threads

root, mode = sys.argv[1:]
schema = pa.schema([("id", pa.int64())])

def batches():
    (work,) = threads._calling
    print("begun", flush=True)
    work.given_up.wait()
    yield pa.record_batch([[9]], schema=schema)

with Namespace.connect("dir", {"root": root}) as ns:
    ns.write(["t"], pa.RecordBatchReader.from_batches(schema, batches()), mode=mode)
"""


class Slow:
    """Rows that arrive on demand, after a number of batches that arrive at once."""

    def __init__(self, before: int = 0) -> None:
        self._before = before
        self.begun = threading.Event()
        self._go_on = threading.Event()

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(ROWS.schema, self._batches())

    def go_on(self) -> None:
        """Lets the rows arrive."""
        self._go_on.set()

    async def goes_on(self) -> None:
        """Lets the rows arrive; returns when their writer has ended."""
        self.go_on()
        await ended()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches() * self._before
        self.begun.set()
        self._go_on.wait()
        yield from ROWS.to_batches()


def connected(root: Path) -> AsyncNamespace:
    return AsyncNamespace.connect("dir", {"root": str(root)})


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def ended() -> None:
    """Returns when no work is reading rows."""

    def wait() -> None:
        while threads._calling:
            time.sleep(0.01)

    with anyio.fail_after(30):
        await anyio.to_thread.run_sync(wait, abandon_on_cancel=True)


async def given_up(work: Awaitable[Any], slow: Slow) -> None:
    """Cancels the work after it has begun to read the rows."""
    task = asyncio.ensure_future(work)
    await anyio.to_thread.run_sync(slow.begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_a_table_that_is_cancelled_while_it_is_created_leaves_nothing(tmp_path: Path, before: int) -> None:
    slow = Slow(before)
    async with connected(tmp_path) as ns:
        await given_up(ns.write(ID, slow.reader()), slow)
        assert not await ns.exists(ID)
        await slow.goes_on()
        assert files(tmp_path / "t.lance") == [] and (await ns.write(ID, ROWS)).to_table() == ROWS


async def test_rows_take_the_time_that_they_take(tmp_path: Path) -> None:
    slow = Slow(1)
    async with connected(tmp_path) as ns:
        writing = asyncio.ensure_future(ns.write(ID, slow.reader()))
        await anyio.to_thread.run_sync(slow.begun.wait)
        await pass_time(AGES)
        slow.go_on()
        assert (await writing).count_rows() == 2 * ROWS.num_rows


async def test_a_storage_that_takes_too_long_is_reported_and_nothing_is_left() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            await ns.create_namespace({"id": ["a"]})
            with server.hold(r"PUT .*(?<!__manifest)/data/") as hold:
                writing = asyncio.ensure_future(ns.write(["a", "t"], ROWS))
                await hold.reached()
                await pass_time(AGES)
                message = "did not answer within the operation's time; whether it took effect is unknown"
                with pytest.raises(ServiceUnavailableError, match=message):
                    await writing
            await ended()
            assert not await ns.exists(["a", "t"])


@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_storage_that_denies_a_first_version_fails_no_write(is_declared: bool) -> None:
    """The manifest cannot be read right after its commit, as on a store that is not consistent."""
    with FakeS3() as server, FakeIceberg() as catalog:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        catalog.add_namespace(["a"])
        async with AsyncNamespace.connect("iceberg", {"endpoint": catalog.url, "root": "s3://lake", **storage}) as ns:
            if is_declared:
                await ns.declare_table({"id": ["a", "t"]})
            missing = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
            server.fail(404, match="^(GET|HEAD) .*/_versions/", times=None, body=missing)
            await ns.write(["a", "t"], ROWS, mode="append" if is_declared else "create")
            server.heal()
            assert (await ns.open(["a", "t"])).to_table() == ROWS


Write = Callable[[AsyncNamespace, pa.RecordBatchReader], Awaitable[Any]]
WRITES: dict[str, Write] = {
    "append": lambda ns, rows: ns.write(ID, rows, mode="append"),
    "overwrite": lambda ns, rows: ns.write(ID, rows, mode="overwrite"),
}


@pytest.mark.parametrize("write", WRITES)
async def test_what_is_cancelled_while_it_reads_its_rows_is_never_committed(tmp_path: Path, write: str) -> None:
    slow = Slow()
    async with connected(tmp_path) as ns:
        before = await ns.write(ID, ROWS)
        kept = files(tmp_path / "t.lance")
        await given_up(WRITES[write](ns, slow.reader()), slow)
        await slow.goes_on()
        assert (await ns.open(ID)).version == before.version == 1 and files(tmp_path / "t.lance") == kept


async def test_rows_that_come_too_late_to_be_read_at_all_are_not_waited_for(tmp_path: Path) -> None:
    class Late:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            begun.set()
            release.wait()
            return ROWS.__arrow_c_stream__(requested_schema)

    begun, release = threading.Event(), threading.Event()
    async with connected(tmp_path) as ns:
        writing = asyncio.ensure_future(ns.write(ID, Late()))
        await anyio.to_thread.run_sync(begun.wait)
        await pass_time(AGES)
        with pytest.raises(ServiceUnavailableError, match="the data was not read within the operation's time"):
            await writing
        assert not await ns.exists(ID)
    release.set()


async def test_a_table_is_read_in_pieces_and_no_further_once_it_is_given_up() -> None:
    rows = pa.table({"id": pa.array(range(4 * arrow._BATCH_BYTES // 8))})
    begun, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []

    def work() -> None:
        for batch in arrow.stoppable(rows):
            sizes.append(batch.num_rows)
            begun.set()
            go_on.wait()

    task = asyncio.ensure_future(threads.in_thread(Table(TableId(ID), "memory://t", {}), work))
    await anyio.to_thread.run_sync(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await ended()
    assert sizes == [arrow._BATCH_BYTES // 8]


async def test_a_table_in_pieces_is_the_same_table(tmp_path: Path) -> None:
    rows = pa.table({"id": range(1000), "word": ["x" * 50_000] * 1000}).slice(3)
    async with connected(tmp_path) as ns:
        assert (await ns.write(ID, rows)).to_table() == rows
        assert (await ns.write(ID, rows.to_batches()[0], mode="overwrite")).to_table() == rows
        assert (await ns.insert_into_table({"id": ID}, stream(rows))).num_inserted_rows == 997


@pytest.mark.parametrize("mode", with_usual(["create", "append", "overwrite"], "overwrite"))
def test_an_interrupted_script_ends_cleanly_and_nothing_comes_after(tmp_path: Path, mode: str) -> None:
    if mode != "create":
        lance.write_dataset(pa.table({"id": [1]}), tmp_path / "t.lance")
    before = files(tmp_path / "t.lance")
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path), mode]
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Background processes of a shell ignore the signal, and so do their children.
    heeding = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, text=True, env=env, **pipes)
    finally:
        signal.signal(signal.SIGINT, heeding)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (1, -signal.SIGINT, 130) and errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert "Fatal" not in errors and files(tmp_path / "t.lance") == before


async def test_what_the_callers_rows_raise_is_reported_unchanged(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise ZeroDivisionError("their own")

    async with connected(tmp_path) as ns:
        for mode in ("create", "append", "overwrite"):
            if mode == "append":
                await ns.write(ID, ROWS)
            rows = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
            message = r"could not be read \(ZeroDivisionError: their own\)"
            with pytest.raises(InvalidInputError, match=message) as raised:
                await ns.write(ID, rows, mode=mode)
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert (await ns.open(ID)).version == 1


async def test_an_error_of_the_spec_that_the_rows_raise_is_raised(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        raise ThrottlingError("Throttled: the source")
        yield

    async with connected(tmp_path) as ns:
        with pytest.raises(ThrottlingError, match=r"^Throttled: the source$"):
            await ns.write(ID, pa.RecordBatchReader.from_batches(ROWS.schema, batches()))
        assert not await ns.exists(ID)


def test_rows_may_come_of_the_namespace_that_they_are_written_to(tmp_path: Path) -> None:
    """As many writes as there are threads for writing."""
    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        ns.write(ID, ROWS)
        together = threading.Barrier(threads.THREADS)

        def batches() -> Iterator[pa.RecordBatch]:
            together.wait(30)
            yield pa.record_batch([[ns.count_table_rows({"id": ID}).count]], names=["rows"])

        def write(number: int) -> int:
            rows = pa.RecordBatchReader.from_batches(pa.schema([("rows", pa.int64())]), batches())
            written: int = ns.write([f"w{number}"], rows).to_table()["rows"][0].as_py()
            return written

        with ThreadPoolExecutor(threads.THREADS) as pool:
            assert list(pool.map(write, range(threads.THREADS))) == [ROWS.num_rows] * threads.THREADS


async def test_rows_are_released_before_the_work_has_ended() -> None:
    # Released later, in a thread of the loop, they could outlive the interpreter, which then aborts the process.
    class Rows:
        pass

    references: list[weakref.ref[Rows]] = []
    works: list[threads.Work] = []

    def use(rows: Rows) -> None:
        works.append(threads.under_way())
        works[0].will_read(rows)

    def start() -> Awaitable[None]:
        rows = Rows()
        references.append(weakref.ref(rows))
        return threads.in_thread(Table(TableId(ID), "somewhere"), partial(use, rows), kind="writing")

    await start()
    assert works[0].given_up.is_set() and references[0]() is None
