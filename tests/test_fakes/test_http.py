"""The base of the fake catalogs: recorded requests, and faults on demand."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes.faults import Answer, Received
from tests.fakes.http import FakeServer


class Counter(FakeServer):
    """Counts the requests that it performed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def handle(self, request: Received) -> Answer:
        self.count += 1
        return Answer.of({"count": self.count})


@pytest.fixture
def server() -> Iterator[Counter]:
    with Counter() as running:
        yield running


@pytest.fixture
def client(server: Counter) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as connected:
        yield connected


def test_requests_are_recorded_as_they_came(server: Counter) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    raw = "/a%2Fb/n%2Em/n%2em/%1F//c?parent=n%252Em&empty=&plus=a+b"
    connection.request("POST", raw, b'{"a": [1]}', {"X-Some": "thing"})
    connection.getresponse().read()
    connection.close()
    (request,) = server.requests
    assert (request.method, request.path, request.json) == ("POST", raw, {"a": [1]})
    assert (request.headers["x-some"], str(request)) == ("thing", f"POST {raw}")


def test_a_request_without_a_body_has_no_json(server: Counter, client: httpx.Client) -> None:
    client.get("/")
    assert server.requests[0].json is None


def test_clear_forgets_the_requests_and_counts(server: Counter, client: httpx.Client) -> None:
    client.get("/")
    assert (len(server.requests), server.connections, server.most_in_flight) == (1, 1, 1)
    server.clear()
    assert (server.requests, server.connections, server.most_in_flight) == ([], 0, 0)


def test_connections_that_are_kept_count_once(server: Counter, client: httpx.Client) -> None:
    for _ in range(3):
        client.get("/")
    assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize(
    ("status", "headers", "body", "content_type", "text"),
    [
        (503, {}, None, "text/html;charset=utf-8", "Service Unavailable"),
        (429, {"Retry-After": "2"}, None, "text/html;charset=utf-8", "Too Many Requests"),
        (500, {}, "<html>é</html>", "text/html;charset=utf-8", "<html>é</html>"),
        (502, {"Content-Type": "text/plain"}, b"no", "text/plain", "no"),
        (400, {}, {"status": "400"}, "application/json", '{"status": "400"}'),
        (401, {}, b"", "text/html", ""),
        (403, {}, [], "application/json", "[]"),
    ],
)
def test_fail_answers_an_error_once(
    server: Counter, client: httpx.Client, status: int, headers: dict[str, str], body: Any, content_type: str, text: str
) -> None:
    server.fail(status, headers=headers, body=body)
    failed = client.get("/")
    assert (failed.status_code, failed.text, failed.headers["Content-Type"]) == (status, text, content_type)
    assert failed.headers.get("Retry-After") == headers.get("Retry-After")
    assert (client.get("/").json(), len(server.requests)) == ({"count": 1}, 2)


def test_faults_go_to_the_requests_they_match_and_the_oldest_goes_first(server: Counter, client: httpx.Client) -> None:
    server.fail(503, times=2, match=r"GET /a%2Fb")
    server.fail(403, times=None, match=r"^GET ")
    paths = ["/a%2Fb", "/a/b", "/a%2Fb", "/a%2Fb"]
    assert [client.get(path).status_code for path in paths] == [503, 403, 503, 403]
    assert client.post("/a%2Fb").status_code == 200
    server.heal()
    assert client.get("/").status_code == 200


def test_a_fault_can_strike_after_the_operation(server: Counter, client: httpx.Client) -> None:
    server.fail(503, when="after")
    assert client.post("/").status_code == 503
    assert server.count == 1


@pytest.mark.parametrize(("when", "count"), [("before", 0), ("after", 1)])
def test_cut_resets_the_connection(server: Counter, when: Any, count: int) -> None:
    server.cut(when=when)
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", "/", b"{}")
    with pytest.raises(ConnectionResetError):
        connection.getresponse()
    connection.close()
    assert (server.count, len(server.requests)) == (count, 1)


def test_reply_sends_bytes_as_they_are(server: Counter, client: httpx.Client) -> None:
    server.reply(b"\xff{", content_type="application/json;charset=utf-8")
    server.reply(" " * 5_000_000, status=201)
    server.reply("late", when="after")
    broken = client.get("/")
    assert (broken.content, broken.headers["Content-Type"]) == (b"\xff{", "application/json;charset=utf-8")
    large = client.get("/")
    assert (large.status_code, len(large.content), server.count) == (201, 5_000_000, 0)
    assert (client.get("/").text, server.count) == ("late", 1)


def test_delay_outlasts_a_client_that_waits_less(server: Counter, client: httpx.Client) -> None:
    server.delay(60, match="slow")
    with pytest.raises(httpx.ReadTimeout):
        client.get("/slow", timeout=0.05)
    assert client.get("/quick").json() == {"count": 1}


async def test_held_requests_wait_until_they_are_released(server: Counter) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client, asyncio.TaskGroup() as tasks:
        with server.hold("GET /slow") as hold:
            slow = [tasks.create_task(client.get("/slow")) for _ in range(3)]
            await hold.reached(3)
            assert (await client.get("/quick")).json() == {"count": 1}
            assert (hold.waiting, server.count, server.most_in_flight) == (3, 1, 4)
            hold.release()
            assert {(await task).status_code for task in slow} == {200}
            assert (hold.waiting, server.count) == (0, 4)
            await client.get("/slow")


async def test_a_hold_ends_with_its_block(server: Counter) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client, asyncio.TaskGroup() as tasks:
        with server.hold() as hold:
            held = tasks.create_task(client.get("/"))
            await hold.reached()
        assert (await held).json() == {"count": 1}


def test_waiting_for_requests_that_do_not_come_ends(server: Counter) -> None:
    with server.hold("GET") as hold, pytest.raises(TimeoutError, match="0 of 1 requests came to wait at 'GET'"):
        hold.wait_for(within=0.01)


async def test_a_killed_server_resets_connections_and_restarts_on_its_port(server: Counter) -> None:
    address = server.url
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client, asyncio.TaskGroup() as tasks:
        with server.hold() as hold:
            held = tasks.create_task(_outcome(client))
            await hold.reached()
            await asyncio.to_thread(server.stop)
            assert await held == "ReadError"
        assert await _outcome(client) == "ConnectError"
        server.stop()
        await asyncio.to_thread(server.start)
        assert (server.url, await _outcome(client)) == (address, '{"count": 1}')


async def _outcome(client: httpx.AsyncClient) -> str:
    try:
        return (await client.get("/")).text
    except httpx.TransportError as e:
        return type(e).__name__
