"""Polaris: paths, bodies, catalogs, formats and descriptions; realms, and tokens, renewed once for all calls."""

from __future__ import annotations

import json
from collections.abc import Sequence

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId
from tests.fakes.polaris import FakePolaris
from tests.support.errors import catch
from tests.support.polaris import connected, described, list_requests
from tests.support.running import running

NESTED = [("n1",), ("n1", "n2"), ("n1", "n2", "n3")]


@pytest.mark.parametrize("levels", NESTED)
async def test_every_depth(server: FakePolaris, ns: AsyncNamespace, levels: tuple[str, ...]) -> None:
    joined = "%1F".join(levels)
    server.add_namespace("cat", levels)
    namespace, table = ["cat", *levels, "new"], ["cat", *levels, "t"]
    await ns.create_namespace(namespace, properties={"k": "v"})
    assert (await ns.list_namespaces(["cat", *levels])).namespaces == [".".join(namespace)]
    result = await ns.describe_namespace(namespace)
    assert result.properties is not None and result.properties["k"] == "v"
    await ns.drop_namespace(namespace)
    declared = await ns.declare_table(table)
    assert (await ns.list_tables(["cat", *levels])).tables == ["t"]
    assert (await described(ns, *table)).location == declared.location
    answer = await ns.deregister_table(table)
    assert (answer.id, answer.location) == (table, declared.location)
    tables = f"catalog/polaris/v1/cat/namespaces/{joined}/generic-tables"
    assert list_requests(server) == [
        "POST catalog/v1/cat/namespaces",
        f"GET catalog/v1/cat/namespaces?parent={joined}",
        f"GET catalog/v1/cat/namespaces/{joined}%1Fnew",
        f"DELETE catalog/v1/cat/namespaces/{joined}%1Fnew",
        f"GET catalog/v1/cat/namespaces/{joined}",
        f"POST {tables}",
        f"GET {tables}",
        f"GET {tables}/t",
        f"GET {tables}/t",
        f"DELETE {tables}/t",
    ]


