"""The cache of tables with ETags: what is sent, what is kept, and that no table is stale."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, CacheUse, Namespace, TableId
from tests.fakes.iceberg import LANCE, FakeIceberg
from tests.fakes.iceberg.catalog import Quirks
from tests.support.errors import catch

KEY = {"s3.access-key-id": "key", "s3.secret-access-key": "hush"}
T = ["a", "t"]


@pytest.fixture
def server() -> Iterator[FakeIceberg]:
    with FakeIceberg(vends=[{"prefix": "s3://", "config": KEY}]) as server:
        server.add_table(("a",), "t")
        yield server


@asynccontextmanager
async def connected(server: FakeIceberg, entries: int = 10, **properties: str) -> AsyncIterator[AsyncNamespace]:
    settings = {"endpoint": server.endpoint, "max_retries": "0", "rest-table-cache.max-entries": str(entries)}
    async with AsyncNamespace.connect("iceberg", {**settings, **properties}) as ns:
        yield ns


@pytest.fixture
async def ns(server: FakeIceberg) -> AsyncIterator[AsyncNamespace]:
    async with connected(server) as opened:
        yield opened


def tags(server: FakeIceberg) -> list[str | None]:
    """Returns the tag in each request that loads a table."""
    return [request.headers.get("If-None-Match") for request in server.requests if "/tables/" in request.path]


async def test_a_known_table_is_confirmed_without_its_content(server: FakeIceberg, ns: AsyncNamespace) -> None:
    first = await ns.describe_table(T)
    assert await ns.describe_table(T) == first
    assert (await ns.describe_tables([T])).tables[TableId(T)].location == first.location
    assert ns.table_cache() == CacheUse(entries=1, max_entries=10, hits=2, misses=1)
    none, *known = tags(server)
    assert none is None
    assert len(set(known)) == 1
    assert known[0]


async def test_without_the_property_no_tag_is_sent(server: FakeIceberg) -> None:
    async with connected(server, 0) as ns:
        for _ in range(2):
            await ns.describe_table(T)
        assert ns.table_cache() == CacheUse(entries=0, max_entries=0, hits=0, misses=0)
    assert tags(server) == [None, None]


async def test_a_server_without_tags_sends_each_table() -> None:
    with FakeIceberg(Quirks(etags=False)) as server:
        server.add_table(("a",), "t")
        async with connected(server) as ns:
            for _ in range(2):
                await ns.describe_table(T)
            assert ns.table_cache() == CacheUse(entries=0, max_entries=10, hits=0, misses=2)


async def test_changes_by_other_clients_are_seen_at_once(server: FakeIceberg) -> None:
    async with connected(server) as ns, connected(server, 0) as other:
        before = await ns.describe_table(T)
        update = {"action": "set-properties", "updates": {"team": "data"}}
        server.commit(("a",), "t", [], [update])
        properties = (await ns.describe_table(T)).properties
        assert properties == {**(before.properties or {}), "team": "data"}
        await other.deregister_table(T)
        await catch(err.TableNotFoundError, ns.describe_table(T))
        await other.declare_table(T, location="s3://bucket/new")
        assert (await ns.describe_table(T)).location == "s3://bucket/new" != before.location
        assert ns.table_cache() == CacheUse(entries=1, max_entries=10, hits=0, misses=3)


async def test_a_table_renamed_to_a_known_name_is_not_taken_for_the_old_one(server: FakeIceberg) -> None:
    server.add_table(("a",), "other")
    async with connected(server) as ns, connected(server, 0) as changing:
        await ns.describe_table(T)
        await changing.deregister_table(T)
        await changing.rename_table(["a", "other"], new_table_name="t")
        assert (await ns.describe_table(T)).location == "s3://bucket/a/other.lance"


async def test_own_changes_remove_the_table(server: FakeIceberg, ns: AsyncNamespace) -> None:
    await ns.describe_table(T)
    request = {"id": T, "location": "s3://bucket/next", "mode": "OVERWRITE"}
    await ns.register_table(request)
    assert ns.table_cache().entries == 0
    assert (await ns.describe_table(T)).location == "s3://bucket/next"
    await ns.rename_table(T, new_table_name="u")
    assert ns.table_cache().entries == 0
    assert (await ns.describe_table(["a", "u"])).location == "s3://bucket/next"
    await ns.deregister_table(["a", "u"])
    assert ns.table_cache().entries == 0


async def test_credentials_are_always_requested_anew(server: FakeIceberg, ns: AsyncNamespace) -> None:
    # The server, like Iceberg's own, would return 304 without credentials.
    request = {"id": T, "vend_credentials": True}
    await ns.describe_table(T)
    for secret in ("hush", "new"):
        server.vends = [{"prefix": "s3://", "config": {**KEY, "s3.secret-access-key": secret}}]
        options = (await ns.describe_table(request)).storage_options
        assert options is not None
        assert options["aws_secret_access_key"] == secret
    assert (await ns.describe_table(T)).storage_options is None
    assert ns.table_cache() == CacheUse(entries=1, max_entries=10, hits=1, misses=1)
    _, first, second, last = tags(server)
    assert (first, second) == (None, None)
    assert last


async def test_a_304_for_a_table_that_is_not_kept_is_an_error(server: FakeIceberg, ns: AsyncNamespace) -> None:
    server.reply(b"", status=304, match="/tables/", times=2)
    await catch(err.InternalError, ns.describe_table(T), "HTTP 304: unchanged, but the request named no known response")
    await catch(err.InternalError, ns.describe_table(T, vend_credentials=True), "HTTP 304")
    assert ns.table_cache().entries == 0


async def test_a_principal_without_the_right_gets_no_kept_table(server: FakeIceberg, ns: AsyncNamespace) -> None:
    await ns.describe_table(T)
    server.fail(403, match="/tables/")
    await catch(err.PermissionDeniedError, ns.describe_table(T))


async def test_namespaces_with_equal_properties_share_no_tables(server: FakeIceberg) -> None:
    async with connected(server) as one, connected(server) as other:
        await one.describe_table(T)
        await other.describe_table(T)
        assert (one.table_cache().hits, other.table_cache().hits) == (0, 0)
    assert tags(server) == [None, None]


async def test_the_number_of_kept_tables_is_limited(server: FakeIceberg) -> None:
    names = server.add_lance_tables(("a",), 5)
    async with connected(server, 2) as ns:
        result = await ns.describe_tables([["a", name] for name in names])
        assert len(result.tables) == 5
        assert ns.table_cache() == CacheUse(entries=2, max_entries=2, hits=0, misses=5)


async def test_a_changed_result_does_not_change_the_kept_table(server: FakeIceberg, ns: AsyncNamespace) -> None:
    server.add_table(("a",), "mine", properties={**LANCE, "team": "data"})
    response = await ns.describe_table(["a", "mine"])
    assert response.properties is not None
    response.properties["team"] = "other"
    again = await ns.describe_table(["a", "mine"])
    assert again.properties is not None
    assert again.properties["team"] == "data"


def test_a_sync_namespace_has_its_own_cache(server: FakeIceberg) -> None:
    with Namespace.connect("iceberg", {"endpoint": server.endpoint, "rest_table_cache_max_entries": "5"}) as ns:
        for _ in range(2):
            ns.describe_table(T)
        assert ns.table_cache() == CacheUse(entries=1, max_entries=5, hits=1, misses=1)
