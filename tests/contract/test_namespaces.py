"""Namespaces: created, described, listed and dropped, in each mode and at each depth."""

from __future__ import annotations

import re

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    NamespaceExistsRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
)

from lance_ns_async import AsyncNamespace, NamespaceId
from tests.contract.conftest import Home, Room
from tests.contract.site import Site
from tests.support.budget import with_usual

pytestmark = pytest.mark.round_trip


async def test_a_made_namespace_is_described_with_its_properties(ns: AsyncNamespace, room: Room) -> None:
    made = await ns.create_namespace(CreateNamespaceRequest(id=room.child("a"), properties={"k": "v"}))
    result = await ns.describe_namespace(DescribeNamespaceRequest(id=room.child("a")))
    assert made.properties is not None and made.properties["k"] == "v"
    assert result.properties is not None and result.properties["k"] == "v"


async def test_making_one_that_is_there_fails(ns: AsyncNamespace, home: Home) -> None:
    with pytest.raises(NamespaceAlreadyExistsError, match=f"^Namespace already exists: {re.escape(str(home.id))}"):
        await ns.create_namespace(CreateNamespaceRequest(id=list(home.id)))


@pytest.mark.parametrize("mode", ["ExistOk", "exist_ok", "EXIST_OK"])
async def test_exist_ok_keeps_the_one_that_is_there(ns: AsyncNamespace, room: Room, mode: str) -> None:
    await ns.create_namespace(CreateNamespaceRequest(id=room.child("a"), properties={"k": "old"}))
    kept = await ns.create_namespace(CreateNamespaceRequest(id=room.child("a"), properties={"k": "new"}, mode=mode))
    assert kept.properties is not None and kept.properties["k"] == "old"


async def test_overwrite_replaces_an_empty_one(ns: AsyncNamespace, room: Room) -> None:
    await ns.create_namespace(CreateNamespaceRequest(id=room.child("a"), properties={"k": "old", "gone": "1"}))
    request = CreateNamespaceRequest(id=room.child("a"), properties={"k": "new"}, mode="Overwrite")
    await ns.create_namespace(request)
    result = await ns.describe_namespace(DescribeNamespaceRequest(id=room.child("a")))
    assert result.properties is not None and result.properties["k"] == "new" and "gone" not in result.properties


async def test_overwrite_makes_one_that_is_missing(ns: AsyncNamespace, room: Room) -> None:
    await ns.create_namespace(CreateNamespaceRequest(id=room.child("a"), mode="overwrite"))
    assert await ns.exists(room.id("a"))


async def test_overwrite_never_drops_what_is_inside(ns: AsyncNamespace, home: Home) -> None:
    await ns.declare_table(DeclareTableRequest(id=home.table("t")))
    with pytest.raises(NamespaceNotEmptyError, match=r"^Namespace not empty"):
        await ns.create_namespace(CreateNamespaceRequest(id=list(home.id), mode="overwrite"))
    assert await ns.exists(home.table("t"))


async def test_an_unknown_mode_is_reported(ns: AsyncNamespace, room: Room) -> None:
    with pytest.raises(InvalidInputError, match="mode 'Replace': unknown"):
        await ns.create_namespace(CreateNamespaceRequest(id=room.child("a"), mode="Replace"))


@pytest.mark.usefixtures("nested")
async def test_a_child_needs_its_parent(ns: AsyncNamespace, room: Room) -> None:
    with pytest.raises(NamespaceNotFoundError, match=f"^Namespace not found: {re.escape(str(room.id('none')))} "):
        await ns.create_namespace(CreateNamespaceRequest(id=room.child("none", "child")))
    assert not await ns.exists(room.id("none"))


async def test_children_are_listed_by_their_names(ns: AsyncNamespace, site: Site, home: Home, room: Room) -> None:
    for name in ("b", "a"):
        await ns.create_namespace(CreateNamespaceRequest(id=room.child(name)))
    assert sorted(room.names(await _names(ns, list(room.parent)))) == ["a", "b"]
    assert await _names(ns, room.child("b")) == []
    beside = Room(site.above, "", site.joins)
    assert home.id.name in beside.names(await _names(ns, list(site.above)))


@pytest.mark.usefixtures("nested")
async def test_grandchildren_are_no_children(ns: AsyncNamespace, site: Site, room: Room) -> None:
    for names in (["a"], ["a", "x"]):
        await ns.create_namespace(CreateNamespaceRequest(id=room.child(*names)))
    assert room.names(await _names(ns, list(room.parent))) == ["a"]
    inside = Room(room.id("a"), "", site.joins)
    assert inside.names(await _names(ns, room.child("a"))) == ["x"]


@pytest.mark.parametrize("limit", with_usual([1, 2, 3, 7, 8, 9], 3, 8))
async def test_listing_in_pages_gives_each_name_once(ns: AsyncNamespace, room: Room, limit: int) -> None:
    names = [f"n{i}" for i in range(8)]
    for name in names:
        await ns.create_namespace(CreateNamespaceRequest(id=room.child(name)))
    result: list[str] = []
    token = None
    while True:
        page = await ns.list_namespaces(ListNamespacesRequest(id=list(room.parent), limit=limit, page_token=token))
        assert len(page.namespaces) <= limit
        result += room.names(page.namespaces)
        if not (token := page.page_token):
            break
    assert sorted(result) == names and len(result) == 8


