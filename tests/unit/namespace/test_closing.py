"""The sync namespace is closed, or its process is forked, during operations: nothing hangs or is lost."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import certifi
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async import AsyncNamespace, IcebergNamespace, TableId
from lance_ns_async.namespace.background_loop import BackgroundLoop
from tests.fakes.iceberg import FakeIceberg
from tests.unit.namespace.test_processes import run
from tests.unit.namespace.test_sync import assert_no_loop


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
        assert exited.value.code == 3
        assert ns.exists(["db", "t"])


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
            process = os.fork()
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
    described = ns.describe_tables([["db", "t"]], progress=lambda *_: ns.close())
    assert len(described) == 1
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
