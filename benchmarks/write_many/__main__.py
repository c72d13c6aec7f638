"""Write of one DataFrame into many tables with local Spark: `python -m benchmarks.write_many`, in seconds.

With `--kill`, the first run is killed (SIGKILL) as soon as half of the tables are finished, and a second run finishes
the others. Afterwards, the number of rows and the sum of the ids of each table are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from pyspark.sql import functions as f

from lance_ns_async import Namespace
from lance_ns_async.fleet.run import Report
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.local import local_spark
from tests.fakes.iceberg import FakeIceberg


@contextmanager
def catalog(kind: str, root: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Provides the implementation and the properties of a catalog with the namespace `db`."""
    if kind == "dir":
        yield "dir", {"root": str(root)}
        return
    with FakeIceberg() as server:
        managed = {"managed_by": "impl"} if kind == "iceberg-managed" else {}
        yield "iceberg", {"endpoint": server.endpoint, "root": root.as_uri(), **managed}


def write(impl: str, properties: Mapping[str, str], rows: int, tables: int, kill: bool) -> Report:
    """Writes the tables that have no version yet; ends this process by a signal if requested."""

    def progress(finished: int, total: int) -> None:
        if kill and finished >= total // 2:
            os.kill(os.getpid(), signal.SIGKILL)

    spark = local_spark(cores=2)
    df = spark.range(rows).withColumn("name", f.concat(f.lit("t"), f.col("id") % tables))
    df = df.withColumn("text", f.sha2(f.col("id").cast("string"), 256))
    with LocationResolver.connect(impl, properties) as resolver:
        report = resolver.write_many(df, by="name", into="db", progress=progress)
        if report.failed:
            report = resolver.write_many(df, by="name", into="db", only=report.failed, progress=False)
    spark.stop()
    return report


def check(impl: str, properties: Mapping[str, str], rows: int, tables: int) -> int:
    """Returns the number of tables with exactly their rows."""
    right = 0
    with Namespace.connect(impl, properties) as namespace:
        for number in range(tables):
            expected = range(number, rows, tables)
            table = namespace.open(["db", f"t{number}"]).to_table(columns=["id"])
            ids = table["id"].to_pylist()
            right += len(ids) == len(expected) and sum(ids) == sum(expected)
    return right


def run_child(arguments: argparse.Namespace, impl: str, properties: Mapping[str, str], *, kill: bool) -> str:
    """Runs the write in a process of its own; returns its last line."""
    command = [sys.executable, "-m", "benchmarks.write_many", "--rows", str(arguments.rows)]
    command += ["--tables", str(arguments.tables), "--child", json.dumps([impl, properties, kill])]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"the write failed with code {result.returncode}")
    return (result.stdout.splitlines() or [""])[-1]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.write_many")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--catalog", choices=["dir", "iceberg", "iceberg-managed"], default="dir")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        impl, properties, kill = json.loads(arguments.child)
        print(write(impl, properties, arguments.rows, arguments.tables, kill).line())
        return
    with tempfile.TemporaryDirectory() as folder, catalog(arguments.catalog, Path(folder)) as (impl, properties):
        with Namespace.connect(impl, properties) as namespace:
            namespace.create_namespace({"id": ["db"]})
        for kill in (True, False) if arguments.kill else (False,):
            start = perf_counter()
            line = run_child(arguments, impl, properties, kill=kill)
            print(f"{'killed' if kill else 'finished'} after {perf_counter() - start:.1f} s: {line}", flush=True)
        right = check(impl, properties, arguments.rows, arguments.tables)
        print(f"{right} of {arguments.tables} tables have exactly their rows")


if __name__ == "__main__":
    main()
