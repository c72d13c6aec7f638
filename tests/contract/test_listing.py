"""Listings: whole and in pages, of one namespace, of many and of a subtree."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, ListTablesRequest
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError

from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from tests.contract.conftest import Home

NAMES = [f"t{i}" for i in range(8)]


async def test_an_empty_namespace_has_no_tables(ns: AsyncNamespace, home: Home) -> None:
    page = await ns.list_tables(ListTablesRequest(id=list(home.id)))
    assert page.tables == [] and not page.page_token


async def test_a_missing_namespace_is_no_empty_one(ns: AsyncNamespace, home: Home) -> None:
    with pytest.raises(NamespaceNotFoundError, match=rf"^Namespace not found: {home.id}\$none"):
        await ns.list_tables(ListTablesRequest(id=home.child("none")))
    with pytest.raises(NamespaceNotFoundError):
        assert [id async for id in ns.iter_tables(home.child("none"), recursive=True)]


async def test_all_names_come_at_once_without_a_limit(ns: AsyncNamespace, home: Home) -> None:
    await _declare(ns, home.tables(*NAMES))
    page = await ns.list_tables(ListTablesRequest(id=list(home.id)))
    assert page.tables == NAMES and not page.page_token


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9])
async def test_pages_give_each_name_once(ns: AsyncNamespace, home: Home, limit: int) -> None:
    await _declare(ns, home.tables(*NAMES))
    assert await _paged(ns, list(home.id), limit) == NAMES


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_that_no_page_can_have_is_refused(ns: AsyncNamespace, home: Home, limit: int) -> None:
    with pytest.raises(InvalidInputError, match=f"limit {limit}"):
        await ns.list_tables(ListTablesRequest(id=list(home.id), limit=limit))


@pytest.mark.parametrize("token", ["nonsense", "42", "WzEsMl0="])
async def test_a_foreign_page_token_is_refused(ns: AsyncNamespace, home: Home, token: str) -> None:
    with pytest.raises(InvalidInputError, match="page_token"):
        await ns.list_tables(ListTablesRequest(id=list(home.id), page_token=token))


async def test_tables_without_data_can_be_left_out(ns: AsyncNamespace, home: Home) -> None:
    await _declare(ns, home.tables("empty"))
    declared = await ns.declare_table(DeclareTableRequest(id=home.table("full")))
    assert declared.location is not None
    lance.write_dataset(pa.table({"id": [1]}), declared.location)
    page = await ns.list_tables(ListTablesRequest(id=list(home.id), include_declared=False))
    assert page.tables == ["full"]


async def test_the_subtree_is_listed_by_whole_ids(ns: AsyncNamespace, home: Home) -> None:
    ids = await _subtree(ns, home)
    page = await ns.list_all_tables(ListTablesRequest(id=list(home.id)))
    assert sorted(page.tables) == sorted(map(str, ids)) and not page.page_token


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6])
async def test_the_subtree_is_listed_in_pages(ns: AsyncNamespace, home: Home, limit: int) -> None:
    ids = await _subtree(ns, home)
    found: list[str] = []
    token = None
    while True:
        page = await ns.list_all_tables(ListTablesRequest(id=list(home.id), limit=limit, page_token=token))
        assert len(page.tables) <= limit
        found += page.tables
        if not (token := page.page_token):
            break
    assert sorted(found) == sorted(map(str, ids))


async def test_iterating_gives_the_namespace_or_the_subtree(ns: AsyncNamespace, home: Home) -> None:
    ids = await _subtree(ns, home)
    assert {id async for id in ns.iter_tables(home.id)} == {id for id in ids if id.parent == home.id}
    found = [id async for id in ns.iter_tables(home.id, recursive=True)]
    assert set(found) == set(ids) and len(found) == len(ids)


async def test_many_namespaces_are_listed_side_by_side(ns: AsyncNamespace, home: Home) -> None:
    ids = await _subtree(ns, home)
    namespaces = {id.parent for id in ids}
    missing = home.id.child("none")
    listed = await ns.list_many([*namespaces, missing])
    assert {id for tables in listed.tables.values() for id in tables} == set(ids)
    assert set(listed.errors) == {missing} and isinstance(listed.errors[missing], NamespaceNotFoundError)
    with pytest.raises(NamespaceNotFoundError):
        listed.raise_for_errors()


async def _declare(ns: AsyncNamespace, ids: list[TableId]) -> None:
    for id in ids:
        await ns.declare_table(DeclareTableRequest(id=list(id)))


async def _subtree(ns: AsyncNamespace, home: Home) -> list[TableId]:
    a, inner, b = (NamespaceId(home.child(*names)) for names in (["a"], ["a", "inner"], ["b"]))
    for namespace in (a, inner, b):
        await ns.create_namespace(CreateNamespaceRequest(id=list(namespace)))
    ids = [home.id.table("t"), home.id.table("u"), a.table("t"), inner.table("t"), inner.table("u"), b.table("z")]
    await _declare(ns, ids)
    return ids


async def _paged(ns: AsyncNamespace, id: list[str], limit: int) -> list[str]:
    found: list[str] = []
    token = None
    while True:
        page = await ns.list_tables(ListTablesRequest(id=id, limit=limit, page_token=token))
        assert len(page.tables) <= limit
        found += page.tables
        if not (token := page.page_token):
            return found
