"""What the documentation says of daft-lance is so: its code, its catalogs, its costs."""

from __future__ import annotations

from pathlib import Path

import daft_lance
import pytest

from tests.ecosystem import ray_watched
from tests.ecosystem.catalogs import Catalog
from tests.ecosystem.ray_pages import Here, check, check_places
from tests.ecosystem.ray_watched import Diary
from tests.ecosystem.test_daft import COUNTING, write

pytestmark = COUNTING

PAGE = Here("daft.md")


def test_steps_cost_what_is_told(catalog: Catalog, home: list[str], tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary")
    place = {"namespace_impl": ray_watched.CLASS_PATH, "namespace_properties": diary.properties(catalog)}
    table, other = ({**place, "table_id": [*home, name]} for name in ("t", "u"))
    costs: dict[str, int] = {}

    def cost(step: str) -> None:
        calls = diary.calls(here=True)
        assert calls.count("vend_credentials") == (catalog.impl == "unity"), calls
        costs[step] = len([it for it in calls if it not in ("get_config", "vend_credentials")])
        diary.forget()

    write(table, "create")
    cost("`write_lance`, `create`")
    write(table, "append")
    cost("`write_lance`, `append` or `overwrite`")
    write(other, "overwrite")
    cost("`write_lance`, `overwrite`, no such table")
    daft_lance.create_scalar_index(column="id", index_type="BTREE", **table)
    cost("`create_scalar_index`, `compact_files`")
    assert costs == PAGE.costs(catalog.impl)


async def test_the_code_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_places(PAGE, (await check(PAGE, tmp_path, monkeypatch))["PROPERTIES"])
