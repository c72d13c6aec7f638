"""SQL and streams over many tables: `ns.sql`, `scan_many` and Polars over it, and the same by hand with pylance.

`python -m benchmarks.engines --tables 200 2000` fills a directory catalog for each number of tables, and reads it in
new processes that take turns. All ways of a task must find the same rows. Then it counts the bytes and requests that
conditions and narrow columns save. `--only` chooses one of these parts.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isclose
from statistics import median
from typing import NamedTuple

from benchmarks.engines.lake import VALUES, Job, fill
from benchmarks.engines.ways import STREAM, WAYS, Found
from benchmarks.support.memory import Peak
from benchmarks.support.progress import progress
from benchmarks.support.report import table

NOTES = """\
Figures are medians of the rounds. Seconds are from a new namespace or catalog to the last row, and relative to the
first way of the table. Memory is the growth of the resident memory to its peak, after the imports and the same read of
another table. Files are in the cache of the operating system. An aggregate has a condition that keeps half of the rows.
"""


class Run(NamedTuple):
    """The result of a way in a process of its own: seconds, those to the first rows, memory in bytes, and the rows."""

    seconds: float
    first: float
    memory: int
    rows: int
    total: float


def measure(task: str, way: str, root: str) -> Run:
    """Reads all tables in this process."""
    read, job = WAYS[task][way], Job({"root": root}, ["n0", "x0"], None if task == STREAM else f"n0 < {VALUES // 2}")
    list(read(replace(job, namespace="warm")))
    gc.collect()  # Otherwise, some ways would pay for the first collection after the imports.
    memory, began, first, found = Peak(), time.perf_counter(), 0.0, list[Found]()
    for some in read(job):
        first = first or time.perf_counter() - began
        found.append(some)
    return Run(time.perf_counter() - began, first, memory.growth, *map(sum, zip((0, 0.0), *found, strict=True)))


def compare(task: str, root: str, rounds: int) -> Iterator[Sequence[str]]:
    """Yields the rows of the report on a task."""
    runs: dict[str, list[Run]] = {way: [] for way in WAYS[task]}
    for number in range(rounds):
        for way, found in runs.items():
            progress(f"round {number + 1}/{rounds}: {way}")
            command = [sys.executable, "-m", "benchmarks.engines", "--run", json.dumps([task, way, root])]
            found.append(Run(*json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)))
    progress("")
    expected, *others = [it for found in runs.values() for it in found]
    if wrong := [it for it in others if it.rows != expected.rows or not isclose(it.total, expected.total)]:
        raise SystemExit(f"{task}: {wrong[0]} has other rows than {expected}")
    seconds = {way: median(it.seconds for it in found) for way, found in runs.items()}
    for way, found in runs.items():
        first = f"{median(it.first for it in found):.3f} s" if task == STREAM else ""
        memory = f"{median(it.memory for it in found) / 2**20:.0f} MiB"
        yield way, f"{seconds[way]:.3f} s", f"{seconds[way] / next(iter(seconds.values())):.2f}", first, memory


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[200, 2000], help="numbers of tables")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of each table")
    parser.add_argument("--columns", type=int, default=20, help="columns of each table, an even number")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("speed", "pushdown"))
    parser.add_argument("--stored", type=int, nargs=2, default=[20, 100_000], help="tables and rows in the other store")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measure(*json.loads(options.run))))
        return
    for tables in options.tables if options.only != "pushdown" else ():
        with tempfile.TemporaryDirectory(prefix="lance-ns-engines-") as root:
            fill(Job({"root": root}), tables, options.rows, options.columns)
            for task in WAYS:
                print(f"{task}: {tables:,} tables of {options.rows:,} rows and {options.columns} columns\n")
                head = ("way", "time", "of the first way", "first rows", "memory")
                print(table(head, list(compare(task, root, options.rounds))), end="\n\n", flush=True)
    if options.only != "pushdown":
        print(NOTES)
    if options.only != "speed":
        from benchmarks.engines.pushdown import report

        print(report(options.stored, options.columns), end="")


if __name__ == "__main__":
    main()
