"""Namespaces of AWS Glue: databases and catalogs, other roots, and servers without catalogs or that hide them."""

from __future__ import annotations

import re

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.transports.aws.transport import Service
from tests.fakes.glue import FakeGlue
from tests.support.errors import catch
from tests.support.glue import CATALOG, about, connected, declared, described, dropped, made, names


async def test_the_root_holds_databases_and_catalogs_each_name_once_and_databases_hold_tables(
    server: FakeGlue, ns: AsyncNamespace
) -> None:
    assert await names(ns) == ["both", "cat", "db"]
    assert await names(ns, "cat") == ["deep", "inner"]
    assert await names(ns, "cat", "deep") == ["leaf"]
    assert await names(ns, "cat", "deep", "leaf") == [] and await names(ns, "both") == []
    result = [id async for id in ns.iter_namespaces(recursive=True)]
    listings = [dict(call.parameters) for call in server.requests if call.operation == "GetCatalogs"]
    flat = {"Recursive": False}
    assert listings[:2] == [{"IncludeRoot": True, **flat}, {"ParentCatalogId": f"{server.account}:cat", **flat}]
    assert {str(id) for id in result} == {"both", "cat", "db", "cat$deep", "cat$inner", "cat$deep$leaf"}
    for id in (["cat"], ["cat", "deep"]):
        assert (await ns.list_tables(id)).tables == []
    assert {id async for id in ns.iter_tables(recursive=True)} == {("db", "t"), ("cat", "deep", "leaf", "t")}
    await catch(err.NamespaceNotFoundError, described(ns, "cat", "t"), r"^Namespace not found: cat ")
    assert await about(ns, "both") == {"is": "both"}
    assert await about(ns, "cat") == {"of": "cat", **CATALOG}
    assert await about(ns, "CAT", "Deep") == {"of": "cat/deep", **CATALOG}
    assert await about(ns, "cat", "deep", "leaf") == {"is": "leaf"}


async def test_more_than_a_page_of_each_is_listed(server: FakeGlue, ns: AsyncNamespace) -> None:
    more = [f"n{i:03}" for i in range(120)]
    for name in more:
        server.add_database("", name)
    server.switch(short_pages=True)
    assert await names(ns) == sorted(["both", "cat", "db", *more])
    server.switch(short_pages=False)


async def test_what_a_name_is_is_found_out_once(server: FakeGlue, ns: AsyncNamespace) -> None:
    await about(ns, "db")
    await about(ns, "cat")
    server.clear()
    await about(ns, "db")
    await about(ns, "cat")
    assert server.calls == ["GetDatabase", "GetCatalog"]
    for id in (["none"], ["cat", "none"], ["none", "none"], ["db", "none"]):
        await catch(err.NamespaceNotFoundError, about(ns, *id), f"^Namespace not found: {re.escape('$'.join(id))} ")


async def test_a_name_that_became_something_else_is_looked_up_anew(server: FakeGlue) -> None:
    async with connected(server) as ns, connected(server) as other:
        await made(ns, "x", k="database")
        await dropped(other, "x")
        await catch(err.NamespaceNotFoundError, about(ns, "x"))
        await made(other, "x", glue_kind="catalog")
        assert await about(ns, "x") == CATALOG


async def test_databases_are_made_in_catalogs(server: FakeGlue) -> None:
    async with connected(server, root="s3://root", unique_locations="false") as ns:
        assert await made(ns, "cat", "deep", "New", k="v") == {"k": "v"}
        assert await names(ns, "cat", "deep") == ["leaf", "new"]
        assert (await declared(ns, "cat", "deep", "new", "t")).location == "s3://root/cat/deep/new/t"
        await catch(err.NamespaceNotEmptyError, dropped(ns, "cat", "deep", "new"), "it contains the table t")
        await catch(err.NamespaceNotFoundError, made(ns, "none", "x"), r"^Namespace not found: none ")
        await catch(err.UnsupportedOperationError, made(ns, "db", "x"), r"in db \(it is a database")


async def test_catalogs_are_made_where_a_property_requests_one(server: FakeGlue, ns: AsyncNamespace) -> None:
    assert await made(ns, "New", glue_kind="catalog", k="v") == {"k": "v", **CATALOG}
    assert await about(ns, "new") == {"k": "v", **CATALOG}
    await catch(err.NamespaceAlreadyExistsError, made(ns, "new", glue_kind="catalog"))
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
        await catch(err.NamespaceNotEmptyError, made(ns, name, mode="overwrite"))
    await dropped(ns, "outer", "inside")
    await dropped(ns, "outer")
    server.switch(short_pages=True)
    await catch(err.NamespaceNotEmptyError, dropped(ns, "mixed"))
    server.switch(short_pages=False)
    assert server.calls.count("DeleteDatabase") == 0 and server.calls.count("DeleteCatalog") == 2


