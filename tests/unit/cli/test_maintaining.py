"""The command `maintain` without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lance_ns_async import Namespace
from lance_ns_async.cli.app import app


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a catalog with two tables of two fragments."""
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        for name in ("a", "b"):
            namespace.write([name], pa.table({"id": [1, 2]}))
            namespace.write([name], pa.table({"id": [3]}), mode="append")
    return ["--impl", "dir", "-p", f"root={tmp_path / 'lake'}"]


def test_a_dry_run_prints_the_plan_and_a_run_the_report(options: list[str]) -> None:
    plan = CliRunner().invoke(app, ["maintain", "*", "--dry-run", "-o", "json", *options])
    assert plan.exit_code == 0
    assert [(table["id"], table["steps"]) for table in json.loads(plan.stdout)["tables"]] == [
        ("a", ["compact"]),
        ("b", ["compact"]),
    ]
    table = CliRunner().invoke(app, ["maintain", "*", "--dry-run", *options])
    assert "small_fragments" in table.stdout and "2 of 2 tables" in table.stderr
    report = CliRunner().invoke(app, ["maintain", "*", "-o", "json", *options])
    assert report.exit_code == 0 and json.loads(report.stdout)["counts"] == {"maintained": 2}
    again = CliRunner().invoke(app, ["maintain", "*", *options])
    assert again.exit_code == 0 and again.stdout == "" and "2 unchanged" in again.stderr


def test_a_failed_table_has_an_exit_code(options: list[str], tmp_path: Path) -> None:
    for file in (tmp_path / "lake" / "a.lance" / "data").iterdir():
        file.write_bytes(b"no data")
    out = tmp_path / "report.parquet"
    result = CliRunner().invoke(app, ["maintain", "*", "--out", str(out), *options])
    assert result.exit_code == 1 and "1 maintained" in result.stderr and "1 failed" in result.stderr
    assert sorted(pq.read_table(out)["outcome"].to_pylist()) == ["failed", "maintained"]


def test_versions_are_removed_by_age_and_number(options: list[str]) -> None:
    run = ["maintain", "a", "--no-compact", "--older-than", "any", "-o", "json", *options]
    assert json.loads(CliRunner().invoke(app, [*run, "--retain", "2"]).stdout)["counts"] == {"unchanged": 1}
    assert json.loads(CliRunner().invoke(app, run).stdout)["counters"]["versions removed"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--older-than", "soon"],
        ["--master", "local[2]"],
        ["--conf", "a", "--engine", "spark"],
        ["--no-compact", "--no-index", "--no-cleanup"],
    ],
)
def test_invalid_options_are_usage_errors(options: list[str], arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["maintain", "*", *arguments, *options])
    assert result.exit_code == 2 and not result.stdout
