"""A process is killed in the middle of an operation, and no acknowledged change is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tests.consistency import crash
from tests.consistency.model import Model, Operation, Terms
from tests.consistency.places import place, track
from tests.consistency.races import Race, Racers, racers
from tests.contract.site import Site
from tests.contract.sites import REAL, SITES
from tests.support.budget import rounds, thorough

pytestmark = pytest.mark.long

KILLS = {
    "dir": rounds(6, 80),
    "iceberg-1.11.0": rounds(2, 60),
    "hive-3.1.3": rounds(2, 40),
    "unity-fake": rounds(3, 30),
}
"""Number of kills for each catalog."""

ENOUGH = 5  # Number of failed rounds after which the test ends
NIGHTLY = {"hive-3.1.3"}
PARAMS = [
    pytest.param(
        name, marks=[*([pytest.mark.integration] if name in REAL else []), *([thorough] if name in NIGHTLY else [])]
    )
    for name in KILLS
]


R = TypeVar("R", crash.Round, Race)


def run_rounds(count: int, run: Callable[[int], R]) -> tuple[list[R], list[R]]:
    """Returns the rounds, and those of them with violations."""
    done: list[R] = []
    for seed in range(count):
        done.append(run(seed))
        if len([it for it in done if it.violations]) == ENOUGH:
            break
    return done, [it for it in done if it.violations]


@pytest.mark.parametrize("name", PARAMS)
def test_a_killed_process_loses_nothing_and_leaves_every_name_usable(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with SITES[name](tmp_path) as site:
        done, bad = run_rounds(KILLS[name], lambda seed: crash.run(place(site, seed), seed))
    operations, seconds = sum(len(it.log) for it in done), sum(it.seconds for it in done)
    figures = (
        f"{name}: {len(done)} kills, {sum(bool(it.cut) for it in done)} of them in the middle of one of "
        f"{len({it.cut for it in done} - {''})} kinds of operations, {operations:,} operations, {seconds:.0f} s, "
        f"{sum(it.orphans for it in done)} folders to be collected, {len(bad)} rounds with violations"
    )
    record_property("figures", figures)
    again = f"python -m tests.consistency crash {name} --times 20 --seed"
    assert not bad, "\n".join([figures, *(f"{again} {it.seed}\n{it}" for it in bad)])


T, U = ("n", "t"), ("n", "u")
TERMS = Terms(names=(T, U), side=("side",), renames=True, shares=False)


def rows_after(model: Model, it: Operation) -> list[object]:
    """Returns the rows that a table may have after a process was killed during an operation."""
    states = model.after_a_kill(it)
    return ["missing" if it.name not in state.tables else state.rows(it.name) for state in states]


def test_what_a_kill_may_leave() -> None:
    model = Model(TERMS)
    assert rows_after(model, Operation("write", T, (1,))) == ["missing", None, {1}]
    assert rows_after(model, Operation("append", T, (1,))) == ["missing"]
    model.apply(Operation("write", T, (1,)), "/data/t")
    assert rows_after(model, Operation("write", T, (2,))) == [{1}]
    assert rows_after(model, Operation("append", T, (2,))) == [{1}, {1, 2}]
    assert rows_after(model, Operation("overwrite", T, (2,))) == [{1}, {2}]
    assert rows_after(model, Operation("drop", T)) == [{1}, "missing"]
    model.apply(Operation("rename", T, to=U), None)
    assert model.tables == {U: "/data/t"} and not model.is_blocked(T)
    assert rows_after(model, Operation("write", T, (3,))) == ["missing", None, {3}]
    model.apply(Operation("deregister", U), None)
    assert model.kept() == {"/data/t": {1}}
    assert rows_after(model, Operation("register", T, location="/data/t")) == ["missing", {1}]


ROUNDS = {"mixed": rounds(4, 25), "overwrites": rounds(6, 60), "creates": rounds(2, 10), "removals": rounds(4, 15)}
"""Number of rounds of each plan for each catalog."""

FEWER = {"hive-3.1.3": 6, "iceberg-1.11.0": 4}  # Divisor of the number of rounds for slow servers
CACHED = "iceberg-fake-with-a-cache"
NAMES = ("dir", "glue", CACHED, "polaris-fake-filtered", "unity-fake", "hive-3.1.3", "iceberg-1.11.0")
USUAL = ("dir", "unity-fake", "hive-3.1.3", "iceberg-1.11.0")
RACES = [
    pytest.param(name, marks=pytest.mark.integration if name in REAL else [] if name in USUAL else thorough)
    for name in NAMES
]


@pytest.fixture(scope="session", params=RACES)
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
    done, bad = run_rounds(max(1, ROUNDS[plan] // FEWER.get(name, 1)), partial(processes.run, plan))
    operations, seconds = sum(len(it.events) for it in done), sum(it.seconds for it in done)
    figures = (
        f"{name}, {plan}: {len(done)} rounds, {operations:,} operations, {seconds:.0f} s, "
        f"{len(bad)} rounds with violations, {sum(it.tangled for it in done)} histories too tangled to tell"
    )
    record_property("figures", figures)
    again = f"python -m tests.consistency race {name} --plan {plan} --times 20 --seed"
    assert not bad, "\n".join([figures, *(f"{again} {it.seed}\n{it}" for it in bad)])
