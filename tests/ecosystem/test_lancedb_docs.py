"""The documentation of lancedb: its code, errors and costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lance_ns_async import Call
from lance_ns_async.registry import BACKENDS
from tests.ecosystem.catalogs import TRIED, Catalog, on_each_kind
from tests.ecosystem.lancedb_tables import ROWS, connected
from tests.ecosystem.pages_elsewhere import LANCEDB, read
from tests.ecosystem.test_lancedb import RENAMING
from tests.ecosystem.test_lancedb_errors import CALLS, CASCADING, Given


async def test_the_code_prints_what_the_page_shows(tmp_path: Path) -> None:
    async with read(LANCEDB, tmp_path) as named:
        for db in (*named["connections"].values(), *(named[name] for name in ("db", "copy", "glue"))):
            db.namespace_client().close()
        (await named["adb"].namespace_client()).close()


def test_errors_are_as_documented() -> None:
    target = Given(Catalog("dir", {}), None, ["sales"])
    assert {what: (error.strip("`"), words.strip("`")) for what, error, words in LANCEDB.table("request")} == {
        what: (error.__name__, words(target).removesuffix(" (")) for what, (_, error, words) in CALLS.items()
    }


def test_capabilities_are_as_documented() -> None:
    for impl, (_, _, renames, cascades) in zip(BACKENDS, LANCEDB.table("catalog"), strict=True):
        assert (renames, cascades) == tuple("yes" if impl in able else "no" for able in (RENAMING, CASCADING))


@on_each_kind
def test_costs_are_as_documented(catalog: Catalog) -> None:
    column = TRIED.index(catalog.impl)
    assert {step: costs[column] for step, *costs in LANCEDB.table("step")} == _costs(catalog)


def _costs(catalog: Catalog) -> dict[str, str]:
    home = [*catalog.above, f"costs_{catalog.impl}"]
    calls: list[Call] = []
    costs: dict[str, str] = {}

    def cost(step: str, *results: Any) -> None:
        count, rest = divmod(len(calls), max(len(results), 1))
        assert rest == 0, step
        costs[step] = str(count)
        calls.clear()

    def create(name: str, **options: Any) -> Any:
        return db.create_table(name, ROWS, namespace_path=home, **options)

    with connected(catalog) as db, db.namespace_client().observe(calls.append):
        db.list_namespaces(list(catalog.above))
        calls.clear()
        cost("`create_namespace`", db.create_namespace(home))
        cost("`create_namespace`, `exist_ok`, there", db.create_namespace(home, mode="exist_ok"))
        cost("`describe_namespace`, `namespace_exists`", db.describe_namespace(home), db.namespace_exists(home))
        cost("`list_namespaces`", db.list_namespaces(list(catalog.above)))
        cost("`create_table`", create("a"), create("b"))
        cost("`create_table`, `exist_ok`, there", create("a", exist_ok=True))
        cost("`create_table`, `exist_ok`, not there", create("c", exist_ok=True))
        cost("`create_table`, `overwrite`, there", create("a", mode="overwrite"))
        cost("`create_table`, `overwrite`, not there", create("d", mode="overwrite"))
        table = db.open_table("a", namespace_path=home)
        cost("`open_table`", table, db.open_table("a", namespace_path=home, version=1))
        _use(table)
        cost("read, change, index or check out an open table")
        cost("`to_lance`", table.to_lance())
        cost("`table_exists`", db.table_exists([*home, "a"]))
        cost("`list_tables`, of four", db.list_tables(home))
        if catalog.impl in RENAMING:
            cost("`rename_table`", db.rename_table("b", "e", cur_namespace_path=home))
        else:
            costs["`rename_table`"] = "no"
        cost("`drop_table`", db.drop_table("a", namespace_path=home))
        cost("`drop_all_tables`, of three", db.drop_all_tables(namespace_path=home))
        cost("`drop_namespace`", db.drop_namespace(home))
    return costs


def _use(table: Any) -> None:
    table.add(ROWS)
    table.search([1.0, 0.0]).limit(1).to_list()
    table.count_rows()
    table.update(where="id = 1", values={"id": 11})
    table.delete("id = 2")
    table.merge_insert("id").when_not_matched_insert_all().execute(ROWS)
    table.create_index("id")
    table.tags.create("here", 1)
    table.checkout(1)
    table.restore()
    table.list_versions()
    table.to_arrow()
