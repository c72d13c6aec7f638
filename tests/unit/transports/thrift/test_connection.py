"""The connections of the Thrift wire: how they are opened, kept, lent and closed."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.transports.thrift.connection import Address, Connection, Connector, ThriftRoute
from lance_ns_async.transports.thrift.transport import Pool, ThriftTransport
from tests.fakes.clock import run_past
from tests.fakes.hive3 import FakeHive
from tests.support.errors import catch
from tests.support.thrift_client import ERRORS, NAMES, QUICK, Client, client


async def test_calls_in_turn_take_one_connection(server: FakeHive) -> None:
    async with client(server.port) as hive:
        assert server.connections == 0
        for name in NAMES:
            assert await hive.ask(name) == name
        assert server.connections == 1
    server.wait_open(0)


async def test_no_more_connections_are_open_than_allowed(server: FakeHive) -> None:
    async with client(server.port, size=4) as hive:
        answers: dict[str, str] = {}

        async def ask(name: str) -> None:
            answers[name] = await hive.ask(name)

        with server.hold("get_database") as hold:
            async with anyio.create_task_group() as group:
                for name in NAMES:
                    group.start_soon(ask, name)
                await hold.reached(4)
                assert hold.waiting == 4
                hold.release()
        assert answers == {name: name for name in NAMES}
        assert server.connections == 4 and server.most_in_flight == 4


async def test_the_connection_used_last_is_used_next(server: FakeHive) -> None:
    async with client(server.port, size=3) as hive:
        await _keep_three(server, hive)
        server.clear()
        for name in NAMES:
            await hive.ask(name)
        assert len({request.connection for request in server.requests}) == 1


@pytest.mark.parametrize(
    ("is_fresh", "cut", "outcome"),
    [(False, {"match": "'d1'"}, "stale"), (True, {"when": "middle", "ending": "reset"}, "disconnected")],
)
async def test_read_on_dead_connection_is_sent_again_on_new_one(
    server: FakeHive, is_fresh: bool, cut: dict[str, Any], outcome: str
) -> None:
    async with client(server.port, size=2) as hive:
        if not is_fresh:
            await hive.ask("d0")
        server.cut(**cut)
        calls: list[Call] = []
        with hive.caller.observe(calls.append):
            assert await hive.ask("d1") == "d1"
        assert [(call.attempt, call.outcome) for call in calls] == [(1, outcome), (2, "ok")]
        assert server.connections == 2


async def test_all_that_is_kept_goes_with_the_first_that_dies(server: FakeHive) -> None:
    async with client(server.port, size=3) as hive:
        await _keep_three(server, hive)
        server.cut(match="'d5'")
        assert await hive.ask("d5") == "d5"
        server.wait_open(1)
        assert server.connections == 4


async def test_a_restarted_server_is_found_again(server: FakeHive) -> None:
    async with client(server.port) as hive:
        await hive.ask("d0")
        server.stop()
        server.start()
        assert await hive.ask("d1") == "d1"
        server.stop()
        server.start()
        # The call was not sent on the dead connection, so its outcome is not in doubt.
        await hive.make("new")
        assert await hive.ask("new") == "new" and server.calls.count("create_database") == 1


async def test_a_host_that_no_name_server_could_know_is_reported() -> None:
    async with client(1, host=f"{'x' * 64}.example.com", policy=Policy(max_retries=0)) as hive:
        await catch(ServiceUnavailableError, hive.ask("d1"), "label")


async def test_the_next_address_is_tried_and_remembered(server: FakeHive) -> None:
    with FakeHive() as gone:
        port = gone.port
    async with client(port, server.port, policy=Policy(max_retries=0)) as hive:
        assert await hive.ask("d1") == "d1" and await hive.ask("d2") == "d2"
        assert server.connections == 1
    server.stop()
    async with client(port, server.port, policy=Policy(max_retries=0)) as hive:
        await catch(ServiceUnavailableError, hive.ask("d1"), rf"127\.0\.0\.1:{port}: .*; 127\.0\.0\.1:{server.port}: ")


async def test_a_server_that_dies_gives_way_to_the_next(server: FakeHive) -> None:
    with FakeHive() as other:
        other.add_database("hive", "d1")
        async with client(other.port, server.port) as hive:
            assert await hive.ask("d1") == "d1"
            other.stop()
            assert await hive.ask("d1") == "d1"
        assert server.calls == ["get_database"]


async def test_a_server_that_hangs_gives_way_with_all_connections_to_it(server: FakeHive) -> None:
    with FakeHive() as other:
        for name in NAMES:
            other.add_database("hive", name)
        hurried = Policy(max_retries=1, attempt_timeout=30, backoff_initial=0.001)
        async with client(other.port, server.port, policy=hurried) as hive:
            await _keep_three(other, hive)
            other.clear()
            with other.hold() as hold:
                first = await run_past(hive.ask(NAMES[0]), hold.reached(), 30)
                assert [first, *[await hive.ask(name) for name in NAMES[1:]]] == NAMES
            assert other.calls == ["get_database"] and server.connections == 1


async def test_each_caller_tries_each_address(server: FakeHive) -> None:
    with FakeHive() as one, FakeHive() as two:
        gone = (one.port, two.port)
    async with client(*gone, server.port, size=8, policy=Policy(max_retries=0)) as hive:
        async with anyio.create_task_group() as group:
            for name in NAMES:
                group.start_soon(hive.ask, name)
    assert sorted(server.calls) == ["get_database"] * len(NAMES)


async def test_a_connection_kept_too_long_is_not_used_again(server: FakeHive) -> None:
    async def silence(connection: Connection) -> None:
        """Expects no bytes."""

    connector = Connector(ThriftRoute([Address("127.0.0.1", server.port)], 5.0, 1 << 20), silence)
    caller = Caller(QUICK, ERRORS)
    thrift = ThriftTransport(Pool(connector, 3, keep_alive=0.0), caller, lambda name, message: ())
    hive = Client(thrift, caller)
    assert [await hive.ask(name) for name in NAMES] == NAMES and server.connections == len(NAMES)
    server.wait_open(1)
    await thrift.aclose()


async def test_closing_ends_what_is_under_way(server: FakeHive) -> None:
    async with client(server.port) as hive:
        await hive.ask("d0")
        with server.hold("'d1'") as hold:
            async with anyio.create_task_group() as group:
                group.start_soon(_refused, hive)
                await hold.reached()
                await hive.thrift.aclose()
        await hive.thrift.aclose()
    server.wait_open(0)
    assert server.connections == 1


async def _keep_three(server: FakeHive, hive: Client) -> None:
    with server.hold() as hold:
        async with anyio.create_task_group() as group:
            for name in NAMES[:3]:
                group.start_soon(hive.ask, name)
            await hold.reached(3)
            hold.release()


async def _refused(hive: Client) -> None:
    await catch(InvalidInputError, hive.ask("d1"), "closed during the call")
