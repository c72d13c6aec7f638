"""Catalogs of AWS Glue: their ids, other roots than the caller's, and servers that have none or hide them."""

from __future__ import annotations

import lance_namespace.errors as err
import pytest

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.backends.glue.wire import catalog_id, is_child
from lance_ns_async.transports.aws.transport import Service
from tests.fakes.glue import FakeGlue
from tests.support.glue import CATALOG, about, connected, declared, described, dropped, made, names


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
        with pytest.raises(err.PermissionDeniedError, match="888888888888"):
            await names(ns)


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
    with pytest.raises(err.UnsupportedOperationError, match="this endpoint has no catalogs"):
        await made(ns, "new", glue_kind="catalog")
    with pytest.raises(err.UnsupportedOperationError, match="this endpoint has no catalogs"):
        await made(ns, "db", "x")
    await made(ns, "new")
    assert set(server.calls) == {"GetDatabase", "CreateDatabase"}


async def test_what_is_below_no_catalog_is_missing_from_the_first_time_on(server: FakeGlue) -> None:
    server.switch(no_catalog_api=True)
    for id in (NamespaceId(["none", "none"]), TableId(["none", "none", "t"])):
        async with connected(server) as ns:
            assert not await ns.exists(id) and not await ns.exists(id)


async def test_moto_as_it_comes_has_databases_alone() -> None:
    with FakeGlue(stock=True) as server:
        async with connected(server, root="s3://root") as ns:
            await made(ns, "db", k="v")
            await declared(ns, "db", "t")
            assert await names(ns) == ["db"] and await about(ns, "db") == {"k": "v"}
            with pytest.raises(err.NamespaceNotFoundError):
                await about(ns, "none")
            with pytest.raises(err.UnsupportedOperationError):
                await made(ns, "new", glue_kind="catalog")
            with pytest.raises(err.NamespaceNotEmptyError):
                await dropped(ns, "db")


async def test_a_page_of_html_says_nothing_of_catalogs_that_were_seen(server: FakeGlue) -> None:
    async with connected(server, max_retries="0") as ns:
        assert await names(ns) == ["both", "cat", "db"]
        server.html_error("GetCatalogs")
        with pytest.raises(err.ServiceUnavailableError):
            await names(ns)
        assert await names(ns) == ["both", "cat", "db"]


async def test_catalogs_that_may_not_be_seen_are_no_missing_ones(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.deny("GetCatalogs?")
    for call in (names(ns), about(ns, "none"), about(ns, "cat", "deep")):
        with pytest.raises(err.PermissionDeniedError, match=r"GetCatalog.* set the property catalogs to off"):
            await call
    assert await about(ns, "db") == {"is": "db"} and (await described(ns, "db", "t")).location


async def test_catalogs_can_be_left_out(server: FakeGlue) -> None:
    server.deny("GetCatalogs?")
    async with connected(server, catalogs="off") as ns:
        assert await names(ns) == ["both", "db"]
        with pytest.raises(err.NamespaceNotFoundError):
            await about(ns, "none")
    assert not [call for call in server.calls if "Catalog" in call]


async def test_a_database_that_is_denied_may_be_a_catalog(server: FakeGlue, ns: AsyncNamespace) -> None:
    server.deny("GetDatabase")
    assert await about(ns, "cat") == {"of": "cat", **CATALOG}
    with pytest.raises(err.PermissionDeniedError, match="GetDatabase"):
        await about(ns, "db")


@pytest.mark.parametrize(
    ("above", "levels", "id"),
    [
        ("123456789012", (), "123456789012"),
        ("123456789012", ("A",), "123456789012:a"),
        ("123456789012", ("a", "b"), "123456789012:a/b"),
        ("123456789012:a", ("b", "c"), "123456789012:a/b/c"),
    ],
)
def test_ids_of_catalogs_are_composed(above: str, levels: tuple[str, ...], id: str) -> None:
    assert catalog_id(above, levels) == id


@pytest.mark.parametrize(
    ("id", "parent", "is_one"),
    [
        ("1:a", None, True),
        ("1", None, False),
        ("1:a/b", None, False),
        ("1:a", "1", True),
        ("1:a/b", "1:A", True),
        ("1:a", "1:a", False),
        ("1:b/c", "1:a", False),
        ("1:a/b/c", "1:a", False),
    ],
)
def test_children_are_one_level_below(id: str, parent: str | None, is_one: bool) -> None:
    assert is_child(id, parent) is is_one


def test_a_server_that_is_not_aws_is_known_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def service(endpoint: str | None) -> Service:
        return Service("glue", "us-east-1", endpoint, 1.0, 1.0, 1, 1)

    assert service(None).is_aws and not service("http://127.0.0.1:1").is_aws
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:1")
    assert not service(None).is_aws
