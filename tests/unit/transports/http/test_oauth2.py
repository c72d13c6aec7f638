"""Grants of OAuth2: the requests, the effects of each response, and no secret in any message."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from lance_namespace.errors import InternalError, InvalidInputError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.transports.http.oauth2 import OAUTH2_ERRORS, OAuth2Settings, grant_tokens, token
from lance_ns_async.transports.http.token_sources import LIFETIME, RenewedTokens
from lance_ns_async.transports.http.wire import AiohttpWire
from tests.fakes.sockets import Reply, Script, http
from tests.support.errors import catch

pytestmark = pytest.mark.floors
SECRET, TOKEN = "hush-hush-4711", "tok-tok-0815"


class Settings(OAuth2Settings):
    """Properties of a catalog with another token endpoint."""

    backend = "any"


def credentials(url: str, wire: httpx.AsyncBaseTransport, **properties: str) -> RenewedTokens:
    caller = Caller(Policy(max_retries=2, backoff_initial=0.0), OAUTH2_ERRORS)
    if not any("token" in key or key == "client_secret_file" for key in properties):
        properties = {"credential": f"id:{SECRET}", **properties}
    settings = Settings.parse({"endpoint": url, "scope": "a b", **properties})
    return grant_tokens(wire, settings=settings, caller=caller, uri=f"{url}/token?tenant=1")


async def fetch(answers: list[Reply], count: int, **properties: str) -> tuple[list[str], Script]:
    """Fetches a number of tokens, each after the rejection of the previous one, from such an endpoint."""
    wire = AiohttpWire(connect_timeout=5, tls=None, proxy=None, max_bytes=10_000)
    async with Script(*answers) as server:
        tokens = credentials(server.url, wire, **properties)
        try:
            values = [await tokens.current()]
            while len(values) < count:
                values.append(await tokens.replace(values[-1]))
        finally:
            await wire.aclose()
    return values, server


async def current(answers: list[Reply], **properties: str) -> tuple[str, Script]:
    values, server = await fetch(answers, 1, **properties)
    return values[0], server


def forms(server: Script) -> list[dict[str, str]]:
    return [dict(parse_qsl(server.body(i).decode())) for i in range(len(server.requests))]


def answer(**body: Any) -> Reply:
    return http(body=json.dumps(body))


@pytest.mark.parametrize(
    ("credential", "client"),
    [
        (f"id:{SECRET}", {"client_id": "id", "client_secret": SECRET}),
        (SECRET, {"client_secret": SECRET}),
        (f"urn:a:{SECRET}", {"client_id": "urn", "client_secret": f"a:{SECRET}"}),
    ],
)
async def test_a_client_shows_its_id_and_secret_in_a_form(credential: str, client: dict[str, str]) -> None:
    token, server = await current([answer(access_token=TOKEN)], credential=credential)
    assert token == TOKEN and server.lines == ["POST /token?tenant=1 HTTP/1.1"]
    assert forms(server) == [{"grant_type": "client_credentials", "scope": "a b", **client}]
    assert server.header("content-type") == ["application/x-www-form-urlencoded"]
    assert server.header("authorization") == []


async def test_the_secret_and_the_subject_are_read_again_for_each_token(tmp_path: Path) -> None:
    client, subject = tmp_path / "client", tmp_path / "subject"
    wire = AiohttpWire(connect_timeout=5, tls=None, proxy=None, max_bytes=10_000)
    async with Script(answer(access_token="1"), answer(access_token="2"), http(401, "no s-0002 of c-0002")) as server:
        files = {"client_secret_file": str(client), "subject_token_file": str(subject)}
        tokens = credentials(server.url, wire, **files, client_id="id")
        await catch(InvalidInputError, tokens.current(), f"subject_token_file '{subject}': No such file")
        for number in ("1", "2"):
            client.write_text(f"c-000{number}\n")
            subject.write_text(f"Bearer s-000{number}")
            assert await (tokens.replace("1") if number == "2" else tokens.current()) == number
        subject.unlink()
        raised = await catch(UnauthenticatedError, tokens.replace("2"), r"is subject_token_file still valid")
        await wire.aclose()
    assert "0002" not in str(raised.value)
    sent = [(form["client_id"], form["client_secret"], form["subject_token"]) for form in forms(server)]
    assert sent == [("id", "c-0001", "s-0001"), ("id", "c-0002", "s-0002"), ("id", "c-0002", "s-0002")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *((name, f"hush\n{SECRET}", "more than one line") for name in ("client_secret_file", "subject_token_file")),
        *((name, f"\ufeff{SECRET}", "byte order mark") for name in ("client_secret_file", "subject_token_file")),
        ("subject_token_file", "Bearer", "empty; write the token to it"),
    ],
)
async def test_files_that_are_not_sent(tmp_path: Path, name: str, content: str, message: str) -> None:
    (file := tmp_path / "file").write_text(content)
    raised = await catch(InvalidInputError, current([], **{name: str(file)}), message)
    assert SECRET not in str(raised.value)


async def test_a_token_endpoint_that_is_busy_is_called_again() -> None:
    token, server = await current([http(503), Reply(then="reset"), answer(access_token=TOKEN)])
    assert token == TOKEN and len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (400, '{"error": "invalid_client"}', "HTTP 400: invalid_client)"),
        (
            401,
            '{"error": "invalid_client", "error_description": "who?"}',
            "HTTP 401: invalid_client: who?; is credential right?)",
        ),
        (406, '{"error": {"message": "not found", "code": 406}}', "HTTP 406: not found)"),
        (400, "<html>no</html>", "HTTP 400: no)"),
        (401, '{"error": {}}', "HTTP 401: "),
    ],
)
async def test_a_client_that_is_unknown_is_unauthenticated(status: int, body: str, text: str) -> None:
    raised = await catch(UnauthenticatedError, current([http(status, body)]))
    assert str(raised.value).startswith("Unauthenticated: the catalog (fetch_token: ") and text in str(raised.value)


@pytest.mark.parametrize(
    "response",
    [
        *(answer(access_token=TOKEN, expires_in="soon"), answer(access_token=f"{TOKEN}\r\nX-Other: 1")),
        *(answer(access_token=f"{TOKEN}é"), answer(access_token=[TOKEN])),
        *(answer(access_token=None, refresh_token=TOKEN), answer(id_token=TOKEN), http(body=json.dumps([TOKEN]))),
        *(http(body=json.dumps(TOKEN)), http(body=f"access_token={TOKEN}&expires_in=3600")),
        *(http(body=f'{{"access_token": "{TOKEN}"'), http(body=b"")),
    ],
)
async def test_an_answer_of_another_form_is_reported_without_what_it_holds(response: Reply) -> None:
    raised = await catch(InternalError, current([response]), r"an answer (of unknown form|that is no JSON)")
    text = "".join(traceback.format_exception(raised.value))
    assert TOKEN not in text and SECRET not in text


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
    result = token({"access_token": TOKEN, **body})
    assert (result.value, result.lifetime) == (TOKEN, lifetime) and TOKEN not in repr(result)


EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type"
CLIENT = {"client_id": "id", "client_secret": SECRET}


async def test_audience_and_resource_are_sent_and_an_empty_scope_is_not() -> None:
    targets = {"audience": "catalog", "resource": "https://catalog.example.com/"}
    _, server = await current([answer(access_token=TOKEN)], scope="", **targets)
    assert forms(server) == [{"grant_type": "client_credentials", **CLIENT, **targets}]


async def test_a_refresh_token_is_used_at_renewal_and_replaced_by_the_next_one() -> None:
    answers = [
        *(answer(access_token="1", refresh_token="r-0001"), answer(access_token="2", refresh_token="r-0002")),
        *(answer(access_token="3"), answer(access_token="4")),
    ]
    values, server = await fetch(answers, 4, audience="catalog")
    assert values == ["1", "2", "3", "4"]
    refresh = {"grant_type": "refresh_token", **CLIENT, "audience": "catalog"}
    assert forms(server)[1:] == [{**refresh, "refresh_token": token} for token in ("r-0001", "r-0002", "r-0002")]


@pytest.mark.parametrize("refusal", [http(400, '{"error": "invalid_grant"}'), http(401, ""), http(500, "no")])
async def test_a_rejected_refresh_token_is_discarded(refusal: Reply) -> None:
    first = answer(access_token="1", refresh_token="r-0001")
    values, server = await fetch([first, refusal, answer(access_token="2"), answer(access_token="3")], 3)
    assert values == ["1", "2", "3"]
    grants = ["client_credentials", "refresh_token", "client_credentials", "client_credentials"]
    assert [form["grant_type"] for form in forms(server)] == grants


async def test_an_endpoint_that_is_unavailable_keeps_the_refresh_token() -> None:
    wire = AiohttpWire(connect_timeout=5, tls=None, proxy=None, max_bytes=10_000)
    answers = [answer(access_token="1", refresh_token="r-0001"), *[http(503)] * 3, answer(access_token="2")]
    async with Script(*answers) as server:
        tokens = credentials(server.url, wire)
        await tokens.current()
        await catch(ServiceUnavailableError, tokens.replace("1"), "3 attempts")
        assert await tokens.replace("1") == "2"
        await wire.aclose()
    assert [form["grant_type"] for form in forms(server)] == ["client_credentials"] + ["refresh_token"] * 4


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"subject_token": "s-0001"}, {"subject_token_type": f"{TYPE}:access_token"}),
        ({"subject_token": "s-0001", "subject_token_type": "id_token"}, {"subject_token_type": f"{TYPE}:id_token"}),
        ({f"{TYPE}:jwt": "s-0001"}, {"subject_token_type": f"{TYPE}:jwt"}),
        (
            {f"any.{TYPE}:saml2": "s-0001", "requested_token_type": "jwt"},
            {"subject_token_type": f"{TYPE}:saml2", "requested_token_type": f"{TYPE}:jwt"},
        ),
        (
            {"subject_token": "s-0001", "credential": f"id:{SECRET}", "subject_token_type": "urn:mine"},
            {"subject_token_type": "urn:mine", **CLIENT},
        ),
    ],
)
async def test_a_token_is_exchanged(properties: dict[str, str], expected: dict[str, str]) -> None:
    token, server = await current([answer(access_token=TOKEN)], **{"audience": "catalog", **properties})
    assert token == TOKEN
    exchange = {"grant_type": EXCHANGE, "subject_token": "s-0001", "scope": "a b", "audience": "catalog"}
    assert forms(server) == [{**exchange, **expected}]


async def test_an_exchange_uses_the_refresh_token_and_then_names_the_remedy() -> None:
    refused = http(400, json.dumps({"error": "invalid_grant", "error_description": "r-0001 or s-0001 is over"}))
    answers = [answer(access_token="1", refresh_token="r-0001"), refused, refused]
    raised = await catch(UnauthenticatedError, fetch(answers, 2, subject_token="s-0001"))
    message = str(raised.value)
    assert "is subject_token still valid? replace it with a new one; before, the refresh token was rejected" in message
    assert "r-0001" not in message and "s-0001" not in message


@pytest.mark.parametrize(
    "response",
    [
        http(body="<html>Sign in</html>"),
        http(302, "", {"Location": "https://login.example.com/"}),
        http(404, "<html>no such page</html>"),
        http(404, '{"error": {"message": "not found", "type": "NotFound"}}'),
        http(405, ""),
    ],
)
async def test_what_is_no_token_endpoint_names_the_property_to_set(response: Reply) -> None:
    raised = await catch((InvalidInputError, InternalError), current(4 * [response]), "is oauth2_server_uri right")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"auth_token": "t", "credential": "i:s"}, "auth_token and credential: set one of them"),
        ({"auth_token": "t", "auth_command": "x"}, "auth_token and auth_command: set one of them"),
        ({"credential": "i:s", "subject_token": "t", "auth_command": "x"}, "set one of them"),
        ({"auth_token": "t", "auth_token_file": "f"}, "auth_token and auth_token_file: set one of them"),
        ({"credential": "i:s", "client_secret_file": "f"}, "credential and client_secret_file: set one of them"),
        ({"subject_token": "t", "subject_token_file": "f"}, "subject_token and subject_token_file: set one of them"),
        ({"client_id": "i"}, "client_id: give client_secret_file with it"),
        *(
            ({name: token}, f"{name}: it is empty; set it to a token, or leave it out")
            for name in ("auth_token", "subject_token")
            for token in ("", "bearer ", "Bearer")
        ),
        ({"audience": "a"}, "audience: give credential or subject_token with it"),
        ({"resource": "a", "auth_command": "x"}, "resource: give credential or subject_token with it"),
        ({"subject_token_type": "jwt", "credential": "i:s"}, "type: give subject_token or subject_token_file with it"),
        ({"subject_token": "t", "subject_token_type": "jtw"}, "not a type of token; write one of access_token"),
        ({"subject_token": "hush", f"{TYPE}:jwt": "hush2"}, "give one token to exchange"),
        ({f"{TYPE}:id_token": "hush", f"{TYPE}:jwt": "hush2"}, "give one token to exchange"),
        ({"auth_command_timeout": "5s"}, "auth_command_timeout: give auth_command with it"),
        ({"auth_command": "print 'hush"}, "auth_command: not a command, no closing quotation"),
        ({"auth_command": " "}, "auth_command: it names no program"),
        ({"token": "hush"}, "token: it is a Python callable .* a token itself is the property auth_token"),
    ],
)
def test_properties_that_do_not_fit_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as raised:
        Settings.parse({"endpoint": "http://127.0.0.1", **properties})
    assert "hush" not in str(raised.value)


def test_settings_show_no_secret() -> None:
    secrets = {"credential": "id:hush", "subject_token": "hush", "audience": "a"}
    assert "hush" not in repr(Settings.parse({"endpoint": "http://127.0.0.1", **secrets}))
    assert "hush" not in repr(Settings.parse({"endpoint": "http://127.0.0.1", "auth_command": "print hush"}))
