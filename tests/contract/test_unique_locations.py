"""`unique_locations`: no two declarations share a location that the client chose."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from lance_namespace import DeclareTableRequest, DescribeTableRequest, DropTableRequest

from lance_ns_async import AsyncNamespace
from tests.contract.conftest import Home
from tests.contract.site import Site

DATA = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def unique_site(site: Site) -> Site:
    if site.impl == "dir":
        pytest.skip("a directory catalog has no such property")
    if site.served:
        pytest.skip("the gateway has the property")
    if site.chooses_locations:
        pytest.skip("the server's own locations are unique")
    return replace(site, properties={**site.properties, "unique_locations": "true"})


async def test_each_declaration_has_its_own_location(unique_site: Site, ns: AsyncNamespace, home: Home) -> None:
    id = home.table("t")
    fixed = (await ns.declare_table(DeclareTableRequest(id=id))).location
    assert fixed is not None
    await ns.drop_table(DropTableRequest(id=id))
    stem = fixed.removesuffix(".lance")
    async with AsyncNamespace.connect(unique_site.impl, unique_site.properties) as unique:
        locations = {fixed}
        for rows in (1, 2):
            await unique.write(id, DATA.slice(0, rows))
            location = (await ns.describe_table(DescribeTableRequest(id=id))).location
            assert location is not None and location.startswith(f"{stem}-")
            assert location not in locations
            locations.add(location)
            assert (await ns.open(id)).count_rows() == rows
            await unique.drop_table(DropTableRequest(id=id))
            assert not await ns.exists(id)


async def test_a_location_that_is_given_stays_as_it_is(unique_site: Site, ns: AsyncNamespace, home: Home) -> None:
    id, given = home.table("t"), home.table("u")
    made = await ns.declare_table(DeclareTableRequest(id=id))
    await ns.drop_table(DropTableRequest(id=id))
    async with AsyncNamespace.connect(unique_site.impl, unique_site.properties) as unique:
        declared = await unique.declare_table(DeclareTableRequest(id=given, location=made.location))
    assert declared.location == made.location
