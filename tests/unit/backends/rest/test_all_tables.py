"""Listings of all tables: by the server itself, or by a walk where it has none or an incomplete one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance_namespace.errors as err
import pytest
from lance.namespace import RestAdapter

from lance_ns_async import AsyncNamespace, Call
from tests.fakes.rest import FakeRest
from tests.support.errors import catch
from tests.support.running import running

IDS = [["root"], ["a", "t"], ["a", "u"], ["a", "b", "t"], ["c", "t"]]
"""Tables in the order of a walk."""
NAMES = ["$".join(id) for id in IDS]


def fake(*, lists_nested: bool = True, lacks: Sequence[str] = ()) -> FakeRest:
    server = FakeRest(lists_nested=lists_nested, lacks=lacks)
    for id in IDS:
        server.add_table(*id)
    return server


def connect(server: FakeRest, **properties: str) -> AsyncNamespace:
    return AsyncNamespace.connect("rest", {"uri": server.url, "backoff_initial": "0", **properties})


def listings(server: FakeRest) -> int:
    return sum(request.path.startswith("/v1/table?") for request in server.requests)


async def pages(ns: AsyncNamespace, limit: int) -> list[Sequence[str]]:
    page = await ns.list_all_tables({"id": [], "limit": limit})
    result: list[Sequence[str]] = [page.tables]
    while page.page_token:
        page = await ns.list_all_tables({"id": [], "limit": limit, "page_token": page.page_token})
        result.append(page.tables)
    return result


async def test_the_server_lists_all_tables_in_one_call() -> None:
    async with running(connect, fake()) as (server, ns):
        for _ in range(3):
            page = await ns.list_all_tables({"id": []})
            assert page.tables == NAMES and not page.page_token
    # The first listing costs one more call: does it include tables in namespaces?
    assert server.operations() == ["namespace/describe"] and listings(server) == 3
    assert server.requests[0].path == "/v1/table?delimiter=%24&limit=1000"


async def test_each_page_is_one_call() -> None:
    with fake() as server:
        async with connect(server) as ns:
            first, *others = await pages(ns, 2)
        assert sorted([*first, *(name for page in others for name in page)]) == sorted(NAMES)
        assert [len(page) for page in (first, *others)] == [2, 2, 1]
        assert listings(server) == 3 and server.operations() == ["namespace/describe"]
        async with connect(server) as one, connect(server) as other:
            page = await one.list_all_tables({"id": [], "limit": 2})
            # Another process may continue.
            assert (await other.list_all_tables({"id": [], "limit": 2, "page_token": page.page_token})).tables


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
async def test_a_listing_without_tables_in_namespaces_is_replaced_by_a_walk(limit: int) -> None:
    async with running(connect, fake(lists_nested=False)) as (server, ns):
        for _ in range(3):
            assert [name for page in await pages(ns, limit) for name in page] == NAMES
            assert (await ns.list_all_tables({"id": []})).tables == NAMES
    assert listings(server) == 1


@pytest.mark.parametrize("status", [404, 405, 406, 501])
async def test_a_server_without_the_listing_is_asked_once(status: int) -> None:
    async with running(connect, fake()) as (server, ns):
        server.fail(status, match="GET /v1/table?", body="")
        for _ in range(3):
            assert (await ns.list_all_tables({"id": []})).tables == NAMES
    assert listings(server) == 1


async def test_the_real_listing_of_pylance_is_not_used(tmp_path: Path) -> None:
    """It leaves out tables in namespaces, and has one here that looks as if it were in a namespace."""
    calls: list[Call] = []
    with RestAdapter("dir", {"root": str(tmp_path)}, port=0) as server:
        uri = f"http://127.0.0.1:{server.port}"
        async with AsyncNamespace.connect("rest", {"uri": uri, "delimiter": ":"}) as ns:
            await ns.create_namespace({"id": ["sales"]})
            for id in (["p$q"], ["root"], ["sales", "t"]):
                await ns.declare_table({"id": id})
        async with AsyncNamespace.connect("rest", {"uri": uri}) as ns:
            with ns.observe(calls.append):
                for _ in range(2):
                    assert (await ns.list_all_tables({"id": []})).tables == ["p$q", "root", "sales$t"]
    assert [call.operation for call in calls].count("list_all_tables") == 2  # with the look for the namespace `p`


@pytest.mark.parametrize("properties", [{"delimiter": "::"}, {"min_depth": "1"}, {"max_depth": "1"}])
async def test_other_depths_and_delimiters_are_walked(properties: dict[str, str]) -> None:
    async with running(connect, fake(), **properties) as (server, ns):
        tables = (await ns.list_all_tables({"id": []})).tables
        inside = (await ns.list_all_tables({"id": ["a"]})).tables
    assert set(inside) < set(tables) <= set(NAMES) and not listings(server)


async def test_an_incomplete_listing_is_an_error_and_pages_without_a_limit_are_cut() -> None:
    """A gateway leaves out the catalogs that it cannot reach."""
    async with running(connect, fake()) as (server, ns):
        assert (await ns.list_all_tables({"id": ["a"]})).tables == ["a$t", "a$u", "a$b$t"] and not listings(server)
        server.reply('{"tables": ["a$t"], "context": {"lance-ns.unavailable": "c"}}', match="GET /v1/table?")
        await catch(err.ServiceUnavailableError, ns.list_all_tables({"id": []}), "lacks c")
        assert (await ns.list_all_tables({"id": []})).tables == NAMES
        server.reply('{"tables": ["a$t", "a$u", "root"]}', times=None, match="GET /v1/table?")
        assert await pages(ns, 2) == [["a$t", "a$u"], ["root"]]


@pytest.mark.parametrize("token", ["WyJ4Il0=", "x"])
async def test_a_walk_does_not_continue_another_listing(token: str) -> None:
    async with running(connect, fake(), max_depth="3") as (_server, ns):
        with pytest.raises(err.InvalidInputError, match="not one of this listing"):
            await ns.list_all_tables({"id": [], "page_token": token})