async def test_a_missing_one_is_not_found_by_any_operation(ns: AsyncNamespace, room: Room) -> None:
    missing = room.child("none")
    with pytest.raises(NamespaceNotFoundError, match=f"^Namespace not found: {re.escape(str(room.id('none')))} "):
        await ns.describe_namespace(DescribeNamespaceRequest(id=missing))
    with pytest.raises(NamespaceNotFoundError):
        await ns.namespace_exists(NamespaceExistsRequest(id=missing))
    with pytest.raises(NamespaceNotFoundError):
        await ns.list_namespaces(ListNamespacesRequest(id=missing))
    with pytest.raises(NamespaceNotFoundError):
        await ns.drop_namespace(DropNamespaceRequest(id=missing))
    assert not await ns.exists(room.id("none"))


async def test_exists_answers_for_one_that_is_there(ns: AsyncNamespace, home: Home) -> None:
    await ns.namespace_exists(NamespaceExistsRequest(id=list(home.id)))
    assert await ns.exists(home.id)


async def test_dropping_removes_an_empty_one(ns: AsyncNamespace, home: Home) -> None:
    await ns.drop_namespace(DropNamespaceRequest(id=list(home.id)))
    assert not await ns.exists(home.id)


@pytest.mark.parametrize("mode", ["Skip", "SKIP"])
async def test_skip_accepts_a_missing_one(ns: AsyncNamespace, room: Room, mode: str) -> None:
    await ns.drop_namespace(DropNamespaceRequest(id=room.child("none"), mode=mode))


async def test_dropping_refuses_one_with_a_table(ns: AsyncNamespace, home: Home) -> None:
    await ns.declare_table(DeclareTableRequest(id=home.table("t")))
    with pytest.raises(NamespaceNotEmptyError, match=f"^Namespace not empty: {re.escape(str(home.id))}"):
        await ns.drop_namespace(DropNamespaceRequest(id=list(home.id), behavior="Restrict"))
    assert await ns.exists(home.table("t"))


@pytest.mark.usefixtures("nested")
async def test_dropping_refuses_one_with_a_child(ns: AsyncNamespace, home: Home, room: Room) -> None:
    await ns.create_namespace(CreateNamespaceRequest(id=room.child("a")))
    with pytest.raises(NamespaceNotEmptyError):
        await ns.drop_namespace(DropNamespaceRequest(id=list(home.id)))
    assert await ns.exists(room.id("a"))


@pytest.mark.usefixtures("cascading")
async def test_cascade_drops_registrations_and_leaves_the_data(ns: AsyncNamespace, home: Home) -> None:
    declared = await ns.declare_table(DeclareTableRequest(id=home.table("t")))
    await ns.declare_table(DeclareTableRequest(id=home.table("empty")))
    assert declared.location is not None
    lance.write_dataset(pa.table({"id": [1, 2]}), declared.location)
    await ns.drop_namespace(DropNamespaceRequest(id=list(home.id), behavior="Cascade"))
    assert not await ns.exists(home.id)
    assert lance.dataset(declared.location).count_rows() == 2


@pytest.mark.usefixtures("cascading")
async def test_cascade_refuses_what_is_no_lance_table_and_drops_nothing(
    ns: AsyncNamespace, site: Site, home: Home
) -> None:
    assert site.plant_other is not None
    await ns.declare_table(DeclareTableRequest(id=home.table("t")))
    site.plant_other(home.id.table("other"))
    with pytest.raises(InvalidInputError, match=r"a cascade drops only Lance tables, and it also contains the .*other"):
        await ns.drop_namespace(DropNamespaceRequest(id=list(home.id), behavior="Cascade"))
    assert await ns.exists(home.table("t"))


async def test_cascade_on_an_empty_namespace_is_a_plain_drop(ns: AsyncNamespace, home: Home) -> None:
    await ns.drop_namespace(DropNamespaceRequest(id=list(home.id), behavior="Cascade"))
    assert not await ns.exists(home.id)
    with pytest.raises(NamespaceNotFoundError):
        await ns.drop_namespace(DropNamespaceRequest(id=list(home.id), behavior="Cascade"))
    await ns.drop_namespace(DropNamespaceRequest(id=list(home.id), behavior="Cascade", mode="Skip"))


async def test_cascade_is_refused_where_the_catalog_has_none(ns: AsyncNamespace, site: Site, home: Home) -> None:
    if site.can.cascades:
        pytest.skip("it also drops what is in a namespace")
    await ns.declare_table(DeclareTableRequest(id=home.table("t")))
    with pytest.raises(InvalidInputError, match="empty namespaces only"):
        await ns.drop_namespace(DropNamespaceRequest(id=list(home.id), behavior="Cascade"))
    assert await ns.exists(home.id) and await ns.exists(home.table("t"))


async def test_the_root_is_always_there_and_stays(ns: AsyncNamespace) -> None:
    assert await ns.exists(NamespaceId())
    with pytest.raises(InvalidInputError, match="root"):
        await ns.drop_namespace(DropNamespaceRequest(id=[]))
    with pytest.raises(NamespaceAlreadyExistsError):
        await ns.create_namespace(CreateNamespaceRequest(id=[]))


@pytest.mark.usefixtures("nested")
async def test_iterating_gives_parents_before_children(ns: AsyncNamespace, home: Home, room: Room) -> None:
    for names in (["a"], ["a", "x"], ["a", "x", "y"], ["b"]):
        await ns.create_namespace(CreateNamespaceRequest(id=room.child(*names)))
    result = [id async for id in ns.iter_namespaces(home.id, recursive=True)]
    below = {room.id(*names) for names in (["a"], ["a", "x"], ["a", "x", "y"], ["b"])}
    assert set(result) == below and len(result) == 4
    assert all(result.index(id.parent) < result.index(id) for id in result if id.parent != home.id)
    assert [id.name async for id in ns.iter_namespaces(home.id)] == ["a", "b"]


async def _names(ns: AsyncNamespace, id: list[str]) -> list[str]:
    return (await ns.list_namespaces(ListNamespacesRequest(id=id))).namespaces
