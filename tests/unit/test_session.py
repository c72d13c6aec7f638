"""An AsyncNamespace belongs to the event loop of its first use; in another one, each method raises an error."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator

import anyio.to_thread
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.many import bulk
from lance_ns_async.operations import requests
from tests.fakes.iceberg import FakeIceberg
from tests.support.operations import OPERATIONS
from tests.unit.gateway.test_server import outcome, steps

pytestmark = [pytest.mark.bare, pytest.mark.environment]
ID = ["db", "t"]
OTHERS: dict[str, Callable[[AsyncNamespace], Awaitable[object] | AsyncIterable[object]]] = {
    "aclose": lambda ns: ns.aclose(),
    "__aenter__": lambda ns: ns.__aenter__(),
    "create_empty_table": lambda ns: ns.create_empty_table({"id": ID}),
    "describe_group": lambda ns: bulk.describe_group(ns.session, [TableId(ID)], {}),
    "describe_tables": lambda ns: ns.describe_tables([ID]),
    "exists": lambda ns: ns.exists(ID),
    "iter_namespaces": lambda ns: ns.iter_namespaces(recursive=True),
    "iter_tables": lambda ns: ns.iter_tables(recursive=True),
    "drop_partitions": lambda ns: ns.drop_partitions("true"),
    "list_partitions": lambda ns: ns.list_partitions(),
    "open_partitions": lambda ns: ns.open_partitions(),
    "partition_by": lambda ns: ns.partition_by(["day"]),
    "scan_partitions": lambda ns: ns.scan_partitions(),
    "write_partitions": lambda ns: ns.write_partitions(pa.table({"i": [1]})),
    "list_many": lambda ns: ns.list_many([["db"]]),
    "namespace_groups": lambda ns: bulk.namespace_groups(ns.session),
    "open": lambda ns: ns.open(ID),
    "open_many": lambda ns: ns.open_many([ID]),
    "own_folders": lambda ns: ns.own_folders(["db"]),
    "protect_tables": lambda ns: ns.protect_tables(["db"]),
    "register_tables": lambda ns: ns.register_tables([{"id": ID, "location": "s3://lake/t"}]),
    "scan": lambda ns: ns.scan(ID),
    "count_many": lambda ns: ns.count_many([ID]),
    "search_many": lambda ns: ns.search_many([ID], vector=[0.0]),
    "scan_many": lambda ns: ns.scan_many([ID]),
    "sql": lambda ns: ns.sql("select 1"),
    "stream_tables": lambda ns: ns.stream_tables([ID]),
    "table_groups": lambda ns: bulk.table_groups(ns.session),
    "watch": lambda ns: ns.watch([ID], every=None),
    "watch_token": lambda ns: ns.watch_token([ID]),
    "write": lambda ns: ns.write(ID, pa.table({"i": [1]}), mode="append"),
}
"""The methods that are not operations of the spec."""

REFUSED_ANYHOW = {"batch_commit_tables", "register_table"}
"""Operations whose sample request this catalog refuses in any event loop."""


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg() as running:
        running.add_table(["db"], "t")
        yield running


def used(server: FakeIceberg) -> AsyncNamespace:
    """Returns a namespace that was used in an event loop that has ended."""
    ns = AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint})

    async def use() -> None:
        assert await ns.exists(ID)
        # Open connections would cause warnings during garbage collection.
        await ns.session.backend.aclose()

    asyncio.run(use())
    server.requests.clear()
    return ns


async def catch_message(ns: AsyncNamespace, name: str) -> str:
    """Returns the error of a method in another loop."""
    with pytest.raises(InvalidInputError) as error:
        match OTHERS[name](ns):
            case AsyncIterable() as items:
                async for _ in items:
                    pass
            case work:
                await work
    return str(error.value)


def test_all_public_coroutines_are_tried_in_another_loop() -> None:
    public = {
        name
        for name, member in inspect.getmembers(AsyncNamespace, inspect.isfunction)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(member) or "AsyncGenerator" in inspect.signature(member).return_annotation)
    }
    tried = {name for name in OTHERS if not name.startswith("_")} | set(OPERATIONS)
    assert public == tried & set(dir(AsyncNamespace))


@pytest.mark.parametrize("name", OTHERS)
def test_a_method_names_the_remedy_in_another_loop(server: FakeIceberg, name: str) -> None:
    message = asyncio.run(catch_message(used(server), name))
    assert "first used in another event loop, which has ended" in message
    assert "or use a Namespace" in message and not server.requests


def test_each_operation_of_the_spec_is_refused_in_another_loop(server: FakeIceberg) -> None:
    ns, refused = used(server), set()

    async def ask() -> None:
        for step in steps(["db"], "t"):
            if hasattr(ns, step[0]):
                error, message = await outcome(ns, step)
                assert issubclass(error, LanceNamespaceError), step
                if error is InvalidInputError and "another event loop" in message:
                    refused.add(step[0])

    asyncio.run(ask())
    assert refused == {name for name in OPERATIONS if name not in requests.REASONS} - REFUSED_ANYHOW
    assert not server.requests


def test_event_loops_other_than_those_of_asyncio_are_refused(server: FakeIceberg) -> None:
    for ns in (AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}), used(server)):
        for call in (ns.exists(ID), ns.aclose()):
            with pytest.raises(InvalidInputError, match="asyncio only; with trio, call the methods of a Namespace"):
                call.send(None)


async def test_two_loops_at_once_are_distinguished(server: FakeIceberg) -> None:
    async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as ns:
        assert await ns.exists(ID)
        for name in ("exists", "iter_tables"):
            assert "another event loop;" in (await anyio.to_thread.run_sync(asyncio.run, catch_message(ns, name)))
        assert await ns.exists(ID)


async def test_another_loop_closes_the_connections_of_a_running_one(server: FakeIceberg) -> None:
    ns = AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint})
    assert await ns.exists(ID)
    await anyio.to_thread.run_sync(asyncio.run, ns.aclose())
    with pytest.raises(InvalidInputError, match="it is closed"):
        await ns.exists(ID)


def test_connecting_binds_no_loop(server: FakeIceberg) -> None:
    async def connect() -> AsyncNamespace:
        return AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint})

    async def use(ns: AsyncNamespace) -> bool:
        async with ns:
            return await ns.exists(ID)

    assert asyncio.run(use(asyncio.run(connect())))
