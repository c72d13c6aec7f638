"""The background loop: interruptions, closes and forks leave no work and lose none."""

from __future__ import annotations

import asyncio
import linecache
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import certifi
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async import AsyncNamespace, IcebergNamespace, TableId
from lance_ns_async.facade import background_loop
from lance_ns_async.facade.background_loop import BackgroundLoop
from tests.fakes.iceberg import FakeIceberg
from tests.unit.facade.test_base import run
from tests.unit.test_sync import assert_no_loop

pytestmark = [pytest.mark.bare, pytest.mark.environment]


class Interrupter:
    """A trace function that interrupts at the nth executed line of the module."""

    def __init__(self, lines: int) -> None:
        self.left = lines
        self.at = ""
        """The source of the line at which it interrupted."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != background_loop.__file__:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.at = linecache.getline(background_loop.__file__, frame.f_lineno).strip()
                raise KeyboardInterrupt
        return self


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def others() -> int:
    """Returns the tasks other than this one and the loop's own, after all ending tasks have ended."""
    for _ in range(3):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks()) - 1


def test_an_interrupt_at_any_line_leaves_nothing_under_way() -> None:
    lease = BackgroundLoop.lease()
    tracing = sys.gettrace()
    for lines in count(1):
        interrupter = Interrupter(lines)
        work = forever()
        try:
            sys.settrace(interrupter)
            with pytest.raises(KeyboardInterrupt):
                lease.run(work)
        finally:
            sys.settrace(tracing)
            # A tracer interrupts where no signal does: at the end of a block under the lock, which then stays locked.
            while background_loop._lock._is_owned():  # type: ignore[attr-defined]  # of the standard library, and not typed
                background_loop._lock.release()
        # If it was not started, Python itself warns that it was never awaited.
        work.close()
        assert lease.run(others()) == 0, interrupter.at
        if "_INTERRUPT_INTERVAL" in interrupter.at:
            break
    assert lines > 5
    lease.release()


@pytest.fixture
def lease() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop.lease()
    yield loop
    loop.release()


async def current_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def test_work_is_awaited_in_another_loop(lease: BackgroundLoop) -> None:
    assert await lease.arun(current_loop()) is lease._loop is not asyncio.get_running_loop()


def test_work_is_awaited_in_the_loop_itself(lease: BackgroundLoop) -> None:
    async def inside() -> asyncio.AbstractEventLoop:
        return await lease.arun(current_loop())

    assert lease.run(inside()) is lease._loop


