"""JSON over HTTP: what is sent, what becomes of each kind of answer, and what is sent again."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
)

from lance_ns_async.errors import HTTP_ERRORS, Failure, NotALanceTableError
from lance_ns_async.policy import Caller, Policy
from lance_ns_async.transports.auth import RenewedTokens, Token
from lance_ns_async.transports.http import HttpTransport
from tests.fakes.plain import EAGER, Plain, explain, plain
from tests.fakes.sockets import Said, Script, http

RESET = Said(then="reset")
CLOSED = Said(then="close")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def failure_of(asked: Plain, *args: Any, **kwargs: Any) -> Failure:
    """The failure behind the error that asking raises."""
    with pytest.raises(LanceNamespaceError) as raised:
        await asked.ask(*args, **kwargs)
    failure = raised.value.__cause__
    assert isinstance(failure, Failure)
    return failure


async def test_a_request_says_what_it_should_and_no_more() -> None:
    async with Script() as server, plain(server.url, {"auth_token": "tok", "header.X-Tenant": "a"}) as asked:
        await asked.ask()
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
    told = {"header.User-Agent": "mine", "header.Accept": "*/*", "header.AUTHORIZATION": "Basic eA=="}
    async with Script() as server, plain(server.url, told) as asked:
        await asked.ask()
    assert (server.header("user-agent"), server.header("accept")) == (["mine"], ["*/*"])
    assert server.header("authorization") == ["Basic eA=="]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_body_is_json(method: str) -> None:
    body = {"a": [1, None, "é\u2028"], "b": {"c": True}}
    async with Script() as server, plain(server.url) as asked:
        await asked.ask(method, "/x", body=body)
        await asked.ask(method, "/y")
    assert json.loads(server.body(0)) == body
    assert server.header("content-type", 0) == ["application/json"]
    assert server.header("content-length", 0) == [str(len(server.body(0)))]
    assert server.body(1) == b"" and server.header("content-type", 1) == []


async def test_a_form_is_encoded() -> None:
    async with Script() as server, plain(server.url) as asked:
        await asked.ask("POST", "/token", form={"client_id": "a&b", "scope": "x y", "é": "="})
    assert server.body() == b"client_id=a%26b&scope=x+y&%C3%A9=%3D"
    assert server.header("content-type") == ["application/x-www-form-urlencoded"]


async def test_a_query_is_sent_as_it_is() -> None:
    async with Script() as server, plain(f"{server.url}/base/") as asked:
        await asked.ask("GET", "/x", query="pageToken=&parent=a%1Fb&q=a+b%2B%26")
        await asked.ask("GET", "/x", query="")
    assert server.lines == [
        "GET /base/x?pageToken=&parent=a%1Fb&q=a+b%2B%26 HTTP/1.1",
        "GET /base/x HTTP/1.1",
    ]


@pytest.mark.parametrize("value", [{}, [], 0, False, None, "x", {"é": [1.5, "\u0000"]}])
async def test_the_answer_is_decoded(value: object) -> None:
    async with Script(http(body=json.dumps(value))) as server, plain(server.url) as asked:
        assert await asked.ask() == value


@pytest.mark.parametrize(
    "answer", [http(body=b""), http(204, b"", {"Content-Length": "0"}), http(body=b"", then="close")]
)
async def test_an_empty_answer_is_none(answer: Said) -> None:
    async with Script(answer) as server, plain(server.url) as asked:
        assert await asked.ask("DELETE") is None


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Welcome</body></html>",
        b"{",
        b'{"a": 1} x',
        b"\xff\xfe",
        b'{"a": "\xe9"}',
        b"NaN",
        b"[" * 100_000,
        '{"a": 1}'.encode("utf-16"),
    ],
)
async def test_an_answer_that_is_no_json_is_told_and_not_asked_for_again(body: bytes) -> None:
    async with Script(http(body=body)) as server, plain(server.url) as asked:
        with pytest.raises(InternalError, match="an answer that is no JSON, so is the endpoint right") as raised:
            await asked.ask()
    assert len(server.requests) == 1 and len(str(raised.value)) < 400 and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("[]", "TypeError"),
        ("{}", "KeyError: 'found'"),
        ('{"found": null}', "TypeError"),
        ('{"found": "abc"}', "ValueError"),
        ('{"found": 1e999}', "OverflowError|no JSON"),
    ],
)
async def test_an_answer_of_another_form_is_told(body: str, text: str) -> None:
    def decode(body: Any) -> int:
        return int(body["found"])

    async with Script(http(body=body)) as server, plain(server.url) as asked:
        with pytest.raises(InternalError, match=text):
            await asked.ask(decode=decode)
    assert len(server.requests) == 1


async def test_an_answer_of_another_form_is_told_by_its_names_alone() -> None:
    body = {"config": {"s3.secret-access-key": "hush"}, "hidden": "hush", "x" * 500: "hush"}
    async with Script(http(body=json.dumps(body))) as server, plain(server.url) as asked:
        with pytest.raises(
            InternalError, match=r"unknown form \(KeyError: 'found'\): it holds config, hidden, x"
        ) as raised:
            await asked.ask(decode=lambda body: body["found"])
    assert "hush" not in str(raised.value) and len(str(raised.value)) < 400


async def test_what_a_decoder_refuses_is_raised_as_it_is() -> None:
    error = NotALanceTableError("Invalid input: db$t is no Lance table")

    def decode(body: Any) -> None:
        raise error

    async with Script() as server, plain(server.url) as asked:
        with pytest.raises(NotALanceTableError) as raised:
            await asked.ask(decode=decode)
    assert raised.value is error and len(server.requests) == 1


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b'{"a": 1}')),
        ("GZIP", gzip.compress(b'{"a": 1}')),
        ("deflate", zlib.compress(b'{"a": 1}')),
        ("identity", b'{"a": 1}'),
    ],
)
async def test_a_compressed_answer_is_decoded_although_nobody_asked_for_it(encoding: str, body: bytes) -> None:
    async with Script(http(body=body, headers={"Content-Encoding": encoding})) as server, plain(server.url) as asked:
        assert await asked.ask() == {"a": 1}


async def test_an_answer_that_cannot_be_decompressed_is_told() -> None:
    answer = http(body=b"not gzip", headers={"Content-Encoding": "gzip"})
    async with Script(answer) as server, plain(server.url) as asked:
        with pytest.raises(InternalError, match="the answer cannot be decompressed"):
            await asked.ask()
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_redirects_are_not_followed(status: int, method: str) -> None:
    async with Script() as other:
        answer = http(status, b"", {"Location": f"{other.url}/elsewhere"})
        async with Script(answer) as server, plain(server.url, {"auth_token": "tok"}) as asked:
            with pytest.raises(InternalError) as raised:
                await asked.ask(method)
    message = f"HTTP {status}: redirects are not followed; it points to {other.url}/elsewhere"
    assert message in str(raised.value)
    assert len(server.requests) == 1 and not other.requests


async def test_cookies_are_not_kept() -> None:
    answer = http(headers={"Set-Cookie": "session=1; Path=/"})
    async with Script(answer, answer) as server, plain(server.url) as asked:
        await asked.ask()
        await asked.ask()
    assert server.header("cookie") == [] and server.connections == 1


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (404, '{"type": "NoSuch", "message": "it is gone"}', "HTTP 404: it is gone"),
        (403, "<html>\n<b>no</b>\n</html>", "HTTP 403: <html> <b>no</b> </html>"),
        (503, "x" * 1000, "HTTP 503: " + "x" * 200 + "; 4 attempts"),
        (500, b"\xff\xfe", "HTTP 500: \ufffd\ufffd"),
        (500, '{"type": ["a"], "message": "m"}', 'HTTP 500: {"type": ["a"], "message": "m"}'),
        (500, '"text"', 'HTTP 500: "text"'),
        (500, '{"error": 5}', 'HTTP 500: {"error": 5}'),
        (500, "[" * 100_000, "HTTP 500: " + "[" * 200),
        (401, b"", "HTTP 401: Unauthorized"),
        (599, b"", "HTTP 599"),
    ],
)
async def test_an_error_tells_what_the_server_said(status: int, body: bytes | str, text: str) -> None:
    async with Script(*[http(status, body)] * 4) as server, plain(server.url) as asked:
        with pytest.raises(HTTP_ERRORS.get(status, LanceNamespaceError)) as raised:
            await asked.ask()
    assert f"(op: {text}" in str(raised.value) and "\n" not in str(raised.value)


async def test_a_more_precise_code_comes_before_the_status() -> None:
    async with Script(http(404, '{"type": "NoSuch", "message": "m"}')) as server, plain(server.url) as asked:
        failure = await failure_of(asked)
    assert failure.codes == ("NoSuch", 404)


@pytest.mark.parametrize(
    ("status", "delivered"),
    [(400, False), (401, False), (404, False), (408, None), (409, False), (429, False), (500, None), (503, None)],
)
async def test_only_a_request_that_was_turned_away_did_certainly_nothing(status: int, delivered: bool | None) -> None:
    async with Script(http(status)) as server, plain(server.url, policy=Policy(max_retries=0)) as asked:
        assert (await failure_of(asked)).delivered is delivered


async def test_reads_are_repeated_and_writes_only_if_nothing_was_done() -> None:
    for method, status, sent in (
        ("GET", 503, 4),
        ("HEAD", 502, 4),
        ("POST", 503, 1),
        ("DELETE", 504, 1),
        ("POST", 429, 4),
    ):
        async with Script(*[http(status)] * 4) as server, plain(server.url) as asked:
            with pytest.raises(LanceNamespaceError):
                await asked.ask(method)
        assert (method, status, len(server.requests)) == (method, status, sent)
    async with Script(http(503), http(503)) as server, plain(server.url) as asked:
        assert await asked.ask("POST", safe=True) == {}


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("0", 0.0, 0.0),
        ("7", 7.0, 7.0),
        ("  30 ", 30.0, 30.0),
        ("Fri, 31 Dec 2100 23:59:59 GMT", 1e9, 1e10),
        ("Fri, 31 Dec 2100 23:59:59 +0900", 1e9, 1e10),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0, 0.0),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", 0.0, 0.0),
    ],
)
async def test_retry_after_is_seconds_or_a_date(value: str, least: float, most: float) -> None:
    policy = Policy(max_retries=0)
    async with Script(http(429, headers={"Retry-After": value})) as server, plain(server.url, policy=policy) as asked:
        failure = await failure_of(asked)
    assert failure.retry_after is not None and least <= failure.retry_after <= most


async def test_a_server_that_says_now_is_asked_now() -> None:
    busy = http(429, headers={"Retry-After": "0"})
    async with Script(busy, busy) as server, plain(server.url) as asked:
        assert await asked.ask("DELETE") == {}
    assert asked.outcomes == ["429", "429", "ok"]


@given(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"))
    | st.from_regex(r"\A[A-Z][a-z]{2}, [0-9]{1,3} (Jan|Dec) [0-9]{1,6} [0-9]{2}:[0-9]{2}:[0-9]{2} [+-]?[0-9]{0,16}\Z")
)
async def test_any_retry_after_is_seconds_or_nothing(value: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(429, headers=[(b"retry-after", value.encode("latin-1"))])

    with pytest.raises(ThrottlingError) as raised:
        await over(httpx.MockTransport(answer), Policy(max_retries=0)).ask()
    failure = raised.value.__cause__
    assert isinstance(failure, Failure) and (failure.retry_after is None or failure.retry_after >= 0)


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
    async with Script(LOST[how], LOST[how]) as server, plain(server.url) as asked:
        assert await asked.ask() == {}
    assert asked.outcomes == ["disconnected", "disconnected", "ok"] and len(server.requests) == 3


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_write_whose_answer_is_lost_is_sent_once(how: str, method: str, is_kept: bool) -> None:
    before = [http()] if is_kept else []
    async with Script(*before, LOST[how]) as server, plain(server.url) as asked:
        for _ in before:
            await asked.ask()
        with pytest.raises(
            ServiceUnavailableError, match=r"the connection was lost: .*whether it took effect is unknown"
        ):
            await asked.ask(method, "/t")
    assert server.lines[len(before) :] == [f"{method} /t HTTP/1.1"]
    assert server.connections == 1


@pytest.fixture
def nobody() -> Iterator[str]:
    """A port that is taken and on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_refused_connection_names_the_server_and_is_tried_again(nobody: str, method: str) -> None:
    async with plain(nobody) as asked:
        with pytest.raises(ServiceUnavailableError) as raised:
            await asked.ask(method)
    text = str(raised.value)
    assert "cannot connect: " in text and f"({nobody}); is the endpoint right and the server up?; 4 attempts" in text
    assert asked.outcomes == ["refused"] * 4


