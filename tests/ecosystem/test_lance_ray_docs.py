"""The documentation of lance-ray: its code, catalogs and costs."""

from __future__ import annotations

from pathlib import Path

import lance_ray
import ray

from tests.ecosystem.catalogs import Catalog, on_one_catalog
from tests.ecosystem.pages_elsewhere import RAY, check_places, read
from tests.ecosystem.ray_cluster import WARNINGS, running
from tests.ecosystem.watched import Bill, Diary

pytestmark = WARNINGS


@on_one_catalog
def test_costs_are_as_documented(catalog: Catalog, home: list[str], diary: Diary) -> None:
    running()
    table, other = ({**diary.place(catalog), "table_id": [*home, name]} for name in ("t", "u"))
    rows = ray.data.from_items([{"id": 1}])
    bill = Bill(diary)
    with bill.step("`write_lance`, `create`"):
        lance_ray.write_lance(rows, **table)
    for mode in ("append", "overwrite"):
        with bill.step("`write_lance`, `append` or `overwrite`"):
            lance_ray.write_lance(rows, mode=mode, **table)
    with bill.step("`write_lance`, `overwrite`, missing table"):
        lance_ray.write_lance(rows, mode="overwrite", **other)
    with bill.step("`read_lance`"):
        assert lance_ray.read_lance(**table).count() == 1
    changing = "`add_columns`, `create_scalar_index`, `compact_files`"
    with bill.step(changing):
        lance_ray.add_columns(transform={"double": "id * 2"}, concurrency=1, **table)
    with bill.step(changing):
        lance_ray.create_scalar_index(column="id", index_type="BTREE", num_workers=1, **table)
    with bill.step(changing):
        lance_ray.compact_files(num_workers=1, **table)
    # The page distinguishes calls that each process makes once.
    assert bill.costs("get_config") == RAY.costs(catalog.impl)


async def test_the_code_prints_what_the_page_shows(tmp_path: Path) -> None:
    running()
    try:
        async with read(RAY, tmp_path) as named:
            check_places(RAY, named["PROPERTIES"])
    finally:
        # The page has started another Ray, whose workers know short names.
        ray.shutdown()
