"""What comes with a table from an Iceberg REST catalog: vended credentials, and the cache of tables with ETags."""

from __future__ import annotations

from asyncio import gather
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import time
from typing import Any

import lance_namespace.errors as err
import pytest
from lance_namespace import DescribeTableResponse

from lance_ns_async import AsyncNamespace, CacheUse, Namespace, TableId
from tests.fakes.iceberg import LANCE, MANAGED, VENDING, FakeIceberg
from tests.fakes.iceberg.catalog import NESSIE, Quirks
from tests.support.errors import catch
from tests.support.running import running
from tests.unit.backends.iceberg.test_backend import connected

UNTIL = "1795224088134"
SESSION = {"s3.session-token": "sesame-token", "s3.session-token-expires-at-ms": UNTIL}
KEYS = {"s3.access-key-id": "id", "s3.secret-access-key": "sesame-key", **SESSION}
SECRETS = {"aws_secret_access_key": "sesame-key", "aws_session_token": "sesame-token"}
OPTIONS = {"aws_access_key_id": "id", **SECRETS, "expires_at_millis": UNTIL}
REGION, AWS_REGION = {"s3.region": "eu-west-1"}, {"aws_region": "eu-west-1"}
LOAD, ENDPOINT = "GET /v1/namespaces/a/tables/t?snapshots=refs", "GET /v1/namespaces/a/tables/t/credentials"


def entry(prefix: str = "s3://bucket", changes: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"prefix": prefix, "config": {**KEYS, **(changes or {})}}


def vending(**vends: Any) -> FakeIceberg:
    server = FakeIceberg(**vends)
    server.add_table(("a",), "t", location="s3://bucket/x/t")
    return server


async def described(ns: AsyncNamespace, *, vend: bool | None = True, name: str = "t") -> DescribeTableResponse:
    return await ns.describe_table(["a", name], vend_credentials=vend)


def calls(server: FakeIceberg) -> list[str]:
    return [str(request) for request in server.requests if "/config" not in request.path]


async def test_the_credentials_of_the_longest_prefix_come_with_the_table() -> None:
    far = entry("s3://bucket/", {"s3.access-key-id": "far"})
    with vending(vends=[far, entry("s3://bucket/x/t/"), entry("gs://other")], load_config=REGION) as server:
        options = {"storage.access_key_id": "configured", "storage.timeout": "60s"}
        async with connected(server, **options) as ns:
            table = await described(ns)
        assert table.storage_options == {"timeout": "60s", **AWS_REGION, **OPTIONS}
        assert table.location == "s3://bucket/x/t"
        assert calls(server) == [LOAD]
        assert server.requests[-1].headers[VENDING] == "vended-credentials"


OWN = {"prefix": "s3://", "config": {"s3.access-key-id": "own", "s3.secret-access-key": "own"}}


@pytest.mark.parametrize(
    ("vends", "options", "sent"),
    [
        *(({"vends": vends}, {}, [LOAD]) for vends in (None, [], [entry("s3://other")])),
        *(({"load_config": REGION}, {}, [LOAD]), ({"quirks": NESSIE, "vends": []}, {}, [LOAD])),
        # Older servers put the keys into the configuration of the table; those for the location do not mix with them.
        ({"vends_config": KEYS, "load_config": REGION}, AWS_REGION | OPTIONS, [LOAD]),
        (
            {"vends_config": KEYS, "load_config": REGION, "vends": [OWN]},
            {**AWS_REGION, "aws_access_key_id": "own", "aws_secret_access_key": "own"},
            [LOAD],
        ),
        ({"vends": [], "renews": [entry()], "load_config": REGION}, AWS_REGION | OPTIONS, [LOAD, ENDPOINT]),
    ],
)
async def test_options_of_the_server(vends: Mapping[str, Any], options: Mapping[str, str], sent: list[str]) -> None:
    async with running(connected, vending(**vends), **{"storage.timeout": "60s"}) as (server, ns):
        assert (await described(ns)).storage_options == {"timeout": "60s", **options}
        assert calls(server) == sent


async def test_the_endpoint_renews_what_ends_soon_if_it_can() -> None:
    soon = str(int(time() * 1000) + 30_000)
    old = entry(changes={"s3.session-token-expires-at-ms": soon, "s3.access-key-id": "old"})
    kept = OPTIONS | {"aws_access_key_id": "old", "expires_at_millis": soon}
    async with running(connected, vending(vends=[old], renews=[entry()]), max_retries="1") as (server, ns):
        assert (await described(ns)).storage_options == OPTIONS
        assert calls(server) == [LOAD, ENDPOINT]
        server.clear()
        # How soon is a storage option.
        async with connected(server, **{"storage.refresh_offset_millis": "1000"}) as patient:
            assert (await described(patient)).storage_options == kept | {"refresh_offset_millis": "1000"}
        assert calls(server) == [LOAD]
        server.clear()
        server.fail(503, match="credentials", times=None)
        assert (await described(ns)).storage_options == kept
        assert calls(server) == [LOAD, ENDPOINT, ENDPOINT]


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_an_endpoint_that_gives_none_changes_nothing(status: int) -> None:
    async with running(connected, vending(renews=[])) as (server, ns):
        server.fail(status, match="credentials")
        assert (await described(ns)).storage_options is None
        assert (await described(ns)).storage_options is None


