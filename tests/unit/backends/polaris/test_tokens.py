"""Authentication to Polaris: realms, static tokens, and OAuth2 client credentials, renewed once for all calls."""

from __future__ import annotations

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace
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
        # It is renewed after four fifths of its hour.
        for seconds, tokens in ((2879, 2), (2, 3)):
            clock[0] += seconds
            await described(ns, "cat", "a", "t")
            assert list_requests(server).count(TOKENS) == tokens
