"""Operations of the protocol on a server, and the behaviour for servers that lack one or respond differently."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from tests.fakes.rest import FakeRest, RestDialect


@asynccontextmanager
async def connect(server: FakeRest, **properties: str) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("rest", {"uri": server.url, "backoff_initial": "0", **properties}) as ns:
        yield ns


async def test_each_operation_is_one_call_of_the_protocol() -> None:
    with FakeRest() as server:
        async with connect(server) as ns:
            await ns.create_namespace({"id": ["a"], "properties": {"k": "v"}})
            await ns.declare_table({"id": ["a", "t"], "properties": {"k": "v"}})
            table = await ns.describe_table({"id": ["a", "t"]})
            await ns.rename_table({"id": ["a", "t"], "new_table_name": "u"})
            await ns.deregister_table({"id": ["a", "u"]})
            await ns.register_table({"id": ["a", "u"], "location": "s3://b/u"})
            await ns.drop_namespace({"id": ["a"], "behavior": "Cascade"})
    assert (table.location, table.properties) == ("s3://lake/a/t", {"k": "v"})
    assert server.operations() == [
        "namespace/create",
        *("namespace/describe", "table/declare"),
        "table/describe",
        *("table/describe", "table/rename"),
        *("table/describe", "table/deregister"),
        *("namespace/describe", "table/register"),
        "namespace/drop",
    ]
    assert server.namespaces == {(): {}} and not server.tables


async def test_a_request_has_its_id_in_the_path_and_in_the_body() -> None:
    with FakeRest() as server:
        server.add_table("a b", "é$", "t")
        async with connect(server, delimiter="::") as ns:
            await ns.describe_table({"id": ["a b", "é$", "t"], "vend_credentials": True})
        (request,) = server.requests
    assert request.path == "/v1/table/a%20b%3A%3A%C3%A9%24%3A%3At/describe?delimiter=%3A%3A"
    assert request.json == {"id": ["a b", "é$", "t"], "vend_credentials": True}


async def test_credentials_are_requested_only_where_they_are_needed() -> None:
    with FakeRest(credentials={"key": "vended"}) as server:
        server.add_table("a", "t")
        async with connect(server, **{"storage.key": "own", "storage.region": "eu"}) as ns:
            plain = await ns.describe_table({"id": ["a", "t"]})
            with_credentials = await ns.describe_table({"id": ["a", "t"], "vend_credentials": True})
        async with connect(server, vend_credentials="true") as ns:
            by_default = await ns.describe_table({"id": ["a", "t"]})
    assert plain.storage_options == {"key": "own", "region": "eu"}
    assert with_credentials.storage_options == {"key": "vended", "region": "eu"}
    assert by_default.storage_options == {"key": "vended"}
    assert "vend_credentials" not in server.requests[0].json


async def test_listings_are_read_in_the_servers_pages() -> None:
    names = [f"t{number}" for number in range(5)]
    with FakeRest() as server:
        for name in names:
            server.add_table("a", name)
        async with connect(server) as ns:
            first = await ns.list_tables({"id": ["a"], "limit": 2})
            rest = await ns.list_tables({"id": ["a"], "page_token": first.page_token})
            all_tables = [id async for id in ns.iter_tables(recursive=True)]
    assert [*first.tables, *rest.tables] == names and rest.page_token is None
    assert all_tables == [TableId(["a", name]) for name in names]
    assert [request.path.partition("?")[2] for request in server.requests[:2]] == [
        "delimiter=%24&limit=2",
        "delimiter=%24&page_token=2",
    ]


async def test_an_empty_listing_of_a_missing_namespace_is_an_error() -> None:
    with FakeRest() as server:
        async with connect(server) as ns:
            server.reply('{"tables": []}', match="GET /v1/namespace/none/table/list")
            with pytest.raises(NamespaceNotFoundError, match=r"^Namespace not found: none \(list_tables"):
                await ns.list_tables({"id": ["none"]})


@pytest.mark.parametrize("dialect", ["spec", "gravitino"])
async def test_errors_are_those_of_the_spec(dialect: RestDialect) -> None:
    cases: list[tuple[str, dict[str, Any], type[LanceNamespaceError]]] = [
        ("describe_table", {"id": ["a", "none"]}, TableNotFoundError),
        ("describe_namespace", {"id": ["none"]}, NamespaceNotFoundError),
        ("create_namespace", {"id": ["a"]}, NamespaceAlreadyExistsError),
        ("create_namespace", {"id": ["none", "b"]}, NamespaceNotFoundError),
        ("drop_namespace", {"id": ["a"]}, NamespaceNotEmptyError),
        ("drop_namespace", {"id": ["none"]}, NamespaceNotFoundError),
        ("declare_table", {"id": ["a", "t"]}, TableAlreadyExistsError),
        ("declare_table", {"id": ["none", "t"]}, NamespaceNotFoundError),
        ("register_table", {"id": ["a", "t"], "location": "s3://b/t"}, TableAlreadyExistsError),
        ("deregister_table", {"id": ["a", "none"]}, TableNotFoundError),
    ]
    with FakeRest(dialect=dialect) as server:
        server.add_table("a", "t")
        async with connect(server) as ns:
            for operation, request, error in cases:
                with pytest.raises(error):
                    await getattr(ns, operation)(request)
        async with connect(server, auth_token="t") as ns:
            assert await ns.exists(["a", "t"])


async def test_a_server_of_the_first_protocol_version_works() -> None:
    with FakeRest(dialect="gravitino") as server:
        server.namespaces |= {("cat",): {}, ("cat", "db"): {}}
        async with connect(server, min_depth="2", max_depth="2") as ns:
            response = await ns.declare_table({"id": ["cat", "db", "t"]})
            await ns.declare_table({"id": ["cat", "db", "u"]})
            tables = [id async for id in ns.iter_tables(recursive=True)]
            with pytest.raises(UnsupportedOperationError, match=r"^Not supported: rename_table of cat\$db\$t \(HTTP"):
                await ns.rename_table({"id": ["cat", "db", "t"], "new_table_name": "v"})
    assert response.location == "s3://lake/cat/db/t"
    assert tables == [TableId(["cat", "db", "t"]), TableId(["cat", "db", "u"])]
    declarations = [it for it in server.operations() if it in ("table/declare", "table/create-empty")]
    assert declarations == ["table/declare", "table/create-empty", "table/create-empty"]


@pytest.mark.parametrize("status", [404, 405, 406, 501])
async def test_an_operation_that_the_server_lacks_is_asked_for_once(status: int) -> None:
    with FakeRest() as server:
        server.add_table("a", "t")
        server.fail(status, match="rename", body="<html>nothing here</html>")
        async with connect(server) as ns:
            for _ in range(2):
                with pytest.raises(UnsupportedOperationError, match=r"^Not supported: rename_table of a\$t \("):
                    await ns.rename_table({"id": ["a", "t"], "new_table_name": "u"})
        async with connect(server) as ns:
            await ns.rename_table({"id": ["a", "t"], "new_table_name": "u"})
    assert server.operations().count("table/rename") == 2 and ("a", "u") in server.tables


@pytest.mark.parametrize("status", [406, 501])
async def test_an_unsupported_operation_of_the_protocol_is_one_for_the_caller(status: int) -> None:
    """The spec demands 406; other servers, and the gateway before, send 501."""
    with FakeRest() as server:
        server.add_table("a", "t")
        server.reply('{"error": "not in this catalog", "code": 0}', status=status, match="rename")
        async with connect(server) as ns:
            with pytest.raises(UnsupportedOperationError, match="not in this catalog"):
                await ns.rename_table({"id": ["a", "t"], "new_table_name": "u"})


async def test_a_missing_path_is_no_missing_table() -> None:
    with FakeRest() as server:
        server.add_table("a", "t")
        server.fail(404, match="describe", body="<html>no such page</html>")
        async with connect(server) as ns:
            with pytest.raises(UnsupportedOperationError, match=r"no such page.*is the endpoint right"):
                await ns.describe_table({"id": ["a", "t"]})
            # A path that is required for everything is requested again: a proxy may have been restarted.
            assert await ns.exists(["a", "t"])


async def test_a_server_that_has_neither_declaration_says_so() -> None:
    with FakeRest(lacks=["table/declare", "table/create-empty"]) as server:
        server.namespaces[("a",)] = {}
        async with connect(server) as ns:
            with pytest.raises(UnsupportedOperationError, match=r"^Not supported: a\$t \(declare_table"):
                await ns.declare_table({"id": ["a", "t"]})


async def test_a_cascade_that_the_server_refuses_is_no_failure_of_the_namespace() -> None:
    with FakeRest() as server:
        server.add_table("a", "t")
        async with connect(server) as ns:
            server.reply('{"error": "a", "code": 3}', status=409, match="drop")
            with pytest.raises(
                InvalidInputError, match="the server drops empty namespaces only; drop what is in a first"
            ):
                await ns.drop_namespace({"id": ["a"], "behavior": "Cascade"})
            await ns.drop_namespace({"id": ["a"], "behavior": "Cascade"})
            assert not await ns.exists(NamespaceId(["a"]))


@pytest.mark.parametrize("replaces", [True, False])
async def test_a_registration_is_replaced_where_the_server_does_so(replaces: bool) -> None:
    with FakeRest(replaces=replaces) as server:
        server.add_table("a", "t", location="s3://b/old")
        async with connect(server) as ns:
            request = {"id": ["a", "t"], "location": "s3://b/new", "mode": "Overwrite"}
            if replaces:
                assert (await ns.register_table(request)).location == "s3://b/new"
            else:
                with pytest.raises(UnsupportedOperationError, match="deregister it and register it at s3://b/new"):
                    await ns.register_table(request)
            table = await ns.describe_table({"id": ["a", "t"]})
    assert table.location == ("s3://b/new" if replaces else "s3://b/old")


async def test_a_location_that_the_server_repeats_as_it_was_sent_is_looked_up() -> None:
    with FakeRest() as server:
        server.namespaces[("a",)] = {}
        server.reply('{"location": "folder"}', match="register", when="after")
        async with connect(server) as ns:
            assert (await ns.register_table({"id": ["a", "t"], "location": "folder"})).location == "folder"
    assert server.operations()[-1] == "table/describe"


async def test_a_token_is_sent_and_a_missing_one_is_an_error() -> None:
    with FakeRest(token="hush") as server:
        server.add_table("a", "t")
        async with connect(server, auth_token="hush") as ns:
            assert await ns.exists(["a", "t"])
        async with connect(server) as ns:
            with pytest.raises(UnauthenticatedError):
                await ns.exists(["a", "t"])


async def test_reads_are_repeated_and_changes_are_not() -> None:
    with FakeRest() as server:
        server.add_table("a", "t")
        async with connect(server) as ns:
            server.fail(503, match="describe")
            assert await ns.exists(["a", "t"])
            server.cut(match="deregister", when="after")
            with pytest.raises(ServiceUnavailableError, match="whether it took effect is unknown"):
                await ns.deregister_table({"id": ["a", "t"]})
            server.reply("[]", match="describe")
            with pytest.raises(InternalError, match="an answer of unknown form"):
                await ns.exists(["a", "t"])
    assert server.operations().count("table/deregister") == 1