@pytest.mark.parametrize(("status", "error"), [(403, err.PermissionDeniedError), (503, err.ServiceUnavailableError)])
async def test_an_endpoint_that_fails_is_reported(status: int, error: type[Exception]) -> None:
    async with running(connected, vending(renews=[]), max_retries="0") as (server, ns):
        server.fail(status, match="credentials", times=None)
        await catch(error, described(ns), "on demand")


async def test_a_server_may_refuse_to_delegate_and_says_so() -> None:
    async with running(connected, vending(refuses_delegation=400)) as (_server, ns):
        await catch(err.InvalidInputError, described(ns), "vending is not enabled")
        assert (await described(ns, vend=None)).location == "s3://bucket/x/t"


async def test_an_error_names_remote_signing_where_it_is_offered_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server, options = vending(load_config={"s3.remote-signing-enabled": "true"}), {"storage.region": "eu-west-1"}
    async with running(connected, server, **options) as (_server, ns):
        await catch(err.UnauthenticatedError, ns.open(["a", "t"]), r"a\$t .* only remote signing, .* storage\.\*")


async def test_configured_options_do_where_credentials_are_forbidden() -> None:
    with vending(refuses_delegation=403) as server:
        async with connected(server) as ns:
            await catch(err.PermissionDeniedError, described(ns), "vending is not enabled")
        async with connected(server, **{"storage.timeout": "60s"}) as ns:
            assert (await described(ns)).storage_options == {"timeout": "60s"}


async def test_concurrent_requests_share_a_call() -> None:
    async with running(connected, vending(renews=[entry()])) as (server, ns):
        tables = await gather(*(described(ns) for _ in range(20)))
        assert {table.storage_options["aws_access_key_id"] for table in tables if table.storage_options} == {"id"}
        assert calls(server) == [LOAD, ENDPOINT]


async def test_an_invalid_expiry_is_reported_without_secrets() -> None:
    with vending(vends=[entry(changes={"s3.session-token-expires-at-ms": "soon"})]) as server:
        async with connected(server) as ns:
            caught = await catch(err.InternalError, described(ns), "is not a number")
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("property", ["true", "false"])
async def test_versions_come_with_credentials_where_the_property_says_so(property: str, tmp_path: Path) -> None:
    async with running(connected, vending(vends=[entry()]), vend_credentials=property) as (server, ns):
        server.add_table(("a",), "managed", properties=MANAGED, location=tmp_path.as_uri())
        await ns.list_table_versions(["a", "managed"], limit=1, descending=True)
        flags = [VENDING in request.headers for request in server.requests if "managed" in request.path]
        assert flags and flags == [property == "true"] * len(flags)


KEY = {"s3.access-key-id": "key", "s3.secret-access-key": "hush"}
T = ["a", "t"]


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg(vends=[{"prefix": "s3://", "config": KEY}]) as server:
        server.add_table(("a",), "t")
        yield server


@asynccontextmanager
async def connect_caching(server: FakeIceberg, entries: int = 10, **properties: str) -> AsyncIterator[AsyncNamespace]:
    settings = {"endpoint": server.endpoint, "max_retries": "0", "rest-table-cache.max-entries": str(entries)}
    async with AsyncNamespace.connect("iceberg", {**settings, **properties}) as ns:
        yield ns


@pytest.fixture
async def ns(server: FakeIceberg) -> AsyncIterator[AsyncNamespace]:
    async with connect_caching(server) as opened:
        yield opened


def tags(server: FakeIceberg) -> list[str | None]:
    return [request.headers.get("If-None-Match") for request in server.requests if "/tables/" in request.path]


async def test_a_known_table_is_confirmed_without_its_content(server: FakeIceberg, ns: AsyncNamespace) -> None:
    first = await ns.describe_table(T)
    assert await ns.describe_table(T) == first
    assert (await ns.describe_tables([T])).tables[TableId(T)].location == first.location
    assert ns.table_cache() == CacheUse(entries=1, max_entries=10, hits=2, misses=1)
    server.fail(403, match="/tables/")
    await catch(err.PermissionDeniedError, ns.describe_table(T))
    none, *known = tags(server)
    assert none is None and len(set(known)) == 1 and known[0]


