"""What the documentation says of lance-ray is so: its code, its catalogs, its costs."""

from __future__ import annotations

from pathlib import Path

import lance_ray
import pytest
import ray

from tests.ecosystem import ray_watched
from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.ray_cluster import WARNINGS, running
from tests.ecosystem.ray_pages import Here, check, check_places
from tests.ecosystem.ray_watched import Diary

pytestmark = WARNINGS

PAGE = Here("ray.md")


def test_steps_cost_what_is_told(catalog: Catalog, home: list[str], tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    place = {"namespace_impl": ray_watched.CLASS_PATH, "namespace_properties": diary.properties(catalog)}
    table, other = ({**place, "table_id": [*home, name]} for name in ("t", "u"))
    costs: dict[str, int] = {}

    def cost(step: str) -> None:
        calls = [it for it in diary.calls(here=True) if it != "get_config"]
        assert diary.calls(here=False) == []
        costs[step] = len(calls)
        diary.forget()

    running()
    rows = ray.data.from_items([{"id": 1}])
    lance_ray.write_lance(rows, **table)
    cost("`write_lance`, `create`")
    lance_ray.write_lance(rows, mode="append", **table)
    cost("`write_lance`, `append` or `overwrite`")
    lance_ray.write_lance(rows, mode="overwrite", **other)
    cost("`write_lance`, `overwrite`, no such table")
    assert lance_ray.read_lance(**table).count() == 2
    cost("`read_lance`")
    lance_ray.create_scalar_index(column="id", index_type="BTREE", num_workers=1, **table)
    cost("`add_columns`, `create_scalar_index`, `compact_files`")
    assert costs == PAGE.costs(catalog.impl)


async def test_the_code_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running()
    try:
        check_places(PAGE, (await check(PAGE, tmp_path, monkeypatch))["PROPERTIES"])
    finally:
        # The page has started another, whose workers know short names.
        ray.shutdown()
