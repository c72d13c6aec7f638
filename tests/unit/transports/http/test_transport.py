"""JSON over HTTP: the requests, and the outcome of each kind of response."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, LanceNamespaceError, ThrottlingError

from lance_ns_async import errors
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import HTTP_ERRORS, Failure
from lance_ns_async.transports.http.transport import encode_form
from tests.fakes.plain import Plain, over, plain
from tests.fakes.sockets import Reply, Script, http
from tests.support.errors import catch

pytestmark = pytest.mark.floors


async def failure_of(client: Plain, *args: Any, **kwargs: Any) -> Failure:
    raised = await catch(LanceNamespaceError, client.ask(*args, **kwargs))
    failure = errors.failure_of(raised.value)
    assert failure is not None
    return failure


async def test_a_request_says_what_it_should_and_no_more() -> None:
    async with Script() as server, plain(server.url, {"auth_token": "tok", "header.X-Tenant": "a"}) as client:
        await client.ask()
    head = {
        name: server.header(name)
        for name in ("host", "accept", "accept-encoding", "user-agent", "authorization", "x-tenant", "cookie")
    }
    assert head == {
        "host": [f"127.0.0.1:{server.port}"],
        "accept": ["application/json"],
        "accept-encoding": ["identity"],
        "user-agent": ["lance-ns-async"],
        "authorization": ["Bearer tok"],
        "x-tenant": ["a"],
        "cookie": [],
    }
    assert server.body() == b"" and server.header("content-type") == []


async def test_a_header_of_the_users_takes_the_place_of_ours() -> None:
    properties = {"header.User-Agent": "mine", "header.Accept": "*/*", "header.AUTHORIZATION": "Basic eA=="}
    async with Script() as server, plain(server.url, properties) as client:
        await client.ask()
    assert (server.header("user-agent"), server.header("accept")) == (["mine"], ["*/*"])
    assert server.header("authorization") == ["Basic eA=="]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_body_is_json(method: str) -> None:
    body = {"a": [1, None, "é\u2028"], "b": {"c": True}}
    async with Script() as server, plain(server.url) as client:
        await client.ask(method, "/x", body=body)
        await client.ask(method, "/y")
    assert json.loads(server.body(0)) == body and server.header("content-type", 0) == ["application/json"]
    assert server.header("content-length", 0) == [str(len(server.body(0)))]
    assert server.body(1) == b"" and server.header("content-type", 1) == []


async def test_forms_and_queries_are_encoded() -> None:
    async with Script() as server, plain(server.url) as client:
        await client.ask("POST", "/token", content=encode_form({"client_id": "a&b", "scope": "x y", "é": "="}))
    assert server.body() == b"client_id=a%26b&scope=x+y&%C3%A9=%3D"
    assert server.header("content-type") == ["application/x-www-form-urlencoded"]
    async with Script() as server, plain(f"{server.url}/base/") as client:
        await client.ask("GET", "/x", query="pageToken=&parent=a%1Fb&q=a+b%2B%26")
        await client.ask("GET", "/x", query="")
    assert server.lines == ["GET /base/x?pageToken=&parent=a%1Fb&q=a+b%2B%26 HTTP/1.1", "GET /base/x HTTP/1.1"]


VALUES: list[object] = [{}, [], 0, False, None, "x", {"é": [1.5, "\u0000"]}]
ONE = b'{"a": 1}'
PACKED = [*((it, gzip.compress(ONE)) for it in ("gzip", "GZIP")), ("deflate", zlib.compress(ONE)), ("identity", ONE)]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        *((http(body=json.dumps(value)), value) for value in VALUES),
        *(
            *((it, None) for it in (http(body=b""), http(204, b"", {"Content-Length": "0"}))),
            (http(body=b"", then="close"), None),
        ),
        # Nobody requested compressed ones.
        *((http(body=body, headers={"Content-Encoding": encoding}), {"a": 1}) for encoding, body in PACKED),
    ],
)
async def test_the_answer_is_decoded(answer: Reply, value: object) -> None:
    async with Script(answer) as server, plain(server.url) as client:
        assert await client.ask("DELETE") == value


async def test_an_answer_of_another_form_is_reported_by_its_names_alone() -> None:
    body = {"config": {"s3.secret-access-key": "hush"}, "hidden": "hush", "x" * 500: "hush"}
    async with Script(http(body=json.dumps(body))) as server, plain(server.url) as client:
        message = r"unknown form \(KeyError: 'found'\): it holds config, hidden, x"
        raised = await catch(InternalError, client.ask(decode=lambda body: body["found"]), message)
    assert "hush" not in str(raised.value) and len(str(raised.value)) < 400


async def test_cookies_are_not_kept() -> None:
    answer = http(headers={"Set-Cookie": "session=1; Path=/"})
    async with Script(answer, answer) as server, plain(server.url) as client:
        await client.ask()
        await client.ask()
    assert server.header("cookie") == [] and server.connections == 1


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (404, '{"type": "NoSuch", "message": "it is gone"}', "HTTP 404: it is gone"),
        (403, "<html>\n<b>no</b>\n</html>", "HTTP 403: no"),
        (503, "x" * 1000, "HTTP 503: " + "x" * 200 + "; 4 attempts"),
        (500, b"\xff\xfe", "HTTP 500: \ufffd\ufffd"),
        (500, '{"type": ["a"], "message": "m"}', 'HTTP 500: {"type": ["a"], "message": "m"}'),
        *((500, '"text"', 'HTTP 500: "text"'), (500, '{"error": 5}', 'HTTP 500: {"error": 5}')),
        *((500, "[" * 100_000, "HTTP 500: " + "[" * 200), (401, b"", "HTTP 401: Unauthorized")),
        (599, b"", "HTTP 599"),
    ],
)
async def test_an_error_names_what_the_server_said(status: int, body: bytes | str, text: str) -> None:
    async with Script(*[http(status, body)] * 4) as server, plain(server.url) as client:
        raised = await catch(HTTP_ERRORS.get(status, LanceNamespaceError), client.ask())
    assert f"(op: {text}" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("status", "delivered"),
    [(400, False), (401, False), (404, False), (408, None), (409, False), (429, False), (500, None), (503, None)],
)
async def test_only_a_request_that_was_turned_away_did_certainly_nothing(status: int, delivered: bool | None) -> None:
    async with Script(http(status)) as server, plain(server.url, policy=Policy(max_retries=0)) as client:
        assert (await failure_of(client)).delivered is delivered


async def test_reads_are_repeated_and_writes_only_if_nothing_was_done() -> None:
    for method, status, sent in (
        ("GET", 503, 4),
        ("HEAD", 502, 4),
        ("POST", 503, 1),
        ("DELETE", 504, 1),
        ("POST", 429, 4),
    ):
        async with Script(*[http(status)] * 4) as server, plain(server.url) as client:
            await catch(LanceNamespaceError, client.ask(method))
        assert (method, status, len(server.requests)) == (method, status, sent)
    async with Script(http(503), http(503)) as server, plain(server.url) as client:
        assert await client.ask("POST", safe=True) == {}


async def test_a_server_that_says_now_is_asked_now() -> None:
    busy = http(429, headers={"Retry-After": "0"})
    async with Script(busy, busy) as server, plain(server.url) as client:
        assert await client.ask("DELETE") == {}
    assert client.outcomes == ["429", "429", "ok"]


@given(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"))
    | st.from_regex(r"\A[A-Z][a-z]{2}, [0-9]{1,3} (Jan|Dec) [0-9]{1,6} [0-9]{2}:[0-9]{2}:[0-9]{2} [+-]?[0-9]{0,16}\Z")
)
async def test_any_retry_after_is_seconds_or_nothing(value: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(429, headers=[(b"retry-after", value.encode("latin-1"))])

    raised = await catch(ThrottlingError, over(httpx.MockTransport(answer), Policy(max_retries=0)).ask())
    failure = errors.failure_of(raised.value)
    assert failure is not None and (failure.retry_after is None or failure.retry_after >= 0)