async def test_without_the_property_no_tag_is_sent(server: FakeIceberg) -> None:
    async with connect_caching(server, 0) as ns:
        for _ in range(2):
            await ns.describe_table(T)
        assert ns.table_cache() == CacheUse(entries=0, max_entries=0, hits=0, misses=0)
    assert tags(server) == [None, None]


async def test_a_server_without_tags_sends_each_table() -> None:
    async with running(connect_caching, FakeIceberg(Quirks(etags=False))) as (server, ns):
        server.add_table(("a",), "t")
        for _ in range(2):
            await ns.describe_table(T)
        assert ns.table_cache() == CacheUse(entries=0, max_entries=10, hits=0, misses=2)


def test_a_sync_namespace_has_its_own_cache(server: FakeIceberg) -> None:
    with Namespace.connect("iceberg", {"endpoint": server.endpoint, "rest_table_cache_max_entries": "5"}) as ns:
        assert ns.describe_table(T) == ns.describe_table(T)
        assert ns.table_cache() == CacheUse(entries=1, max_entries=5, hits=1, misses=1)


async def test_changes_by_other_clients_are_seen_at_once(server: FakeIceberg) -> None:
    async with connect_caching(server) as ns, connect_caching(server, 0) as other:
        before = await ns.describe_table(T)
        server.commit(("a",), "t", [], [{"action": "set-properties", "updates": {"team": "data"}}])
        assert (await ns.describe_table(T)).properties == {**(before.properties or {}), "team": "data"}
        await other.deregister_table(T)
        await catch(err.TableNotFoundError, ns.describe_table(T))
        await other.declare_table(T, location="s3://bucket/new")
        assert (await ns.describe_table(T)).location == "s3://bucket/new" != before.location
        assert ns.table_cache() == CacheUse(entries=1, max_entries=10, hits=0, misses=3)


async def test_a_table_renamed_to_a_known_name_is_not_taken_for_the_old_one(server: FakeIceberg) -> None:
    server.add_table(("a",), "other")
    async with connect_caching(server) as ns, connect_caching(server, 0) as changing:
        await ns.describe_table(T)
        await changing.deregister_table(T)
        await changing.rename_table(["a", "other"], new_table_name="t")
        assert (await ns.describe_table(T)).location == "s3://bucket/a/other.lance"


async def test_credentials_are_always_requested_anew(server: FakeIceberg, ns: AsyncNamespace) -> None:
    # The server, like Iceberg's own, would return 304 without credentials.
    request = {"id": T, "vend_credentials": True}
    await ns.describe_table(T)
    for secret in ("hush", "new"):
        server.vends = [{"prefix": "s3://", "config": {**KEY, "s3.secret-access-key": secret}}]
        assert ((await ns.describe_table(request)).storage_options or {})["aws_secret_access_key"] == secret
    assert (await ns.describe_table(T)).storage_options is None
    assert ns.table_cache() == CacheUse(entries=1, max_entries=10, hits=1, misses=1)
    _, first, second, last = tags(server)
    assert (first, second) == (None, None) and last


async def test_a_304_for_a_table_that_is_not_kept_is_an_error(server: FakeIceberg, ns: AsyncNamespace) -> None:
    server.reply(b"", status=304, match="/tables/", times=2)
    await catch(err.InternalError, ns.describe_table(T), "HTTP 304: unchanged, but the request named no known response")
    await catch(err.InternalError, ns.describe_table(T, vend_credentials=True), "HTTP 304")
    assert ns.table_cache().entries == 0


async def test_namespaces_with_equal_properties_share_no_tables(server: FakeIceberg) -> None:
    async with connect_caching(server) as one, connect_caching(server) as other:
        await one.describe_table(T)
        await other.describe_table(T)
        assert (one.table_cache().hits, other.table_cache().hits) == (0, 0)
    assert tags(server) == [None, None]


async def test_the_number_of_kept_tables_is_limited(server: FakeIceberg) -> None:
    names = server.add_lance_tables(("a",), 5)
    async with connect_caching(server, 2) as ns:
        assert len((await ns.describe_tables([["a", name] for name in names])).tables) == 5
        assert ns.table_cache() == CacheUse(entries=2, max_entries=2, hits=0, misses=5)


async def test_a_changed_result_does_not_change_the_kept_table(server: FakeIceberg, ns: AsyncNamespace) -> None:
    server.add_table(("a",), "mine", properties={**LANCE, "team": "data"})
    response = await ns.describe_table(["a", "mine"])
    assert response.properties is not None
    response.properties["team"] = "other"
    assert ((await ns.describe_table(["a", "mine"])).properties or {})["team"] == "data"