async def test_lost_answers_about_catalogs(server: FakeGlue) -> None:
    server.cut("CreateCatalog", when="after", times=2)
    async with connected(server, max_retries="1") as ns:
        assert await made(ns, "new", glue_kind="catalog", k="v") == await about(ns, "new")
        another = made(ns, "new", glue_kind="catalog", k="w")
        await catch(err.NamespaceAlreadyExistsError, another, "created by another")
        server.cut("CreateCatalog", when="before")
        await catch(err.ServiceUnavailableError, made(ns, "newer", glue_kind="catalog"), "took effect is unknown")
        server.cut("DeleteCatalog", when="after")
        await dropped(ns, "new")
        assert not await ns.exists(NamespaceId(["new"]))
    assert server.calls.count("CreateCatalog") == 3 and server.calls.count("DeleteCatalog") == 1


async def test_a_root_of_another_account_or_below_is_named_in_every_call(server: FakeGlue) -> None:
    server.add_database("999999999999:", "theirs")
    server.add_table("999999999999:", "theirs", "t")
    async with connected(server, catalog_id="999999999999") as ns:
        assert await names(ns) == ["theirs"]
        assert (await described(ns, "theirs", "t")).location
        assert server.requests[-1].parameters["CatalogId"] == "999999999999"
    async with connected(server, catalog_id=f"{server.account}:cat") as ns:
        assert await names(ns) == ["deep", "inner"]
        assert (await described(ns, "deep", "leaf", "t")).location == "s3://bucket/cat/deep/leaf/t.lance"
        assert server.requests[-1].parameters["CatalogId"] == f"{server.account}:cat/deep"
    async with connected(server, catalog_id="888888888888") as ns:
        await catch(err.PermissionDeniedError, names(ns), "888888888888")


async def test_the_account_is_learned_once_and_only_where_it_matters(server: FakeGlue, ns: AsyncNamespace) -> None:
    await described(ns, "db", "t")
    assert server.calls == ["GetTable"] and "CatalogId" not in server.requests[0].parameters
    server.clear()
    result = await ns.describe_tables([["cat", "deep", "leaf", "t"], ["cat", "deep", "leaf", "u"]])
    assert [id.name for id in result.tables] == ["t"] and len(result.errors) == 1
    assert server.calls.count("GetCatalogs") == 1 and "GetCallerIdentity" not in server.calls


async def test_a_server_without_catalogs_has_databases_alone(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.switch(no_catalog_api=True)
    assert await names(ns) == ["both", "db"] and await names(ns, "db") == []
    assert server.calls.count("GetCatalogs") == 1
    server.clear()
    assert not await ns.exists(NamespaceId(["none"])) and not await ns.exists(NamespaceId(["db", "none"]))
    await catch(err.UnsupportedOperationError, made(ns, "new", glue_kind="catalog"), "this endpoint has no catalogs")
    await catch(err.UnsupportedOperationError, made(ns, "db", "x"), "this endpoint has no catalogs")
    await made(ns, "new")
    assert set(server.calls) == {"GetDatabase", "CreateDatabase"}
    for id in (NamespaceId(["none", "none"]), TableId(["none", "none", "t"])):
        async with connected(server) as other:
            assert not await other.exists(id) and not await other.exists(id)


async def test_a_page_of_html_says_nothing_of_catalogs_that_were_seen(server: FakeGlue) -> None:
    async with connected(server, max_retries="0") as ns:
        assert await names(ns) == ["both", "cat", "db"]
        server.html_error("GetCatalogs")
        await catch(err.ServiceUnavailableError, names(ns))
        assert await names(ns) == ["both", "cat", "db"]


async def test_catalogs_that_may_not_be_seen_are_no_missing_ones(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.deny("GetCatalogs?")
    for work in (names(ns), about(ns, "none"), about(ns, "cat", "deep")):
        await catch(err.PermissionDeniedError, work, r"GetCatalog.* set the property catalogs to off")
    assert await about(ns, "db") == {"is": "db"} and (await described(ns, "db", "t")).location
    server.clear()
    async with connected(server, catalogs="off") as without:
        assert await names(without) == ["both", "db"]
        await catch(err.NamespaceNotFoundError, about(without, "none"))
    assert not [call for call in server.calls if "Catalog" in call]


async def test_a_database_that_is_denied_may_be_a_catalog(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.deny("GetDatabase")
    assert await about(ns, "cat") == {"of": "cat", **CATALOG}
    await catch(err.PermissionDeniedError, about(ns, "db"), "GetDatabase")


def test_a_server_that_is_not_aws_is_known_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def service(endpoint: str | None) -> Service:
        return Service("glue", "us-east-1", endpoint, 1.0, 1.0, 1, 1)

    assert service(None).is_aws and not service("http://127.0.0.1:1").is_aws
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:1")
    assert not service(None).is_aws
