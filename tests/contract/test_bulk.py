"""A bulk describe returns the same as single describes, and a backend's capabilities are true."""

from __future__ import annotations

import asyncio

import pytest
from lance_namespace.errors import InvalidInputError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from tests.contract.conftest import Children, Parent
from tests.contract.site import Site
from tests.support.errors import catch

pytestmark = [pytest.mark.round_trip, pytest.mark.floors]


async def test_each_table_is_described_as_it_is_alone(ns: AsyncNamespace, parent: Parent) -> None:
    ids = parent.tables("a", "b", "c", "d", "e")
    for i, id in enumerate(ids):
        await ns.declare_table({"id": list(id), "properties": {"i": str(i)}})
    described = (await ns.describe_tables(ids)).raise_for_errors()
    assert set(described.tables) == set(ids)
    for id in ids:
        alone = await ns.describe_table({"id": list(id)})
        table = described.tables[id]
        assert (table.id, table.location, table.properties) == (id, alone.location, alone.properties)


async def test_missing_tables_spoil_no_other(ns: AsyncNamespace, parent: Parent, children: Children) -> None:
    ids = parent.tables("a", "b", "c")
    for id in ids:
        await ns.declare_table({"id": list(id)})
    missing = [*parent.tables("x", "y"), children.id("none").table("t")]
    steps: list[tuple[int, int]] = []
    described = await ns.describe_tables([*ids, *missing, *ids], progress=lambda *step: steps.append(step))
    assert set(described.tables) == set(ids) and set(described.errors) == set(missing)
    assert all(isinstance(described.errors[id], TableNotFoundError) for id in missing[:2])
    assert steps[-1] == (6, 6)
    with pytest.raises(TableNotFoundError):
        described.raise_for_errors()


async def test_patterns_are_described_as_the_tables_that_match(ns: AsyncNamespace, parent: Parent) -> None:
    ids = parent.tables("part_a", "part_b", "whole")
    for id in ids:
        await ns.declare_table({"id": list(id)})
    every = (await ns.describe_tables(ids)).raise_for_errors().tables
    described = await ns.describe_tables(parent.id)
    assert described.tables == every and not described.errors and not described.unlisted
    described = await ns.describe_tables([f"{'$'.join(parent.id)}$part_*", ids[2], *parent.tables("none")])
    assert described.tables == every and list(described.errors) == parent.tables("none")
    assert not await ns.describe_tables(f"{'$'.join(parent.id)}$other*")


async def test_a_stream_gives_each_in_order_with_what_became_of_it(ns: AsyncNamespace, parent: Parent) -> None:
    ids = parent.tables("a", "x", "b", "a")
    for id in ids[::2]:
        await ns.declare_table({"id": list(id)})
    result = [it async for it in ns.stream_tables(iter(ids))]
    assert [id for id, _ in result] == ids
    described = await ns.describe_tables(ids)
    assert [became for _, became in result[::2]] == [described.tables[id] for id in ids[::2]]
    assert isinstance(result[1][1], TableNotFoundError) and result[3] == result[0]


async def test_a_stream_answers_what_is_before_an_id_that_can_be_none(ns: AsyncNamespace, parent: Parent) -> None:
    good = parent.tables("a", "b")
    result: list[TableId] = []
    with pytest.raises(InvalidInputError):
        async for id, _ in ns.stream_tables([*good, [*parent.id, ""], *good]):
            result.append(id)
    assert result == good


async def test_an_id_too_short_for_the_catalog_is_refused(ns: AsyncNamespace, site: Site) -> None:
    can = site.can
    if can.min_depth == 0:
        return
    short = ["t"] * can.min_depth
    await catch(InvalidInputError, ns.describe_table({"id": short}), "namespace levels above a table")
    await catch(InvalidInputError, ns.describe_tables([short]), "namespace levels above a table")
    assert (await ns.list_tables({"id": []})).tables == []


async def test_closed_twice_is_closed(ns: AsyncNamespace) -> None:
    close = getattr(ns, "aclose" if hasattr(ns, "aclose") else "close")
    await close()
    await close()
    await catch(InvalidInputError, ns.list_tables({"id": []}), "closed")


async def test_a_server_that_throttles_loses_nothing(ns: AsyncNamespace, site: Site, parent: Parent) -> None:
    if site.throttle is None:
        pytest.skip("its server refuses no calls because of their number")
    ids = parent.tables(*(f"t{number:02}" for number in range(12)))
    with site.throttle():
        await asyncio.gather(*(ns.declare_table({"id": list(id)}) for id in ids))
        described = await ns.describe_tables(ids)
        alone = await asyncio.gather(*(ns.describe_table({"id": list(id)}) for id in ids))
    tables = described.raise_for_errors().tables
    assert [tables[id].location for id in ids] == [response.location for response in alone]
