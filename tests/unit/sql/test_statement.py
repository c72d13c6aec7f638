"""Statements as DuckDB parses them: names of the catalog in FROM, and texts that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import lance_namespace.errors as err
import pytest

from lance_ns_async import TableId
from lance_ns_async.sql.statement import MAX_LENGTH, Reading, Searching, parse


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
