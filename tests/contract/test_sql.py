"""SQL over the tables of each catalog."""

from __future__ import annotations

from lance_ns_async import AsyncNamespace
from tests.contract.conftest import Parent
from tests.support.lake import ROWS


async def test_tables_are_queried_by_their_names_and_by_patterns(ns: AsyncNamespace, parent: Parent) -> None:
    for name in ("a", "b"):
        await ns.write(parent.table(name), ROWS)
    await ns.declare_table({"id": parent.table("empty")})
    a, b = (".".join(f'"{name}"' for name in parent.table(name)) for name in ("a", "b"))
    joined = await ns.sql(
        f"select x.text, y.id from {a} x join {b} y using (id) where y.id > $least", parameters={"least": 2}
    )
    assert joined.rows.to_pylist() == [{"text": ROWS["text"][2].as_py(), "id": 3}]
    assert set(joined.versions) == set(parent.tables("a", "b"))
    every = await ns.sql(
        f"""select _table, max(id) as most from "{"$".join(parent.id)}$*" group by _table order by _table"""
    )
    assert every.rows.to_pylist() == [{"_table": str(id), "most": 3} for id in parent.tables("a", "b")]
    nearest = await ns.sql(f"select id from nearest('{'$'.join(parent.table('a'))}', [1.0, 0.0], k => 1)")
    assert nearest.rows.to_pylist() == [{"id": 2}]
