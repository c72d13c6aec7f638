"""The demo from end to end, including Spark: in the embedded catalog and in each that is a server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.servers.catalogs import CATALOGS
from tests.support.budget import thorough

pytestmark = pytest.mark.integration


def run_demo(*args: str) -> Sequence[str]:
    command = [sys.executable, "-m", "benchmarks.demo", "--tables", "12", *args]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


@thorough
def test_later_run_reuses_tables(tmp_path: Path) -> None:
    first, second = (run_demo("--dir", str(tmp_path)) for _ in range(2))
    assert "12 tables; 0 existed already" in first[2]
    assert "0 tables; 12 existed already" in second[2]
    assert first[-1].startswith("Spark read 3,600 rows of 12 tables; mean score 0.")
    assert second[-1] == first[-1]
    assert "12 tables; 0 existed already" in run_demo("--dir", str(tmp_path), "--fresh", "--no-spark")[2]


def test_tables_of_a_server_are_created_and_resolved(tmp_path: Path) -> None:
    with CATALOGS["iceberg"](tmp_path) as properties:
        options = [argument for item in properties.items() for argument in ("-p", "=".join(item))]
        lines = run_demo("-i", "iceberg", *options, "--namespace", "demo", "--rows", "20", "--no-spark")
    assert lines[0] == "12 Lance tables of 20 rows in iceberg, namespace demo"
    assert "12 tables; 0 existed already" in lines[2]
    assert lines[-1].startswith("open ")


# Other tests read the tables of servers and of the embedded catalog in the same way.
@thorough
@pytest.mark.parametrize(
    ("catalog", "namespace"), [("iceberg", "demo"), ("hive3", "lake$demo"), ("glue", "demo"), ("unity", "lake$demo")]
)
def test_spark_reads_tables_of_a_server(tmp_path: Path, catalog: str, namespace: str) -> None:
    with CATALOGS[catalog](tmp_path) as properties:
        options = [argument for item in properties.items() for argument in ("-p", "=".join(item))]
        lines = run_demo("-i", catalog, *options, "--namespace", namespace, "--rows", "20")
    assert lines[0] == f"12 Lance tables of 20 rows in {catalog}, namespace {namespace}"
    assert lines[-1].startswith("Spark read 240 rows of 12 tables; mean score")