async def test_a_host_nobody_knows_is_named() -> None:
    async with plain("http://catalog.invalid:8181", policy=Policy(max_retries=0)) as asked:
        with pytest.raises(ServiceUnavailableError, match=r"cannot connect: .*\(http://catalog.invalid:8181\); is the"):
            await asked.ask()


async def test_a_cancelled_request_closes_its_connection() -> None:
    async with Script(Said(then="hang")) as server, plain(server.url) as asked:
        task = asyncio.create_task(asked.ask())
        await asyncio.wait_for(server.asked.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.ended.wait(), 10)
        assert await asked.ask() == {}
    assert server.connections == 2


async def test_a_slow_answer_is_given_up_and_its_connection_with_it() -> None:
    policy = Policy(max_retries=1, attempt_timeout=0.05, backoff_initial=0.0)
    async with Script(Said(then="hang")) as server, plain(server.url, policy=policy) as asked:
        assert await asked.ask() == {}
    assert asked.outcomes == ["timeout", "ok"] and server.connections == 2


def bearing(*values: str, lifetime: float = 3600) -> tuple[RenewedTokens, list[str]]:
    """Tokens of these values in turn, and those that were fetched."""
    fetched: list[str] = []

    async def fetch() -> Token:
        fetched.append(values[len(fetched)])
        return Token(fetched[-1], lifetime)

    return RenewedTokens(fetch), fetched


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_refused_token_is_renewed_once_and_the_request_sent_again(method: str) -> None:
    tokens, fetched = bearing("old", "new")
    async with Script(http(401)) as server, plain(server.url, tokens=tokens) as asked:
        assert await asked.ask(method) == {}
        assert await asked.ask(method) == {}
    assert [server.header("authorization", i) for i in range(3)] == [["Bearer old"], ["Bearer new"], ["Bearer new"]]
    assert fetched == ["old", "new"]


