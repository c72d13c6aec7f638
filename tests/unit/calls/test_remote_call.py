"""JSON over HTTP with failures: the calls that are repeated, and those that are not."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping

import httpx
import pytest
import respx
from lance_namespace.errors import (
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    UnauthenticatedError,
)

from lance_ns_async.calls.policy import Policy
from lance_ns_async.transports.http.token_sources import RenewedTokens, Token
from tests.fakes.plain import over, plain
from tests.fakes.sockets import Said, Script, http

RESET = Said(then="reset")


CLOSED = Said(then="close")


LOST: Mapping[str, Said] = {
    "truncated": http(headers={"Content-Length": "100"}, then="reset"),
    "cut off": Said(http(headers={"Content-Length": "100"}).data, "close"),
    "chunk missing": Said(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "close"),
    "head cut off": Said(b"HTTP/1.1 200 OK\r\nContent-Le", "close"),
    "reset": RESET,
    "closed": CLOSED,
    "another protocol": Said(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "close"),
}


@pytest.mark.parametrize("how", LOST)
async def test_a_read_whose_answer_is_lost_is_sent_again(how: str) -> None:
    async with Script(LOST[how], LOST[how]) as server, plain(server.url) as client:
        assert await client.ask() == {}
    assert client.outcomes == ["disconnected", "disconnected", "ok"] and len(server.requests) == 3


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_write_whose_answer_is_lost_is_sent_once(how: str, method: str, is_kept: bool) -> None:
    before = [http()] if is_kept else []
    async with Script(*before, LOST[how]) as server, plain(server.url) as client:
        for _ in before:
            await client.ask()
        with pytest.raises(
            ServiceUnavailableError, match=r"the connection was lost: .*whether it took effect is unknown"
        ):
            await client.ask(method, "/t")
    assert server.lines[len(before) :] == [f"{method} /t HTTP/1.1"]
    assert server.connections == 1


@pytest.fixture
def nobody() -> Iterator[str]:
    """Returns a port that is in use, but on which no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_refused_connection_names_the_server_and_is_tried_again(nobody: str, method: str) -> None:
    async with plain(nobody) as client:
        with pytest.raises(ServiceUnavailableError) as raised:
            await client.ask(method)
    text = str(raised.value)
    assert "cannot connect: " in text and f"({nobody}); is the endpoint right and the server up?; 4 attempts" in text
    assert client.outcomes == ["refused"] * 4


async def test_a_host_that_is_unknown_is_named() -> None:
    async with plain("http://catalog.invalid:8181", policy=Policy(max_retries=0)) as client:
        with pytest.raises(ServiceUnavailableError, match=r"cannot connect: .*\(http://catalog.invalid:8181\); is the"):
            await client.ask()


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with Script(Said(then="hang")) as server, plain(server.url) as client:
        task = asyncio.create_task(client.ask())
        await asyncio.wait_for(server.requested.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.ended.wait(), 10)
        assert await client.ask() == {}
    assert server.connections == 2


async def test_a_slow_answer_is_given_up_and_its_connection_with_it() -> None:
    policy = Policy(max_retries=1, attempt_timeout=0.05, backoff_initial=0.0)
    async with Script(Said(then="hang")) as server, plain(server.url, policy=policy) as client:
        assert await client.ask() == {}
    assert client.outcomes == ["timeout", "ok"] and server.connections == 2


def bearing(*values: str, lifetime: float = 3600) -> tuple[RenewedTokens, list[str]]:
    """Provides tokens of these values in turn, and the fetched ones."""
    fetched: list[str] = []

    async def fetch() -> Token:
        fetched.append(values[len(fetched)])
        return Token(fetched[-1], lifetime)

    return RenewedTokens(fetch), fetched


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_refused_token_is_renewed_once_and_the_request_sent_again(method: str) -> None:
    tokens, fetched = bearing("old", "new")
    async with Script(http(401)) as server, plain(server.url, tokens=tokens) as client:
        assert await client.ask(method) == {}
        assert await client.ask(method) == {}
    assert [server.header("authorization", i) for i in range(3)] == [["Bearer old"], ["Bearer new"], ["Bearer new"]]
    assert fetched == ["old", "new"]


