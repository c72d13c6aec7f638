"""Access control of the gateway."""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import lance_namespace as spec
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, serving
from tests.fakes.certificates import Certificates
from tests.support.gateway import parse_response, send_bytes, send_request
from tests.support.lake import lake

TOKEN = "a-token-of-our-own"
LIST = "/v1/namespace/$/list"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns, token=TOKEN) as gateway:
        yield gateway


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer  {TOKEN}"},
        {"X-Lance-Token": TOKEN},
        {"x-api-key": TOKEN},
        # Lance's clients put an identity's token into this header, beside ours.
        {"x-lance-token": TOKEN, "Authorization": "Bearer of another"},
    ],
)
async def test_the_token_lets_in(gateway: Gateway, headers: Mapping[str, str]) -> None:
    assert (await send_request(gateway, "GET", LIST, headers=headers, token=False)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        *({}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer"}),
        *({"Authorization": "Bearer "}, {"x-lance-token": ""}, {"x-lance-token": TOKEN[:-1]}),
        *({"x-lance-token": f"{TOKEN}x"}, {"x-lance-token": "é"}, {"Cookie": f"x-lance-token={TOKEN}"}),
    ],
)
async def test_other_clients_are_rejected(gateway: Gateway, headers: Mapping[str, str]) -> None:
    for method, target in [("GET", LIST), ("GET", f"{LIST}?token={TOKEN}"), ("GET", "/metrics"), ("GET", "/nothing")]:
        answer = await send_request(gateway, method, target, headers=headers, token=False)
        assert (answer.status, answer.code) == (401, 16) and answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN.encode() not in answer.body


async def test_requests_need_a_token() -> None:
    async with serving(object(), idle=0.1) as gateway:
        long = {"Content-Length": "1000000000"}
        assert (await send_request(gateway, "POST", "/v1/table/t/insert", headers=long, token=False)).status == 401
    async with serving(object()) as one, serving(object()) as other:
        assert one.token != other.token and len(one.token) >= 32
        assert one.headers == {"x-lance-token": one.token}
        assert one.token not in repr(one) and one.url in repr(one)


@pytest.mark.parametrize("token", ["", " ", "a b ", "é", "a\nb"])
async def test_a_token_that_cannot_be_shown_is_refused(token: str) -> None:
    with pytest.raises(InvalidInputError, match="token") as raised:
        await contextlib.AsyncExitStack().enter_async_context(serving(object(), token=token))
    assert not token.strip() or token not in str(raised.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"delimiter": ""}, "delimiter: must not be empty"),
        ({"max_bytes": -1}, "max_bytes -1: must be at least 0"),
        ({"grace": -0.5}, r"grace -0\.5: must be a number of seconds"),
        ({"grace": float("nan")}, "grace nan: must be a number of seconds"),
        ({"idle": 0}, "idle 0: must be a number of seconds above 0"),
        ({"max_answer_bytes": 0}, "max_answer_bytes 0: "),
        ({"max_bytes": 100, "max_held_bytes": 10}, "max_held_bytes 10: "),
        *(({"max_connections": 0}, "max_connections 0"), ({"max_watches": -1}, "max_watches -1")),
        ({"heartbeat": 0}, "heartbeat 0"),
    ],
)
async def test_limits_that_cannot_be_are_refused(limits: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{message}"):
        await contextlib.AsyncExitStack().enter_async_context(serving(object(), **limits))


async def test_only_health_is_public(gateway: Gateway) -> None:
    answer = await send_request(gateway, "GET", "/health", token=False)
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert "aiohttp" not in str(answer.headers) and "Python" not in str(answer.headers)


@pytest.mark.parametrize("origin", ["https://evil.example.com", "null", "http://127.0.0.1:1", "http://localhost"])
async def test_web_pages_are_refused(gateway: Gateway, origin: str) -> None:
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-lance-token"}
    for method, target, headers in [("GET", "/health", {}), ("POST", LIST, {}), ("OPTIONS", LIST, preflight)]:
        answer = await send_request(gateway, method, target, headers={"Origin": origin, **headers})
        assert (answer.status, answer.code) == (403, 15)
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "host", ["evil.example.com", "evil.example.com:80", "10.0.0.1", "[2001:db8::1]:80", "", "a:b:c"]
)
async def test_another_name_for_this_machine_is_refused(gateway: Gateway, host: str) -> None:
    answer = await send_request(gateway, "GET", "/health", headers={"Host": host})
    assert (answer.status, answer.code) == (403, 15)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.2:80", "[::1]", "[::1]:80"])
async def test_names_of_this_machine_are_known(gateway: Gateway, host: str) -> None:
    assert (await send_request(gateway, "GET", "/health", headers={"Host": host})).status == 200


async def test_other_names_of_servers_are_known() -> None:
    host = "catalog.example.com"
    async with serving(object(), hosts=["Catalog.example.com"]) as gateway:
        assert (await send_request(gateway, "GET", "/health", headers={"Host": f"{host}:443"})).status == 200
    async with serving(object(), host="0.0.0.0") as gateway:
        assert gateway.url.startswith("http://127.0.0.1:")
        assert (await send_request(gateway, "GET", "/health", headers={"Host": host})).status == 200
        assert (await send_request(gateway, "GET", LIST, token=False)).status == 401
        assert (await send_request(gateway, "GET", LIST, headers={"Origin": "https://example.com"})).status == 403
    async with serving(object(), host="::1") as gateway:
        assert gateway.url.startswith("http://[::1]:")
        assert (await send_request(gateway, "GET", "/health")).status == 200


