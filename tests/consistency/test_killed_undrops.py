"""A process is killed before each step of a drop with a retention, an undrop or a purge, and no table is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from time import perf_counter

import pytest

from tests.consistency.places import place
from tests.consistency.steps import is_supported
from tests.consistency.undrops import Plan, run
from tests.contract.sites import REAL, SITES
from tests.support.budget import rounds, thorough

pytestmark = [pytest.mark.long, pytest.mark.skipif(not is_supported, reason="only Linux reports the steps")]

EXPIRED = 0.000_001  # Seconds of a retention that is over
PLANS = [
    Plan("drop_table"),
    Plan("drop_table", EXPIRED, purges=True),
    Plan("undrop"),
    Plan("undrop", EXPIRED, purges=True),
    Plan("purge", EXPIRED),
    Plan("purge", EXPIRED, purges=True),
]
AT_ROOT = [replace(plan, at_root=True) for plan in PLANS]
OTHERS = [Plan("purge", EXPIRED, purges=True, files=50), Plan("drop_namespace")]

KILLS = {
    "dir": rounds(2, 1000),
    "unity-fake": rounds(2, 1000),
    "iceberg-1.11.0": rounds(2, 12),
    "hive-3.1.3": rounds(1, 8),
}
"""Maximum number of kills for each plan."""

PARAMS = [
    pytest.param(name, marks=[*[pytest.mark.integration] * (name in REAL), *[thorough] * (name == "hive-3.1.3")])
    for name in KILLS
]


@pytest.mark.timeout(1200)  # A thorough run kills some hundred processes.
@pytest.mark.parametrize("name", PARAMS)
def test_a_killed_process_loses_no_dropped_table(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kills, wrong, seeds, began = 0, list[str](), count(), perf_counter()
    with SITES[name](tmp_path) as site:
        plans = [*PLANS, *(AT_ROOT if site.impl == "dir" else []), *(OTHERS if site.can.cascades else OTHERS[:1])]
        for plan in plans:
            _, total, problem = run(place(site, next(seeds)), plan, 0)
            wrong += [f"{plan}: {problem}"] if problem else []
            for step in sorted(Random(0).sample(range(1, total + 1), min(total, KILLS[name]))):
                killed, _, problem = run(place(site, next(seeds)), plan, step)
                kills += killed
                wrong += [f"{plan}, killed before step {step} of {total}: {problem}"] if problem else []
    figures = f"{name}: {kills} kills, {len(plans)} plans, {perf_counter() - began:.0f} s, {len(wrong)} violations"
    record_property("figures", figures)
    assert not wrong, "\n".join([figures, *wrong])
