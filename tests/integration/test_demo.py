"""The demo from end to end, including Spark: in the embedded catalog and in each that is a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers.catalogs import CATALOGS

pytestmark = pytest.mark.integration

HARMLESS = "WARNING: Using incubator modules"
"""The beginning of a line that a JDK itself prints before any program could prevent it."""


def demo(*args: str) -> Sequence[str]:
    """Returns the output for 50 tables; there is no other output."""
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
    assert lines[-1].startswith("Spark read 15,000 rows of 50 tables, which is correct; mean score 0.")
    again = demo("--dir", str(tmp_path))
    assert steps(again)[0] == "find"
    assert again[-1] == lines[-1]


@pytest.mark.parametrize(
    ("catalog", "namespace"), [("iceberg", "demo"), ("hive3", "lake$demo"), ("glue", "demo"), ("unity", "lake$demo")]
)
def test_spark_reads_what_a_catalog_locates(tmp_path: Path, catalog: str, namespace: str) -> None:
    with CATALOGS[catalog](tmp_path) as properties:
        given = [argument for item in properties.items() for argument in ("-p", "=".join(item))]
        lines = demo("-i", catalog, *given, "--namespace", namespace, "--rows", "20")
    assert lines[0].startswith(f"50 Lance tables of 20 rows in {catalog}:")
    assert lines[0].endswith(f", namespace {namespace}")
    assert lines[-1].startswith("Spark read 1,000 rows of 50 tables, which is correct")
