"""OAuth2 client credentials: what is asked, what becomes of each answer, and that no secret is told."""

from __future__ import annotations

import json
import traceback
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from lance_namespace.errors import InternalError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async.calls.policy import Caller, Policy
from lance_ns_async.transports.http.auth import RenewedTokens
from lance_ns_async.transports.http.oauth2 import LIFETIME, OAUTH2_ERRORS, client_credentials, token
from lance_ns_async.transports.http.wire import AiohttpWire
from tests.fakes.sockets import Said, Script, http

SECRET, TOKEN = "hush-hush-4711", "tok-tok-0815"


def credentials(url: str, wire: httpx.AsyncBaseTransport, *, client: str = "id") -> RenewedTokens:
    policy = Policy(max_retries=2, backoff_initial=0.0)
    caller = Caller(policy, OAUTH2_ERRORS)
    return client_credentials(wire, caller, uri=f"{url}/token?tenant=1", client=client, secret=SECRET, scope="a b")


async def current(answers: list[Said], *, client: str = "id") -> tuple[str, Script]:
    """The first token from an endpoint that answers so."""
    wire = AiohttpWire(connect_timeout=5, tls=None, proxy=None, max_bytes=10_000)
    async with Script(*answers) as server:
        try:
            return await credentials(server.url, wire, client=client).current(), server
        finally:
            await wire.aclose()


def answer(**body: Any) -> Said:
    return http(body=json.dumps(body))


@pytest.mark.parametrize("client", ["id", "", "urn:a:b"])
async def test_a_client_shows_its_id_and_secret_in_a_form(client: str) -> None:
    got, server = await current([answer(access_token=TOKEN)], client=client)
    assert got == TOKEN and server.lines == ["POST /token?tenant=1 HTTP/1.1"]
    wanted = {"grant_type": "client_credentials", "client_secret": SECRET, "scope": "a b"}
    assert dict(parse_qsl(server.body().decode())) == wanted | ({"client_id": client} if client else {})
    assert server.header("content-type") == ["application/x-www-form-urlencoded"]
    assert server.header("authorization") == []


async def test_a_token_endpoint_that_is_busy_is_asked_again() -> None:
    got, server = await current([http(503), Said(then="reset"), answer(access_token=TOKEN)])
    assert got == TOKEN and len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (400, '{"error": "invalid_client"}', "HTTP 400: invalid_client)"),
        (401, '{"error": "invalid_client", "error_description": "who?"}', "HTTP 401: invalid_client: who?)"),
        (406, '{"error": {"message": "not found", "code": 406}}', "HTTP 406: not found)"),
        (400, "<html>no</html>", "HTTP 400: no)"),
        (401, '{"error": {}}', "HTTP 401: "),
    ],
)
async def test_a_client_nobody_knows_is_unauthenticated(status: int, body: str, text: str) -> None:
    with pytest.raises(UnauthenticatedError) as raised:
        await current([http(status, body)])
    assert str(raised.value).startswith("Unauthenticated: the catalog (fetch_token: ") and text in str(raised.value)


@pytest.mark.parametrize(
    "said",
    [
        answer(access_token=TOKEN, expires_in="soon"),
        answer(access_token=f"{TOKEN}\r\nX-Other: 1"),
        answer(access_token=f"{TOKEN}é"),
        answer(access_token=[TOKEN]),
        answer(access_token=None, refresh_token=TOKEN),
        answer(id_token=TOKEN),
        http(body=json.dumps([TOKEN])),
        http(body=json.dumps(TOKEN)),
        http(body=f"access_token={TOKEN}&expires_in=3600"),
        http(body=f'{{"access_token": "{TOKEN}"'),
        http(body=b""),
    ],
)
async def test_an_answer_of_another_form_is_told_without_what_it_holds(said: Said) -> None:
    with pytest.raises(InternalError, match=r"an answer (of unknown form|that is no JSON)") as raised:
        await current([said])
    told = "".join(traceback.format_exception(raised.value))
    assert TOKEN not in told and SECRET not in told


async def test_an_endpoint_that_is_down_is_unavailable() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no")

    with pytest.raises(ServiceUnavailableError, match=r"fetch_token: no .*; 3 attempts") as raised:
        await credentials("http://idp.example.com", httpx.MockTransport(fail)).current()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("body", "lifetime"),
    [({}, LIFETIME), ({"expires_in": None}, LIFETIME), ({"expires_in": 60}, 60.0), ({"expires_in": "60"}, 60.0)],
)
def test_a_token_lives_as_long_as_the_endpoint_says(body: dict[str, Any], lifetime: float) -> None:
    found = token({"access_token": TOKEN, **body})
    assert (found.value, found.lifetime) == (TOKEN, lifetime) and TOKEN not in repr(found)
