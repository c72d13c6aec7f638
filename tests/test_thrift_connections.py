"""The connections of the Thrift wire: how they are opened, kept, lent, secured and given up."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    ServiceUnavailableError,
    UnauthenticatedError,
)

from lance_ns_async.policy import Call, Caller, Policy
from lance_ns_async.transports.connection import Address, Connection, Connector, Route, tls_context
from lance_ns_async.transports.pool import Pool
from lance_ns_async.transports.sasl import Kerberos, Plain
from lance_ns_async.transports.tbinary import text, texts
from lance_ns_async.transports.thrift import Method, ThriftTransport
from tests.fakes.certificates import Certificates
from tests.fakes.hive import FakeHive
from tests.fakes.thrift_wire import Message
from tests.thrift_client import ERRORS, NAMES, QUICK, Client, Talkative, client


@pytest.fixture
def server() -> Iterator[FakeHive]:
    with FakeHive() as server:
        for name in NAMES:
            server.add_database("hive", name)
        yield server


async def test_calls_in_turn_take_one_connection(server: FakeHive) -> None:
    async with client(server.port) as asked:
        assert server.connections == 0
        for name in NAMES:
            assert await asked.ask(name) == name
        assert server.connections == 1
    server.wait_open(0)


async def test_no_more_connections_are_open_than_allowed(server: FakeHive) -> None:
    async with client(server.port, size=4) as asked:
        answers: dict[str, str] = {}

        async def ask(name: str) -> None:
            answers[name] = await asked.ask(name)

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
    async with client(server.port, size=3) as asked:
        with server.hold() as hold:
            async with anyio.create_task_group() as group:
                for name in NAMES[:3]:
                    group.start_soon(asked.ask, name)
                await hold.reached(3)
                hold.release()
        server.clear()
        for name in NAMES:
            await asked.ask(name)
        assert len({request.connection for request in server.requests}) == 1


async def test_a_dead_connection_is_replaced_unseen_where_a_read_finds_it(server: FakeHive) -> None:
    async with client(server.port, size=2) as asked:
        await asked.ask("d0")
        server.cut(when="before", match="'d1'")
        calls: list[Call] = []
        with asked.caller.observe(calls.append):
            assert await asked.ask("d1") == "d1"
        assert [(call.attempt, call.outcome) for call in calls] == [(1, "ok")]
        assert server.connections == 2


async def test_a_fresh_connection_that_dies_is_a_failed_attempt(server: FakeHive) -> None:
    async with client(server.port) as asked:
        server.cut(when="middle", ending="reset")
        calls: list[Call] = []
        with asked.caller.observe(calls.append):
            assert await asked.ask("d1") == "d1"
        assert [(call.attempt, call.outcome) for call in calls] == [(1, "disconnected"), (2, "ok")]


async def test_all_that_is_kept_goes_with_the_first_that_dies(server: FakeHive) -> None:
    async with client(server.port, size=3) as asked:
        with server.hold() as hold:
            async with anyio.create_task_group() as group:
                for name in NAMES[:3]:
                    group.start_soon(asked.ask, name)
                await hold.reached(3)
                hold.release()
        server.cut(match="'d5'")
        assert await asked.ask("d5") == "d5"
        server.wait_open(1)
        assert server.connections == 4


async def test_a_restarted_server_is_found_again(server: FakeHive) -> None:
    async with client(server.port) as asked:
        await asked.ask("d0")
        server.stop()
        server.start()
        assert await asked.ask("d1") == "d1"
        server.stop()
        server.start()
        # Not sent on the connection that died, so there is no doubt about it.
        await asked.make("new")
        assert await asked.ask("new") == "new"
        assert server.calls.count("create_database") == 1


async def test_a_write_that_was_refused_is_sent_again(server: FakeHive) -> None:
    server.stop()
    async with client(server.port) as asked:
        calls: list[Call] = []

        def watch(call: Call) -> None:
            calls.append(call)
            if len(calls) == 2:
                server.start()

        with asked.caller.observe(watch):
            await asked.make("new")
        assert [call.outcome for call in calls] == ["refused", "refused", "ok"]
        assert server.calls.count("create_database") == 1


async def test_nobody_there_is_told_with_the_address(server: FakeHive) -> None:
    server.stop()
    async with client(server.port) as asked:
        with pytest.raises(
            ServiceUnavailableError, match=rf"cannot connect to 127\.0\.0\.1:{server.port}: .*4 attempts"
        ):
            await asked.ask("d1")


async def test_the_next_address_is_tried_and_remembered(server: FakeHive) -> None:
    with FakeHive() as gone:
        port = gone.port
    async with client(port, server.port, policy=Policy(max_retries=0)) as asked:
        assert await asked.ask("d1") == "d1"
        assert await asked.ask("d2") == "d2"
        assert server.connections == 1
    server.stop()
    async with client(port, server.port, policy=Policy(max_retries=0)) as asked:
        with pytest.raises(ServiceUnavailableError, match=rf"127\.0\.0\.1:{port}: .*; 127\.0\.0\.1:{server.port}: "):
            await asked.ask("d1")


async def test_a_server_that_dies_gives_way_to_the_next(server: FakeHive) -> None:
    with FakeHive() as other:
        other.add_database("hive", "d1")
        async with client(other.port, server.port) as asked:
            assert await asked.ask("d1") == "d1"
            other.stop()
            assert await asked.ask("d1") == "d1"
        assert server.calls == ["get_database"]


async def test_a_connection_kept_too_long_is_not_used_again(server: FakeHive) -> None:
    async def silence(connection: Connection) -> None:
        """Nothing is to be said."""

    connector = Connector(Route([Address("127.0.0.1", server.port)], 5.0, 1 << 20), silence)
    caller = Caller(QUICK, ERRORS)
    thrift = ThriftTransport(Pool(connector, 3, stale_after=0.0), caller, lambda name, message: ())
    asked = Client(thrift, caller)
    assert [await asked.ask(name) for name in NAMES] == NAMES
    assert server.connections == len(NAMES)
    server.wait_open(1)
    await thrift.aclose()


async def test_frames_are_sent_and_read() -> None:
    with FakeHive(framed=True) as server:
        server.add_database("hive", "d1")
        async with client(server.port, framed=True) as asked:
            assert [await asked.ask("d1") for _ in range(3)] == ["d1"] * 3
            assert server.connections == 1


async def test_a_server_without_frames_is_told(server: FakeHive) -> None:
    async with client(server.port, framed=True, policy=Policy(max_retries=0)) as asked:
        with pytest.raises(ServiceUnavailableError, match=r"the server closed it|reset"):
            await asked.ask("d1")
    with FakeHive(framed=True) as framed:
        framed.garbage(Message(2, "get_database", 1).encoded())
        async with client(framed.port, framed=True) as asked:
            with pytest.raises(InternalError, match="does the server send frames at all"):
                await asked.ask("d1")


async def test_tls_wants_a_server_that_is_trusted(tmp_path: Path) -> None:
    made = Certificates.made(tmp_path)
    with FakeHive(tls=made.server) as server:
        server.add_database("hive", "d1")
        trusting = tls_context(made.ca_bundle, None, None)
        async with client(server.port, tls=trusting) as asked:
            assert await asked.ask("d1") == "d1"
        none = Policy(max_retries=0)
        async with client(server.port, tls=tls_context(None, None, None), policy=none) as asked:
            with pytest.raises(ServiceUnavailableError, match="certificate verify failed"):
                await asked.ask("d1")
        async with client(server.port, policy=none) as asked:
            with pytest.raises((InternalError, ServiceUnavailableError)):
                await asked.ask("d1")


async def test_tls_shows_the_clients_certificate(tmp_path: Path) -> None:
    made = Certificates.made(tmp_path)
    with FakeHive(tls=made.strict_server) as server:
        server.add_database("hive", "d1")
        for cert, key in ((made.client, None), (made.client_cert, made.client_key)):
            async with client(server.port, tls=tls_context(made.ca_bundle, cert, key)) as asked:
                assert await asked.ask("d1") == "d1"
        async with client(server.port, tls=tls_context(made.ca_bundle, None, None)) as asked:
            with pytest.raises(ServiceUnavailableError):
                await asked.ask("d1")


async def test_plain_sasl_logs_in_once_for_each_connection() -> None:
    with FakeHive(require_plain_sasl=("me", "s3cret")) as server:
        server.add_database("hive", "d1")
        async with client(server.port, login=Plain("me", "s3cret")) as asked:
            assert [await asked.ask("d1") for _ in range(3)] == ["d1"] * 3
            assert server.connections == 1
        async with client(server.port, login=Plain("me", "sesame")) as asked:
            with pytest.raises(UnauthenticatedError, match="SASL PLAIN: Error validating the login") as caught:
                await asked.make("d2")
            assert "sesame" not in str(caught.value)
        assert server.calls == ["get_database"] * 3


async def test_a_server_that_does_not_speak_sasl_is_told(server: FakeHive) -> None:
    none = Policy(max_retries=0)
    async with client(server.port, login=Plain("me", "x"), policy=none) as asked:
        with pytest.raises(ServiceUnavailableError, match="cannot connect"):
            await asked.ask("d1")
    async with (
        Talkative(b"\x80\x01\x00\x02") as other,
        client(other.port, login=Plain("me", "x"), policy=none) as asked,
    ):
        with pytest.raises(ServiceUnavailableError, match="is the server one without SASL"):
            await asked.ask("d1")


@pytest.mark.skipif(find_spec("gssapi") is not None, reason="its package is there")
async def test_kerberos_without_its_package_says_what_to_install() -> None:
    with pytest.raises(InvalidInputError, match=r"pip install 'lance-ns-async\[kerberos\]'"):
        Kerberos("hive", "localhost")


async def test_the_first_call_is_made_once_on_each_connection(server: FakeHive) -> None:
    ugi = Method("set_ugi", ("MetaException",))
    async with client(server.port, first=(ugi, text(1, "alice") + texts(2, ["staff"]))) as asked:
        with server.hold("get_database") as hold:
            async with anyio.create_task_group() as group:
                for name in NAMES[:2]:
                    group.start_soon(asked.ask, name)
                await hold.reached(2)
                hold.release()
        await asked.ask("d1")
    assert server.calls.count("set_ugi") == 2 == server.connections
    firsts = {request.connection: request.method for request in reversed(server.requests)}
    assert set(firsts.values()) == {"set_ugi"}


async def test_a_first_call_that_fails_is_no_doubt_about_a_write(server: FakeHive) -> None:
    ugi = Method("set_ugi", ("MetaException",))
    async with client(server.port, first=(ugi, text(1, "alice") + texts(2, []))) as asked:
        server.cut("set_ugi")
        await asked.make("new")
        assert server.calls == ["set_ugi", "set_ugi", "create_database"]
        server.fail("MetaException", "who?", match="set_ugi")
        server.cut("get_database", times=2)
        with pytest.raises(InternalError, match="MetaException: who\\?"):
            await asked.ask("d1")


async def test_a_server_that_accepts_and_says_nothing_is_given_up(server: FakeHive) -> None:
    ugi = Method("set_ugi", ("MetaException",))
    first = (ugi, text(1, "alice") + texts(2, []))
    with FakeHive() as silent, silent.hold():
        async with client(silent.port, server.port, connect_timeout=0.05, first=first) as asked:
            assert await asked.ask("d1") == "d1"


async def test_closing_ends_what_is_under_way(server: FakeHive) -> None:
    async with client(server.port) as asked:
        with server.hold("'d1'") as hold:
            async with anyio.create_task_group() as group:
                group.start_soon(_refused, asked)
                await hold.reached()
                await asked.thrift.aclose()
        await asked.thrift.aclose()
    server.wait_open(0)


async def _refused(asked: Client) -> None:
    with pytest.raises(InvalidInputError, match="closed while it was asked"):
        await asked.ask("d1")
