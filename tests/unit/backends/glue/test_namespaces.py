"""Namespaces of AWS Glue: databases and catalogs, distinguished, listed together, created and dropped."""

from __future__ import annotations

import re

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from tests.fakes.glue import FakeGlue
from tests.support.glue import CATALOG, about, connected, declared, described, dropped, made, names


async def test_the_root_holds_databases_and_catalogs_each_name_once(server: FakeGlue, ns: AsyncNamespace) -> None:
    assert await names(ns) == ["both", "cat", "db"]
    assert await names(ns, "cat") == ["deep", "inner"]
    assert await names(ns, "cat", "deep") == ["leaf"]
    assert await names(ns, "cat", "deep", "leaf") == [] and await names(ns, "both") == []
    result = [id async for id in ns.iter_namespaces(recursive=True)]
    listings = [dict(call.parameters) for call in server.requests if call.operation == "GetCatalogs"]
    assert listings[:2] == [
        {"IncludeRoot": True, "Recursive": False},
        {"ParentCatalogId": f"{server.account}:cat", "Recursive": False},
    ]
    assert {str(id) for id in result} == {"both", "cat", "db", "cat$deep", "cat$inner", "cat$deep$leaf"}


async def test_more_than_a_page_of_each_is_listed(server: FakeGlue, ns: AsyncNamespace) -> None:
    more = [f"n{i:03}" for i in range(120)]
    for name in more:
        server.add_database("", name)
    server.switch(short_pages=True)
    assert await names(ns) == sorted(["both", "cat", "db", *more])
    server.switch(short_pages=False)


async def test_a_database_comes_before_a_catalog_of_its_name(server: FakeGlue, ns: AsyncNamespace) -> None:
    assert await about(ns, "both") == {"is": "both"}
    assert await about(ns, "cat") == {"of": "cat", **CATALOG}
    assert await about(ns, "CAT", "Deep") == {"of": "cat/deep", **CATALOG}
    assert await about(ns, "cat", "deep", "leaf") == {"is": "leaf"}


async def test_what_a_name_is_is_found_out_once(server: FakeGlue, ns: AsyncNamespace) -> None:
    await about(ns, "db")
    await about(ns, "cat")
    server.clear()
    await about(ns, "db")
    await about(ns, "cat")
    assert server.calls == ["GetDatabase", "GetCatalog"]
    for id in (["none"], ["cat", "none"], ["none", "none"], ["db", "none"]):
        with pytest.raises(err.NamespaceNotFoundError, match=f"^Namespace not found: {re.escape('$'.join(id))} "):
            await about(ns, *id)


async def test_a_name_that_became_something_else_is_looked_up_anew(server: FakeGlue) -> None:
    async with connected(server) as ns, connected(server) as other:
        await made(ns, "x", k="database")
        await dropped(other, "x")
        with pytest.raises(err.NamespaceNotFoundError):
            await about(ns, "x")
        await made(other, "x", glue_kind="catalog")
        assert await about(ns, "x") == CATALOG


async def test_a_catalog_holds_no_tables(server: FakeGlue, ns: AsyncNamespace) -> None:
    for id in (["cat"], ["cat", "deep"]):
        assert (await ns.list_tables(id)).tables == []
    assert {id async for id in ns.iter_tables(recursive=True)} == {
        TableId(["db", "t"]),
        TableId(["cat", "deep", "leaf", "t"]),
    }
    with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: cat "):
        await described(ns, "cat", "t")


async def test_databases_are_made_in_catalogs(server: FakeGlue) -> None:
    async with connected(server, root="s3://root", unique_locations="false") as ns:
        assert await made(ns, "cat", "deep", "New", k="v") == {"k": "v"}
        assert await names(ns, "cat", "deep") == ["leaf", "new"]
        assert (await declared(ns, "cat", "deep", "new", "t")).location == "s3://root/cat/deep/new/t"
        with pytest.raises(err.NamespaceNotEmptyError, match="it contains the table t"):
            await dropped(ns, "cat", "deep", "new")
        with pytest.raises(err.NamespaceNotFoundError, match=r"^Namespace not found: none "):
            await made(ns, "none", "x")
        with pytest.raises(err.UnsupportedOperationError, match=r"in db \(it is a database"):
            await made(ns, "db", "x")


