"""Time that Spark needs to plan SQL over many tables: connector alone, through the driver, and without SQL."""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from math import inf
from pathlib import Path

import lance
import pyarrow as pa

from benchmarks.connector.cell import NAMES, ROWS, WARM, WAYS, Run
from benchmarks.connector.report import write
from benchmarks.support.progress import progress
from lance_ns_async.spark.session import CONNECTOR

LOOK = 5.0
"""Seconds between two readings of the load average."""

PACKAGES = ("lance-ns-async", "pylance", "pyarrow")


@contextmanager
def stub(lake: Path) -> Iterator[str]:
    """Provides the endpoint of a catalog."""
    command = [sys.executable, "-m", "benchmarks.connector.stub", str(lake)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def wait_for_quiet(load: float, text: str) -> None:
    """Waits until the load average is low, because other processes would distort the planning times of the driver."""
    while (now := os.getloadavg()[0]) > load:
        progress(f"{text}, waiting for a load average of {load:g}: it is {now:.1f}")
        time.sleep(LOOK)


def run_cell(python: str, lake: Path, way: str, tables: int, latency: float) -> Run:
    """Runs a cell in a separate process, and prints the output of the process if it fails."""
    with stub(lake) as endpoint:
        command = [python, "-m", "benchmarks.connector.cell", way, endpoint, str(tables), str(latency)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{way}, {tables} tables, {latency * 1e3:g} ms:\n{done.stderr[-4000:]}")
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def bench(options: argparse.Namespace) -> str:
    """Runs all cells, in a new order each round, and returns the report, which is written after each run."""
    ways = [(way, options.python) for way in options.ways]
    if options.newer:
        ways.append(("dataframe", options.newer))
    cells = [(*each, tables, ms / 1e3) for each in ways for tables in options.tables for ms in options.latency]
    order = random.Random(options.seed)
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as lake:
        for n in range(max(options.tables) + WARM):
            lance.write_dataset(pa.table({"id": range(ROWS)}), f"{lake}/{NAMES.format(n)}.lance")
        for number in range(1, options.rounds + 1):
            for way, python, tables, latency in order.sample(cells, len(cells)):
                text = f"round {number}/{options.rounds}: {way}, {tables} tables, {latency * 1e3:g} ms"
                wait_for_quiet(options.load, text)
                progress(text)
                runs.append(run_cell(python, Path(lake), way, tables, latency))
                report = write(options.name, conditions(number, options.seed), runs, options.out)
    progress("")
    return report


def conditions(rounds: int, seed: int) -> dict[str, str]:
    """Returns the conditions that affect the figures."""
    versions = [f"{package} {version(package)}" for package in PACKAGES]
    return {
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()}",
        "versions": ", ".join([f"Python {platform.python_version()}", *versions, CONNECTOR.partition(":")[2]]),
        "extent": f"{rounds} rounds, seed {seed}",
    }


def main() -> None:
    """Runs the benchmark and writes its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connector", description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[200, 1000], help="number of tables in a union")
    parser.add_argument("--latency", type=float, nargs="+", default=[20], help="latency of the catalog in milliseconds")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="only these")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each cell")
    parser.add_argument("--python", default=sys.executable, help="a Python with Spark 3.5, for the connector")
    parser.add_argument("--newer", metavar="PYTHON", help="a Python with a newer Spark, for the DataFrame there too")
    parser.add_argument("--load", type=float, default=inf, help="maximum load average at the start of a run")
    parser.add_argument("--seed", type=int, default=0, help="seed for the order of the cells")
    parser.add_argument("--name", default="connector", help="name of the result files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results", help="where those are")
    print(bench(parser.parse_args()))


if __name__ == "__main__":
    main()