async def test_a_token_that_is_refused_anew_is_an_error() -> None:
    tokens, fetched = bearing("old", "new")
    async with Script(http(401), http(401, '{"type": "t", "message": "no"}')) as server:
        async with plain(server.url, tokens=tokens) as client:
            with pytest.raises(UnauthenticatedError, match="no"):
                await client.ask()
    assert len(server.requests) == 2 and fetched == ["old", "new"]


async def test_a_token_is_not_renewed_for_what_is_forbidden() -> None:
    tokens, fetched = bearing("old")
    async with Script(http(403)) as server, plain(server.url, tokens=tokens) as client:
        with pytest.raises(PermissionDeniedError):
            await client.ask()
    assert len(server.requests) == 1 and fetched == ["old"]


@pytest.mark.parametrize("status", [401, 419])
async def test_renewal_is_second_attempt_of_one_call(status: int) -> None:
    """The renewal does not count as a retry, so it also happens without retries, and observers see both attempts."""
    tokens, _ = bearing("old", "new")
    policy = Policy(max_retries=0)
    async with Script(http(status)) as server, plain(server.url, tokens=tokens, policy=policy) as client:
        assert await client.ask("POST") == {}
    assert [(call.attempt, call.outcome) for call in client.calls] == [(1, str(status)), (2, "ok")]


async def test_attempts_after_renewal_continue_those_before() -> None:
    tokens, fetched = bearing("old", "new")
    policy = Policy(max_retries=2, backoff_initial=0.0)
    answers = [http(503), http(401), http(503), http(503), http(503)]
    async with Script(*answers) as server, plain(server.url, tokens=tokens, policy=policy) as client:
        with pytest.raises(ServiceUnavailableError, match="4 attempts"):
            await client.ask()
    assert client.outcomes == ["503", "401", "503", "503"] and fetched == ["old", "new"]


@pytest.mark.parametrize("body", ["", '{"type": "NotAuthorized", "message": "who?"}'])
async def test_token_is_not_renewed_for_407_of_proxy(body: str) -> None:
    tokens, fetched = bearing("old", "new")
    async with Script(http(407, body)) as server, plain(server.url, tokens=tokens) as client:
        with pytest.raises(UnauthenticatedError):
            await client.ask()
    assert len(server.requests) == 1 and fetched == ["old"]


async def test_respx_can_stand_in_for_the_wire() -> None:
    router = respx.Router(assert_all_called=True)
    result = router.get("http://catalog.example.com/api/t", params={"a": "1"}).respond(json={"found": True})
    router.delete(path="/api/t").respond(404, json={"type": "NoSuch", "message": "gone"})
    busy = router.post(path="/api/t")
    busy.side_effect = [httpx.ConnectError("no"), httpx.ConnectTimeout("slow"), httpx.Response(200, json=[1])]
    client = over(httpx.MockTransport(router.async_handler))
    assert await client.ask("GET", "/t", query="a=1") == {"found": True}
    with pytest.raises(TableNotFoundError, match=r"Table not found: db\$t \(op: HTTP 404: gone\)"):
        await client.ask("DELETE", "/t")
    assert await client.ask("POST", "/t", body={"x": 1}) == [1]
    assert result.call_count == 1 and busy.call_count == 3
    assert json.loads(busy.calls.last.request.content) == {"x": 1}
    await client.http.aclose()


@pytest.mark.parametrize("error", [httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError, httpx.ReadTimeout])
async def test_what_any_wire_loses_is_lost(error: type[httpx.TransportError]) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("gone")

    with pytest.raises(ServiceUnavailableError, match="gone; 4 attempts"):
        await over(httpx.MockTransport(fail)).ask()
