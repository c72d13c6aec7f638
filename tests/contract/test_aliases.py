"""Two tables at one location: refused where that is known, and no drop deletes the rows of the other one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, TableNotFoundError

from lance_ns_async import AsyncNamespace
from lance_ns_async.model import local_path
from tests.contract.conftest import Parent
from tests.contract.site import Site
from tests.support.errors import catch

DATA = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def aliased_site(site: Site) -> Site:
    if site.impl in ("dir", "rest") or site.served or not site.overlaps:
        pytest.skip("it refuses a second table at a location")
    return replace(site, properties={**site.properties, "allow_aliases": "true"})


@pytest.fixture
async def aliased(aliased_site: Site) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect(aliased_site.impl, aliased_site.properties) as ns:
        yield ns


async def _rows(ns: AsyncNamespace, id: list[str]) -> list[int]:
    ids: list[int] = (await ns.open(id)).to_table()["id"].to_pylist()
    return ids


async def test_default_location_of_another_is_refused(aliased_site: Site, ns: AsyncNamespace, parent: Parent) -> None:
    await ns.write(parent.table("a"), DATA)
    location = (await ns.describe_table({"id": parent.table("a")})).location
    assert location is not None
    for operation in ("declare_table", "register_table"):
        with pytest.raises(InvalidInputError, match=r"is that of table .*; choose another location, or connect with"):
            await getattr(ns, operation)({"id": parent.table("b"), "location": location})
        assert not await ns.exists(parent.table("b"))
    (error,) = (await ns.register_tables([{"id": parent.table("b"), "location": location}])).errors.values()
    assert isinstance(error, InvalidInputError) and not await ns.exists(parent.table("b"))


@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_drop_of_an_alias_only_deregisters_it(aliased: AsyncNamespace, parent: Parent, first: str) -> None:
    await aliased.write(parent.table("a"), DATA)
    location = (await aliased.describe_table({"id": parent.table("a")})).location
    await aliased.register_table({"id": parent.table("b"), "location": location})
    other = "b" if first == "a" else "a"
    await aliased.drop_table({"id": parent.table(first)})
    assert not await aliased.exists(parent.table(first))
    assert await _rows(aliased, parent.table(other)) == [1, 2, 3]
    await aliased.drop_table({"id": parent.table(other)})
    with pytest.raises(ValueError, match="not found"):
        lance.dataset(str(location))


async def test_a_location_requested_twice_keeps_rows(aliased_site: Site, ns: AsyncNamespace, parent: Parent) -> None:
    place = (await ns.declare_table({"id": parent.table("probe")})).location
    assert place is not None
    await ns.deregister_table({"id": parent.table("probe")})
    location = f"{place.rpartition('/')[0]}/requested"
    for name in ("a", "b"):
        await ns.declare_table({"id": parent.table(name), "location": location})
    await ns.write(parent.table("a"), DATA, mode="append")
    await ns.drop_table({"id": parent.table("b")})
    assert await _rows(ns, parent.table("a")) == [1, 2, 3]
    await ns.drop_table({"id": parent.table("a")})
    await catch(TableNotFoundError, ns.open(parent.table("a")))


@pytest.mark.parametrize("way", ["link", "link above", "proc"])
async def test_a_location_behind_a_link_is_that_of_the_table(
    aliased_site: Site, ns: AsyncNamespace, parent: Parent, tmp_path: Path, way: str
) -> None:
    await ns.write(parent.table("a"), DATA)
    default = (await ns.describe_table({"id": parent.table("a")})).location
    assert default is not None
    if (path := local_path(default)) is None:
        pytest.skip("an object store has no links")

    def spelled(path: str) -> str:
        if way == "proc":
            return f"/proc/self/root{path}"
        link = tmp_path / f"link-{len(list(tmp_path.iterdir()))}"
        link.symlink_to(path if way == "link" else os.path.dirname(path))
        return str(link if way == "link" else link / os.path.basename(path))

    if way != "link":
        # A link to the folder alone does not show the names of the table.
        with pytest.raises(InvalidInputError, match=r"is that of table"):
            await ns.register_table({"id": parent.table("b"), "location": spelled(path)})
    requested = tmp_path / "requested"
    await ns.declare_table({"id": parent.table("c"), "location": str(requested)})
    await ns.write(parent.table("c"), DATA, mode="append")
    await ns.register_table({"id": parent.table("b"), "location": spelled(str(requested))})
    await ns.drop_table({"id": parent.table("b")})
    assert await _rows(ns, parent.table("c")) == [1, 2, 3]
