"""Reuse of connections: none with unrequested bytes; mismatched responses are rejected."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp.helpers import TimerNoop
from lance_namespace import DeregisterTableRequest, DescribeTableRequest
from lance_namespace.errors import PermissionDeniedError, ServiceUnavailableError

from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import AnotherAnswerError
from lance_ns_async.transports.http.reuse import CheckedHandler, Trust
from tests.fakes.plain import plain
from tests.fakes.sockets import Reply, Script, http
from tests.faults.catalogs import CATALOGS, FINE_TABLES, HTTP, open_catalog
from tests.faults.faults import Fault
from tests.faults.operations import connect, connect_by_proxy, describe
from tests.faults.proxy import Proxy, respond
from tests.support.errors import catch

ONCE = Policy(max_retries=0)
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{"a":1}\r\n0\r\n\r\n'
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
WHOLE = http(200, b'{"a":1}').data
STALE = http(200, b'{"a":"stale"}').data


class RepeatingProxy(Proxy):
    """Sends the last response again when a test calls `repeat`."""

    def __init__(self, impl: str) -> None:
        super().__init__(open_catalog(impl))
        self._writers: list[asyncio.StreamWriter] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await super().talk(reader, writer)

    async def repeat(self, *, read: bool) -> None:
        """Sends the last response on all connections; `read` lets the client's event loop receive it."""
        for writer in self._writers:
            if not writer.is_closing():
                writer.write(self.last_response)
        if read:
            for _ in range(10):
                await asyncio.sleep(0)


@pytest.mark.parametrize("read", [False, True], ids=["in the kernel", "read by the loop"])
@pytest.mark.parametrize("impl", CATALOGS)
async def test_an_unasked_answer_is_not_taken_for_the_next(impl: str, read: bool) -> None:
    async with RepeatingProxy(impl) as server, connect(server.catalog, server.url) as ns:
        for number in range(33):
            id = server.catalog.id(FINE_TABLES[number % len(FINE_TABLES)])
            assert await describe(ns, id) == server.catalog.place(id)
            if number % 3 == 0:
                await server.repeat(read=read)


