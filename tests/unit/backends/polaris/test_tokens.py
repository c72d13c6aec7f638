"""Authentication to Polaris: realms, static tokens, and OAuth2 client credentials, renewed once for all calls."""

from __future__ import annotations

from urllib.parse import parse_qsl

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.transports.http.token_sources import RenewedTokens, Token
from tests.fakes.polaris import FakePolaris
from tests.support.errors import catch
from tests.support.polaris import connected, described, list_requests
from tests.support.running import running

TOKENS = "POST catalog/v1/oauth/tokens"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as the only element."""
    now = [1000.0]
    monkeypatch.setattr("lance_ns_async.transports.http.token_sources.monotonic", lambda: now[0])
    return now


async def test_a_client_shows_id_secret_and_scope_in_a_form() -> None:
    fake = FakePolaris(credential=("root", "s3:cr:3t&="))
    async with running(connected, fake, scope="PRINCIPAL_ROLE:reader") as (server, ns):
        server.add_table("cat", ("a",), "t")
        await described(ns, "cat", "a", "t")
        request = server.requests[0]
        assert str(request) == "POST /api/catalog/v1/oauth/tokens"
        assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
        assert dict(parse_qsl(request.body.decode())) == {
            "grant_type": "client_credentials",
            "client_id": "root",
            "client_secret": "s3:cr:3t&=",
            "scope": "PRINCIPAL_ROLE:reader",
        }


@pytest.mark.parametrize("status", [401, 419])
async def test_a_refused_token_is_renewed_once_and_the_call_repeated(status: int) -> None:
    async with running(connected, FakePolaris()) as (server, ns):
        server.add_namespace("cat", ("a",))
        # A write, too: a request with a rejected token had no effect.
        server.fail(status, match="generic-tables")
        await ns.declare_table(["cat", "a", "t"], location="s3://b/t")
        tables = "POST catalog/polaris/v1/cat/namespaces/a/generic-tables"
        assert list_requests(server)[:4] == [TOKENS, tables, TOKENS, tables]
        server.clear()
        server.fail(status, times=2, match="DELETE")
        await catch(err.UnauthenticatedError, ns.drop_namespace(["cat", "a"]), f"drop_namespace: HTTP {status}")
        drop = "DELETE catalog/v1/cat/namespaces/a"
        assert list_requests(server) == [drop, TOKENS, drop]


async def test_each_attempt_of_a_call_renews_a_refused_token() -> None:
    async with running(connected, FakePolaris()) as (server, ns):
        server.add_table("cat", ("a",), "t")
        for status in (401, 503, 401):
            server.fail(status, match="generic-tables")
        await described(ns, "cat", "a", "t")
        describe = "GET catalog/polaris/v1/cat/namespaces/a/generic-tables/t"
        assert list_requests(server) == [TOKENS, describe, TOKENS, describe, describe, TOKENS, describe]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"credential": "root:wr0ng"}, "HTTP 401: unauthorized_client: The client is not authorized"),
        ({"scope": "catalog"}, "HTTP 400: invalid_scope: The scope is invalid"),
    ],
    ids=["secret", "scope"],
)
async def test_refused_credential(properties: dict[str, str], message: str) -> None:
    async with running(connected, FakePolaris(), **properties) as (server, ns):
        raised = await catch(err.UnauthenticatedError, described(ns, "cat", "a", "t"), f"fetch_token: {message}")
        assert server.token_requests == 1 and "wr0ng" not in str(raised.value)


async def test_a_busy_token_endpoint_is_called_again() -> None:
    async with running(connected, FakePolaris()) as (server, ns):
        server.add_table("cat", ("a",), "t")
        server.fail(429, match="oauth")
        server.fail(503, match="oauth")
        server.cut(match="oauth")
        await described(ns, "cat", "a", "t")
        server.expire_tokens()
        server.fail(429, times=4, match="oauth")
        await catch(err.ThrottlingError, described(ns, "cat", "a", "t"), r"fetch_token: HTTP 429.*4 attempts")
        server.fail(503, times=4, match="oauth")
        await catch(err.ServiceUnavailableError, described(ns, "cat", "a", "t"), "fetch_token")
        await described(ns, "cat", "a", "t")


@pytest.mark.parametrize("location", ["s3://b/t", "s3://b/other"])
async def test_a_declare_that_got_no_token_was_never_sent(location: str) -> None:
    async with running(connected, FakePolaris(), max_retries="0") as (server, ns):
        server.add_table("cat", ("a",), "t", base_location="s3://b/t")
        request = {"id": ["cat", "a", "t"], "location": location}
        server.fail(503, match="oauth")
        await catch(err.ServiceUnavailableError, ns.declare_table(request), "fetch_token")
        await ns.list_tables(["cat", "a"])
        server.fail(401, match="generic-tables")
        server.fail(503, match="oauth")
        await catch(err.ServiceUnavailableError, ns.declare_table(request), "fetch_token")
        assert not any(path.startswith("GET") and path.endswith("/t") for path in list_requests(server))


async def test_an_unknown_realm_is_no_missing_table() -> None:
    with FakePolaris(realm="north") as server:
        properties = {"endpoint": server.endpoint, "auth_token": server.token(), "realm": "south"}
        async with AsyncNamespace.connect("polaris", properties) as ns:
            message = "MissingOrInvalidRealm: Missing or invalid realm"
            await catch(err.InternalError, ns.exists(["cat", "a", "t"]), message)


@pytest.mark.parametrize(("lifetime", "until"), [(3600.0, 2880.0), (60.0, 48.0), (5.0, 4.0)])
async def test_token_is_renewed_before_its_end(clock: list[float], lifetime: float, until: float) -> None:
    fetched: list[str] = []

    async def fetch() -> Token:
        fetched.append(str(len(fetched)))
        return Token(fetched[-1], lifetime)

    tokens = RenewedTokens(fetch)
    assert await tokens.current() == "0"
    clock[0] += until - 0.1
    assert await tokens.current() == "0"
    clock[0] += 0.2
    assert await tokens.current() == "1"


async def test_a_token_without_an_end_is_kept_until_it_is_refused(clock: list[float]) -> None:
    async with running(connected, FakePolaris()) as (server, ns):
        server.add_table("cat", ("a",), "t")
        body = f'{{"access_token": "{server.token()}", "token_type": "bearer"}}'
        server.reply(body, match="oauth")
        await described(ns, "cat", "a", "t")
        clock[0] += 10_000_000
        await described(ns, "cat", "a", "t")
        assert list_requests(server).count(TOKENS) == 1
        server.expire_tokens()
        await described(ns, "cat", "a", "t")
        assert list_requests(server).count(TOKENS) == 2
        clock[0] += 3600
        await described(ns, "cat", "a", "t")
        assert list_requests(server).count(TOKENS) == 3
