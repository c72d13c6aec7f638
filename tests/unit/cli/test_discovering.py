"""The command `discover`: its rows, its summary and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lance_ns_async.cli.errors import Code
from tests.support.commands import Run
from tests.support.folders import make_table

pytestmark = pytest.mark.floors


def test_discover_registers_and_repeats(tmp_path: Path) -> None:
    make_table(tmp_path, "sales/orders.lance")
    make_table(tmp_path, "sales/old/orders.lance")
    where = (str(tmp_path), "--into", "lake", "--exclude", "*/old", "-i", "dir", "-p", f"root={tmp_path}")
    dry = Run("discover", *where, "--dry-run", "-o", "plain")
    assert (dry.code, dry.lines) == (0, ["lake$sales$orders\twould register"])
    assert "discover (dry run): 1 would register" in dry.err
    assert Run("discover", *where).code == 0
    again = Run("discover", *where, "-o", "json", "--journal", str(tmp_path / "journal"))
    assert json.loads(again.out)["counts"] == {"present": 1}
    assert Run("ls", "-r", "-i", "dir", "-p", f"root={tmp_path}").lines == ["lake$sales$orders"]


def test_discover_fails_for_conflicts_and_bad_arguments(tmp_path: Path) -> None:
    make_table(tmp_path, "t.lance")
    make_table(tmp_path, "t")
    where = ("--into", "n", "-i", "dir", "-p", f"root={tmp_path}")
    run = Run("discover", str(tmp_path), *where)
    assert run.code == Code.FAILURE and "conflict" in run.err
    assert Run("discover", str(tmp_path / "nothing"), *where).code == Code.USAGE
    bad = Run("discover", str(tmp_path), *where, "--storage-option", "hunter2")
    assert bad.code == Code.USAGE and "hunter2" not in bad.err
