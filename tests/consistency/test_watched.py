"""A watch sees each change of four processes, invents none, and goes on after it was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lance_ns_async import Namespace
from tests.consistency import watched
from tests.contract.sites import SITES
from tests.support.budget import rounds, thorough

PARAMS = [
    "dir",
    *(pytest.param(name, marks=[pytest.mark.integration, thorough]) for name in ("hive-3.1.3", "iceberg-1.11.0")),
]


@pytest.mark.timeout(1200)  # 2,000 changes take minutes.
@pytest.mark.parametrize("name", PARAMS)
def test_each_change_is_seen(name: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with SITES[name](tmp_path) as site:
        parent = (*site.above, "watched")
        with Namespace.connect(site.impl, site.properties) as ns:
            ns.create_namespace(list(parent))
        changes, kills = rounds(120, 2000), rounds(4, 20)
        history = watched.run(watched.Lake(site.impl, site.properties, parent), changes, kills, seed=1)
        with Namespace.connect(site.impl, site.properties) as ns:
            assert {id.name for id in ns.iter_tables(parent)} == history.tables.keys()
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(history.counts.items()))
    record_property("figures", f"{name}: {changes} changes, {kills} kills of the watch, seen: {counts}")
    assert not history.violations and history.view == history.tables and len(history.counts) >= 4
