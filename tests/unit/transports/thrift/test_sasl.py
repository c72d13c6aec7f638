"""Handshakes of the Thrift wire before the first call: TLS, logins, the user; and frames."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from lance_namespace.errors import InternalError, InvalidInputError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import Failure
from lance_ns_async.transports.http.tls import tls_context
from lance_ns_async.transports.thrift.binary import text, texts
from lance_ns_async.transports.thrift.sasl import Kerberos, Plain
from lance_ns_async.transports.thrift.transport import Method
from tests.fakes.certificates import Certificates
from tests.fakes.hive3 import FakeHive
from tests.fakes.thrift_wire import Message, Struct, frame
from tests.support.errors import catch
from tests.support.thrift_client import NAMES, Talkative, client

ANSWER = Message(2, "get_database", 1, Struct({0: Struct({1: "d1"})})).encoded()
"""The reply to the first call."""


async def test_frames_are_sent_and_read() -> None:
    with FakeHive(framed=True) as server:
        server.add_database("hive", "d1")
        async with client(server.port, framed=True) as hive:
            assert [await hive.ask("d1") for _ in range(3)] == ["d1"] * 3 and server.connections == 1


async def test_a_server_without_frames_is_reported(server: FakeHive) -> None:
    async with client(server.port, framed=True, policy=Policy(max_retries=0)) as hive:
        await catch(ServiceUnavailableError, hive.ask("d1"), r"the server closed it|reset")
    with FakeHive(framed=True) as framed:
        framed.garbage(Message(2, "get_database", 1).encoded())
        async with client(framed.port, framed=True) as hive:
            await catch(InternalError, hive.ask("d1"), "does the server send frames at all")


@pytest.mark.parametrize("data", [frame(ANSWER + b"\0"), frame(ANSWER) + frame(b"\0"), frame(ANSWER) + b"\0"])
async def test_bytes_behind_an_answer_in_frames_make_it_none(data: bytes) -> None:
    with FakeHive(framed=True) as server:
        server.garbage(data)
        async with client(server.port, framed=True) as hive:
            await catch(InternalError, hive.ask("d1"), "bytes after the end of the reply")


async def test_a_write_does_not_go_to_a_server_that_died_unseen(tmp_path: Path) -> None:
    made = Certificates.made(tmp_path)
    with FakeHive(tls=made.server) as server:
        async with client(server.port, tls=tls_context(made.ca_bundle, None, None)) as hive:
            await hive.make("d0")
            # The event loop is blocked meanwhile.
            server.stop()
            server.start()
            await hive.make("d1")
        assert server.calls == ["create_database"] * 2


async def test_tls_shows_the_clients_certificate(tmp_path: Path) -> None:
    made = Certificates.made(tmp_path)
    with FakeHive(tls=made.strict_server) as server:
        server.add_database("hive", "d1")
        for cert, key in ((made.client, None), (made.client_cert, made.client_key)):
            async with client(server.port, tls=tls_context(made.ca_bundle, cert, key)) as hive:
                assert await hive.ask("d1") == "d1"
        async with client(server.port, tls=tls_context(made.ca_bundle, None, None)) as hive:
            await catch(ServiceUnavailableError, hive.ask("d1"))


async def test_plain_sasl_logs_in_once_for_each_connection() -> None:
    with FakeHive(require_plain_sasl=("me", "s3cret")) as server:
        server.add_database("hive", "d1")
        async with client(server.port, login=Plain("me", "s3cret")) as hive:
            assert [await hive.ask("d1") for _ in range(3)] == ["d1"] * 3 and server.connections == 1
        async with client(server.port, login=Plain("me", "sesame")) as hive:
            caught = await catch(UnauthenticatedError, hive.make("d2"), "SASL PLAIN: Error validating the login")
            assert "sesame" not in str(caught.value)
        assert server.calls == ["get_database"] * 3


async def test_what_a_server_says_of_a_login_is_shown_on_one_line_and_in_part() -> None:
    message = b"no\n" + b"x" * 10_000
    refusal = b"\x03" + len(message).to_bytes(4, "big") + message
    async with Talkative(refusal) as other, client(other.port, login=Plain("me", "x")) as hive:
        assert len(str((await catch(UnauthenticatedError, hive.ask("d1"), r"SASL PLAIN: no x+\.\.\.\)$")).value)) < 700


async def test_kerberos_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'lance-ns-async\[kerberos\]'"):
        Kerberos("hive", "localhost")


class StandIn:
    """The used part of the package gssapi, for a login of two tokens."""

    class exceptions:
        GSSError = OSError

    class NameType:
        hostbased_service = "host based"

    def __init__(self, layers: bytes) -> None:
        self.layers = layers
        self.target = ""

    def Name(self, target: str, kind: str) -> str:
        self.target = f"{kind} {target}"
        return target

    def SecurityContext(self, name: str, usage: str) -> StandIn.Context:
        return StandIn.Context(name, self.layers)

    class Context:
        def __init__(self, name: str, layers: bytes) -> None:
            self.complete = False
            self._name = name
            self._layers = layers

        def step(self, challenge: bytes | None) -> bytes | None:
            if self._name.startswith("nobody"):
                raise OSError("Server not found in Kerberos database")
            self.complete = challenge is not None
            return None if self.complete else b"ticket"

        def unwrap(self, data: bytes) -> SimpleNamespace:
            return SimpleNamespace(message=self._layers)

        def wrap(self, data: bytes, encrypt: bool) -> SimpleNamespace:
            return SimpleNamespace(message=b"signed " + data)


async def test_kerberos_says_ticket_nothing_and_no_layer_or_why_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    package = StandIn(b"\x05\x00\x10\x00")
    monkeypatch.setitem(sys.modules, "gssapi", package)
    login = Kerberos("hive", "example.com")
    assert [await login.respond(challenge) for challenge in (b"", b"mine")] == [b"ticket", b""]
    assert not login.complete and package.target == "host based hive@example.com"
    assert await login.respond(b"layers") == b"signed \x01\x00\x00\x00" and login.complete
    monkeypatch.setitem(sys.modules, "gssapi", StandIn(b"\x04\x00\x10\x00"))
    login = Kerberos("hive", "example.com")
    await login.respond(b"")
    await login.respond(b"mine")
    await catch(Failure, login.respond(b"layers"), "signed or encrypted by SASL, which is not supported")
    with pytest.raises(Failure, match=r"for nobody@example\.com: Server not found .* is there a ticket"):
        await Kerberos("nobody", "example.com").respond(b"")


async def test_a_server_that_ends_the_login_early_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", StandIn(b"\x01\x00\x00\x00"))
    complete = b"\x05\x00\x00\x00\x00"
    async with Talkative(complete) as other, client(other.port, login=Kerberos("hive", "localhost")) as hive:
        await catch(UnauthenticatedError, hive.ask("d1"), "ends the login, status 5")


async def test_the_first_call_is_made_once_on_each_connection(server: FakeHive) -> None:
    ugi = Method("set_ugi", ("MetaException",))
    async with client(server.port, first=(ugi, text(1, "alice") + texts(2, ["staff"]))) as hive:
        with server.hold("get_database") as hold:
            async with anyio.create_task_group() as group:
                for name in NAMES[:2]:
                    group.start_soon(hive.ask, name)
                await hold.reached(2)
                hold.release()
        await hive.ask("d1")
    assert server.calls.count("set_ugi") == 2 == server.connections
    assert set({request.connection: request.method for request in reversed(server.requests)}.values()) == {"set_ugi"}


async def test_a_first_call_that_fails_is_no_doubt_about_a_write(server: FakeHive) -> None:
    ugi = Method("set_ugi", ("MetaException",))
    async with client(server.port, first=(ugi, text(1, "alice") + texts(2, []))) as hive:
        server.cut("set_ugi")
        await hive.make("new")
        assert server.calls == ["set_ugi", "set_ugi", "create_database"]
        server.fail("MetaException", "who?", match="set_ugi")
        server.cut("get_database", times=2)
        await catch(InternalError, hive.ask("d1"), "MetaException: who\\?")


async def test_a_server_that_accepts_and_says_nothing_is_given_up(server: FakeHive) -> None:
    first = (Method("set_ugi", ("MetaException",)), text(1, "alice") + texts(2, []))
    with FakeHive() as silent, silent.hold():
        async with client(silent.port, server.port, connect_timeout=0.05, first=first) as hive:
            assert await hive.ask("d1") == "d1"
