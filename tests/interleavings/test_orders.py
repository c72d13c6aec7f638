"""No order of steps of two clients, or of three, loses rows or shows wrong ones, also if one of them is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.interleavings.runs import Case, all_deaths, all_orders, cases, pairs, pick, stage, tell
from tests.interleavings.search import by_chance, by_list
from tests.interleavings.stages import Stage
from tests.support import budget

SITES = ["dir", "iceberg-fake", "hive-fake-4.0.1", "glue", "polaris-fake", "lakekeeper-fake", "unity-fake"]

ALL_SITES = [*SITES, "dir-partitions", "dir-s3"]
"""In an object store, the steps of a directory catalog are the same, and slow."""

REPLACED = [Case((removal, "move-and-create")) for removal in ("drop", "deregister")]
"""While a table is removed, others move it to another name, and make a new one."""

USUAL = [
    *(Case(pair) for pair in (("append", "overwrite"), ("drop", "append"), ("drop", "recreate"), ("move", "drop"))),
    *REPLACED,
    *(Case(pair, exists=False) for pair in (("create", "create"), ("create", "drop"), ("overwrite", "append"))),
]
"""The pairs of the usual run: a first look at each kind of conflict."""

LOST_ROWS = [
    # A table was registered again at its location, and changed, before a drop deleted its files.
    ("lakekeeper-fake", ("reregister", "restore", "recreate"), "222222200111222222"),
    ("dir", ("reregister", "drop", "restore"), "121100221"),
    # A registration was changed to another location between the two steps of a change to it.
    ("hive-fake-4.0.1", ("sync", "rename-and-create", "restore"), "11000000000222111111"),
    ("hive-fake-4.0.1", ("sync", "replace", "overwrite"), "2101111100122211000000111"),
]
"""Orders of three clients that lost rows once, or showed wrong ones, by the clients of their steps."""

MOST = 7  # Maximum number of orders of a pair in the usual run


@pytest.fixture
async def theater(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(request.param, tmp_path) as it:
        yield it


@pytest.mark.parametrize("theater", budget.with_usual(ALL_SITES, *SITES, "dir-partitions"), indirect=True)
async def test_pairs_have_an_explanation(theater: Stage) -> None:
    usual = USUAL if theater.new_programs else [Case(("write", "drop"))]
    for case in cases(theater) if budget.is_thorough else usual:
        tally = await all_orders(theater, case, most=None if budget.is_thorough else MOST)
        assert not tally.wrong, tally.wrong[0]


USUAL_UNDROPS = [
    Case(pair)
    for pair in (
        ("lose-and-undrop", "lose-and-purge"),
        ("lose", "undrop"),
        ("lose-and-undrop", "undrop-as-b"),
        ("lose-and-purge", "move"),
        ("lose-and-create", "undrop"),
    )
]


@pytest.mark.parametrize("theater", budget.with_usual([*SITES, "dir-s3"], *SITES), indirect=True)
async def test_drops_are_taken_back_as_a_whole(theater: Stage) -> None:
    theater.undrops = True
    for case in pairs(theater) if budget.is_thorough else USUAL_UNDROPS:
        tally = await all_orders(theater, case, most=budget.rounds(MOST, 200))
        deaths = await all_deaths(theater, case, most=5) if budget.is_thorough else []
        wrong = [it for some in (tally, *deaths) for it in some.wrong]
        assert not wrong, wrong[0]


@pytest.mark.parametrize("theater", budget.with_usual(ALL_SITES, "dir", "iceberg-fake"), indirect=True)
async def test_kills_have_an_explanation(theater: Stage) -> None:
    for case in cases(theater) if budget.is_thorough else [Case(("drop", "create"))]:
        for tally in await all_deaths(theater, case, most=None if budget.is_thorough else 1):
            assert not tally.wrong, tally.wrong[0]


@pytest.mark.parametrize("theater", budget.with_usual(ALL_SITES, *SITES), indirect=True)
async def test_three_clients_have_an_explanation(theater: Stage) -> None:
    for seed in range(budget.rounds(5, 2000)):
        random = Random(seed)
        story = await tell(theater, pick(theater, random), by_chance(random))
        assert story.wrong is None, f"seed {seed}\n{story}"


@pytest.mark.parametrize(("theater", "programs", "clients"), LOST_ROWS, indirect=["theater"])
async def test_orders_that_lost_rows_have_an_explanation(theater: Stage, programs: Sequence[str], clients: str) -> None:
    story = await tell(theater, Case(programs), by_list([int(client) for client in clients]))
    assert story.wrong is None, story
