"""The load of a namespace: its slots, its limit and its circuit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import ServiceUnavailableError

from lance_ns_async import AsyncNamespace, CallLoad, IcebergNamespace, Namespace, Policy
from tests.fakes.iceberg import FakeIceberg

TABLES = [["db", name] for name in "tuv"]
TABLE = DescribeTableRequest(id=["db", "t"])


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        for _, name in TABLES:
            running.add_table(["db"], name)
        yield running


async def test_calls_in_flight_and_waiting_calls_are_counted(server: FakeIceberg) -> None:
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint, "max_in_flight": "2"}) as ns:
        await ns.describe_table(TABLE)
        idle = ns.snapshot()
        assert idle == CallLoad(0, 0, 0, 2, 2, idle.retries_left, False, idle.slots_id) and idle.retries_left >= 100
        with server.hold("tables/") as hold:
            work = [asyncio.create_task(ns.describe_table(DescribeTableRequest(id=id))) for id in TABLES]
            await hold.reached(2)
            busy = ns.snapshot()
            assert (busy.in_flight, busy.waiting, busy.limit) == (2, 1, 2)
        await asyncio.gather(*work)
        assert ns.snapshot() == idle
    assert ns.snapshot() == idle


def test_the_sync_namespace_has_the_same_load(server: FakeIceberg) -> None:
    with IcebergNamespace(endpoint=server.endpoint) as ns, ThreadPoolExecutor(1) as threads:
        ns.describe_table(TABLE)
        with server.hold("tables/") as hold:
            work = threads.submit(ns.describe_tables, TABLES)
            hold.wait_for(3)
            assert (ns.snapshot().in_flight, ns.snapshot().max_in_flight) == (3, 32)
        work.result()
    assert ns.snapshot().in_flight == 0


def test_equal_namespaces_share_slots(server: FakeIceberg) -> None:
    with IcebergNamespace(endpoint=server.endpoint) as one, IcebergNamespace(endpoint=server.endpoint) as same:
        assert one.snapshot() == same.snapshot()
        with IcebergNamespace(endpoint=server.endpoint, auth_token="another") as other:
            assert other.snapshot().slots_id != one.snapshot().slots_id


async def test_the_limit_and_the_circuit_are_as_learned(server: FakeIceberg) -> None:
    policy = Policy(max_retries=0, circuit_after=0)
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}, policy=policy) as ns:
        await ns.describe_table(TABLE)
        before = ns.snapshot()
        server.fail(503, times=None)
        for _ in range(20):
            with pytest.raises(ServiceUnavailableError):
                await ns.describe_table(TABLE)
        after = ns.snapshot()
    assert not before.circuit_open and after.circuit_open
    assert after.limit < before.limit == after.max_in_flight


def test_a_closed_sync_namespace_has_a_load_and_starts_nothing(server: FakeIceberg) -> None:
    ns = Namespace.connect("iceberg", {"endpoint": server.endpoint})
    ns.close()
    assert ns.snapshot().in_flight == 0
