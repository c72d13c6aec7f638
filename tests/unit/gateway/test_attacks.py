"""Attacks without a token: guessing, impersonation and request smuggling."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import Gateway, serving
from lance_ns_async.gateway.access import hash_of
from tests.support.gateway import send_bytes, send_request

pytestmark = pytest.mark.floors
TOKEN = "a-token-of-our-own"
LIST = "/v1/namespace/$/list"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns, token=TOKEN) as gateway:
        yield gateway


@pytest.mark.parametrize(
    "shown",
    [
        f"Authorization: Token {TOKEN}",
        f"Authorization: Digest {TOKEN}",
        f"Authorization: Bearer{TOKEN}",
        f"Authorization: Bearer Bearer {TOKEN}",
        f"Authorization: Basic Og==, Bearer {TOKEN}",
        f"Authorization: Bearer {TOKEN} {TOKEN}",
        f"Authorization: Bearer\t{TOKEN}",
        f"Proxy-Authorization: Bearer {TOKEN}",
        f"X-Forwarded-Authorization: Bearer {TOKEN}",
        f"x-lance-token: Bearer {TOKEN}",
        f"x_lance_token: {TOKEN}",
        f"x-lance-token: {TOKEN.upper()}",
        f"x-lance-token: {TOKEN * 400}",
        f"x-lance-token: {TOKEN}\x80",
        # Of two values, the first one counts, because a proxy in front of the gateway may have added it.
        f"x-lance-token: wrong\r\nx-lance-token: {TOKEN}",
        f"x-lance-token: wrong, {TOKEN}",
    ],
)
async def test_a_token_counts_only_where_it_belongs(gateway: Gateway, shown: str) -> None:
    head = f"GET {LIST} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{shown}\r\n\r\n"
    answer = await send_bytes(gateway, head.encode("latin-1"))
    assert answer.status == 401 and TOKEN.encode() not in answer.body


@pytest.mark.parametrize("key", ["token", "access_token", "auth_token", "api_key", "x-lance-token", "x-api-key"])
async def test_a_token_in_the_address_or_the_body_is_none(gateway: Gateway, key: str) -> None:
    for target in (f"{LIST}?{key}={TOKEN}", f"{LIST}?Authorization=Bearer%20{TOKEN}", f"/{TOKEN}{LIST}"):
        assert (await send_request(gateway, "GET", target, token=False)).status == 401
    body = {key: TOKEN, "identity": {"auth_token": TOKEN, "api_key": TOKEN}, "context": {f"headers.{key}": TOKEN}}
    assert (await send_request(gateway, "POST", "/v1/table/t/describe", body, token=False)).status == 401


async def test_guesses_are_compared_in_constant_time(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[object, object]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    guesses = ["", "a", TOKEN[:-1], f"{TOKEN}x", "x" * len(TOKEN)]
    for guess in guesses:
        assert (await send_request(gateway, "GET", LIST, headers={"x-lance-token": guess}, token=False)).status == 401
    # None is refused earlier, by its length or its first character.
    assert compared == [(hash_of(guess), hash_of(TOKEN)) for guess in guesses]


@pytest.mark.parametrize(
    "host",
    [
        *("localhost.evil.example.com", "127.0.0.1.evil.example.com", "evil.example.com:127.0.0.1"),
        *("127.0.0.1:80@evil.example.com", "localhost:80:evil.example.com", "[::1].evil.example.com"),
        *("[::1]evil.example.com", "[evil.example.com]", "evil.example.com#localhost", "localhost, evil.example.com"),
        *("localhost/", "127.1", "0x7f000001", "0.0.0.0", "[::]", "localhost.", ":80"),
    ],
)
async def test_a_name_that_only_looks_like_this_machine_is_refused(gateway: Gateway, host: str) -> None:
    answer = await send_request(gateway, "GET", LIST, headers={"Host": host})
    assert (answer.status, answer.code) == (403, 15)


async def test_a_whole_address_for_a_target_does_not_stand_for_the_host(gateway: Gateway) -> None:
    headers = {"Host": "evil.example.com"}
    assert (await send_request(gateway, "GET", f"http://localhost{LIST}", headers=headers)).status == 403


HIDDEN = f"GET {LIST} HTTP/1.1\r\nHost: localhost\r\nx-lance-token: {TOKEN}\r\n\r\n"
"""It gets 200 if a server treats it as a separate request."""


@pytest.mark.parametrize(
    "headers",
    [
        *("Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"),
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        *("Transfer-Encoding: chunked, identity", "Transfer-Encoding : chunked", "Transfer-Encoding: \x0bchunked"),
        *("Content-Length: +5", "Content-Length: 0x5", "Content-Length: 5, 6", "Content-Length: 5 5"),
        *("Content-Length: 5\r\nContent-Length: 5", "Content-Length : 5", "Content-Length: 5\n\n"),
        *("X: y\rContent-Length: 5", "X: y\r\n folded: z"),
    ],
)
async def test_a_request_whose_end_is_in_doubt_is_the_last(gateway: Gateway, headers: str) -> None:
    head = f"POST {LIST} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n"
    answer = await send_bytes(gateway, f"{head}0\r\n\r\n{HIDDEN}".encode("latin-1"))
    assert answer.status == 400 and b"HTTP/1.1 " not in answer.body


@pytest.mark.parametrize(
    "chunks", ["0x5\r\nhello\r\n", "+5\r\nhello\r\n", "5 \nhello\r\n", "-5\r\nhello\r\n", "5\r\nhelloX", "\r\nhello"]
)
async def test_a_chunk_whose_end_is_in_doubt_ends_the_connection(gateway: Gateway, chunks: str) -> None:
    headers = f"Host: localhost\r\nx-lance-token: {TOKEN}\r\nTransfer-Encoding: chunked"
    head = f"POST /v1/table/t/describe HTTP/1.1\r\n{headers}\r\n\r\n"
    answer = await send_bytes(gateway, f"{head}{chunks}0\r\n\r\n{HIDDEN}".encode())
    assert answer.status == 400 and b"HTTP/1.1 200" not in answer.body


async def test_a_body_that_is_not_read_is_no_request(gateway: Gateway) -> None:
    headers = f"Host: localhost\r\nContent-Length: {len(HIDDEN)}\r\nConnection: close"
    answer = await send_bytes(gateway, f"POST {LIST} HTTP/1.1\r\n{headers}\r\n\r\n{HIDDEN}".encode())
    assert answer.status == 401 and b"HTTP/1.1 " not in answer.body
