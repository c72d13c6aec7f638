"""Writers, readers and killed instances of `maintain_forever`: nothing acknowledged is lost, nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consistency.maintained import run, stage
from tests.consistency.places import place
from tests.contract.sites import REAL, SITES
from tests.support.budget import rounds, thorough

pytestmark = pytest.mark.long

ROUNDS = {
    "dir": rounds(4, 500),
    "iceberg-fake": rounds(2, 500),
    "hive-fake-3.1.3": rounds(2, 500),
    "iceberg-1.11.0": rounds(0, 100),
    "hive-3.1.3": rounds(0, 100),
}
PARAMS = [pytest.param(name, marks=[pytest.mark.integration, thorough] if name in REAL else []) for name in ROUNDS]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PARAMS)
def test_nothing_acknowledged_is_lost(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with SITES[name](tmp_path) as site:
        results = [run(stage(place(site, seed)), seed, kills=2) for seed in range(ROUNDS[name])]
    record_property("acknowledged", sum(it.acknowledged for it in results))
    assert not [str(it) for it in results if it.violations]