async def test_catalogs_are_made_where_a_property_requests_one(server: FakeGlue, ns: AsyncNamespace) -> None:
    assert await made(ns, "New", glue_kind="catalog", k="v") == {"k": "v", **CATALOG}
    assert await about(ns, "new") == {"k": "v", **CATALOG}
    with pytest.raises(err.NamespaceAlreadyExistsError):
        await made(ns, "new", glue_kind="catalog")
    await made(ns, "new", mode="overwrite", glue_kind="catalog", k="w")
    assert await about(ns, "new") == {"k": "w", **CATALOG}
    with pytest.raises(err.UnsupportedOperationError, match=r"of new\$x \(Glue cannot create a catalog inside"):
        await made(ns, "new", "x", glue_kind="catalog")
    await dropped(ns, "new")
    assert not await ns.exists(NamespaceId(["new"]))
    assert await made(ns, "x", glue_kind="database") == {}
    with pytest.raises(err.InvalidInputError, match=r"glue\.kind='table': it must be database or catalog"):
        await made(ns, "y", glue_kind="table")


@pytest.mark.parametrize("name", ["a.b", "a/b", "a:b", "x" * 65, "aws:x"])
async def test_a_name_no_catalog_can_have_is_no_catalog(server: FakeGlue, ns: AsyncNamespace, name: str) -> None:
    with pytest.raises(err.InvalidInputError, match="the name of a catalog has at most 64 characters"):
        await made(ns, name, glue_kind="catalog")
    assert not await ns.exists(NamespaceId([name])) and not await ns.exists(NamespaceId([name, "x"]))
    assert server.calls == ["GetDatabase"]
    await made(ns, name)
    assert await about(ns, name) == {}


async def test_only_what_is_empty_is_dropped(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.add_database("", "mixed")
    server.add_table("", "mixed", "iceberg", parameters={"table_type": "ICEBERG"})
    reasons = {"mixed": "table iceberg", "cat": "database inner", "outer": "catalog inside"}
    server.add_nested_catalog("outer/inside")
    for name, reason in reasons.items():
        with pytest.raises(err.NamespaceNotEmptyError, match=rf"^Namespace not empty: {name} .* contains the {reason}"):
            await dropped(ns, name)
        with pytest.raises(err.NamespaceNotEmptyError):
            await made(ns, name, mode="overwrite")
    await dropped(ns, "outer", "inside")
    await dropped(ns, "outer")
    server.switch(short_pages=True)
    with pytest.raises(err.NamespaceNotEmptyError):
        await dropped(ns, "mixed")
    server.switch(short_pages=False)
    assert server.calls.count("DeleteDatabase") == 0 and server.calls.count("DeleteCatalog") == 2


@pytest.mark.parametrize(("operation", "kind"), [("CreateDatabase", "database"), ("CreateCatalog", "catalog")])
async def test_a_create_whose_answer_is_lost_is_looked_up(server: FakeGlue, operation: str, kind: str) -> None:
    server.cut(operation, when="after", times=2)
    async with connected(server, max_retries="1") as ns:
        made_so = await made(ns, "new", glue_kind=kind, k="v")
        assert made_so == await about(ns, "new")
        with pytest.raises(err.NamespaceAlreadyExistsError, match="created by another"):
            await made(ns, "new", glue_kind=kind, k="w")
        server.cut(operation, when="before")
        with pytest.raises(err.ServiceUnavailableError, match="whether it took effect is unknown"):
            await made(ns, "newer", glue_kind=kind)
    assert server.calls.count(operation) == 3


@pytest.mark.parametrize(("operation", "kind"), [("DeleteDatabase", "database"), ("DeleteCatalog", "catalog")])
async def test_lost_drop_is_looked_up(server: FakeGlue, ns: AsyncNamespace, operation: str, kind: str) -> None:
    await made(ns, "new", glue_kind=kind)
    server.cut(operation, when="after")
    await dropped(ns, "new")
    assert not await ns.exists(NamespaceId(["new"]))
    assert server.calls.count(operation) == 1
