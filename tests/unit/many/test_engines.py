"""Opened tables in Polars and DuckDB, compared with their rows in memory; and engines whose credentials end."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import lance
import lance_namespace.errors as err
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, Namespace, OpenedTables
from lance_ns_async.spark import LocationResolver
from tests.fakes.s3 import KeyedS3, RenewingPolaris
from tests.support.budget import examples
from tests.support.polaris import connected

COLUMNS = {
    "n": (pa.int32(), st.integers(-3, 3)),
    "f": (pa.float64(), st.sampled_from([0.5, -1.0, float("nan")])),
    "s": (pa.string(), st.sampled_from(["", "a", "ß"])),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Returns rows with some of the columns, of which `n` may be wider."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1))
    count = draw(st.integers(0, 5))
    values = {name: draw(st.lists(COLUMNS[name][1] | st.none(), min_size=count, max_size=count)) for name in names}
    wide = {"n": draw(st.sampled_from([pa.int32(), pa.int64()]))}
    return pa.table({name: pa.array(it, wide.get(name, COLUMNS[name][0])) for name, it in values.items()})


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lake=st.lists(tables(), min_size=1, max_size=3), data=st.data())
def test_engines_answer_as_over_rows_in_memory(
    tmp_path_factory: pytest.TempPathFactory, lake: list[pa.Table], data: st.DataObject
) -> None:
    with Namespace.connect("dir", {"root": str(tmp_path_factory.mktemp("lake"))}) as ns:
        for number, rows in enumerate(lake):
            ns.write(f"t{number}", rows)
        opened = ns.open_many("t*")
        located = LocationResolver(ns).prefetch("t*", pin_versions=True)
        for number, rows in enumerate(lake):
            ns.write(f"t{number}", rows, mode="append")
    memory = pl.concat(
        [pl.DataFrame(rows).with_columns(_table=pl.lit(f"t{n}")) for n, rows in enumerate(lake)], how="diagonal_relaxed"
    )
    names = [name for name in COLUMNS if name in memory.columns]
    conditions = {"n": "n > 0", "f": "f > 0", "s": "s <> 'a'", "_table": "_table = 't1'"}
    where = conditions[data.draw(st.sampled_from([*names, "_table"]))]
    connection = duckdb.connect()
    for source in (opened, located):
        source.duckdb(connection, "lake", unify="by_name")
        lazy = source.polars(unify="by_name").filter(pl.sql_expr(where)).select("_table", *names).collect()
        assert_same(lazy, memory.filter(pl.sql_expr(where)).select("_table", *names))
        columns = ", ".join(["_table", *names])
        query = f"select {columns} from {{}} where {where}"
        assert_same(
            pl.DataFrame(connection.sql(query.format("lake")).to_arrow_table()),
            pl.DataFrame(connection.sql(query.format("memory")).to_arrow_table()),
        )


def assert_same(rows: pl.DataFrame, expected: pl.DataFrame) -> None:
    assert sorted(map(str, rows.rows())) == sorted(map(str, expected.rows()))


def test_what_cannot_be_one_frame_is_said(tmp_path: Path) -> None:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        ns.write("a", pa.table({"x": [1]}))
        ns.write("b", pa.table({"x": ["1"]}))
        works: list[Callable[[OpenedTables], object]]
        works = [OpenedTables.polars, lambda it: it.duckdb(duckdb.connect(), "v")]
        for work in works:
            with pytest.raises(err.InvalidInputError, match="column 'x' is string, not int64"):
                work(ns.open_many(["a", "b"]))
            with pytest.raises(err.TableNotFoundError, match="Table not found: c"):
                work(ns.open_many(["a", "c"]))
            with pytest.raises(err.InvalidInputError, match="there are no tables"):
                work(ns.open_many("x*"))
        with pytest.raises(err.InvalidInputError, match="table_column 'x'"):
            ns.open_many("a").polars(table_column="x")
        assert ns.open_many("a").polars(table_column=None, columns=["x"]).collect().to_dicts() == [{"x": 1}]
        opened = ns.open_many("b")
        for file in tmp_path.glob("b.lance/data/*"):
            file.unlink()
        with pytest.raises(err.InvalidTableStateError, match=r"Invalid table state: b .*does not exist"):
            opened.polars().collect()
        assert repr(ns.open_many("a")) == "OpenedTables(1 table, 0 errors)"


def test_polars_reads_what_a_query_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[Any] = []
    scanner = lance.LanceDataset.scanner

    def record(dataset: lance.LanceDataset, *, columns: Any = None, filter: Any = None, **how: Any) -> Any:
        scans.append((columns, sorted(re.findall(r"\([^()]+\)", str(filter)))))
        return scanner(dataset, columns=columns, filter=filter, **how)

    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        for name in "ab":
            rows = {
                "n": [1, 2, 3],
                "f": [0.5, math.nan, None],
                "s": ["x", "y", None],
                "d": [date(2024, 1, n) for n in (1, 2, 3)],
            }
            ns.write(name, pa.table(rows))
        frame = ns.open_many("*").polars()
    monkeypatch.setattr(lance.LanceDataset, "scanner", record)
    n, f, s, d = map(pl.col, "nfsd")
    for condition, pushed, count in (
        ((n > 1) & (f > 0.0) & (pl.col("_table") == "a"), [], 1),
        ((n > 1) & (s != "x"), ["(n > 1)", '(s != "x")'], 2),
        (d < date(2024, 1, 3), ["(d < 2024-01-03)"], 4),
        ((n > 1) | (s == "x"), [], 6),
        (~(n > 1), ["(n <= 1)"], 2),
        (n > 1.5, [], 4),
        (n + 1 > n, [], 6),
    ):
        scans.clear()
        assert frame.filter(condition).select("f").collect().height == count
        assert all("f" in columns and it == pushed for columns, it in scans), condition
        assert len(scans) == (1 if "_table" in str(condition) else 2)
    assert frame.select("s").head(2).collect().height == 2


def in_duckdb(opened: OpenedTables) -> int:
    connection = duckdb.connect()
    opened.duckdb(connection, "lake")
    ((count,),) = connection.sql("select sum(x) from lake").fetchall()
    return int(count)


@pytest.mark.parametrize(
    "read", [in_duckdb, lambda it: it.polars().select(pl.col("x").sum()).collect().item()], ids=["duckdb", "polars"]
)
async def test_an_engine_goes_on_after_the_end_of_credentials(read: Callable[[OpenedTables], int]) -> None:
    with KeyedS3() as storage, RenewingPolaris(storage) as server:
        async with twenty(server) as ns:
            opened = await ns.open_many("cat.a.*")
            storage.revoked.update(server.issued)
            assert await asyncio.to_thread(read, opened) == 20


async def test_scans_and_statements_go_on_after_the_end_of_credentials() -> None:
    with KeyedS3() as storage, RenewingPolaris(storage) as server:
        async with twenty(server) as ns:
            stream = await ns.scan_many("cat.a.*")
            storage.revoked.update(server.issued)
            assert (await stream.to_arrow()).num_rows == 20

            def revoke(done: int, total: int) -> None:
                if done == total:
                    storage.revoked.update(server.issued)

            result = await ns.sql("select count(*), sum(x) from cat.a.*", progress=revoke)
            assert list(result.rows.to_pylist()[0].values()) == [20, 20]
            assert len(server.issued) > 60


@asynccontextmanager
async def twenty(server: RenewingPolaris) -> AsyncIterator[AsyncNamespace]:
    """Yields a namespace with twenty tables of one row, whose credentials are always about to end."""
    server.lasts = 2
    server.add_namespace("cat", ("a",))
    async with connected(server) as ns:
        for number in range(20):
            await ns.write(["cat", "a", f"t{number}"], pa.table({"x": [1]}))
        yield ns