async def test_a_catalog_is_in_the_path_and_no_level(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.add_catalog("my cat.é")
    made = await ns.create_namespace(["my cat.é", "a"], properties={"owner": "me"})
    assert made.properties == {"owner": "me", "location": "file:///data/my cat.é/a/"}
    assert (await ns.list_namespaces(["my cat.é"])).namespaces == ["my cat.é.a"]
    assert server.requests[0].json == {"namespace": ["a"], "properties": {"owner": "me"}}
    assert list_requests(server) == [f"{method} catalog/v1/my%20cat.%C3%A9/namespaces" for method in ("POST", "GET")]


async def test_a_catalog_is_there_when_it_can_be_listed(server: FakePolaris, ns: AsyncNamespace) -> None:
    await catch(err.InvalidInputError, ns.create_namespace(["new"]), "a catalog is created by an administrator")
    await catch(err.InvalidInputError, ns.drop_namespace(["cat"]), "a catalog is dropped by an administrator")
    assert list_requests(server) == []
    server.add_namespace("cat", ("a",), {"k": "v"})
    assert await ns.exists(NamespaceId(["cat"])) and not await ns.exists(NamespaceId(["none"]))
    assert (await ns.describe_namespace(["cat"])).properties == {}
    await catch(err.NamespaceNotFoundError, ns.list_tables(["none"]), r"^Namespace not found: none")
    assert (await ns.list_tables(["cat"])).tables == []


async def test_a_declared_table_is_a_generic_one_of_format_lance(server: FakePolaris, ns: AsyncNamespace) -> None:
    properties = {"k": "v", "doc": "what it holds", "table_type": "other"}
    request = {"id": ["cat", "a", "t"], "location": "s3://bucket/t.lance/", "properties": properties}
    declared = await ns.declare_table(request)
    kept = {"k": "v", "doc": "what it holds", "table_type": "lance"}
    assert (declared.location, declared.properties) == ("s3://bucket/t.lance/", kept)
    sent = [request.json for request in server.requests if request.method == "POST"][-1]
    # The identity of the registration, which responses do not contain.
    assert sent["properties"].pop("lance_ns.registration")
    place = {"base-location": "s3://bucket/t.lance/"}
    assert sent == {"name": "t", "format": "lance", **place, "doc": "what it holds", "properties": kept}
    await ns.declare_table(["cat", "a", "u"], location="s3://bucket/u")
    assert "doc" not in [request.json for request in server.requests if request.method == "POST"][-1]
    # No dataset was opened, because the bucket does not exist.
    assert (await described(ns, "cat", "a", "t")).location == "s3://bucket/t.lance/"


@pytest.mark.parametrize("format", ["delta", "", "lance2"])
async def test_other_format_is_not_removed(server: FakePolaris, ns: AsyncNamespace, format: str) -> None:
    location = server.add_table("cat", ("a",), "ours", format="LANCE", properties={})
    assert (await described(ns, "cat", "a", "ours")).location == location
    server.add_table("cat", ("a",), "t", format=format)
    await catch(err.InvalidInputError, described(ns, "cat", "a", "t"), "no Lance table: its format is")
    await catch(err.InvalidInputError, ns.deregister_table(["cat", "a", "t"]), "no Lance table: its format is")
    with pytest.raises(err.InvalidInputError, match="no Lance table: its format is"):
        await ns.register_table(["cat", "a", "t"], location="s3://b/t", mode="overwrite")
    assert not any(path.startswith(("DELETE", "POST")) for path in list_requests(server))


async def test_a_table_without_a_location_is_reported(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.add_table("cat", ("a",), "none", base_location=None)
    server.add_table("cat", ("a",), "empty", base_location="x")
    server.reply('{"table": {"name": "empty", "format": "lance", "base-location": ""}}', match="/empty")
    for name in ("none", "empty"):
        await catch(err.InvalidInputError, described(ns, "cat", "a", name), "it has no base-location")


async def test_a_description_fills_both_maps(server: FakePolaris) -> None:
    properties = {"k": "v", "aws_region": "of-the-table", "nothing": None, "table_type": "lance"}
    location = server.add_table("cat", ("a",), "t", properties=properties, doc="not in the properties")
    options = {"storage.aws_region": "of-the-settings", "storage.timeout": "60s"}
    async with connected(server, **options) as ns:
        result = await described(ns, "cat", "a", "t")
    assert result.location == location and result.managed_versioning is False
    assert result.properties == {"k": "v", "aws_region": "of-the-table", "table_type": "lance"}
    assert result.storage_options == {"k": "v", "aws_region": "of-the-table", "timeout": "60s"}
    assert (result.version, result.table_uri, result.var_schema, result.stats, result.is_only_declared) == (None,) * 5


LEVELS = [f"n{i}" for i in range(5)]


async def namespaces(ns: AsyncNamespace, *parent: str) -> Sequence[str]:
    return (await ns.list_namespaces(list(parent))).namespaces


async def tables(ns: AsyncNamespace, *parent: str) -> Sequence[str]:
    return (await ns.list_tables(list(parent))).tables


@pytest.mark.parametrize(
    ("style", "top", "inner"), [("qualified", ["lake.a", "lake.a.b"], ["lake.a.b"]), ("relative", ["a", "a.b"], ["b"])]
)
async def test_list_style(server: FakePolaris, style: str, top: list[str], inner: list[str]) -> None:
    server.add_namespace("lake", ("a.b",))
    server.add_namespace("lake", ("a", "b"))
    async with connected(server, list_style=style) as ns:
        assert await namespaces(ns, "lake") == top
        assert await namespaces(ns, "lake", "a") == inner
        assert [id async for id in ns.iter_namespaces(["lake"])] == [("lake", "a.b"), ("lake", "a")]


async def test_names_that_read_alike_stay_two(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.add_namespace("cat", ("a.b", "c"))
    server.add_namespace("cat", ("a", "b.c"))
    server.add_namespace("cat", ("a", "b", "c"))
    result = [id async for id in ns.iter_namespaces(["cat"], recursive=True)]
    assert sorted(id for id in result if ".".join(id) == "cat.a.b.c") == [
        ("cat", "a", "b", "c"),
        ("cat", "a", "b.c"),
        ("cat", "a.b", "c"),
    ]
    assert len(result) == len(set(result)) == 6


async def test_a_server_that_pages_gives_all_because_no_size_is_requested() -> None:
    async with running(connected, FakePolaris(credential=None, paging=True), list_style="relative") as (server, ns):
        for level in LEVELS:
            server.add_namespace("cat", (level,))
        assert await namespaces(ns, "cat") == LEVELS
        assert (await ns.list_namespaces(["cat"], limit=2)).namespaces == LEVELS[:2]
        assert not any("page" in path for path in list_requests(server))


async def test_a_token_for_more_namespaces_is_followed_and_quoted(server: FakePolaris) -> None:
    server.add_namespace("cat", ("a", "b"))
    server.reply('{"namespaces": [["a", "x"]], "next-page-token": "=/+ ?&"}', match="parent=a$")
    server.reply('{"namespaces": [["a", "y"]], "next-page-token": ""}', match="parent=a&pageToken")
    async with connected(server, list_style="relative") as ns:
        assert await namespaces(ns, "cat", "a") == ["x", "y"]
    assert list_requests(server)[-1].endswith("?parent=a&pageToken=%3D%2F%2B%20%3F%26")


@pytest.mark.parametrize("page", [1, 7, 20, 100])
async def test_a_token_for_more_tables_is_followed_to_the_end(page: int) -> None:
    async with running(connected, FakePolaris(credential=None, table_page=page)) as (server, ns):
        names = server.add_lance_tables("cat", ("a",), 20)
        assert await tables(ns, "cat", "a") == names
        assert len(list_requests(server)) == -(-20 // page)


@pytest.mark.parametrize("listed", [[["a"]], [["a", "x"], ["b", "y"]], [["a", "b", "c"]], [[]], ["ax"]])
async def test_what_is_not_directly_below_is_no_child(server: FakePolaris, ns: AsyncNamespace, listed: object) -> None:
    server.reply(json.dumps({"namespaces": listed, "next-page-token": None}), match="parent=a")
    await catch(err.InternalError, namespaces(ns, "cat", "a"), "an answer of unknown form")


async def test_a_listing_of_tables_costs_one_call_and_has_no_formats(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.add_table("cat", ("a",), "t")
    server.add_table("cat", ("a",), "delta", format="delta")
    server.add_iceberg_table("cat", ("a",), "iceberg")
    assert await tables(ns, "cat", "a") == ["delta", "t"]
    assert len(list_requests(server)) == 1
    server.reply('{"identifiers": [{"namespace": ["a"], "name": "t"}], "next-page-token": "again"}', times=None)
    await catch(err.InternalError, tables(ns, "cat", "a"), "does not end")


async def test_other_formats_are_left_out_on_demand_for_a_call_a_table(server: FakePolaris) -> None:
    names = server.add_lance_tables("cat", ("a",), 40)
    server.add_table("cat", ("a",), "delta", format="delta")
    server.add_table("cat", ("a",), "nowhere", base_location=None)
    # Polaris 1.4.1 can create such a table, but neither load nor drop it.
    server.add_table("cat", ("a",), "..", format="delta")
    server.delay(0.02, match="generic-tables/")
    async with connected(server, filter_tables="true", max_in_flight="8") as ns:
        assert await tables(ns, "cat", "a") == names
    assert len(list_requests(server)) == 43 and 1 < server.most_in_flight <= 8
    server.fail(403, match="generic-tables/t0003")
    async with connected(server, filter_tables="true") as ns:
        await catch(err.PermissionDeniedError, tables(ns, "cat", "a"), r"cat\$a\$t0003")


async def test_the_root_lists_the_configured_catalogs_without_a_call(server: FakePolaris, ns: AsyncNamespace) -> None:
    server.add_catalog("cat")
    await catch(err.InvalidInputError, namespaces(ns), "set catalogs to their names, or to \\*")
    assert list_requests(server) == []
    server.add_table("web", ("a",), "t")
    server.add_catalog("sales data")
    async with connected(server, catalogs="web , sales data") as ns:
        assert await namespaces(ns) == ["sales data", "web"]
        assert list_requests(server) == []
        assert [id async for id in ns.iter_tables(recursive=True)] == [("web", "a", "t")]


async def test_catalogs_can_be_listed_from_the_server() -> None:
    with FakePolaris(powerless={"bob": "pw"}) as server:
        server.add_catalog("web")
        server.add_catalog("b.c")
        async with connected(server, catalogs="*") as ns:
            assert await namespaces(ns) == ["b.c", "web"]
            assert await ns.exists(NamespaceId())
        async with connected(server, catalogs="*", credential="bob:pw") as ns:
            await catch(err.PermissionDeniedError, namespaces(ns), "LIST_CATALOGS")
        server.fail(404, match="management", body=b"<html>nothing here</html>")
        async with connected(server, catalogs="*") as ns:
            await catch(err.InvalidInputError, namespaces(ns), r"list_catalogs: HTTP 404: nothing here .*endpoint")


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
