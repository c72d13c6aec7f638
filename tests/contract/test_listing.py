"""Listings: complete and in pages, of one namespace, of many and of a subtree."""

from __future__ import annotations

import re

import pytest
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from tests.contract.conftest import Children, Parent
from tests.support.budget import with_usual
from tests.support.errors import catch

pytestmark = pytest.mark.round_trip


async def test_a_missing_namespace_is_no_empty_one(ns: AsyncNamespace, children: Children) -> None:
    missing = children.child("none")
    with pytest.raises(NamespaceNotFoundError, match=f"^Namespace not found: {re.escape(str(children.id('none')))} "):
        await ns.list_tables({"id": missing})
    with pytest.raises(NamespaceNotFoundError):
        assert [id async for id in ns.iter_tables(missing, recursive=True)]


@pytest.mark.parametrize(
    ("field", "value"), [("limit", 0), ("limit", -1), *(("page_token", it) for it in ("nonsense", "42", "WzEsMl0="))]
)
async def test_a_page_that_cannot_be_is_refused(ns: AsyncNamespace, parent: Parent, field: str, value: object) -> None:
    await catch(InvalidInputError, ns.list_tables({"id": list(parent.id), field: value}), field)


@pytest.mark.parametrize("limit", with_usual([None, 1, 2, 3, 5, 6], None, 3))
async def test_a_subtree_is_listed(ns: AsyncNamespace, parent: Parent, children: Children, limit: int | None) -> None:
    ids = await _subtree(ns, parent, children)
    result: list[str] = []
    token: str | None = ""
    while token is not None:
        page = await ns.list_all_tables({"id": list(children.parent), "limit": limit, "page_token": token or None})
        assert limit is None or len(page.tables) <= limit
        result += _below(parent, page.tables)
        token = page.page_token or None
    assert sorted(result) == sorted(map(str, ids))


async def test_iterating_gives_a_namespace_or_subtree(ns: AsyncNamespace, parent: Parent, children: Children) -> None:
    ids = await _subtree(ns, parent, children)
    assert {id async for id in ns.iter_tables(parent.id)} == {id for id in ids if id.parent == parent.id}
    walked = [id async for id in ns.iter_tables(children.parent, recursive=True)]
    result = [id for id in walked if _below(parent, [str(id)])]
    assert set(result) == set(ids) and len(result) == len(ids)


async def test_many_namespaces_are_listed_side_by_side(ns: AsyncNamespace, parent: Parent, children: Children) -> None:
    ids = await _subtree(ns, parent, children)
    namespaces = {id.parent for id in ids}
    missing = children.id("none")
    listed = await ns.list_many([*namespaces, missing])
    assert {id for tables in listed.tables.values() for id in tables} == set(ids)
    assert set(listed.errors) == {missing} and isinstance(listed.errors[missing], NamespaceNotFoundError)
    with pytest.raises(NamespaceNotFoundError):
        listed.raise_for_errors()


async def _declare(ns: AsyncNamespace, ids: list[TableId]) -> None:
    for id in ids:
        await ns.declare_table({"id": list(id)})


async def _subtree(ns: AsyncNamespace, parent: Parent, children: Children) -> list[TableId]:
    """Creates six tables in four namespaces, as deep as the catalog allows."""
    a, b = children.id("a"), children.id("b")
    inner = a.child("inner") if children.parent == parent.id else children.id("c")
    for namespace in (a, inner, b):
        await ns.create_namespace({"id": list(namespace)})
    ids = [parent.id.table("t"), parent.id.table("u"), a.table("t"), inner.table("t"), inner.table("u"), b.table("z")]
    await _declare(ns, ids)
    return ids


def _below(parent: Parent, ids: list[str]) -> list[str]:
    """Returns the ids in the parent, or in a namespace beside it whose name begins with the parent's name."""
    return [id for id in ids if id.startswith((f"{parent.id}$", f"{parent.id}_"))]
