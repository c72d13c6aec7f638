"""Operations of the sync namespace: from any thread, inside running loops, after a close and without one."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import InternalError, InvalidInputError, LanceNamespaceError

from lance_ns_async import AsyncNamespace, IcebergNamespace, TableId
from tests.fakes.iceberg import FakeIceberg

pytestmark = [pytest.mark.bare, pytest.mark.environment]
TABLE = DescribeTableRequest(id=["db", "t"])
LOCATION = "s3://bucket/db/t.lance"


def loops() -> list[threading.Thread]:
    """Returns the threads of background loops."""
    return [thread for thread in threading.enumerate() if thread.name == "lance-ns-async"]


def assert_no_loop() -> None:
    for thread in loops():
        thread.join(10)
    assert not loops()


async def test_it_may_be_called_where_a_loop_runs(ns: IcebergNamespace) -> None:
    assert asyncio.get_running_loop().is_running() and ns.describe_table(TABLE).location == LOCATION
    assert list(ns.iter_tables(recursive=True)) == [TableId(["db", "t"]), TableId(["db", "inner", "u"])]
    assert await asyncio.to_thread(ns.exists, ["db", "t"])


def test_many_threads_may_begin_at_once_and_leave_nothing_behind(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    start = threading.Barrier(24)

    def ask(_: int) -> str | None:
        start.wait()
        return ns.describe_table(TABLE).location

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, range(24))) == [LOCATION] * 24
    assert len(loops()) == 1
    ns.close()
    assert_no_loop()


def test_namespaces_share_one_thread_that_ends_with_the_last(server: FakeIceberg) -> None:
    first, second = IcebergNamespace(endpoint=server.endpoint), IcebergNamespace(endpoint=server.endpoint)
    assert not loops(), "construction costs nothing"
    first.exists(["db", "t"])
    second.exists(["db", "t"])
    (thread,) = loops()
    first.close()
    assert second.exists(["db", "t"]) and thread.is_alive()
    second.close()
    assert_no_loop()
    with IcebergNamespace(endpoint=server.endpoint) as third:
        assert third.exists(["db", "t"]) and thread not in loops()


def test_closed_twice_is_closed_and_says_so(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    assert ns.exists(["db", "t"])
    ns.close()
    ns.close()
    for operation in (
        lambda: ns.describe_table(TABLE),
        lambda: ns.describe_tables([["db", "t"]]),
        lambda: next(ns.iter_tables(["db"])),
    ):
        with pytest.raises(InvalidInputError, match="it is closed; connect anew"):
            operation()
    assert_no_loop()


def test_closing_ends_the_calls_of_other_threads(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    with server.hold("tables/t") as hold, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ns.describe_table, TABLE)
        hold.wait_for()
        ns.close()
        with pytest.raises(LanceNamespaceError):
            asking.result(10)
    assert_no_loop()


def test_an_iterator_outlives_its_namespace_without_complaint(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    forgotten, started = ns.iter_tables(recursive=True), ns.iter_tables(recursive=True)
    next(forgotten)
    next(started)
    ns.close()
    assert_no_loop()
    del forgotten
    with pytest.raises(InvalidInputError, match="closed"):
        list(started)


def test_an_iterator_that_is_left_early_asks_no_more(ns: IcebergNamespace, server: FakeIceberg) -> None:
    for _ in ns.iter_tables(recursive=True):
        break
    count = len(server.requests)
    assert ns.exists(["db", "t"]) and len(server.requests) == count + 1


def test_a_call_from_its_own_loop_is_refused_instead_of_hanging(ns: IcebergNamespace) -> None:
    def call(_: int, total: int) -> None:
        ns.describe_table(TABLE)

    with pytest.raises(InternalError, match=r"called from its own event loop.*use AsyncNamespace there"):
        ns.describe_tables([["db", "t"]], progress=call)

    async def iterate(client: AsyncNamespace) -> list[TableId]:
        return list(ns.iter_tables())

    with pytest.raises(InternalError, match="called from its own event loop"):
        ns.run(iterate)
    assert ns.describe_table(TABLE).location == LOCATION


def test_an_interrupt_cancels_the_call(ns: IcebergNamespace, server: FakeIceberg) -> None:
    outcomes: queue.SimpleQueue[str] = queue.SimpleQueue()

    def interrupt() -> None:
        hold.wait_for()
        os.kill(os.getpid(), signal.SIGINT)

    assert ns.exists(["db", "t"])
    with ns.observe(lambda call: outcomes.put(call.outcome)), server.hold("tables/t") as hold:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            ns.describe_table(TABLE)
        assert outcomes.get(timeout=10) == "cancelled"
    assert ns.describe_table(TABLE).location == LOCATION


def test_a_forgotten_namespace_is_closed(server: FakeIceberg) -> None:
    ns = IcebergNamespace(endpoint=server.endpoint)
    assert ns.exists(["db", "t"])
    gone = weakref.ref(ns)
    del ns
    gc.collect()
    assert gone() is None
    assert_no_loop()
    gc.collect()
