"""Names, properties and locations: invalid ones are reported without a call."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RegisterTableRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_ns_async import AsyncNamespace
from tests.fakes.unity import FakeUnity
from tests.support.unity import connected, declared, described, list_requests

IMPOSSIBLE = ["a.b", "a b", "a/b", "a%2Fb", "é", "?", "#", "%", "$", "a\x1fb", "..", "x" * 256, "a\n"]


def operations(ns: AsyncNamespace, catalog: str, schema: str, name: str) -> dict[str, Awaitable[Any]]:
    """All operations with the id of a namespace or a table, by name."""
    namespace, table = [catalog, schema], [catalog, schema, name]
    return {
        "create_namespace": ns.create_namespace(CreateNamespaceRequest(id=namespace)),
        "describe_namespace": ns.describe_namespace(DescribeNamespaceRequest(id=namespace)),
        "drop_namespace": ns.drop_namespace(DropNamespaceRequest(id=namespace)),
        "cascade": ns.drop_namespace(DropNamespaceRequest(id=namespace, behavior="Cascade")),
        "list_tables": ns.list_tables(ListTablesRequest(id=namespace)),
        "declare_table": declared(ns, *table),
        "register_table": ns.register_table(RegisterTableRequest(id=table, location="s3://b/x")),
        "replace_table": ns.register_table(RegisterTableRequest(id=table, location="s3://b/x", mode="Overwrite")),
        "describe_table": described(ns, *table),
        "deregister_table": ns.deregister_table(DeregisterTableRequest(id=table)),
    }


async def outcomes(ns: AsyncNamespace, *id: str) -> dict[str, type[LanceNamespaceError]]:
    result: dict[str, type[LanceNamespaceError]] = {}
    for operation, work in operations(ns, *id).items():
        with pytest.raises(LanceNamespaceError) as caught:
            await work
        assert str(caught.value).isprintable() or "\\" in str(caught.value)
        result[operation] = type(caught.value)
    return result


async def test_another_catalog_is_not_served() -> None:
    with FakeUnity() as server:
        server.add_table("other", "a", "t")
        async with connected(server) as ns:
            assert await outcomes(ns, "other", "a", "t") == {
                "create_namespace": InvalidInputError,
                "describe_namespace": NamespaceNotFoundError,
                "drop_namespace": NamespaceNotFoundError,
                "cascade": NamespaceNotFoundError,
                "list_tables": NamespaceNotFoundError,
                "declare_table": NamespaceNotFoundError,
                "register_table": NamespaceNotFoundError,
                "replace_table": NamespaceNotFoundError,
                "describe_table": TableNotFoundError,
                "deregister_table": TableNotFoundError,
            }
            with pytest.raises(
                NamespaceNotFoundError, match=r"^Namespace not found: other .*this namespace has only the catalog main"
            ):
                await ns.list_namespaces(ListNamespacesRequest(id=["other"]))
            with pytest.raises(NamespaceNotFoundError, match="connect with that `catalog`"):
                await ns.describe_namespace(DescribeNamespaceRequest(id=["other"]))
        assert list_requests(server) == []


@pytest.mark.parametrize("schema", IMPOSSIBLE)
async def test_a_schema_that_cannot_be_is_missing_and_cannot_be_made(schema: str) -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            result = await outcomes(ns, "main", schema, "t")
        assert result.pop("create_namespace") is InvalidInputError
        assert set(result.values()) == {NamespaceNotFoundError}
        assert list_requests(server) == []


@pytest.mark.parametrize("name", IMPOSSIBLE)
async def test_a_table_that_cannot_be_is_missing_and_cannot_be_made(name: str) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with connected(server) as ns:
            for work in (
                described(ns, "main", "a", name),
                ns.deregister_table(DeregisterTableRequest(id=["main", "a", name])),
            ):
                with pytest.raises(TableNotFoundError, match=r"^Table not found: main\$a\$"):
                    await work
            with pytest.raises(InvalidInputError, match="Unity Catalog does not allow the name") as raised:
                await declared(ns, "main", "a", name)
            assert str(raised.value).isprintable()
        assert list_requests(server) == []


@pytest.mark.parametrize("name", ["-x", "0", "@x", "B", "_z", "a", "x" * 255])
async def test_names_that_can_be_are_quoted_once(name: str) -> None:
    with FakeUnity() as server:
        async with connected(server, root="s3://b/r") as ns:
            await ns.create_namespace(CreateNamespaceRequest(id=["main", name]))
            await declared(ns, "main", name, name)
            assert (await described(ns, "main", name, name)).location
            assert (await ns.list_tables(ListTablesRequest(id=["main", name]))).tables == [name]
        quoted = name.replace("@", "%40")
        assert f"GET tables/main.{quoted}.{quoted}" in list_requests(server)


async def test_the_case_of_names_matters() -> None:
    with FakeUnity() as server:
        server.add_table("main", "a", "t1", location="s3://b/lower")
        server.add_table("main", "a", "T1", location="s3://b/upper")
        async with connected(server) as ns:
            many = await ns.describe_tables([["main", "a", "t1"], ["main", "a", "T1"]])
            assert {id.name: table.location for id, table in many.tables.items()} == {
                "t1": "s3://b/lower",
                "T1": "s3://b/upper",
            }


@pytest.mark.parametrize("id", [["t"], ["main", "t"], ["main", "a", "b", "t"]])
async def test_tables_are_at_one_depth(id: list[str]) -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match="exactly 2 namespace levels"):
                await described(ns, *id)
            if len(id) == 4:
                with pytest.raises(InvalidInputError, match="at most 2 namespace levels"):
                    await ns.describe_namespace(DescribeNamespaceRequest(id=id[:3]))
        assert list_requests(server) == []


@pytest.mark.parametrize("properties", [{"x" * 256: "v"}, {"k": "x" * 256}, {"k": "🎉" * 128}, {"🎉" * 128: "v"}])
async def test_properties_that_the_server_would_stumble_over_are_refused(properties: dict[str, str]) -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            for work in (
                declared(ns, "main", "a", "t", properties=properties),
                ns.create_namespace(CreateNamespaceRequest(id=["main", "a"], properties=properties)),
            ):
                with pytest.raises(InvalidInputError, match="stores strings of up to 255 characters"):
                    await work
        assert list_requests(server) == []


async def test_null_properties_are_refused_before_any_call() -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match=r"properties\.k: Input should be a valid string"):
                await ns.create_namespace({"id": ["main", "a"], "properties": {"k": None}})
            with pytest.raises(InvalidInputError, match=r"properties\.k: Input should be a valid string"):
                await ns.declare_table({"id": ["main", "a", "t"], "location": "s3://b/t", "properties": {"k": None}})
        assert list_requests(server) == []


async def test_properties_as_long_as_can_be_are_kept() -> None:
    longest = {"x" * 255: "y" * 255, "🎉" * 127: "🎉" * 127, "": ""}
    with FakeUnity() as server:
        async with connected(server, root="s3://b/r") as ns:
            made = await ns.create_namespace(CreateNamespaceRequest(id=["main", "a"], properties=longest))
            assert made.properties == longest
            table = await declared(ns, "main", "a", "t", properties=longest)
            assert table.properties == {**longest, "table_type": "lance"}


async def test_a_table_is_not_declared_as_anything_else() -> None:
    with FakeUnity() as server:
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match="table_type='iceberg'"):
                await declared(ns, "main", "a", "t", properties={"table_type": "iceberg"})
        assert list_requests(server) == []


@pytest.mark.parametrize(
    ("location", "kept"),
    [
        ("s3://b/a/c/", "s3://b/a/c"),
        ("s3a://b/a", "s3://b/a"),
        ("gs://b/a", "gs://b/a"),
        ("abfss://c@account.dfs.core.windows.net/a", "abfss://c@account.dfs.core.windows.net/a"),
        ("s3://b/a%20bé", "s3://b/a%20bé"),
        ("/data/t", "file:///data/t"),
        ("/data/a b", "file:///data/a%20b"),
        ("file:/data/t", "file:///data/t"),
        ("file:///data/t/", "file:///data/t"),
        ("s3://b/" + "x" * 2041, "s3://b/" + "x" * 2041),
    ],
)
async def test_the_location_is_the_one_that_the_server_keeps(location: str, kept: str) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with connected(server) as ns:
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
        ("memory:///a", "has the scheme 'memory'"),
        ("", "is empty"),
        ("s3://b/a b", "a space as %20"),
        ("s3://b/a\tb", "control character"),
        ("s3://bkt", "is the root of its storage"),
        ("s3://bkt/", "is the root of its storage"),
        ("s3://bkt/a/..", "has '..' in its path"),
        ("s3://bkt/a//b", "has two slashes in a row"),
        ("s3://bkt/a?b", "has the character"),
        ("file://host/data/t", "has the host 'host'"),
        ("data/t", "is relative"),
        ("s3:///a", "has no bucket"),
        ("s3a://bkt", "is the root of its storage"),
        ("abfss://c@account.dfs.core.windows.net/", "is the root of its storage"),
        ("file:///", "is the root of its storage"),
        ("file:a/b", "is not a complete URI"),
        ("s3://b/" + "x" * 2042, "has 2049 characters"),
    ],
)
async def test_a_location_that_the_server_would_not_take_is_refused(location: str, why: str) -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with connected(server) as ns:
            with pytest.raises(InvalidInputError, match=why):
                await declared(ns, "main", "a", "t", location=location)
        assert list_requests(server) == []


async def test_a_root_that_the_server_would_not_take_is_reported_by_the_declare() -> None:
    with FakeUnity() as server:
        async with connected(server, root="az://c/lake") as ns:
            with pytest.raises(InvalidInputError, match=r"its location 'az://c/lake/main/a/t' has the scheme 'az'"):
                await declared(ns, "main", "a", "t")
        assert list_requests(server) == []


async def test_equal_and_nested_locations_are_the_callers_business() -> None:
    with FakeUnity() as server:
        server.add_schema("main", "a")
        async with connected(server) as ns:
            for name, location in (
                ("t", "s3://b/a"),
                ("same", "s3://b/a"),
                ("inside", "s3://b/a/b"),
            ):
                assert (await declared(ns, "main", "a", name, location=location)).location
