"""Default locations: each was never used before, unless `unique_locations` is false."""

from __future__ import annotations

from dataclasses import replace

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import TableAlreadyExistsError

from lance_ns_async import AsyncNamespace
from tests.contract.conftest import Parent
from tests.contract.site import Site

DATA, OTHERS = pa.table({"id": [1, 2, 3]}), pa.table({"id": [7, 8, 9]})


@pytest.fixture
def predictable_site(site: Site) -> Site:
    if site.impl in ("dir", "rest") or site.served:
        pytest.skip("it has no such property")
    if site.chooses_locations:
        pytest.skip("the server's own locations are unique")
    return replace(site, properties={**site.properties, "unique_locations": "false"})


async def test_no_declaration_has_the_location_of_an_earlier_one(ns: AsyncNamespace, parent: Parent) -> None:
    id = parent.table("t")
    locations = set()
    for rows in (1, 2):
        await ns.write(id, DATA.slice(0, rows))
        location = (await ns.describe_table({"id": id})).location
        assert location is not None and location not in locations
        locations.add(location)
        assert (await ns.open(id)).count_rows() == rows
        await ns.drop_table({"id": id})
        assert not await ns.exists(id)


async def test_a_predictable_location_contains_the_names(predictable_site: Site, parent: Parent) -> None:
    id = parent.table("t")
    async with AsyncNamespace.connect(predictable_site.impl, predictable_site.properties) as ns:
        locations = set()
        for _ in range(2):
            locations.add((await ns.declare_table({"id": id})).location)
            await ns.drop_table({"id": id})
    (location,) = locations
    assert location is not None and location.removesuffix(".lance").endswith("/t")


async def test_data_at_a_predictable_location_is_not_registered_by_a_create(
    predictable_site: Site, ns: AsyncNamespace, parent: Parent
) -> None:
    id = parent.table("t")
    async with AsyncNamespace.connect(predictable_site.impl, predictable_site.properties) as predictable:
        location = (await predictable.declare_table({"id": id})).location
        assert location is not None
        await predictable.drop_table({"id": id})
        lance.write_dataset(OTHERS, location)
        with pytest.raises(TableAlreadyExistsError, match=r"not in the catalog, but there is data at .*"):
            await predictable.write(id, DATA)
    assert not await ns.exists(id)
    assert lance.dataset(location).to_table() == OTHERS


async def test_a_requested_location_stays_as_it_is(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    if site.impl in ("dir", "rest") or site.served or not site.frees_locations:
        pytest.skip("it has locations of its own")
    location = (await ns.declare_table({"id": parent.table("t")})).location
    await ns.drop_table({"id": parent.table("t")})
    assert (await ns.declare_table({"id": parent.table("u"), "location": location})).location == location