async def test_a_token_that_is_refused_anew_is_an_error() -> None:
    tokens, fetched = bearing("old", "new")
    async with Script(http(401), http(401, '{"type": "t", "message": "no"}')) as server:
        async with plain(server.url, tokens=tokens) as asked:
            with pytest.raises(UnauthenticatedError, match="no"):
                await asked.ask()
    assert len(server.requests) == 2 and fetched == ["old", "new"]


async def test_a_token_is_not_renewed_for_what_is_forbidden() -> None:
    tokens, fetched = bearing("old")
    async with Script(http(403)) as server, plain(server.url, tokens=tokens) as asked:
        with pytest.raises(PermissionDeniedError):
            await asked.ask()
    assert len(server.requests) == 1 and fetched == ["old"]


def over(wire: httpx.AsyncBaseTransport, policy: Policy = EAGER) -> Plain:
    """A transport over another wire than ours: anything that httpx can speak through will do."""
    base = "http://catalog.example.com/api"
    return Plain(HttpTransport(wire, Caller(policy, HTTP_ERRORS), base=base, headers={}, explain=explain))


async def test_respx_can_stand_in_for_the_wire() -> None:
    router = respx.Router(assert_all_called=True)
    found = router.get("http://catalog.example.com/api/t", params={"a": "1"}).respond(json={"found": True})
    router.delete(path="/api/t").respond(404, json={"type": "NoSuch", "message": "gone"})
    busy = router.post(path="/api/t")
    busy.side_effect = [httpx.ConnectError("no"), httpx.ConnectTimeout("slow"), httpx.Response(200, json=[1])]
    asked = over(httpx.MockTransport(router.async_handler))
    assert await asked.ask("GET", "/t", query="a=1") == {"found": True}
    with pytest.raises(TableNotFoundError, match=r"Table not found: db\$t \(op: HTTP 404: gone\)"):
        await asked.ask("DELETE", "/t")
    assert await asked.ask("POST", "/t", body={"x": 1}) == [1]
    assert found.call_count == 1 and busy.call_count == 3
    assert json.loads(busy.calls.last.request.content) == {"x": 1}
    await asked.http.aclose()


@pytest.mark.parametrize("error", [httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError, httpx.ReadTimeout])
async def test_what_any_wire_loses_is_lost(error: type[httpx.TransportError]) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("gone")

    with pytest.raises(ServiceUnavailableError, match="gone; 4 attempts"):
        await over(httpx.MockTransport(fail)).ask()
