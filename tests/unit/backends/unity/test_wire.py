"""Names, properties and locations: invalid ones are reported without a call. Complete listings of
Unity schemas and tables, and descriptions of many tables by pages or one by one."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, TableId
from tests.fakes.unity import FakeUnity
from tests.support.errors import catch
from tests.support.running import running
from tests.support.unity import DIALECTS, connected, declared, described, list_requests

SCHEMA = ["main", "a"]
IMPOSSIBLE = ["a.b", "a b", "a/b", "a%2Fb", "é", "?", "#", "%", "$", "a\x1fb", "..", "x" * 256, "a\n"]


def operations(ns: AsyncNamespace, catalog: str, schema: str, name: str) -> dict[str, Awaitable[Any]]:
    """All operations with the id of a namespace or a table, by name."""
    namespace, table = [catalog, schema], [catalog, schema, name]
    return {
        "create_namespace": ns.create_namespace(namespace),
        "describe_namespace": ns.describe_namespace(namespace),
        "drop_namespace": ns.drop_namespace(namespace),
        "cascade": ns.drop_namespace(namespace, behavior="Cascade"),
        "list_tables": ns.list_tables(namespace),
        "declare_table": declared(ns, *table),
        "register_table": ns.register_table(table, location="s3://b/x"),
        "replace_table": ns.register_table(table, location="s3://b/x", mode="Overwrite"),
        "describe_table": described(ns, *table),
        "deregister_table": ns.deregister_table(table),
    }


async def outcomes(ns: AsyncNamespace, *id: str) -> dict[str, type[err.LanceNamespaceError]]:
    result: dict[str, type[err.LanceNamespaceError]] = {}
    for operation, work in operations(ns, *id).items():
        caught = await catch(err.LanceNamespaceError, work)
        assert str(caught.value).isprintable() or "\\" in str(caught.value)
        result[operation] = type(caught.value)
    return result


async def test_another_catalog_is_not_served(server: FakeUnity, ns: AsyncNamespace) -> None:
    server.add_table("other", "a", "t")
    result = await outcomes(ns, "other", "a", "t")
    assert result.pop("create_namespace") is err.InvalidInputError
    assert {result.pop(name) for name in ("describe_table", "deregister_table")} == {err.TableNotFoundError}
    assert set(result.values()) == {err.NamespaceNotFoundError}
    only = r"^Namespace not found: other .*this namespace has only the catalog main"
    await catch(err.NamespaceNotFoundError, ns.list_namespaces(["other"]), only)
    await catch(err.NamespaceNotFoundError, ns.describe_namespace(["other"]), "connect with that `catalog`")
    assert list_requests(server) == []


@pytest.mark.parametrize("schema", IMPOSSIBLE)
async def test_invalid_schema_name(server: FakeUnity, ns: AsyncNamespace, schema: str) -> None:
    result = await outcomes(ns, "main", schema, "t")
    assert result.pop("create_namespace") is err.InvalidInputError
    assert set(result.values()) == {err.NamespaceNotFoundError}
    assert list_requests(server) == []


@pytest.mark.parametrize("name", IMPOSSIBLE)
async def test_invalid_table_name(server: FakeUnity, ns: AsyncNamespace, name: str) -> None:
    for work in (described(ns, "main", "a", name), ns.deregister_table(["main", "a", name])):
        await catch(err.TableNotFoundError, work, r"^Table not found: main\$a\$")
    with pytest.raises(err.InvalidInputError, match="Unity Catalog does not allow the name") as raised:
        await declared(ns, "main", "a", name)
    assert str(raised.value).isprintable()
    assert list_requests(server) == []


@pytest.mark.parametrize("name", ["-x", "0", "@x", "B", "_z", "b", "x" * 255])
async def test_names_that_can_be_are_quoted_once(server: FakeUnity, ns: AsyncNamespace, name: str) -> None:
    await ns.create_namespace(["main", name])
    await declared(ns, "main", name, name)
    assert (await described(ns, "main", name, name)).location
    assert (await ns.list_tables(["main", name])).tables == [name]
    quoted = name.replace("@", "%40")
    assert f"GET tables/main.{quoted}.{quoted}" in list_requests(server)


@pytest.mark.parametrize("properties", [{"x" * 256: "v"}, {"k": "x" * 256}, {"k": "🎉" * 128}, {"🎉" * 128: "v"}])
async def test_too_long_properties(server: FakeUnity, ns: AsyncNamespace, properties: dict[str, str]) -> None:
    fields = {"properties": properties}
    for work in (ns.declare_table([*SCHEMA, "t"], **fields), ns.create_namespace(SCHEMA, **fields)):
        await catch(err.InvalidInputError, work, "stores strings of up to 255 characters")
    other = declared(ns, *SCHEMA, "t", properties={"table_type": "iceberg"})
    await catch(err.InvalidInputError, other, "table_type='iceberg'")
    assert list_requests(server) == []


async def test_properties_as_long_as_can_be_are_kept(server: FakeUnity, ns: AsyncNamespace) -> None:
    longest = {"x" * 255: "y" * 255, "🎉" * 127: "🎉" * 127, "": ""}
    assert (await ns.create_namespace(["main", "b"], properties=longest)).properties == longest
    assert (await declared(ns, "main", "b", "t", properties=longest)).properties == {**longest, "table_type": "lance"}


@pytest.mark.parametrize(
    ("location", "kept"),
    [
        ("s3://b/a/c/", "s3://b/a/c"),
        ("s3a://b/a", "s3://b/a"),
        ("abfss://c@account.dfs.core.windows.net/a", "abfss://c@account.dfs.core.windows.net/a"),
        ("s3://b/a%20bé", "s3://b/a%20bé"),
        ("/data/t", "file:///data/t"),
        ("/data/a b", "file:///data/a%20b"),
        ("file:/data/t", "file:///data/t"),
        ("s3://b/" + "x" * 2041, "s3://b/" + "x" * 2041),
    ],
)
async def test_stored_location(server: FakeUnity, ns: AsyncNamespace, location: str, kept: str) -> None:
    assert (await declared(ns, "main", "a", "t", location=location)).location == kept
    assert (await described(ns, "main", "a", "t")).location == kept


@pytest.mark.parametrize(
    ("location", "why"),
    [
        *[
            (f"{scheme}://b/a", f"has the scheme '{scheme}'")
            for scheme in ("az", "hdfs", "https", "r2", "wasbs", "abfs")
        ],
        ("S3://b/a", "has a scheme in upper case; write s3:"),
        ("s3+ddb://b/a", "use one of file, s3, gs, abfss"),
        ("s3://b/a b", "a space as %20"),
        ("s3://b/a\tb", "control character"),
        ("s3a://bkt", "is the root of its storage"),
        ("abfss://c@account.dfs.core.windows.net/", "is the root of its storage"),
        ("s3://b/" + "x" * 2042, "has 2049 characters"),
    ],
)
async def test_invalid_location(server: FakeUnity, ns: AsyncNamespace, location: str, why: str) -> None:
    await catch(err.InvalidInputError, declared(ns, "main", "a", "t", location=location), why)
    assert list_requests(server) == []


async def test_a_root_that_the_server_would_not_take_is_reported_by_the_declare(server: FakeUnity) -> None:
    async with connected(server, root="az://c/lake") as ns:
        with pytest.raises(err.InvalidInputError, match=r"its location 'az://c/lake/main/a/t' has the scheme 'az'"):
            await declared(ns, "main", "a", "t")
    assert list_requests(server) == []


PAGE = "GET tables?catalog_name=main&schema_name=a&omit_columns=true&max_results=100"


def pages_asked(server: FakeUnity) -> list[str]:
    """Returns the differences between the requests for pages of tables."""
    return [request.removeprefix(PAGE) for request in list_requests(server) if request.startswith("GET tables?")]


async def names(ns: AsyncNamespace, limit: int | None = None) -> list[str]:
    """Returns the tables of the schema, page by page."""
    result: list[str] = []
    token = None
    while True:
        page = await ns.list_tables(SCHEMA, limit=limit, page_token=token)
        assert limit is None or len(page.tables) <= limit
        result += page.tables
        if not (token := page.page_token):
            return result


def plant_others(server: FakeUnity, count: int, stem: str) -> None:
    for i in range(count):
        server.add_table("main", "a", f"{stem}{i:04}", properties={}, data_source_format="DELTA")


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250, 2500])
async def test_a_listing_is_read_to_its_end(server: FakeUnity, ns: AsyncNamespace, count: int) -> None:
    planted = server.add_lance_tables("main", "a", count)
    assert await names(ns) == planted
    # A full last page has a token, and is followed by an empty page.
    assert len(pages_asked(server)) == count // 100 + 1
    assert pages_asked(server)[:2] == ["", "&page_token=t0099"][: count // 100 + 1]


async def test_a_small_limit_does_not_make_the_servers_pages_small(server: FakeUnity, ns: AsyncNamespace) -> None:
    plant_others(server, 90, "other")
    planted = server.add_lance_tables("main", "a", 5)
    page = await ns.list_tables(SCHEMA, limit=2)
    assert page.tables == planted[:2] and page.page_token
    assert pages_asked(server) == [""]


@pytest.mark.parametrize("limit", [None, 1, 99, 100, 101])
@pytest.mark.parametrize(
    "ways",
    [{}, {"unsorted": True}, {"short_pages": True}, {"empty_pages": True}, {"short_pages": True, "empty_pages": True}],
)
async def test_pages(ways: dict[str, bool], limit: int | None) -> None:
    async with running(connected, FakeUnity(**ways)) as (server, ns):  # type: ignore[arg-type]
        planted = server.add_lance_tables("main", "a", 250)
        result = await names(ns, limit)
        assert (sorted(result) if "unsorted" in ways else result) == planted
        assert sorted(id.name for tables in (await ns.list_many([SCHEMA])).tables.values() for id in tables) == planted


async def test_a_table_that_is_gone_between_two_pages_loses_no_other(server: FakeUnity, ns: AsyncNamespace) -> None:
    planted = server.add_lance_tables("main", "a", 5)
    first = await ns.list_tables(SCHEMA, limit=2)
    await ns.deregister_table([*SCHEMA, first.tables[-1]])
    assert (await ns.list_tables(SCHEMA, page_token=first.page_token)).tables == planted[2:]


async def test_a_page_token_that_repeats_is_no_endless_loop() -> None:
    async with running(connected, FakeUnity(repeat_token=True)) as (server, ns):
        server.add_lance_tables("main", "a", 250)
        for work in (ns.list_tables(SCHEMA), ns.list_namespaces(["main"])):
            await catch(err.InternalError, work, "does not end")
        listed = await ns.list_many([SCHEMA])
        assert all(isinstance(error, err.InternalError) for error in listed.errors.values()) and listed.errors


@pytest.mark.parametrize("body", ['{"tables":[]}', '{"next_page_token":""}', '{"next_page_token":null}', "{}"])
async def test_a_missing_null_or_empty_token_is_the_end(server: FakeUnity, ns: AsyncNamespace, body: str) -> None:
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
    async with running(connected, FakeUnity(dialect=dialect)) as (server, ns):  # type: ignore[arg-type]
        planted = [f"s{i:04}" for i in range(250)]
        for name in planted:
            server.add_schema("main", name)
        page = await ns.list_namespaces(["main"])
        assert page.namespaces == planted and not page.page_token
        some = await ns.list_namespaces(["main"], limit=101)
        assert some.namespaces == planted[:101] and some.page_token
        assert [id.name async for id in ns.iter_namespaces(["main"])] == planted
        assert list_requests(server)[0] == "GET schemas?catalog_name=main&max_results=100"
        assert list_requests(server)[1] == "GET schemas?catalog_name=main&max_results=100&page_token=s0099"


@pytest.mark.parametrize("count", [1, 2, 64])
async def test_few_tables_are_described_one_by_one(server: FakeUnity, ns: AsyncNamespace, count: int) -> None:
    planted = server.add_lance_tables("main", "a", 200)
    many = await ns.describe_tables([[*SCHEMA, name] for name in planted[:count]])
    assert len(many.raise_for_errors().tables) == count
    assert sorted(list_requests(server)) == [f"GET tables/main.a.{name}" for name in planted[:count]]


async def test_many_tables_are_described_by_pages(server: FakeUnity, ns: AsyncNamespace) -> None:
    planted = server.add_lance_tables("main", "a", 500)
    many = await ns.describe_tables([[*SCHEMA, name] for name in planted[:150]])
    assert len(many.raise_for_errors().tables) == 150
    for id, table in many.tables.items():
        assert table.location == f"s3://bucket/main/a/{id.name}.lance"
    assert len(list_requests(server)) == len(pages_asked(server)) == 2


async def test_what_pages_do_not_give_is_requested_by_name() -> None:
    async with running(connected, FakeUnity(authorization=["root"]), auth_token="user") as (server, ns):
        planted = server.add_lance_tables("main", "a", 120)
        server.add_table("main", "a", "other", properties={})
        server.allow("user", *(f"main.a.{name}" for name in [*planted[:100], "other"]))
        ids = [TableId([*SCHEMA, name]) for name in [*planted[:101], "none", "other"]]
        missing = TableId(["main", "none", "t"])
        many = await ns.describe_tables([*ids, missing])
        assert set(many.tables) == set(ids[:100])
        assert {id.name: type(error) for id, error in many.errors.items()} == {
            "t0100": err.PermissionDeniedError,
            "none": err.TableNotFoundError,
            "other": type(many.errors[ids[-1]]),
            "t": err.NamespaceNotFoundError,
        }
        assert isinstance(many.errors[ids[-1]], err.InvalidInputError)


async def test_pages_with_few_requested_tables_are_given_up(server: FakeUnity, ns: AsyncNamespace) -> None:
    plant_others(server, 2000, "other")
    planted = server.add_lance_tables("main", "a", 70)
    assert len((await ns.describe_tables([[*SCHEMA, name] for name in planted])).raise_for_errors().tables) == 70
    assert len(pages_asked(server)) <= 3


async def test_missing_schema_of_many_tables(server: FakeUnity, ns: AsyncNamespace) -> None:
    many = await ns.describe_tables([["main", "none", f"t{i}"] for i in range(100)])
    assert len(many.errors) == 100
    assert all(isinstance(error, err.NamespaceNotFoundError) for error in many.errors.values())
    assert len(list_requests(server)) == 1


async def test_a_listing_that_fails_gives_way_to_describes(server: FakeUnity) -> None:
    names = server.add_lance_tables("main", "a", 300)
    server.fail(503, times=None, match="page_token")
    async with connected(server, max_retries="1") as ns:
        described = await ns.describe_tables([["main", "a", name] for name in names])
    assert not described.errors and len(described.tables) == 300
