"""The demo from end to end, Spark included: in the embedded catalog and in a real Iceberg one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers.iceberg_rest import iceberg_rest

pytestmark = pytest.mark.integration

HARMLESS = "WARNING: Using incubator modules"
"""How a JDK begins the line it prints itself, before any program could stop it."""


def demo(*args: str) -> Sequence[str]:
    """The lines that 50 tables give; nothing but them is printed, and no trace of how it was done."""
    command = [sys.executable, "-m", "lance_ns_async.cli", "demo", "--tables", "50", *args]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in run.stderr.splitlines() if not line.startswith(HARMLESS)] == []
    assert run.returncode == 0
    assert all(line.isprintable() for line in run.stdout.splitlines())
    return run.stdout.splitlines()


def steps(lines: Sequence[str]) -> Sequence[str]:
    return [line[:16].strip() for line in lines if line][2:-1]


def test_spark_reads_all_that_was_made(tmp_path: Path) -> None:
    lines = demo("--dir", str(tmp_path))
    assert steps(lines) == ["create", "resolve", "(one by one)", "open", "start Spark", "plan", "run"]
    assert lines[-1].startswith("Spark read 15,000 rows of 50 tables, all that were made; mean score 0.")
    again = demo("--dir", str(tmp_path))
    assert steps(again)[0] == "find"
    assert again[-1] == lines[-1]


def test_spark_reads_what_an_iceberg_catalog_locates(tmp_path: Path) -> None:
    with iceberg_rest(tmp_path) as server:
        root = (tmp_path / "tables").as_uri()
        lines = demo("-i", "iceberg", "-p", f"endpoint={server.endpoint}", "-p", f"root={root}", "--rows", "20")
    assert lines[0] == f"50 Lance tables of 20 rows in iceberg:{server.endpoint}, namespace demo"
    assert lines[-1].startswith("Spark read 1,000 rows of 50 tables, all that were made")
