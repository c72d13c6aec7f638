"""The documentation of daft-lance: its code, catalogs and costs."""

from __future__ import annotations

from pathlib import Path

import daft_lance

from tests.ecosystem.catalogs import Catalog, on_each_kind
from tests.ecosystem.pages_elsewhere import DAFT, check_places, read
from tests.ecosystem.test_daft import COUNTING, write
from tests.ecosystem.watched import Bill, Diary

pytestmark = COUNTING


@on_each_kind
def test_costs_are_as_documented(catalog: Catalog, home: list[str], diary: Diary) -> None:
    table, other = ({**diary.place(catalog), "table_id": [*home, name]} for name in ("t", "u"))
    bill = Bill(diary)
    with bill.step("`write_lance`, `create`"):
        write(table, "create")
    for mode in ("append", "overwrite"):
        with bill.step("`write_lance`, `append` or `overwrite`"):
            write(table, mode)
    with bill.step("`write_lance`, `overwrite`, missing table"):
        write(other, "overwrite")
    with bill.step("`create_scalar_index`, `compact_files`"):
        daft_lance.create_scalar_index(column="id", index_type="BTREE", **table)
    with bill.step("`create_scalar_index`, `compact_files`"):
        daft_lance.compact_files(**table)
    # The page distinguishes calls that each process makes once, and calls for credentials.
    assert bill.costs("get_config", "vend_credentials") == DAFT.costs(catalog.impl)
    assert all(calls.count("vend_credentials") == (catalog.impl == "unity") for _, calls in bill.calls)


async def test_the_code_prints_what_the_page_shows(tmp_path: Path) -> None:
    async with read(DAFT, tmp_path) as named:
        check_places(DAFT, named["PROPERTIES"])
