"""SQL and streams over many tables: `ns.sql`, `scan_many` and Polars over it, and the same by hand with pylance.

`python -m benchmarks.engines --tables 200 2000` fills a directory catalog for each number of tables, and reads them in
new processes that take turns. All ways of a task must find the same rows. Then `benchmarks.engines.pushdown` counts the
bytes and requests of conditions and narrow columns; `--only` chooses one of the two parts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isclose
from statistics import median

from benchmarks.engines.lake import VALUES, WARM, Job, fill
from benchmarks.engines.ways import WAYS
from benchmarks.support.memory import Peak
from benchmarks.support.progress import progress
from benchmarks.support.report import table

COLUMNS = ["n0", "x0"]
WHERE = f"n0 < {VALUES // 2}"
STREAM = "All rows of two columns as a stream"
NOTES = """\
Seconds are medians of the rounds, from a new namespace to the last row; `of the peer` is relative to the first row of
the table. The first rows of a stream are those of the first table. Memory is the largest growth of the resident memory
of the process over that after the imports and the same read of one other table. Files are in the cache of the operating
system.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one way in its own process."""

    seconds: float
    first: float
    """Seconds to the first rows."""
    memory: int
    """In bytes."""
    count: int
    total: float


def measure(task: str, way: str, root: str) -> Run:
    """Reads all tables in this process."""
    read = WAYS[task][way]
    job = Job({"root": root}, columns=COLUMNS, where=None if task == STREAM else WHERE)
    for _ in read(replace(job, namespace=WARM)):
        pass
    memory, began = Peak(), time.perf_counter()
    first, count, total = 0.0, 0, 0.0
    for number, some in read(job):
        first = first or time.perf_counter() - began
        count, total = count + number, total + some
    return Run(time.perf_counter() - began, first, memory.growth, count, total)


def measure_apart(task: str, way: str, root: str) -> Run:
    """Reads all tables in a new process."""
    command = [sys.executable, "-m", "benchmarks.engines", "--run", json.dumps([task, way, root])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Run(*json.loads(done.stdout))


def compare(task: str, root: str, rounds: int) -> Iterator[Sequence[str]]:
    """Yields the rows of the report on a task."""
    runs: dict[str, list[Run]] = {way: [] for way in WAYS[task]}
    for number in range(rounds):
        for way in runs:
            progress(f"round {number + 1}/{rounds}: {way}")
            runs[way].append(measure_apart(task, way, root))
    progress("")
    expected, *others = [it for some in runs.values() for it in some]
    if wrong := [it for it in others if it.count != expected.count or not isclose(it.total, expected.total)]:
        raise SystemExit(f"{task}: {wrong[0]} has other rows than {expected}")
    peer = None
    for way, some in runs.items():
        seconds = median(it.seconds for it in some)
        peer = peer or seconds
        first = f"{median(it.first for it in some):.3f}" if task == STREAM else ""
        memory = median(it.memory for it in some) / 2**20
        yield way, f"{seconds:.3f}", f"{seconds / peer:.2f}", first, f"{memory:.0f}"


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[200, 2000], help="numbers of tables")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of each table")
    parser.add_argument("--columns", type=int, default=20, help="columns of each table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("speed", "pushdown"))
    parser.add_argument("--stored-tables", type=int, default=20, help="tables in the store that counts bytes")
    parser.add_argument("--stored-rows", type=int, default=100_000, help="rows of each of them")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run = measure(*json.loads(options.run))
        print(json.dumps([run.seconds, run.first, run.memory, run.count, run.total]))
        return
    if options.only != "pushdown":
        for tables in options.tables:
            with tempfile.TemporaryDirectory(prefix="lance-ns-engines-") as root:
                fill(Job({"root": root}), tables, options.rows, options.columns)
                for task in WAYS:
                    print(f"{task}: {tables:,} tables of {options.rows:,} rows and {options.columns} columns\n")
                    head = ("way", "seconds", "of the peer", "first rows, s", "memory, MiB")
                    print(table(head, list(compare(task, root, options.rounds))), end="\n\n", flush=True)
        print(NOTES)
    if options.only != "speed":
        from benchmarks.engines.pushdown import report

        print(report(options.stored_tables, options.stored_rows, options.columns))


if __name__ == "__main__":
    main()
