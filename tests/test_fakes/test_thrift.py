"""The fake Thrift server: its bytes, its counts, and its faults."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.certificates import Certificates
from tests.fakes.hive3 import FakeHive
from tests.fakes.hive3.raw import Outcome, RawHive
from tests.fakes.thrift_wire import CALL, EXCEPTION, I16, Message, Struct, Typed, decoded

STATUS_CALL = b"\x80\x01\x00\x01\x00\x00\x00\x09getStatus\x00\x00\x00\x07\x00"
STATUS_REPLY = b"\x80\x01\x00\x02\x00\x00\x00\x09getStatus\x00\x00\x00\x07\x08\x00\x00\x00\x00\x00\x02\x00"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeHive]:
    with FakeHive(tmp_path) as running:
        yield running


@pytest.fixture
def client(server: FakeHive) -> Iterator[RawHive]:
    with RawHive(server.uri) as connected:
        yield connected


def exchange(client: RawHive, data: bytes, size: int) -> bytes:
    client.connected.sendall(data)
    return client.read(size)


def test_a_call_and_its_reply_byte_by_byte(client: RawHive) -> None:
    assert exchange(client, STATUS_CALL, len(STATUS_REPLY)) == STATUS_REPLY
    assert decoded(STATUS_REPLY) == Message(2, "getStatus", 7, Struct({0: 2}))


def test_messages_are_read_back_as_they_were_written() -> None:
    body = Struct({1: "é", 2: True, 3: Typed(I16, -1), 4: {"k": "v"}, 5: [Struct({1: 2})], 6: [], 7: None})
    read = decoded(Message(CALL, "m", 1, body).encoded())
    assert read.body == {1: "é", 2: True, 3: -1, 4: {"k": "v"}, 5: [{1: 2}], 6: []}


def test_calls_are_answered_one_after_the_other(server: FakeHive, client: RawHive) -> None:
    data = exchange(client, STATUS_CALL * 3, 3 * len(STATUS_REPLY))
    assert data == STATUS_REPLY * 3
    assert (server.calls, server.connections, server.most_in_flight) == (["getStatus"] * 3, 1, 1)


def test_a_call_in_pieces_is_understood(client: RawHive) -> None:
    for piece in (STATUS_CALL[:3], STATUS_CALL[3:20]):
        client.connected.sendall(piece)
    assert exchange(client, STATUS_CALL[20:], len(STATUS_REPLY)) == STATUS_REPLY


def test_an_unknown_method_is_refused_and_the_connection_stays(server: FakeHive, client: RawHive) -> None:
    assert client.exchange("nothing").kind == EXCEPTION
    assert client.ask("nothing").value == (1, "Invalid method name: 'nothing'")
    assert (client.do("getStatus"), server.connections) == (2, 1)


def test_bytes_that_are_no_call_end_the_connection(server: FakeHive, client: RawHive) -> None:
    with pytest.raises(EOFError):
        exchange(client, b"GET / HTTP/1.1\r\n\r\n", 1)


def test_the_user_is_sent_by_the_first_call_of_a_connection_or_not_at_all(client: RawHive) -> None:
    assert client.do("set_ugi", "me", ["a", "b"]) == ["a", "b"]
    assert client.ask("set_ugi", "me", ["a", "b"]) == Outcome("cut")
    client.do("getStatus")
    assert client.ask("set_ugi", "me", ["a", "b"]) == Outcome("cut")


def test_requests_keep_arguments_and_connections_are_counted(server: FakeHive, client: RawHive) -> None:
    client.do("get_databases", "@hive#*")
    with RawHive(server.uri) as other:
        other.do("getStatus")
        assert (server.connections, server.open_connections) == (2, 2)
    server.wait_open(1)
    first, second = server.requests
    assert (first.method, first.arguments, first.connection) == ("get_databases", {1: "@hive#*"}, 1)
    assert (second.connection, str(first)) == (2, "get_databases {1: '@hive#*'}")
    server.clear()
    assert (server.calls, server.connections, server.open_connections) == ([], 0, 1)


def test_it_throws_the_configured_errors(server: FakeHive, client: RawHive) -> None:
    server.fail("MetaException", "no", match="^get_databases .*'x'")
    assert client.do("get_databases", "y") == []
    assert client.ask("get_databases", "x") == Outcome("MetaException", "no")
    assert client.do("get_databases", "x") == []
    server.fail("TApplicationException", "oh")
    assert client.ask("getStatus").value == (6, "oh")


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True), ("middle", True)])
def test_a_cut_strikes_when_configured(server: FakeHive, client: RawHive, when: str, done: bool) -> None:
    server.cut("^create_database", when=when)  # type: ignore[arg-type]
    client.send("create_database", Struct({1: "d"}))
    if when == "middle":
        assert client.read(8) == b"\x80\x01\x00\x02\x00\x00\x00\x0f"
    with pytest.raises(EOFError):
        client.read(100)
    client.close()
    assert ("d" in client.do("get_databases", "*")) is done


def test_a_reset_is_no_mere_end(server: FakeHive, client: RawHive) -> None:
    server.cut(ending="reset")
    with pytest.raises(ConnectionResetError):
        client.exchange("getStatus")


def test_replies_to_others(server: FakeHive, client: RawHive) -> None:
    server.reply_wrong_seqid()
    server.reply_wrong_name(name="get_catalogs")
    assert client.exchange("getStatus") == Message(2, "getStatus", 2, Struct({0: 2}))
    assert client.exchange("getStatus") == Message(2, "get_catalogs", 2, Struct({0: 2}))
    assert client.do("getStatus") == 2


def test_garbage_comes_as_it_is(server: FakeHive, client: RawHive) -> None:
    server.garbage(b"HTTP/1.1 400 Bad Request")
    assert exchange(client, STATUS_CALL, 24) == b"HTTP/1.1 400 Bad Request"
    assert exchange(client, STATUS_CALL, len(STATUS_REPLY)) == STATUS_REPLY


def test_calls_on_hold_gather_and_go_on_when_released(server: FakeHive) -> None:
    def call() -> None:
        with RawHive(server.uri) as one:
            one.do("getStatus")

    threads = [threading.Thread(target=call) for _ in range(3)]
    with server.hold("getStatus") as hold:
        for thread in threads:
            thread.start()
        hold.wait_for(3)
        assert (hold.waiting, server.most_in_flight) == (3, 3)
    for thread in threads:
        thread.join()
    server.wait_open(0)


def test_a_stopped_server_refuses_and_comes_back_with_what_it_held(server: FakeHive, client: RawHive) -> None:
    client.do("create_database", Struct({1: "kept"}))
    uri = server.uri
    server.stop()
    server.stop()
    assert client.ask("getStatus") == Outcome("cut")
    with pytest.raises(ConnectionRefusedError):
        client.exchange("getStatus")
    server.start()
    assert server.uri == uri and client.do("get_databases", "*") == ["default", "kept"]


def test_a_server_stops_while_calls_are_on_hold(server: FakeHive, client: RawHive) -> None:
    with server.hold() as hold:
        client.send("getStatus")
        hold.wait_for(1)
        server.stop()
        with pytest.raises((EOFError, ConnectionError)):
            client.receive()


def test_frames(tmp_path: Path) -> None:
    with FakeHive(tmp_path, framed=True) as server, RawHive(server.uri, framed=True) as client:
        assert client.do("getStatus") == 2
        reply = exchange(client, b"\x00\x00\x00\x16" + STATUS_CALL, 4 + len(STATUS_REPLY))
        assert reply == b"\x00\x00\x00\x1d" + STATUS_REPLY
        server.cut(when="middle")
        client.send("getStatus")
        assert client.read(4) == b"\x00\x00\x00\x1d"
        with pytest.raises(EOFError):
            client.read(0x1D)


def test_plain_sasl_lets_in_who_knows_the_password(tmp_path: Path) -> None:
    account = ("me", "secret")
    with FakeHive(tmp_path, require_plain_sasl=account) as server:
        with RawHive(server.uri, plain_sasl=account) as client:
            assert client.do("getStatus") == 2
            assert [client.do("set_ugi", "u", ["g"]) for _ in range(2)] == [["g", "u"], ["g", "u"]]
        with (
            RawHive(server.uri, plain_sasl=("me", "wrong")) as client,
            pytest.raises(PermissionError, match="validating"),
        ):
            client.ask("getStatus")
        with RawHive(server.uri) as client:
            assert client.ask("getStatus") == Outcome("cut")


def test_sasl_byte_by_byte(tmp_path: Path) -> None:
    with FakeHive(tmp_path, require_plain_sasl=("u", "p")) as server, RawHive(server.uri) as client:
        assert (
            exchange(client, b"\x01\x00\x00\x00\x05PLAIN\x02\x00\x00\x00\x04\x00u\x00p", 5) == b"\x05\x00\x00\x00\x00"
        )
        client.close()
        reply = exchange(client, b"\x01\x00\x00\x00\x06GSSAPI", 38)
        assert reply == b"\x03\x00\x00\x00\x21Unsupported mechanism type GSSAPI"


def test_tls(tmp_path: Path) -> None:
    certificates = Certificates.made(tmp_path)
    trusting = ssl.create_default_context(cafile=certificates.ca_bundle)
    with FakeHive(tmp_path, tls=certificates.server) as server:
        with RawHive(server.uri, tls=trusting) as client:
            assert client.do("getStatus") == 2
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            plain.sendall(STATUS_CALL)
            assert not plain.recv(100).startswith(b"\x80\x01")