async def test_a_cancelled_wait_cancels_the_work(lease: BackgroundLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    waiting = asyncio.create_task(lease.arun(work()))
    assert await asyncio.to_thread(begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(ended.wait, 10)


async def test_work_that_ends_with_the_loop_is_no_cancellation() -> None:
    loop = BackgroundLoop.lease()
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await forever()

    waiting = asyncio.create_task(loop.arun(work()))
    assert await asyncio.to_thread(begun.wait, 10)
    loop.release()
    with pytest.raises(InvalidInputError, match="the namespace was closed during the call"):
        await waiting
    with pytest.raises(InvalidInputError, match="was closed"):
        await loop.arun(current_loop())


def test_a_context_is_kept_open_by_one_task(lease: BackgroundLoop) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[str]:
        async with asyncio.TaskGroup():
            tasks.append(asyncio.current_task())
            yield "value"
        tasks.append(asyncio.current_task())

    with lease.keep_open(context()) as value:
        assert value == "value" and len(tasks) == 1
    assert len(tasks) == 2 and tasks[0] is tasks[1]
    with pytest.raises(ZeroDivisionError), lease.keep_open(context()):
        raise ZeroDivisionError
    assert len(tasks) == 4 and lease.run(others()) == 0


def test_a_context_that_cannot_be_entered_raises_its_error(lease: BackgroundLoop) -> None:
    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        raise InvalidInputError("port 1: it is in use") from OSError(98, "in use")
        yield

    with pytest.raises(InvalidInputError, match="port 1") as raised, lease.keep_open(context()):
        pass
    assert isinstance(raised.value.__cause__, OSError) and lease.run(others()) == 0


@pytest.fixture
def quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@contextmanager
def held_open(loop: BackgroundLoop) -> Iterator[None]:
    """Prevents the loop from closing after it has stopped, because it waits for a thread, as for a DNS lookup."""
    release = threading.Event()

    async def occupy() -> None:
        asyncio.get_running_loop().run_in_executor(None, release.wait)

    loop.run(occupy())
    try:
        yield
    finally:
        release.set()


async def answer() -> int:
    return 42


def test_a_loop_that_ends_takes_no_work() -> None:
    loop = BackgroundLoop.lease()
    with held_open(loop), ThreadPoolExecutor(1) as pool:
        assert pool.submit(loop.run, answer()).result(10) == 42
        loop.release()
        for _ in range(100):
            with pytest.raises(InvalidInputError, match="the namespace was closed"):
                pool.submit(loop.run, answer()).result(10)
        anew = BackgroundLoop.lease()
        assert anew is not loop and anew.run(answer()) == 42
        anew.release()
    assert_no_loop()


def test_a_listing_is_never_cut_short_by_the_end_of_the_loop(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    loop = BackgroundLoop.lease()
    with held_open(loop), ThreadPoolExecutor(1) as pool:
        tables = ns.iter_tables(recursive=True)
        assert next(tables) == TableId(["db", "t"])
        loop.release()
        ns.close()
        with pytest.raises(InvalidInputError, match="the namespace was closed"):
            pool.submit(list, tables).result(10)
    assert_no_loop()


def test_a_listing_is_never_cut_short_by_closing_its_namespace_alone(server: FakeIceberg) -> None:
    with IcebergNamespace(endpoint=server.endpoint) as other:
        ns = IcebergNamespace(endpoint=server.endpoint)
        tables = ns.iter_tables(recursive=True)
        assert other.exists(["db", "t"]) and next(tables) == TableId(["db", "t"])
        ns.close()
        with pytest.raises(LanceNamespaceError, match="closed"):
            list(tables)
        assert other.exists(["db", "t"])


@pytest.mark.usefixtures("quick_switches")
def test_calls_that_race_with_the_end_of_the_loop_all_come_back() -> None:
    def ask(loop: BackgroundLoop) -> str:
        try:
            while True:
                loop.run(answer())
        except InvalidInputError as e:
            return str(e)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(30):
            loop = BackgroundLoop.lease()
            asking = [pool.submit(ask, loop) for _ in range(8)]
            loop.run(answer())
            loop.release()
            assert all("closed" in one.result(10) for one in asking)
    assert_no_loop()


@pytest.mark.usefixtures("quick_switches")
def test_what_is_closed_while_it_opens_stays_closed(server: FakeIceberg) -> None:
    def ask(ns: IcebergNamespace, start: threading.Barrier) -> None:
        start.wait()
        with pytest.raises(LanceNamespaceError, match="closed"):
            while True:
                ns.exists(["db", "t"])

    def close(ns: IcebergNamespace, start: threading.Barrier) -> None:
        start.wait()
        ns.close()
        with pytest.raises(InvalidInputError, match="it is closed; connect anew"):
            ns.exists(["db", "t"])

    with ThreadPoolExecutor(5) as pool:
        for _ in range(30):
            ns, start = IcebergNamespace(endpoint=server.endpoint), threading.Barrier(5)
            for one in [pool.submit(do, ns, start) for do in (ask, ask, close, ask, ask)]:
                one.result(10)
            assert_no_loop()


def test_who_exits_in_the_background_exits_where_it_was_called(server: FakeIceberg) -> None:
    async def leave(client: AsyncNamespace) -> None:
        sys.exit(3)

    with IcebergNamespace(endpoint=server.endpoint) as ns:
        with pytest.raises(SystemExit) as exited:
            ns.run(leave)
        assert exited.value.code == 3 and ns.exists(["db", "t"])


def test_what_was_read_to_connect_is_not_read_again(server: FakeIceberg, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    shutil.copy(certifi.where(), bundle)
    with IcebergNamespace(endpoint=server.endpoint, ca_bundle=str(bundle)) as ns:
        bundle.unlink()
        assert ns.exists(["db", "t"])


FORK = """
        import os, sys, warnings
        from lance_ns_async import IcebergNamespace

        # Of what the child inherits, and may not close.
        warnings.simplefilter("ignore", ResourceWarning)

        for used in True, False:
            calls = []
            ns = IcebergNamespace(endpoint=sys.argv[1], attempt_timeout="20s")
            if used:
                assert ns.exists(["db", "t"])
            tables, namespaces = ns.iter_tables(recursive=True), ns.iter_namespaces(recursive=True)
            with warnings.catch_warnings(record=True, action="always") as told: process = os.fork()
            assert all("is multi-threaded" in str(it.message) for it in told)
            if not process:
                print("child", *tables, *namespaces, flush=True)
                os._exit(0)
            with ns.observe(calls.append):
                os.waitpid(process, 0)
                print("parent", *tables, *namespaces, flush=True)
            assert {call.outcome for call in calls} == {"ok"}
            ns.close()
        """


def test_an_iterator_made_before_a_fork_belongs_to_its_first_user(server: FakeIceberg) -> None:
    output, complaints = run(FORK, server.endpoint)
    assert output.splitlines() == ["child db$t db$inner$u db db$inner", "parent db$t db$inner$u db db$inner"] * 2
    assert not complaints


def test_a_callback_may_close_the_namespace(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    assert len(ns.describe_tables([["db", "t"]], progress=lambda *_: ns.close())) == 1
    with pytest.raises(InvalidInputError, match="it is closed"):
        ns.exists(["db", "t"])
    assert_no_loop()


def test_what_is_first_used_while_the_interpreter_ends_is_refused(tmp_path: Path) -> None:
    script = """
        import sys
        from lance_ns_async import DirNamespace
        class Late:
            def __init__(self, root):
                self.ns, self.me = DirNamespace(root=root), self
            def __del__(self):
                try:
                    self.ns.exists(["t"])
                except Exception as e:
                    print(sys.is_finalizing(), type(e).__name__, e, flush=True)
        late = Late(sys.argv[1])
        """
    output, _ = run(script, str(tmp_path))
    assert output == "True InvalidInputError the interpreter is ending; use the namespace before that"


def test_who_stops_the_loop_stops_nobody_else() -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)

    loop = BackgroundLoop.lease()
    loop.run(stop())
    assert loop.run(answer()) == 42
    loop.release()
    assert_no_loop()
