"""Listings of Polaris: complete with any page size, spelled as in the spec, and optionally of Lance tables only."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from lance_namespace import ListNamespacesRequest, ListTablesRequest
from lance_namespace.errors import InternalError, InvalidInputError, PermissionDeniedError, TableNotFoundError

from lance_ns_async import AsyncNamespace, NamespaceId
from tests.fakes.polaris import FakePolaris
from tests.support.polaris import connected, list_requests, open_server

LEVELS = [f"n{i}" for i in range(5)]


async def namespaces(ns: AsyncNamespace, *parent: str) -> Sequence[str]:
    return (await ns.list_namespaces(ListNamespacesRequest(id=list(parent)))).namespaces


async def tables(ns: AsyncNamespace, *parent: str) -> Sequence[str]:
    return (await ns.list_tables(ListTablesRequest(id=list(parent)))).tables


@pytest.mark.parametrize(
    ("style", "top", "inner"),
    [("qualified", ["cat.a", "cat.a.b"], ["cat.a.b"]), ("relative", ["a", "a.b"], ["b"])],
)
async def test_children_are_spelled_as_wanted(style: str, top: list[str], inner: list[str]) -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a.b",))
        server.add_namespace("cat", ("a", "b"))
        async with connected(server, list_style=style) as ns:
            assert await namespaces(ns, "cat") == top
            assert await namespaces(ns, "cat", "a") == inner
            assert [id async for id in ns.iter_namespaces(["cat"])] == [("cat", "a.b"), ("cat", "a")]


async def test_names_that_read_alike_stay_two() -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a.b", "c"))
        server.add_namespace("cat", ("a", "b.c"))
        server.add_namespace("cat", ("a", "b", "c"))
        async with connected(server) as ns:
            result = [id async for id in ns.iter_namespaces(["cat"], recursive=True)]
            assert sorted(id for id in result if ".".join(id) == "cat.a.b.c") == [
                ("cat", "a", "b", "c"),
                ("cat", "a", "b.c"),
                ("cat", "a.b", "c"),
            ]
            assert len(result) == len(set(result)) == 6


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
async def test_pages_of_ours_join_to_the_whole(limit: int) -> None:
    with open_server() as server:
        for level in reversed(LEVELS):
            server.add_namespace("cat", (level,))
            server.add_table("cat", ("all",), level)
        async with connected(server) as ns:
            result: list[str] = []
            token = None
            while True:
                page = await ns.list_namespaces(ListNamespacesRequest(id=["cat"], limit=limit, page_token=token))
                result += page.namespaces
                if not (token := page.page_token):
                    break
            assert result == ["cat.all", *(f"cat.{level}" for level in LEVELS)]
            names: list[str] = []
            while True:
                listed = await ns.list_tables(ListTablesRequest(id=["cat", "all"], limit=limit, page_token=token))
                names += listed.tables
                if not (token := listed.page_token):
                    break
            assert names == LEVELS


async def test_a_server_that_pages_gives_all_because_no_size_is_requested() -> None:
    with FakePolaris(credential=None, paging=True) as server:
        for level in LEVELS:
            server.add_namespace("cat", (level,))
        async with connected(server, list_style="relative") as ns:
            assert await namespaces(ns, "cat") == LEVELS
            limited = await ns.list_namespaces(ListNamespacesRequest(id=["cat"], limit=2))
            assert limited.namespaces == LEVELS[:2]
        assert not any("page" in path for path in list_requests(server))


async def test_a_token_for_more_namespaces_is_followed_and_quoted() -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a", "b"))
        server.reply('{"namespaces": [["a", "x"]], "next-page-token": "=/+ ?&"}', match="parent=a$")
        server.reply('{"namespaces": [["a", "y"]], "next-page-token": ""}', match="parent=a&pageToken")
        async with connected(server, list_style="relative") as ns:
            assert await namespaces(ns, "cat", "a") == ["x", "y"]
        assert list_requests(server)[-1].endswith("?parent=a&pageToken=%3D%2F%2B%20%3F%26")


@pytest.mark.parametrize("page", [1, 7, 20, 100])
async def test_a_token_for_more_tables_is_followed_to_the_end(page: int) -> None:
    with FakePolaris(credential=None, table_page=page) as server:
        names = server.add_lance_tables("cat", ("a",), 20)
        async with connected(server) as ns:
            assert await tables(ns, "cat", "a") == names
        assert len(list_requests(server)) == -(-20 // page)


async def test_a_listing_that_never_ends_is_an_error() -> None:
    with open_server() as server:
        server.add_table("cat", ("a",), "t")
        body = '{"identifiers": [{"namespace": ["a"], "name": "t"}], "next-page-token": "again"}'
        server.reply(body, times=None)
        async with connected(server) as ns:
            with pytest.raises(InternalError, match="does not end"):
                await tables(ns, "cat", "a")


@pytest.mark.parametrize("listed", [[["a"]], [["a", "x"], ["b", "y"]], [["a", "b", "c"]], [[]], ["ax"]])
async def test_what_is_not_directly_below_is_no_child(listed: object) -> None:
    with open_server() as server:
        server.add_namespace("cat", ("a",))
        server.reply(json.dumps({"namespaces": listed, "next-page-token": None}), match="parent=a")
        async with connected(server) as ns:
            with pytest.raises(InternalError, match="an answer of unknown form"):
                await namespaces(ns, "cat", "a")


async def test_a_listing_of_tables_costs_one_call_and_has_no_formats() -> None:
    with open_server() as server:
        server.add_table("cat", ("a",), "t")
        server.add_table("cat", ("a",), "delta", format="delta")
        server.add_iceberg_table("cat", ("a",), "iceberg")
        async with connected(server) as ns:
            assert await tables(ns, "cat", "a") == ["delta", "t"]
        assert len(list_requests(server)) == 1


async def test_other_formats_are_left_out_on_demand_for_a_call_a_table() -> None:
    with open_server() as server:
        names = server.add_lance_tables("cat", ("a",), 40)
        server.add_table("cat", ("a",), "delta", format="delta")
        server.add_table("cat", ("a",), "nowhere", base_location=None)
        # Polaris 1.4.1 can create such a table, but neither load nor drop it.
        server.add_table("cat", ("a",), "..", format="delta")
        server.delay(0.02, match="generic-tables/")
        async with connected(server, filter_tables="true", max_in_flight="8") as ns:
            assert await tables(ns, "cat", "a") == names
        assert len(list_requests(server)) == 43 and 1 < server.most_in_flight <= 8


async def test_a_table_that_cannot_be_loaded_is_not_left_out() -> None:
    with open_server() as server:
        server.add_lance_tables("cat", ("a",), 5)
        server.fail(403, match="generic-tables/t0003")
        async with connected(server, filter_tables="true") as ns:
            with pytest.raises(PermissionDeniedError, match=r"cat\$a\$t0003"):
                await tables(ns, "cat", "a")


async def test_tables_of_a_whole_catalog_are_walked() -> None:
    with open_server() as server:
        for levels in (("a",), ("a", "b"), ("a.b",), ("c", "d", "e")):
            server.add_table("cat", levels, "t")
        async with connected(server) as ns:
            page = await ns.list_all_tables(ListTablesRequest(id=["cat"]))
            assert sorted(page.tables) == ["cat$a$b$t", "cat$a$t", "cat$a.b$t", "cat$c$d$e$t"]


async def test_the_root_lists_nothing_until_catalogs_are_configured() -> None:
    with open_server() as server:
        server.add_catalog("cat")
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match="set catalogs to their names, or to \\*"):
                await namespaces(ns)
        assert list_requests(server) == []


async def test_configured_catalogs_are_listed_without_a_call() -> None:
    with open_server() as server:
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
            with pytest.raises(PermissionDeniedError, match="LIST_CATALOGS"):
                await namespaces(ns)
        server.fail(404, match="management", body=b"<html>nothing here</html>")
        async with connected(server, catalogs="*") as ns:
            with pytest.raises(InvalidInputError, match=r"list_catalogs: HTTP 404: nothing here .*endpoint"):
                await namespaces(ns)


async def test_each_table_is_loaded_once_over_few_connections() -> None:
    with FakePolaris() as server:
        names = server.add_lance_tables("cat", ("a",), 2000)
        missing = [f"none{i}" for i in range(20)]
        async with connected(server) as ns:
            ids = [["cat", "a", name] for name in [*names, *missing, *names]]
            result = await ns.describe_tables(ids)
        assert len(result.tables) == 2000 and len(result.errors) == 20
        assert all(isinstance(error, TableNotFoundError) for error in result.errors.values())
        assert len(list_requests(server)) == 2021 and server.token_requests == 1
        assert server.connections <= 33 and server.most_in_flight <= 32
        assert all(request.headers["Accept-Encoding"] == "identity" for request in server.requests[1:])
