"""The commands `audit` and `find`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from lance_ns_async import Namespace
from tests.support.commands import Run

pytestmark = pytest.mark.floors


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """The options of a catalog with one table, and one that was declared only."""
    with Namespace.connect("dir", {"root": str(tmp_path)}) as namespace:
        namespace.write(["t"], pa.table({"id": [1, 2]}))
        namespace.declare_table({"id": ["declared"]})
    return ["--impl", "dir", "-p", f"root={tmp_path}"]


def run(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    result = Run(*arguments, "-o", "json")
    return result.code, json.loads(result.out or "[]")


def test_audit_prints_findings_and_repairs_them_by_name(options: list[str]) -> None:
    code, rows = run("audit", "*", *options)
    assert code == 1 and [(row["id"], row["outcome"]) for row in rows] == [("declared", "declared-only")]
    code, rows = run("audit", "*", "--fix", "declared-only", *options)
    assert code == 0 and [row["outcome"] for row in rows] == ["fixed"]
    assert run("audit", "*", *options) == (0, [])


def test_find_prints_matching_tables(options: list[str]) -> None:
    code, rows = run("find", "*", "--column", "id:int64", "--min-rows", "2", "--newer-than", "1d", *options)
    assert code == 0 and [(row["id"], row["rows"]) for row in rows] == [("t", 2)]
    assert run("find", "*", "--older-than", "30d", *options) == (0, [])


def test_find_prints_a_table_for_people(options: list[str]) -> None:
    result = Run("find", "*", *options)
    assert result.code == 0 and "last_write" in result.out


@pytest.mark.parametrize("arguments", [["--older-than", "soon"], ["--property", "owner"], ["--sort", "age"]])
def test_invalid_conditions_are_usage_errors(options: list[str], arguments: list[str]) -> None:
    assert run("find", "*", *arguments, *options) == (2, [])
