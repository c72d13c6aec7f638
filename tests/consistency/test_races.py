"""Concurrent tasks in several processes use the same names; an order of single steps must explain their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.consistency.places import track
from tests.consistency.races import Race, Racers, racers
from tests.contract.site import Site
from tests.contract.sites import REAL, SITES
from tests.support.budget import rounds, thorough

pytestmark = pytest.mark.long
ROUNDS = {"mixed": rounds(4, 25), "overwrites": rounds(6, 60), "creates": rounds(2, 10), "removals": rounds(4, 15)}
"""Number of rounds of each plan for each catalog."""

FEWER = {"hive-3.1.3": 6, "iceberg-1.11.0": 4}  # Divisor of the number of rounds for slow servers
ENOUGH = 3  # Number of failed rounds after which the test ends
CACHED = "iceberg-fake-with-a-cache"
NAMES = ("dir", "glue", CACHED, "polaris-fake-filtered", "unity-fake", "hive-3.1.3", "iceberg-1.11.0")
USUAL = ("dir", "unity-fake", "hive-3.1.3", "iceberg-1.11.0")
PARAMS = [
    pytest.param(name, marks=pytest.mark.integration if name in REAL else [] if name in USUAL else thorough)
    for name in NAMES
]


@pytest.fixture(scope="session", params=PARAMS)
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Site]]:
    place: Path = tmp_path_factory.mktemp(request.param)
    with SITES[request.param](place) as site:
        yield request.param, site


@pytest.fixture(scope="module")
def racing(catalog: tuple[str, Site]) -> Iterator[tuple[str, Racers]]:
    name, site = catalog
    with racers(track(site)) as processes:
        yield name, processes


@pytest.mark.parametrize("plan", ROUNDS)
def test_an_order_of_steps_explains_every_answer(
    racing: tuple[str, Racers], plan: str, record_property: Callable[[str, object], None]
) -> None:
    name, processes = racing
    done: list[Race] = []
    bad: list[Race] = []
    for seed in range(max(1, ROUNDS[plan] // FEWER.get(name, 1))):
        race = processes.run(plan, seed)
        done.append(race)
        bad += [race] if race.violations else []
        if len(bad) == ENOUGH:
            break
    operations, seconds = sum(len(it.events) for it in done), sum(it.seconds for it in done)
    figures = (
        f"{name}, {plan}: {len(done)} rounds, {operations:,} operations, {seconds:.0f} s, "
        f"{len(bad)} rounds with violations, {sum(it.tangled for it in done)} histories too tangled to tell"
    )
    record_property("figures", figures)
    again = f"python -m tests.consistency race {name} --plan {plan} --times 20 --seed"
    assert not bad, "\n".join([figures, *(f"{again} {it.seed}\n{it}" for it in bad)])
