"""Namespaces: created, described, listed and dropped, in each mode and at each depth."""

from __future__ import annotations

import re

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError

from lance_ns_async import AsyncNamespace
from tests.contract.conftest import Children, Parent
from tests.contract.site import Site
from tests.support.errors import catch

pytestmark = pytest.mark.round_trip


async def test_a_missing_one_is_not_found_by_any_operation(ns: AsyncNamespace, children: Children) -> None:
    missing = {"id": children.child("none")}
    message = f"^Namespace not found: {re.escape(str(children.id('none')))} "
    for operation in ("describe_namespace", "namespace_exists", "list_namespaces", "drop_namespace"):
        await catch(NamespaceNotFoundError, getattr(ns, operation)(missing), message)
    assert not await ns.exists(children.id("none"))


@pytest.mark.usefixtures("cascading")
async def test_cascade_drops_registrations_and_leaves_the_data(ns: AsyncNamespace, parent: Parent) -> None:
    declared = await ns.declare_table({"id": parent.table("t")})
    await ns.declare_table({"id": parent.table("empty")})
    assert declared.location is not None
    lance.write_dataset(pa.table({"id": [1, 2]}), declared.location)
    await ns.drop_namespace({"id": list(parent.id), "behavior": "Cascade"})
    assert not await ns.exists(parent.id)
    assert lance.dataset(declared.location).count_rows() == 2


@pytest.mark.usefixtures("cascading")
async def test_cascade_refuses_what_is_no_lance_table_and_drops_nothing(
    ns: AsyncNamespace, site: Site, parent: Parent
) -> None:
    assert site.plant_other is not None
    await ns.declare_table({"id": parent.table("t")})
    site.plant_other(parent.id.table("other"))
    with pytest.raises(InvalidInputError, match=r"a cascade drops only Lance tables, and it also contains the .*other"):
        await ns.drop_namespace({"id": list(parent.id), "behavior": "Cascade"})
    assert await ns.exists(parent.table("t"))


async def test_cascade_on_an_empty_namespace_is_a_plain_drop(ns: AsyncNamespace, parent: Parent) -> None:
    await ns.drop_namespace({"id": list(parent.id), "behavior": "Cascade"})
    assert not await ns.exists(parent.id)
    await catch(NamespaceNotFoundError, ns.drop_namespace({"id": list(parent.id), "behavior": "Cascade"}))
    await ns.drop_namespace({"id": list(parent.id), "behavior": "Cascade", "mode": "Skip"})


async def test_cascade_is_refused_where_the_catalog_has_none(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    if site.can.cascades:
        pytest.skip("it also drops what is in a namespace")
    await ns.declare_table({"id": parent.table("t")})
    with pytest.raises(InvalidInputError, match="empty namespaces only"):
        await ns.drop_namespace({"id": list(parent.id), "behavior": "Cascade"})
    assert await ns.exists(parent.id) and await ns.exists(parent.table("t"))


@pytest.mark.usefixtures("nested")
async def test_iterating_gives_parents_before_children(ns: AsyncNamespace, parent: Parent, children: Children) -> None:
    for names in (["a"], ["a", "x"], ["a", "x", "y"], ["b"]):
        await ns.create_namespace({"id": children.child(*names)})
    result = [id async for id in ns.iter_namespaces(parent.id, recursive=True)]
    below = {children.id(*names) for names in (["a"], ["a", "x"], ["a", "x", "y"], ["b"])}
    assert set(result) == below and len(result) == 4
    assert all(result.index(id.parent) < result.index(id) for id in result if id.parent != parent.id)
    assert [id.name async for id in ns.iter_namespaces(parent.id)] == ["a", "b"]