class Late(Script):
    """Sends unrequested bytes when a test demands it."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        await super().talk(reader, writer)


async def test_a_change_is_not_answered_by_an_unasked_answer() -> None:
    async with Late(http(), http(403)) as server, plain(server.url) as client:
        await client.ask()
        server.writer.write(EMPTY)
        await catch(PermissionDeniedError, client.ask("DELETE"))


@pytest.mark.parametrize("whole", [WHOLE, CHUNKED, EMPTY], ids=["length", "chunked", "204"])
@pytest.mark.parametrize(
    "more",
    [b"H", b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2", STALE, STALE[:-1], b"\0"],
)
async def test_what_follows_an_answer_meets_no_other_request(whole: bytes, more: bytes) -> None:
    async with Script(Reply(whole + more), *[http(200, b'{"a":2}')] * 2) as server, plain(server.url) as client:
        assert await client.ask() in ({"a": 1}, {"a": 2}, None) and await client.ask() == {"a": 2}
        assert server.connections == 2


@pytest.mark.parametrize("first", [b"\r\n", b"\r\n\r\n"])
async def test_an_empty_line_after_an_answer_keeps_the_connection(first: bytes) -> None:
    async with Script(Reply(WHOLE + first), http(200, b'{"a":2}')) as server, plain(server.url) as client:
        assert [await client.ask(), await client.ask()] == [{"a": 1}, {"a": 2}]


async def test_interim_answers_are_counted_and_two_answers_at_once_are_both_refused() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    async with Script(Reply(16 * early + WHOLE), Reply(17 * early + WHOLE)) as server:
        async with plain(server.url, policy=ONCE) as client:
            assert await client.ask() == {"a": 1}
            await catch(ServiceUnavailableError, client.ask(), "more than 16 interim answers")
    async with Script(Reply(STALE + WHOLE)) as server, plain(server.url, policy=ONCE) as client:
        await catch(ServiceUnavailableError, client.ask(), "two answers to one request")


class Greeting(Script):
    """Sends bytes before the first request."""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STALE)
        await super().talk(reader, writer)


async def test_what_came_before_the_first_request_is_no_answer_and_an_ended_connection_carries_no_change() -> None:
    """The end of the connection is still in the kernel; the outcome of a change there would be in doubt."""
    async with Greeting() as greeting, plain(greeting.url, policy=ONCE) as client:
        await catch(ServiceUnavailableError, client.ask(), "connection was lost")
    async with Script(http(200, b'{"a":1}', then="close")) as server, plain(server.url, policy=ONCE) as client:
        await client.ask()
        assert await client.ask("POST", body={}) == {} and server.connections == 2


async def test_an_answer_about_something_else_is_requested_on_a_new_connection() -> None:
    answers = iter(["other", "mine"])

    def decode(body: object) -> str:
        if (answer := next(answers)) == "other":
            raise AnotherAnswerError("an answer about the table 'other'")
        return answer

    async with Script() as server, plain(server.url) as client:
        await client.ask()
        assert await client.ask(decode=decode) == "mine"
        assert client.outcomes == ["ok", "mismatch", "ok"] and server.connections == 2


@pytest.mark.parametrize("impl", sorted({"polaris", "unity", "glue", "hive3"}))
async def test_an_answer_about_another_table_is_never_believed(impl: str) -> None:
    catalog = open_catalog(impl)
    other, mine = catalog.id("t0"), catalog.id("t1")

    class Swapping(Proxy):
        async def forward(self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
            return await super().forward(request.replace(b"t1", b"t0"), reader, writer)

    async with Swapping(catalog) as server, connect(catalog, server.url, repeats=2) as ns:
        result = await describe(ns, mine)
        assert isinstance(result, ServiceUnavailableError) and "an answer about the table 't0'" in str(result)
        assert len(server.table_requests) == 3 and server.connections == (1 if impl == "hive3" else 3)
        assert await describe(ns, other) == catalog.place(other)


@pytest.mark.parametrize("impl", [*HTTP, "glue"])
async def test_idle_connections_are_kept_as_long_as_the_property_says(impl: str) -> None:
    catalog = open_catalog(impl)
    for keep_alive, connections in (("0.001ms", 2), ("15s", 1)):
        async with connect_by_proxy(impl, more={"keep_alive": keep_alive}) as (server, ns):
            await ns.describe_table(DescribeTableRequest(id=list(catalog.id("t0"))))
            await ns.describe_table(DescribeTableRequest(id=list(catalog.id("t1"))))
            # Iceberg's configuration is requested first.
            assert server.connections == (connections if connections == 1 else len(server.requests))


@pytest.mark.parametrize("impl", ["iceberg", "polaris"])
async def test_a_removal_is_not_answered_by_a_description(impl: str) -> None:
    """The response to the removal describes the table, like a late response."""
    late = Fault("the previous response", respond(lambda exchange: exchange.previous), forwards=False)
    async with connect_by_proxy(impl) as (server, ns):
        id = server.catalog.id("t0")
        await describe(ns, id)
        server.inject(late)
        message = r"the answer to this change has no content; .*whether it took effect is unknown"
        await catch(ServiceUnavailableError, ns.deregister_table(DeregisterTableRequest(id=list(id))), message)


async def test_a_response_is_read_although_the_rest_of_the_request_cannot_be_written() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        loop = asyncio.get_running_loop()
        _, handler = await loop.create_connection(lambda: CheckedHandler(Trust(), loop), *listener.getsockname())
        server, _ = listener.accept()
        handler.set_response_params(timer=TimerNoop(), read_until_eof=True)
        assert handler.transport is not None
        handler.transport.write(b"POST / HTTP/1.1\r\nContent-Length: 99\r\n\r\n")
        server.sendall(http(413, b"too long").data)
        # Data that the server has not read resets the connection.
        server.close()
        for _ in range(3):
            handler.transport.write(b"a part of the body")
        message, body = await handler.read()
        assert message.code == 413 and await body.read() == b"too long"
        assert not handler.is_connected()
