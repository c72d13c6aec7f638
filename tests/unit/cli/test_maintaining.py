"""The command `maintain` without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lance_ns_async import Namespace
from tests.support.commands import Run

pytestmark = pytest.mark.floors


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a catalog with two tables of two fragments."""
    with Namespace.connect("dir", {"root": str(tmp_path / "lake")}) as namespace:
        for name in ("a", "b"):
            namespace.write([name], pa.table({"id": [1, 2]}))
            namespace.write([name], pa.table({"id": [3]}), mode="append")
    return ["--impl", "dir", "-p", f"root={tmp_path / 'lake'}"]


def test_a_dry_run_prints_the_plan_and_a_run_the_report(options: list[str]) -> None:
    plan = Run("maintain", "*", "--dry-run", "-o", "json", *options)
    assert plan.code == 0
    assert [(table["id"], table["steps"]) for table in json.loads(plan.out)["tables"]] == [
        ("a", ["compact"]),
        ("b", ["compact"]),
    ]
    table = Run("maintain", "*", "--dry-run", *options)
    assert "small_fragments" in table.out and "2 of 2 tables" in table.err
    report = Run("maintain", "*", "-o", "json", *options)
    assert report.code == 0 and json.loads(report.out)["counts"] == {"maintained": 2}
    again = Run("maintain", "*", *options)
    assert again.code == 0 and again.out == "" and "2 unchanged" in again.err


def test_a_failed_table_has_an_exit_code(options: list[str], tmp_path: Path) -> None:
    for file in (tmp_path / "lake" / "a.lance" / "data").iterdir():
        file.write_bytes(b"no data")
    out = tmp_path / "report.parquet"
    result = Run("maintain", "*", "--out", str(out), *options)
    assert result.code == 1 and "1 maintained" in result.err and "1 failed" in result.err
    assert sorted(pq.read_table(out)["outcome"].to_pylist()) == ["failed", "maintained"]


def test_versions_are_removed_by_age_and_number(options: list[str]) -> None:
    run = ["maintain", "a", "--no-compact", "--older-than", "any", "-o", "json", *options]
    assert json.loads(Run(*run, "--retain", "2").out)["counts"] == {"unchanged": 1}
    assert json.loads(Run(*run).out)["counters"]["versions removed"] == 1


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
    result = Run("maintain", "*", *arguments, *options)
    assert result.code == 2 and not result.out
