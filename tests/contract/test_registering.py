"""Bulk registration: each table is registered as by a single call, and fails alone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from lance_namespace import DeclareTableRequest, DescribeTableRequest, RegisterTableRequest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableAlreadyExistsError

from lance_ns_async import AsyncNamespace, TableId
from tests.contract.conftest import Children, Parent
from tests.contract.site import Site
from tests.support.errors import catch

MANY = 12
REQUEST_ID = re.compile(r"request(-id)? [\w-]+", re.IGNORECASE)


def location_of(site: Site, parent: Parent, tmp_path: Path, name: str) -> str:
    root = site.properties.get("root", "")
    base = parent.id.name if site.can.relative_locations else root if "://" in root else tmp_path.as_uri()
    return f"{base}/{parent.id.name}-{name}"


def requests(site: Site, parent: Parent, tmp_path: Path, *names: str) -> list[RegisterTableRequest]:
    places = {name: location_of(site, parent, tmp_path, name) for name in names}
    return [RegisterTableRequest(id=parent.table(it), location=places[it], properties={"name": it}) for it in names]


async def test_each_is_registered_as_alone(ns: AsyncNamespace, site: Site, parent: Parent, tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    steps: list[tuple[int, int]] = []
    done = await ns.register_tables(requests(site, parent, tmp_path, *names), progress=lambda *it: steps.append(it))
    assert list(done.raise_for_errors().tables) == parent.tables(*names) and steps[-1] == (MANY, MANY)
    await ns.register_table(requests(site, parent, tmp_path, "alone")[0])
    alone = await ns.describe_table(DescribeTableRequest(id=parent.table("alone")))
    assert alone.location is not None
    for name, id in zip(names, parent.tables(*names), strict=True):
        described = await ns.describe_table(DescribeTableRequest(id=list(id)))
        assert described.location == alone.location.replace("-alone", f"-{name}") == done.tables[id].location
        # A server with pylance returns no properties.
        expected = alone.properties and {**alone.properties, "name": name}
        assert (described.properties or {}).keys() == (expected or {}).keys()
        assert not expected or (described.properties or {})["name"] == name


async def test_a_table_that_fails_affects_no_other(
    ns: AsyncNamespace, site: Site, parent: Parent, children: Children, tmp_path: Path
) -> None:
    await ns.declare_table(DeclareTableRequest(id=parent.table("there")))
    good = requests(site, parent, tmp_path, "a", "b", "c")
    there, bad = requests(site, parent, tmp_path, "there", "bad")
    bad.location = "s3://bucket/../t"
    orphan = RegisterTableRequest(
        id=[*children.id("none"), "t"], location=location_of(site, parent, tmp_path, "orphan"), properties={}
    )
    result = await ns.register_tables([good[0], there, good[1], bad, orphan, good[2]])
    assert list(result.tables) == parent.tables("a", "b", "c")
    assert list(result.errors) == [TableId(it.id or ()) for it in (there, bad, orphan)]
    for request, error in zip((there, bad, orphan), result.errors.values(), strict=True):
        alone = await catch(type(error), ns.register_table(request))
        # Some catalogs add an id of the request.
        assert REQUEST_ID.sub("", str(alone.value)) == REQUEST_ID.sub("", str(error))
    again = await ns.register_tables(good)
    assert {type(error) for error in again.errors.values()} == {TableAlreadyExistsError} and len(again.errors) == 3


async def test_bad_requests_register_nothing(ns: AsyncNamespace, site: Site, parent: Parent, tmp_path: Path) -> None:
    good, other = requests(site, parent, tmp_path, "a", "b")
    other.mode = "Overwrite"
    for bad, text in ((good, "occurs twice"), (other, "replaces nothing")):
        await catch(InvalidInputError, ns.register_tables([good, bad]), text)
    await catch(InvalidInputError, ns.register_tables([good], max_in_flight=0), "max_in_flight 0")
    assert not await ns.exists(TableId(good.id or ()))


async def test_each_name_has_one_winner(ns: AsyncNamespace, site: Site, parent: Parent, tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(MANY)]
    ids = parent.tables(*names)
    contenders = [AsyncNamespace.connect(site.impl, site.properties) for _ in range(2)]
    requests = [
        [
            RegisterTableRequest(id=list(id), location=location_of(site, parent, tmp_path, f"{id.name}-{side}"))
            for id in ids
        ]
        for side in range(2)
    ]
    async with contenders[0], contenders[1]:
        results = await asyncio.gather(
            *(it.register_tables(them) for it, them in zip(contenders, requests, strict=True))
        )
    described = (await ns.describe_tables(ids)).raise_for_errors()
    for id in ids:
        outcomes = [result.outcome(id) for result in results]
        winners = [it for it in outcomes if not isinstance(it, LanceNamespaceError)]
        assert len(winners) == 1, outcomes
        assert winners[0].location == described.tables[id].location