async def test_it_speaks_tls(tmp_path: Path) -> None:
    certificates = Certificates.made(tmp_path)
    async with serving(object(), tls=certificates.server) as gateway:
        assert gateway.url.startswith("https://127.0.0.1:")
        request = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        context = ssl.create_default_context(cafile=certificates.ca_bundle)
        assert (await send_bytes(gateway, request, tls=context)).status == 200


async def test_a_place_that_is_taken_is_reported() -> None:
    async with serving(object()) as gateway:
        port = urlsplit(gateway.url).port or 0
        with pytest.raises(InvalidInputError, match=f"host .*{port}"):
            await contextlib.AsyncExitStack().enter_async_context(serving(object(), port=port))


async def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with lake(tmp_path) as it, serving(it.ns, token=TOKEN) as gateway:
        await send_request(gateway, "GET", f"{LIST}?token={TOKEN}")
        await send_request(gateway, "POST", "/v1/table/t/describe", {"identity": {"auth_token": TOKEN}})
        # Bytes that are not HTTP are reported, without their content.
        for bad in (f"GET /{TOKEN} HTTP/9.9", f"GET / HTTP/1.1\r\nx-lance-token {TOKEN}", f"\x16\x03{TOKEN}"):
            await send_bytes(gateway, f"{bad}\r\n\r\n".encode())
    logged = "\n".join(logging.Formatter().format(record) for record in caplog.records)
    assert "Error handling request" in logged and TOKEN not in logged


@pytest.mark.parametrize(
    "head",
    [
        *("GET /" + "a" * 100_000 + " HTTP/1.1", "GET /health HTTP/1.1\r\nx: " + "a" * 100_000),
        "GET /health HTTP/1.1\r\n" + "\r\n".join(f"x{i}: y" for i in range(1000)),
        "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nx y: z",
        "POST /health HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4",
        "POST /health HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        *("POST /health HTTP/1.1\r\nContent-Length: -1", "GET /health HTTP/1.1\r\nx: \0", "GET", "\x16\x03\x01"),
        *("GET / HTTP/9.9", "GET /health HTTP/1.1\r\nHost: a\r\nContent-Length: x"),
        "GET /health HTTP/1.1\r\nHost: a\r\nx-secret\x00: secret",
    ],
)
async def test_what_is_no_http_is_refused_and_the_connection_closed(gateway: Gateway, head: str) -> None:
    answer = await send_bytes(gateway, f"{head}\r\n\r\n".encode())
    assert (answer.status, answer.code) == (400, 13) and len(answer.body) < 10_000
    assert answer.headers["server"] == "lance-ns" and answer.headers["content-type"] == "application/json"
    for text in (b"Traceback", b"aiohttp", b"Python", b"secret", b"aaaa"):
        assert text not in answer.body
    assert (await send_request(gateway, "GET", "/health")).status == 200


async def test_a_second_request_on_a_connection_is_checked_like_the_first(gateway: Gateway) -> None:
    first = f"GET {LIST} HTTP/1.1\r\nHost: localhost\r\nx-lance-token: {TOKEN}\r\n\r\n"
    second = f"GET {LIST} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = await send_bytes(gateway, (first + second).encode())
    assert answer.status == 200
    _, _, rest = answer.body.partition(b"HTTP/1.1 ")
    assert parse_response(b"HTTP/1.1 " + rest).status == 401


async def test_what_happens_is_counted(tmp_path: Path) -> None:
    async with lake(tmp_path) as it, serving(it.ns) as gateway:
        await send_request(gateway, "GET", LIST)
        await send_request(gateway, "GET", LIST, token=False)
        await send_request(gateway, "POST", "/v1/table/n%24t/describe", {})
        await send_request(gateway, "POST", "/v1/table/n%24t/describe", {"version": "1"})
        text = (await send_request(gateway, "GET", "/metrics")).body.decode()
        await it.ns.list_namespaces(spec.ListNamespacesRequest(id=[]))
    lines = text.splitlines()
    for line in [
        'lance_ns_requests_total{operation="list_namespaces",code="200"} 1',
        'lance_ns_requests_total{operation="other",code="401"} 1',
        'lance_ns_requests_total{operation="describe_table",code="404"} 1',
        'lance_ns_requests_total{operation="describe_table",code="400"} 1',
        'lance_ns_request_seconds_bucket{operation="describe_table",le="+Inf"} 2',
        'lance_ns_request_seconds_count{operation="describe_table"} 2',
        *("lance_ns_requests_in_flight 1", 'lance_ns_client_requests_total{client="owner"} 3'),
        "# TYPE lance_ns_request_seconds histogram",
    ]:
        assert line in lines, line
    calls = "lance_ns_call_duration_seconds_count"
    assert any(line.startswith(f'{calls}{{operation="describe_table",error_type="') for line in lines)
    assert f'{calls}{{operation="list_namespaces"}} 1' in lines
    load = it.ns.snapshot()
    assert f"lance_ns_call_limit {load.limit}" in lines and "lance_ns_call_in_flight 0" in lines
    assert all(line.startswith("#") or len(line.rsplit(" ", 1)) == 2 for line in lines)
