"""SQL over tables, compared with DuckDB over the same rows in memory; names in FROM, and texts that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lance_ns_async import AsyncNamespace, DirNamespace, TableId
from lance_ns_async.sql.statement import MAX_LENGTH, Reading, Searching, parse
from tests.support.budget import examples

LATE = datetime(2024, 1, 2, tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], list[str]]] = {
    "i": (pa.int32(), st.integers(-5, 5), ["i > 1", "i in (1, 2, 9)", "i between -1 and 3", "i <> 2", "i is null"]),
    "u": (pa.uint8(), st.integers(0, 5), ["u = 3", "u < 2"]),
    "f": (pa.float64(), st.sampled_from([0.5, -1.0, float("nan"), float("inf")]), ["f > 0", "f = 0.5", "isnan(f)"]),
    "s": (pa.string(), st.sampled_from(["", "a", "it's", "ß", "%"]), ["s = 'it''s'", "s like 'a%'", "s > 'b'"]),
    "big": (pa.large_string(), st.sampled_from(["x", "y"]), ["big = 'x'", "big is not null"]),
    "d": (pa.date32(), st.dates(date(2024, 1, 1), date(2024, 1, 5)), ["d >= date '2024-01-03'"]),
    "t": (pa.timestamp("us"), st.just(LATE.replace(tzinfo=None)), ["t > timestamp '2024-01-01'"]),
    "z": (pa.timestamp("us", "UTC"), st.just(LATE), ["z < timestamptz '2024-01-03 00:00:00+00'"]),
    "clock": (pa.time64("us"), st.times(), ["clock > time '12:00:00'"]),
    "n": (pa.decimal128(6, 2), st.sampled_from([Decimal("1.25"), Decimal("-2.50")]), ["n > 1", "n = -2.50"]),
    "b": (pa.bool_(), st.booleans(), ["b", "not b"]),
    "l": (pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=2), ["len(l) = 1"]),
    "o": (pa.struct([("x", pa.int64())]), st.fixed_dictionaries({"x": st.integers(0, 3)}), ["o.x > 1"]),
    "x y": (pa.binary(), st.sampled_from([b"a", b"\0"]), ["\"x y\" = 'a'::blob"]),
    "e": (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["p", "q"]), ["e = 'p'"]),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Returns rows with a few of the columns, and a number."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4))
    rows = draw(st.integers(0, 8))
    arrays = {name: draw(st.lists(VALUES[name][1] | st.none(), min_size=rows, max_size=rows)) for name in names}
    columns = {name: pa.array(values).cast(VALUES[name][0]) for name, values in arrays.items() if rows}
    return pa.table({"row": pa.array(range(rows), pa.int64()), **columns})


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lake=st.lists(tables(), min_size=1, max_size=3), data=st.data(), deleted=st.integers(0, 2))
def test_answers_are_those_of_duckdb_in_memory(
    tmp_path_factory: pytest.TempPathFactory, lake: list[pa.Table], data: st.DataObject, deleted: int
) -> None:
    """With filters on each type, nulls, NaN, deleted rows, columns that tables lack, and empty tables."""
    names = sorted({name for table in lake for name in table.column_names if name != "row"})
    conditions = [condition for name in names for condition in VALUES[name][2]]
    where = data.draw(st.lists(st.sampled_from(["row > 2", "_table = 's$t0'", *conditions]), min_size=1, max_size=2))
    query = f"select * from {{}} where {data.draw(st.sampled_from([' and ', ' or '])).join(where)} order by _table, row"
    memory = duckdb.connect()
    parts = []
    for number, table in enumerate(lake):
        memory.register(f"m{number}", table.slice(min(deleted, table.num_rows)))
        parts.append(f"select *, 's$t{number}' as _table from m{number}")

    async def main() -> pa.Table:
        async with AsyncNamespace.connect("dir", {"root": str(tmp_path_factory.mktemp("lake"))}) as ns:
            await ns.create_namespace(["s"])
            for number, table in enumerate(lake):
                await ns.write(["s", f"t{number}"], table)
                await ns.delete_from_table(["s", f"t{number}"], predicate=f"row < {deleted}")
            return (await ns.sql(query.format("s.*"))).rows

    result = asyncio.run(main())
    expected = memory.sql(query.format(f"({' union all by name '.join(parts)})")).to_arrow_table()
    columns = ["row", "_table", *names]
    assert str(result.select(columns).to_pylist()) == str(expected.select(columns).to_pylist())


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """A catalog with orders by month, and customers."""
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as opened:
        await opened.create_namespace(["sales"])
        for month in range(3):
            ids = range(month * 10, month * 10 + 10)
            rows = pa.table({"id": ids, "customer": [n % 4 for n in ids], "paid": [n % 2 == 0 for n in ids]})
            await opened.write(["sales", f"orders_{month}"], rows)
        vectors = pa.array([[float(n), 0.0] for n in range(4)], pa.list_(pa.float32(), 2))
        await opened.write(["customers"], pa.table({"id": range(4), "name": ["Ann", "Bo", "Cy", "Di"], "v": vectors}))
        yield opened


T, PAID = "sales$orders_", [("Ann", 8), ("Cy", 7)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("select count(*) from sales.*", [(30,)]),
        ("select _table, max(id) from sales.* where id < 15 group by 1 order by 2", [(f"{T}0", 9), (f"{T}1", 14)]),
        ("select sales.orders_1.id from sales.orders_1 where sales.orders_1.id % 7 = 0", [(14,)]),
        ("select name, count(*) from 'sales.*' o join customers c on customer = c.id where paid group by 1", PAID),
        ("with best as (from sales.orders_2 limit 2) select sum(b.id) from best b, customers", [(4 * (20 + 21),)]),
        ("select name from nearest('customers', [2.2, 0], k => 2) order by _distance", [("Cy",), ("Di",)]),
        ("select name from customers where id = 3 union all select name from customers limit 2", [("Di",), ("Ann",)]),
        ("values (1), (2)", [(1,), (2,)]),
    ],
)
async def test_queries(reader: AsyncNamespace, text: str, rows: list[tuple[Any, ...]]) -> None:
    assert [tuple(row.values()) for row in (await reader.sql(text)).rows.to_pylist()] == rows


async def test_a_result_names_its_tables_and_versions(ns: AsyncNamespace) -> None:
    ed = pa.table({"id": [4], "name": ["Ed"], "v": pa.array([[9.0, 0.0]], pa.list_(pa.float32(), 2))})
    await ns.write(["customers"], ed, mode="append")
    await ns.create_table_tag("customers", tag="first", version=1)
    now = await ns.sql("select count(*) from customers")
    assert dict(now.versions) == {TableId("customers"): 2} and now.rows.to_pydict() == {"count_star()": [5]}
    for version in ("1", "'first'"):
        then = await ns.sql(f"select count(*) n from customers at (version => {version})")
        assert dict(then.versions) == {TableId("customers"): 1} and then.rows["n"].to_pylist() == [4]
    assert repr(then).startswith("SqlResult(1 row, 1 column of 1 table)\n") and "│     4 │" in repr(then)
    assert "│ Projections: 1 │\n" in repr(await ns.sql("explain select 1"))
    html = (await ns.sql("select '<b>' as \"<i>\" from range(30)"))._repr_html_()
    assert html.count("<td>&lt;b&gt;</td>") == 20 and "<th>&lt;i&gt;</th>" in html and "... and 10 more" in html
    found = await ns.sql("select name from customers where id in ($a, $b)", parameters={"a": 1, "b": 4})
    assert found.to_polars()["name"].to_list() == found.to_arrow()["name"].to_pylist() == ["Bo", "Ed"]
    assert (await ns.sql("from range(100)", max_rows=7)).rows.num_rows == 7


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("select count(*) from 'u.*'", [(2,)]),
        ("select id from 'u.*' where _table like '%a'", [(1,)]),
        ("select id from u.* order by id desc", [(2,), (1,)]),
        *((text, None) for text in ("from u.*", "select t from u.* t", "select x from u.*", "select #1 from 'u.*'")),
        *((text, None) for text in ("select id from u.* natural join u.a", "select a from 'u.*' t(a)")),
    ],
)
async def test_only_columns_that_are_used_must_have_a_common_type(
    ns: AsyncNamespace, text: str, rows: list[tuple[Any, ...]] | None
) -> None:
    await ns.create_namespace("u")
    await ns.write(["u", "a"], pa.table({"id": [1], "x": ["a"]}))
    await ns.write(["u", "b"], pa.table({"id": [2], "x": [1.5]}))
    if rows is None:
        with pytest.raises(err.InvalidInputError, match=r"sql: no type .* 'x' .*Omit it with a SELECT of other"):
            await ns.sql(text)
    else:
        assert [tuple(row.values()) for row in (await ns.sql(text)).rows.to_pylist()] == rows


async def test_only_what_a_query_needs_is_read(ns: AsyncNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[tuple[str, Any, Any]] = []
    scanner = lance.LanceDataset.scanner

    def record(dataset: lance.LanceDataset, *, columns: Any = None, filter: Any = None, **how: Any) -> Any:
        scans.append((dataset.uri[-8:], columns, None if filter is None else str(filter)))
        return scanner(dataset, columns=columns, filter=filter, **how)

    monkeypatch.setattr(lance.LanceDataset, "scanner", record)
    await ns.sql("select customer from sales.* where id > 12 and _table = 'sales$orders_1'")
    assert scans == [("orders_1", ["customer", "id"], None)]
    scans.clear()
    await ns.sql("select customer from sales.orders_2 where id > 12")
    assert scans == [("orders_2", ["customer"], "(id > 12)")]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("from gone", err.TableNotFoundError, "Table not found: gone"),
        ("from custmers", err.TableNotFoundError, "Table not found: custmers .*; did you mean customers?"),
        ("from Sales.orders_2", err.LanceNamespaceError, "did you mean sales\\$orders_2?"),
        ("from gone.*", err.NamespaceNotFoundError, "gone"),
        ("from sales.x*", err.TableNotFoundError, "no table matches 'sales.x\\*'"),
        ("from information_schema.tables", err.TableNotFoundError, r"information_schema\$tables"),
        ("from '/etc/passwd'", err.TableNotFoundError, "/etc/passwd"),
        ("select nme from customers", err.InvalidInputError, 'Referenced column "nme" not found.*"name"'),
        ("select getenv('HOME')", err.InvalidInputError, "Function with name getenv does not exist"),
        ("select * from customers at (version => 9)", err.TableVersionNotFoundError, "version 9: the newest is 1"),
        ("select * from sales.* at (version => 1)", err.UnsupportedOperationError, "a version of one table"),
        ("from nearest('customers')", err.InvalidInputError, "takes a table and what to find"),
        ("from nearest('customers', [1, 2], kk => 1)", err.InvalidInputError, "kk"),
        ("from nearest('customers', 'x')", err.InvalidInputError, "nearest: could not convert"),
        ("from nearest('customers', ['a'::int])", err.InvalidInputError, "sql: Could not convert string 'a' to INT32"),
        ("select $1", err.InvalidInputError, "parameter"),
        (
            "select repeat('x', 1000000000) || i from range(100) r(i)",
            err.InvalidInputError,
            "more memory than `memory_limit`",
        ),
    ],
)
async def test_errors(ns: AsyncNamespace, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        await ns.sql(text, memory_limit="300MB", threads=1)
    assert "__lance" not in str(raised.value) and "LINE" not in str(raised.value)


ENDLESS = "with recursive r as (select 1 x union all select x + 1 from r) select max(x) from r"


@pytest.mark.parametrize(
    "text", [ENDLESS, "select count(*) from range(1000000000) a, range(1000000000) b where a.range + b.range = 7"]
)
async def test_a_query_ends_with_its_time(ns: AsyncNamespace, text: str) -> None:
    with pytest.raises(err.ServiceUnavailableError, match="did not end within timeout=1 seconds"):
        await ns.sql(text, threads=1, timeout=1)


async def test_a_cancelled_query_ends(ns: AsyncNamespace) -> None:
    task = asyncio.create_task(ns.sql(ENDLESS, threads=1))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await ns.sql("select 1 as n")).rows.to_pylist() == [{"n": 1}]


def test_a_sync_namespace_queries_wide_tables_with_types_that_duckdb_lacks(tmp_path: Path) -> None:
    ns = DirNamespace(root=str(tmp_path))
    half = pa.struct(
        [("x", pa.list_(pa.float16())), ("y", pa.list_(pa.float16(), 1)), ("z", pa.large_list(pa.float16()))]
    )
    large = pa.map_(pa.string(), pa.decimal256(50, 0))
    odd = {"half": pa.array([{"x": [1.5], "y": [2.5], "z": [3.5]}], half), "large": pa.array([[("a", 1)]], large)}
    ns.write(["wide"], pa.table({**{f"c{n:03}": pa.array([n], pa.int16()) for n in range(300)}, **odd}))
    (row,) = ns.sql("select * from wide where c299 = 299", threads=2).rows.to_pylist()
    assert (len(row), row["half"], row["large"]) == (302, {"x": [1.5], "y": [2.5], "z": [3.5]}, [("a", "1")])
    assert pa.table(ns.sql("select c001 from wide")).to_pydict() == {"c001": [1]}
    with pytest.raises(err.InvalidInputError, match="sql: "):
        ns.sql("select 1", threads=0)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("select 1", []),
        ("select * from orders", [["orders"]]),
        ("from sales.orders", [["sales", "orders"]]),
        ('from lake."my sales"."a.b"', [["lake", "my sales", "a.b"]]),
        ("from a.b.c.d", [["a", "b", "c", "d"]]),
        ('from "sales$orders"', [["sales", "orders"]]),
        ("from 'sales.orders'", [["sales", "orders"]]),
        ("from ünï.cødé", [["ünï", "cødé"]]),
        ("select * from a.t join b.t using (id), c.t", [["a", "t"], ["b", "t"], ["c", "t"]]),
        ("select (select max(x) from v) from t where exists (from u where u.x = t.x)", [["v"], ["t"], ["u"]]),
        ("with a as (select * from a) select * from a, b", [["a"], ["b"]]),
        ("with recursive r as (select 1 x union all select x + 1 from R where x < 9) from r, q", [["q"]]),
        ("with a as (select 1), b as (from a) select * from (with c as (from d) from c), b", [["d"]]),
        ("select * from (with a as (select 1) from a), a", [["a"]]),
        ("describe sales.t", [["sales", "t"]]),
        ("from t pivot (sum(x) for y in (1, 2))", [["t"]]),
        ("select * from t order by x limit (select count(*) from u)", [["u"], ["t"]]),
        ("select unnest([1]), r from range(3) r", []),
        ("from sales.*", ["sales.*"]),
        ("select s.* from sales.* s join lake.x*.t on true -- from z.*", ["sales.*", "lake.x*.t"]),
        ("select 2 * 3, 'from x.*', 'üü' from t", [["t"]]),
        ("select 'üüüü' as ß from sälés.* where x = 1", ["sälés.*"]),
        ("from 'sales.**'", ["sales.**"]),
        ('from sales."orders_*"', ["sales.orders_*"]),
        ("from tables('sales.*')", ["sales.*"]),
        ("explain analyze from t", [["t"]]),
    ],
)
def test_the_tables_of_a_statement(connection: duckdb.DuckDBPyConnection, text: str, read: list[Any]) -> None:
    statement = parse(connection, text)
    assert {it.what for it in statement.readings} == {it if isinstance(it, str) else TableId(it) for it in read}
    for name in statement.readings.values():
        assert name in statement.sql
    assert (statement.explain == "EXPLAIN ANALYZE") is text.startswith("explain")


def test_versions_searches_and_names_of_columns(connection: duckdb.DuckDBPyConnection) -> None:
    statement = parse(
        connection, "select a.t.x, b.t.x.y, t.x from a.t at (version => 3), b.t, c.u at (version => 'ok')"
    )
    assert list(statement.readings) == [
        Reading(TableId("a.t"), 3),
        Reading(TableId("b.t")),
        Reading(TableId("c.u"), "ok"),
    ]
    assert statement.sql.startswith('SELECT "a.t".x, "b.t".x.y, t.x FROM __lance_0 AS "a.t" , __lance_1 AS "b.t"')
    assert "AS u" in statement.sql and "VERSION" not in statement.sql
    statement = parse(connection, "select orders.id, sales.orders.id from sales.orders")
    assert statement.sql == "SELECT orders.id, orders.id FROM __lance_0 AS orders"
    statement = parse(connection, "from nearest('ml.*', [1, -0.5], k => 5, filter => 'x > 1') n, search('a', 'b c')")
    assert [search for _, search in statement.searches] == [
        Searching("nearest", ["ml.*", [1, -0.5]], {"k": 5, "filter": "x > 1"}),
        Searching("search", ["a", "b c"], {}),
    ]


HOSTILE = {
    "copy t to '/tmp/x'": "only SELECT statements",
    "attach '/tmp/x' as y": "only SELECT statements",
    "install httpfs": "only SELECT statements",
    "load httpfs": "only SELECT statements",
    "pragma database_list": "only SELECT statements",
    "set memory_limit = '1TB'": "only SELECT statements",
    "call pragma_version()": "only SELECT statements",
    "create table t as select 1": "only SELECT statements",
    "insert into t values (1)": "only SELECT statements",
    "drop table t": "only SELECT statements",
    "explain delete from t": "only SELECT statements",
    "export database '/tmp/x'": "only SELECT statements",
    "prepare x as select 1": "only SELECT statements",
    "show tables": "SHOW; list_tables",
    "select 1; drop table t": "only SELECT statements",
    "select 1; select 2": "there are 2 statements",
    "from read_csv('/etc/passwd')": "the table function read_csv; .*there are nearest, search, tables",
    "from read_text('/etc/passwd')": "the table function read_text",
    "from glob('/*')": "the table function glob",
    "from parquet_scan('s3://b/x')": "the table function parquet_scan",
    "from duckdb_secrets()": "the table function duckdb_secrets",
    "from query('select 1')": "the table function query",
    "from main.range(3)": "the table function range",
    "select * from (select * from t where x in (from sniff_csv('/x')))": "the table function sniff_csv",
    "with a as (from read_blob('/x')) select 1": "the table function read_blob",
    "from nearst('t', [1])": "did you mean nearest",
    "from nearest('t', (select 1))": "nearest with columns or queries",
    "from t, nearest(t.x, [1])": "nearest with columns or queries",
    "from search('t', $1)": "search with columns or queries",
    "from t at (timestamp => now())": "AT .* takes VERSION",
    "from tables('a', 'b')": "takes one pattern",
    "from ''": "needs at least the table's own name",
    'from a."b.c".*, a."b$*"': "may not have \\$",
    "select 'ü' as x frm t": "syntax error at or near \"frm\" at 'frm t'",
    "with __lance_0 as (select 1) from __lance_0, t": "__lance_0: names that begin with __lance_ are reserved",
    "selec 1": "syntax error at or near \"selec\" at 'selec 1'",
    "": "the statement is empty",
    " ": "the statement is empty",
    "explain": "syntax error",
    "select " + "(" * 3000 + "1" + ")" * 3000: "depth",
    "select 1 " * MAX_LENGTH: "characters are too many",
    " union all ".join(f"select * from t{n}" for n in range(1001)): "more than 1,000 names of tables",
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.items(), ids=[text[:40] for text in HOSTILE])
def test_what_is_not_a_query_of_the_catalog(connection: duckdb.DuckDBPyConnection, text: str, message: str) -> None:
    with pytest.raises((err.InvalidInputError, err.UnsupportedOperationError), match=message) as refused:
        parse(connection, text)
    assert len(str(refused.value)) < 500


def test_thousands_of_unions_are_bounded(connection: duckdb.DuckDBPyConnection) -> None:
    text = " union all ".join(["select 1"] * 5000)
    assert parse(connection, text).sql.count("SELECT 1") == 5000
