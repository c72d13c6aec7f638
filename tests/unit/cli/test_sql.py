"""The command `sql`, and its prompt."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lance_ns_async import DirNamespace
from lance_ns_async.cli import sql
from lance_ns_async.cli.errors import Code
from tests.support.commands import Run, folder
from tests.unit.cli.test_app import at


@pytest.fixture
def lake(tmp_path: Path) -> Sequence[str]:
    """Provides the options of a catalog with the tables `shop$a` and `shop$b`."""
    with DirNamespace(root=str(tmp_path / "lake")) as catalog:
        catalog.create_namespace("shop")
        for name in ("a", "b"):
            catalog.write(["shop", name], pa.table({"id": range(70)}))
    return at(tmp_path / "lake")


LATE = "2023-12-31 23:00:00Z"


def test_a_statement_has_the_output_formats(lake: Sequence[str], tmp_path: Path) -> None:
    query = "select _table, max(id) as most from shop.* group by 1 order by 1"
    rows = [{"_table": "shop$a", "most": 69}, {"_table": "shop$b", "most": 69}]
    assert json.loads(Run("sql", query, "--json", *lake).out) == rows
    assert Run("sql", query, "-o", "csv", *lake).out == '_table,most\n"shop$a",69\n"shop$b",69\n'
    assert Run("sql", "select 1 a, 2 a, 'x' a_1", "-o", "ndjson", *lake).out == '{"a": 1, "a_2": 2, "a_1": "x"}\n'
    times = "select interval '1 month 2 days' a, interval (1.5) seconds b, timestamptz '2024-01-01 00:00:00+01' c"
    assert json.loads(Run("sql", times, "-o", "ndjson", *lake).out) == {"a": "P1M2D", "b": "PT1.5S", "c": LATE}
    assert Run("sql", times, "-o", "csv", *lake).lines == ["a,b,c", f'"P1M2D","PT1.5S",{LATE[:-1]}.000000Z']
    Run("sql", times, "--out", "t.parquet", *lake)
    assert pq.read_table(tmp_path / "t.parquet")["a"].to_pylist() == ["P1M2D"]
    empty = Run("sql", "from shop.a where id > 100", *lake)
    assert (empty.out, empty.err) == ("id\n", "lance-ns: no rows\n")
    assert Run("sql", "from shop.*", "--out", "x.parquet", *lake).err.endswith("wrote 140 rows to x.parquet\n")
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 140
    shown = Run("sql", "from shop.*", "-o", "plain", *lake)
    assert len(shown.out.splitlines()) == 100 and "the first 100 rows; --limit shows more" in shown.err
    assert len(Run("sql", "from shop.*", "-o", "plain", "-n", "110", *lake).out.splitlines()) == 110
    assert 'Filters: "id" > 3' in Run("sql", "from shop.a where id > 3", "--explain", *lake).out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["drop table shop.a"], Code.USAGE, "only SELECT statements"),
        (["from shop.c"], Code.NOT_FOUND, "shop$c"),
        (["select nope from shop.a"], Code.USAGE, 'Referenced column "nope"'),
        (["from shop.a", "--memory", "much"], Code.USAGE, "Memory must have a number"),
        (["from shop.a", "--out", "none/x.csv"], Code.USAGE, "none/x.csv: there is no folder none"),
        (
            ["from range(1000000000000) order by hash(range)", "--within", "0.5"],
            Code.UNAVAILABLE,
            "within --within 0.5",
        ),
        (["from SHOPS.A"], Code.NOT_FOUND, "did you mean shop$A?"),
        (["from shops.*"], Code.NOT_FOUND, "did you mean shop?"),
        (["from shop.x*"], Code.NOT_FOUND, "no table matches 'shop.x*'; known are a, b"),
        (["from my-shop.a"], Code.USAGE, 'names with other characters as in "my-name"'),
        (["from tables()"], Code.USAGE, "takes one pattern"),
        (
            ["select list(id) from shop.*, range(10000000)", "--memory", "9MB"],
            Code.USAGE,
            "needs more memory than --memory",
        ),
    ],
)
def test_errors(lake: Sequence[str], arguments: Sequence[str], code: Code, message: str) -> None:
    run = Run("sql", *arguments, *lake)
    assert run.code == code and message in run.err and run.out == ""


def test_a_table_without_its_files_is_named(lake: Sequence[str], tmp_path: Path) -> None:
    for file in (tmp_path / "lake").glob("*shop$a/data/*"):
        file.unlink()
    run = Run("sql", "select max(id) from shop.*", *lake)
    assert "shop$a" in run.err and "does not exist" in run.err and "Traceback" not in run.err
    assert (run.code, run.out) == (Code.FAILURE, "")


def test_statements_of_a_file_run_one_after_another(lake: Sequence[str]) -> None:
    script = """-- ; no statement
        select ';' as a; select 2 as "b;" /* ; */ ;
.tables shop
        select max(id) as c
        from shop.a; -- the end"""
    run = Run("sql", "-o", "plain", *lake, stdin=script)
    assert run.lines == [";", "2", "shop$a", "shop$b", "69"]
    wrong = Run("sql", "-o", "plain", *lake, stdin="select 1 as a;\noops;\nselect 2 as b;\n")
    assert wrong.code == Code.USAGE and wrong.lines == ["1"]
    twice = Run("sql", "--out", "y.csv", *lake, stdin="select 1 as a;\nselect 2 as a;\n")
    assert twice.code == Code.USAGE and "it has the rows of the first statement" in twice.err
    assert ".tabless: did you mean .tables" in Run("sql", *lake, stdin=".tabless\n").err


def test_the_prompt_runs_statements_until_its_end(lake: Sequence[str]) -> None:
    lines = [
        "select max(id) as most",
        "from shop.a;",
        ".tables shop",
        "oops;",
        ".describe shop.b",
        ".help",
        ".quit",
        "",
    ]
    terminal, stdin = os.openpty()
    os.write(terminal, "\n".join(lines).encode())
    command = [str(folder() / "lance-ns"), "sql", *lake]
    run = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=True, timeout=60)
    for text in ("most", "69", "shop$a\nshop$b\n", "BIGINT", ".quit "):
        assert text in run.stdout
    assert 'syntax error at or near "oops"' in run.stderr and "2 tables" in run.stderr


def test_the_prompt_completes_ids(tmp_path: Path) -> None:
    with DirNamespace(root=str(tmp_path)) as catalog:
        catalog.create_namespace("shop")
        for name in ("orders", "others"):
            catalog.declare_table(["shop", name])
        completer = sql._Completer(catalog)
        assert [completer.complete("shop.o", state) for state in range(3)] == ["shop.orders", "shop.others", None]
        assert completer.complete("none.x", 0) is None
