"""The Thrift wire: each call gets its own reply, no write is sent twice; connections are kept, lent and closed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import lance_namespace.errors as err
import pytest
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.transports.thrift.connection import Address, Connection, Connector, ThriftRoute
from lance_ns_async.transports.thrift.transport import Method, Pool, ThriftTransport
from tests.fakes.clock import run_past
from tests.fakes.hive3 import FakeHive
from tests.fakes.thrift_wire import STRING, Message, Struct, Typed
from tests.support.errors import catch
from tests.support.thrift_client import ERRORS, NAMES, QUICK, Client, Talkative, client


async def test_a_cancelled_call_leaves_no_answer_behind(server: FakeHive) -> None:
    async with client(server.port, size=1) as hive:
        assert await hive.ask("d0") == "d0"
        calls: list[Call] = []
        with server.hold("'d1'") as hold:
            await cancelled(hive.ask("d1"), hold.reached)
            with hive.caller.observe(calls.append):
                assert await hive.ask("d2") == "d2"
        with hive.caller.observe(calls.append):
            assert [await hive.ask(name) for name in NAMES] == NAMES
        assert {(call.attempt, call.outcome) for call in calls} == {(1, "ok")} and server.connections == 2


async def test_a_call_that_timed_out_leaves_no_answer_behind(server: FakeHive) -> None:
    async with client(server.port, size=1, policy=Policy(max_retries=0, attempt_timeout=30)) as hive:
        with server.hold("'d1'") as hold, pytest.raises(err.ServiceUnavailableError, match="no answer within 30 s"):
            await run_past(hive.ask("d1"), hold.reached(), 30)
        assert [await hive.ask(name) for name in NAMES] == NAMES and server.connections == 2


@pytest.mark.parametrize("fault", ["seqid", "name"])
async def test_the_answer_to_another_call_is_never_taken(server: FakeHive, fault: str) -> None:
    async with client(server.port, size=1) as hive:
        await hive.ask("d0")
        (server.reply_wrong_seqid if fault == "seqid" else server.reply_wrong_name)("'d1'")
        assert await hive.ask("d1") == "d1" and server.calls.count("get_database") == 3
        # The connection of that reply is not used again.
        assert server.connections == 2


async def test_bytes_that_nobody_requested_end_the_connection() -> None:
    async with Talkative() as server, client(server.port, size=1) as hive:
        assert await hive.ask("d1") == "d1"
        server.more.set()
        await server.left.wait()
        assert await hive.ask("d2") == "d2" and server.connections == 2


async def test_bytes_behind_an_answer_make_it_none(server: FakeHive) -> None:
    own, other = (
        Message(2, "get_database", sequence, Struct({0: Struct({1: name})})).encoded()
        for sequence, name in ((1, "d1"), (2, "stale"))
    )
    server.garbage(own + other)
    async with client(server.port, size=1) as hive:
        await catch(err.InternalError, hive.ask("d1"), "bytes after the end")
        assert await hive.ask("d2") == "d2" and server.connections == 2


@pytest.mark.parametrize("when", ["before", "after", "middle"])
async def test_a_write_that_may_have_been_done_is_never_sent_again(server: FakeHive, when: Any) -> None:
    async with client(server.port) as hive:
        await hive.ask("d0")
        server.cut("create_database", when=when)
        await catch(err.ServiceUnavailableError, hive.make("new"), "whether it took effect is unknown")
        assert server.calls.count("create_database") == 1


async def test_an_exception_that_was_not_declared_is_no_success(server: FakeHive) -> None:
    thrown = Message(2, "create_database", 1, Struct({5: Struct({1: "new kind of trouble"})}))
    server.garbage(thrown.encoded(), match="create_database")
    async with client(server.port) as hive:
        await catch(err.InternalError, hive.make("new"), "exception 5: new kind of trouble")


async def test_an_exception_or_a_method_the_server_does_not_know_is_an_answer(server: FakeHive) -> None:
    async with client(server.port) as hive:
        await catch(err.UnsupportedOperationError, hive.call(Method("fly"), b""), "Invalid method name: 'fly'")
        with pytest.raises(err.InternalError, match="INTERNAL_ERROR of get_database: oops"):
            server.fail("TApplicationException", "oops")
            await hive.ask("d1")
        assert await hive.ask("d1") == "d1" and server.connections == 1
        await catch(err.NamespaceNotFoundError, hive.ask("none"), r"NoSuchObjectException: none\)")
        assert await hive.ask("d1") == "d1" and server.connections == 1


def reply(kind: int, fields: dict[int, Any]) -> bytes:
    return Message(kind, "get_database", 1, Struct(fields)).encoded()


@pytest.mark.parametrize(
    ("data", "message", "connections"),
    [
        (reply(2, {}), "without a result", 1),
        (reply(2, {1: "no exception"}), "get_database: an answer of unknown form", 1),
        (reply(2, {1: Struct({1: Typed(STRING, ["no text"])})}), "get_database: an answer of unknown form", 1),
        (reply(3, {1: Typed(STRING, ["no text"])}), "get_database: an answer of unknown form", 1),
        (reply(3, {2: Typed(STRING, ["no number"])}), "get_database: an answer of unknown form", 1),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a reply in Thrift's strict binary protocol", 2),
    ],
)
async def test_malformed_replies_are_internal_errors(
    server: FakeHive, data: bytes, message: str, connections: int
) -> None:
    server.garbage(data)
    async with client(server.port) as hive:
        await catch(err.InternalError, hive.ask("d1"), message)
        assert await hive.ask("d1") == "d1" and server.connections == connections


async def test_a_crowd_with_cancels_and_a_restart_gets_its_own_answers(server: FakeHive) -> None:
    """Two hundred callers over eight connections, a tenth of them cancelled, and a restart of the server."""
    chosen = random.Random(7)
    names = [chosen.choice(NAMES) for _ in range(200)]
    scopes = [anyio.CancelScope() for _ in names]
    answers: dict[int, str] = {}
    given_up: list[int] = []
    half_way = anyio.Event()
    server.delay(0.001)
    patient = Policy(max_retries=100, backoff_initial=0.001, backoff_max=0.02)
    async with client(server.port, size=8, policy=patient) as hive:

        async def ask(i: int) -> None:
            with scopes[i]:
                answers[i] = await hive.ask(names[i])
            if len(answers) == 50 and not given_up:
                # From now on, the server may be busy with abandoned calls.
                assert server.most_in_flight <= 8
                given_up.extend(chosen.sample([j for j in range(200) if j not in answers], 20))
                for j in given_up:
                    scopes[j].cancel()
            if len(answers) == 100:
                half_way.set()

        async with anyio.create_task_group() as group:
            for i in range(200):
                group.start_soon(ask, i)
            await half_way.wait()
            await asyncio.to_thread(server.stop)
            server.most_in_flight = 0
            await asyncio.to_thread(server.start)
        # A reply that had arrived before its call was cancelled is returned nevertheless.
        assert {*range(200)} - {*answers} <= {*given_up} and len(given_up) == 20
        assert answers == {i: names[i] for i in answers}
        assert server.most_in_flight <= 8 and server.open_connections <= 8
        assert [await hive.ask(name) for name in NAMES] == NAMES
    server.wait_open(0)


async def cancelled(work: Awaitable[Any], when: Callable[[], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_awaited, work)
        await when()
        group.cancel_scope.cancel()


async def _awaited(work: Awaitable[Any]) -> None:
    await work


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
