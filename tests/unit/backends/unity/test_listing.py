"""Complete listings of Unity schemas and tables, and descriptions of many tables by pages or one by one."""

from __future__ import annotations

import pytest
from lance_namespace import DeregisterTableRequest, ListNamespacesRequest, ListTablesRequest
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)

from lance_ns_async import AsyncNamespace, TableId
from tests.fakes.unity import FakeUnity
from tests.support.unity import DIALECTS, connected, list_requests

SCHEMA = ["main", "a"]
PAGE = "GET tables?catalog_name=main&schema_name=a&omit_columns=true&max_results=100"


def pages_asked(server: FakeUnity) -> list[str]:
    """Returns the differences between the requests for pages of tables."""
    return [request.removeprefix(PAGE) for request in list_requests(server) if request.startswith("GET tables?")]


async def names(ns: AsyncNamespace, limit: int | None = None) -> list[str]:
    """Returns the tables of the schema, page by page."""
    result: list[str] = []
    token = None
    while True:
        page = await ns.list_tables(ListTablesRequest(id=SCHEMA, limit=limit, page_token=token))
        assert limit is None or len(page.tables) <= limit
        assert page.tables == sorted(page.tables)
        result += page.tables
        if not (token := page.page_token):
            return result


def plant_others(server: FakeUnity, count: int, stem: str) -> None:
    for i in range(count):
        server.add_table("main", "a", f"{stem}{i:04}", properties={}, data_source_format="DELTA")


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250, 2500])
async def test_a_listing_is_read_to_its_end(count: int) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        planted = server.add_lance_tables("main", "a", count)
        async with connected(server) as ns:
            assert await names(ns) == planted
        # A full last page has a token, and is followed by an empty page.
        assert len(pages_asked(server)) == count // 100 + 1
        assert pages_asked(server)[:2] == ["", "&page_token=t0099"][: count // 100 + 1]


@pytest.mark.parametrize("limit", [1, 99, 100, 101])
async def test_any_limit_gives_each_name_once(limit: int) -> None:
    with FakeUnity() as server:
        planted = server.add_lance_tables("main", "a", 250)
        async with connected(server) as ns:
            assert await names(ns, limit) == planted


async def test_a_small_limit_does_not_make_the_servers_pages_small() -> None:
    with FakeUnity() as server:
        plant_others(server, 90, "other")
        planted = server.add_lance_tables("main", "a", 5)
        async with connected(server) as ns:
            page = await ns.list_tables(ListTablesRequest(id=SCHEMA, limit=2))
            assert page.tables == planted[:2] and page.page_token
        assert pages_asked(server) == [""]


async def test_lance_tables_are_found_behind_pages_of_others() -> None:
    with FakeUnity() as server:
        plant_others(server, 500, "other")
        planted = server.add_lance_tables("main", "a", 3)
        async with connected(server) as ns:
            assert await names(ns) == planted
            assert await names(ns, 2) == planted
            assert [id.name async for id in ns.iter_tables(SCHEMA)] == planted


@pytest.mark.parametrize("limit", [None, 1, 99])
@pytest.mark.parametrize(
    "ways", [{"short_pages": True}, {"empty_pages": True}, {"short_pages": True, "empty_pages": True}]
)
async def test_short_and_empty_pages_are_followed(ways: dict[str, bool], limit: int | None) -> None:
    with FakeUnity(**ways) as server:  # type: ignore[arg-type]
        planted = server.add_lance_tables("main", "a", 250)
        async with connected(server) as ns:
            assert await names(ns, limit) == planted
            listed = await ns.list_many([SCHEMA])
            assert [id.name for tables in listed.tables.values() for id in tables] == planted


@pytest.mark.parametrize("limit", [None, 1, 99, 101])
async def test_the_order_of_names_between_pages_does_not_matter(limit: int | None) -> None:
    with FakeUnity(unsorted=True) as server:
        planted = server.add_lance_tables("main", "a", 250)
        async with connected(server) as ns:
            result: list[str] = []
            token = None
            while True:
                page = await ns.list_tables(ListTablesRequest(id=SCHEMA, limit=limit, page_token=token))
                result += page.tables
                if not (token := page.page_token):
                    break
            assert sorted(result) == planted and len(result) == 250


async def test_a_table_that_is_gone_between_two_pages_loses_no_other() -> None:
    with FakeUnity() as server:
        planted = server.add_lance_tables("main", "a", 5)
        async with connected(server) as ns:
            first = await ns.list_tables(ListTablesRequest(id=SCHEMA, limit=2))
            await ns.deregister_table(DeregisterTableRequest(id=[*SCHEMA, first.tables[-1]]))
            rest = await ns.list_tables(ListTablesRequest(id=SCHEMA, page_token=first.page_token))
            assert rest.tables == planted[2:]


async def test_a_page_token_that_repeats_is_no_endless_loop() -> None:
    with FakeUnity(repeat_token=True) as server:
        server.add_lance_tables("main", "a", 250)
        async with connected(server) as ns:
            for work in (
                ns.list_tables(ListTablesRequest(id=SCHEMA)),
                ns.list_namespaces(ListNamespacesRequest(id=["main"])),
            ):
                with pytest.raises(InternalError, match="does not end"):
                    await work
            listed = await ns.list_many([SCHEMA])
            assert all(isinstance(error, InternalError) for error in listed.errors.values()) and listed.errors


@pytest.mark.parametrize(
    "body", ['{"tables":[]}', '{"tables":[],"next_page_token":""}', '{"next_page_token":null}', "{}"]
)
async def test_a_missing_null_or_empty_token_is_the_end(body: str) -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            server.reply(body)
            assert await names(ns) == []


async def test_what_a_user_may_not_see_leaves_holes_in_pages_and_ends_nothing() -> None:
    with FakeUnity(authorization=["root"]) as server:
        server.add_lance_tables("main", "a", 250, stem="t")
        visible = ["t0005", "t0150", "t0155"]
        server.allow("user", *(f"main.a.{name}" for name in visible))
        server.allow("nobody")
        async with connected(server, auth_token="user") as ns:
            assert await names(ns) == visible
            assert await names(ns, 2) == visible
        async with connected(server, auth_token="nobody") as ns:
            assert await names(ns) == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_schemas_are_listed_to_the_end(dialect: str) -> None:
    with FakeUnity(dialect=dialect) as server:  # type: ignore[arg-type]
        planted = [f"s{i:04}" for i in range(250)]
        for name in planted:
            server.add_schema("main", name)
        async with connected(server) as ns:
            page = await ns.list_namespaces(ListNamespacesRequest(id=["main"]))
            assert page.namespaces == planted and not page.page_token
            some = await ns.list_namespaces(ListNamespacesRequest(id=["main"], limit=101))
            assert some.namespaces == planted[:101] and some.page_token
            assert [id.name async for id in ns.iter_namespaces(["main"])] == planted
        assert list_requests(server)[0] == "GET schemas?catalog_name=main&max_results=100"
        assert list_requests(server)[1] == "GET schemas?catalog_name=main&max_results=100&page_token=s0099"


async def test_a_listing_reads_a_catalog_to_the_bottom() -> None:
    with FakeUnity() as server:
        for schema in ("a", "b"):
            server.add_lance_tables("main", schema, 101)
        async with connected(server) as ns:
            page = await ns.list_all_tables(ListTablesRequest(id=[]))
            assert len(page.tables) == 202 and page.tables[0] == "main$a$t0000"
            assert len([id async for id in ns.iter_tables(recursive=True)]) == 202


@pytest.mark.parametrize("count", [1, 2, 64])
async def test_few_tables_are_described_one_by_one(count: int) -> None:
    with FakeUnity() as server:
        planted = server.add_lance_tables("main", "a", 200)
        async with connected(server) as ns:
            many = await ns.describe_tables([[*SCHEMA, name] for name in planted[:count]])
            assert len(many.raise_for_errors().tables) == count
        assert sorted(list_requests(server)) == [f"GET tables/main.a.{name}" for name in planted[:count]]


async def test_many_tables_are_described_by_pages_and_no_more_of_them_than_are_needed() -> None:
    with FakeUnity() as server:
        planted = server.add_lance_tables("main", "a", 500)
        async with connected(server) as ns:
            many = await ns.describe_tables([[*SCHEMA, name] for name in planted[:150]])
            assert len(many.raise_for_errors().tables) == 150
            for id, table in many.tables.items():
                assert table.location == f"s3://bucket/main/a/{id.name}.lance"
        assert len(list_requests(server)) == len(pages_asked(server)) == 2


async def test_what_pages_do_not_give_is_requested_by_name() -> None:
    with FakeUnity(authorization=["root"]) as server:
        planted = server.add_lance_tables("main", "a", 120)
        server.add_table("main", "a", "other", properties={})
        server.allow("user", *(f"main.a.{name}" for name in [*planted[:100], "other"]))
        ids = [TableId([*SCHEMA, name]) for name in [*planted[:101], "none", "other"]]
        missing = TableId(["main", "none", "t"])
        async with connected(server, auth_token="user") as ns:
            many = await ns.describe_tables([*ids, missing])
            assert set(many.tables) == set(ids[:100])
            assert {id.name: type(error) for id, error in many.errors.items()} == {
                "t0100": PermissionDeniedError,
                "none": TableNotFoundError,
                "other": type(many.errors[ids[-1]]),
                "t": NamespaceNotFoundError,
            }
            assert isinstance(many.errors[ids[-1]], InvalidInputError)


async def test_pages_are_given_up_where_they_hold_little_of_what_is_wanted() -> None:
    with FakeUnity() as server:
        plant_others(server, 2000, "other")
        planted = server.add_lance_tables("main", "a", 70)
        async with connected(server) as ns:
            many = await ns.describe_tables([[*SCHEMA, name] for name in planted])
            assert len(many.raise_for_errors().tables) == 70
        assert len(pages_asked(server)) <= 3


async def test_a_schema_that_is_missing_is_reported_for_each_of_its_tables() -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            many = await ns.describe_tables([["main", "none", f"t{i}"] for i in range(100)])
            assert len(many.errors) == 100
            assert all(isinstance(error, NamespaceNotFoundError) for error in many.errors.values())
        assert len(list_requests(server)) == 1


async def test_a_listing_that_fails_gives_way_to_describes() -> None:
    with FakeUnity() as server:
        names = server.add_lance_tables("main", "a", 300)
        server.fail(503, times=None, match="page_token")
        async with connected(server, max_retries="1") as ns:
            described = await ns.describe_tables([["main", "a", name] for name in names])
    assert not described.errors and len(described.tables) == 300
