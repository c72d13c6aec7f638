"""The base of the fake catalogs: recorded requests, and faults on demand."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.fakes.http import FakeServer, Reply, ask
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.server import Answer, Received
from tests.fakes.sigv4 import Signatures


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


def test_faults_go_to_the_requests_they_match_and_the_oldest_goes_first(server: Counter, client: httpx.Client) -> None:
    server.fail(503, times=2, match=r"GET /a%2Fb")
    server.fail(403, times=None, match=r"^GET ")
    assert [client.get(path).status_code for path in ["/a%2Fb", "/a/b", "/a%2Fb", "/a%2Fb"]] == [503, 403, 503, 403]
    assert client.post("/a%2Fb").status_code == 200
    server.heal()
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(("when", "count"), [("before", 0), ("after", 1)])
def test_cut_resets_the_connection(server: Counter, when: Any, count: int) -> None:
    server.cut(when=when)
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", "/", b"{}")
    with pytest.raises(ConnectionResetError):
        connection.getresponse()
    connection.close()
    assert (server.count, len(server.requests)) == (count, 1)


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


PATH, BODY = "/v1/namespaces?a=b", '{"namespace": ["a"], "properties": {}}'


def signed(
    server: FakeIceberg, path: str = PATH, body: str = BODY, *, secret: str = "sesame-secret", **more: str
) -> Mapping[str, str]:
    headers = {"Content-Type": "application/json", "X-Amz-Content-SHA256": sha256(body.encode()).hexdigest(), **more}
    request = AWSRequest("POST", server.url + path, data=body, headers=headers)
    SigV4Auth(Credentials("AKIDEXAMPLE", secret), "execute-api", "eu-central-1").add_auth(request)
    return dict(request.headers.items())


def sent(server: FakeIceberg, headers: Mapping[str, str], path: str = PATH, body: str = BODY) -> Reply:
    return ask(server, "POST", path, body, headers)


def test_what_is_signed_is_accepted() -> None:
    with FakeIceberg(signatures=Signatures()) as server:
        assert sent(server, signed(server)).status == 200
        assert server.signatures and len(server.signatures.accepted) == 1


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/namespaces?a=c", BODY, {}),
        ("/v1/namespaces", BODY, {}),
        ("/v1/Namespaces?a=b", BODY, {}),
        (PATH, BODY.replace('"a"', '"b"'), {}),
        (PATH, BODY, {"Content-Type": "text/plain"}),
        (PATH, BODY, {"X-Amz-Date": "later"}),
        (PATH, BODY, {"X-Amz-Added": "unsigned"}),
    ],
    ids=["query", "no-query", "path", "body", "header", "date", "unsigned"],
)
def test_a_change_on_the_way_is_noticed(path: str, body: str, headers: Mapping[str, str]) -> None:
    with FakeIceberg(signatures=Signatures()) as server:
        original = signed(server)
        if "X-Amz-Date" in headers:
            last = original["X-Amz-Date"][-2]
            headers = {"X-Amz-Date": f"{original['X-Amz-Date'][:-2]}{(int(last) + 1) % 10}Z"}
        reply = sent(server, {**original, **headers}, path, body)
        assert reply.status == 403 and reply.json["message"].startswith("The request signature we calculated")
        assert server.signatures and not server.signatures.accepted


def test_another_secret_and_no_signature_are_refused() -> None:
    with FakeIceberg(signatures=Signatures()) as server:
        assert sent(server, signed(server, secret="another")).status == 403
        reply = sent(server, {})
        kind = reply.headers["x-amzn-ErrorType"].partition(":")[0]
        assert (reply.status, kind) == (403, "MissingAuthenticationTokenException")
