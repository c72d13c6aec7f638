"""Time and memory for 100,000 tables: `python -m benchmarks.scale` describes them at once and as a stream.

Each way runs in a fresh process, against a stub of Iceberg's REST catalog (one call per table) and a fake Unity Catalog
(pages). Memory is the resident memory of the whole client process: `imports` before the first bulk call, with one table
described, and `most` at its peak.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.support.cell import NAMESPACES, cpu_seconds
from benchmarks.support.memory import Peak, peak
from lance_ns_async import AsyncNamespace, Policy, TableId

TABLES = 100_000
IN_FLIGHT = 64
SCHEMA = ("main", "lake")
"""The namespace of the tables in a fake Unity Catalog."""

GOALS = {"kept": 300, "streamed": 150}
"""Maximum peak memory of the client process, in MB."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to describe many tables of one catalog."""

    what: str
    impl: str
    properties: dict[str, str]
    way: str
    """`kept`, all results at once, or `streamed`."""
    tables: int
    there: bool = True
    """Whether the tables exist."""


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a cell; times in seconds, memory in MB."""

    wall: float
    cpu: float
    before: float
    most: float


def ids(cell: Cell) -> Iterator[tuple[str, ...]]:
    """Yields the ids of the tables of a cell."""
    for number in range(cell.tables):
        name = f"table_{number:06}"
        yield (*SCHEMA, name) if cell.impl == "unity" else (f"ns{number % NAMESPACES:02}", name)


async def measure(cell: Cell) -> Run:
    """Describes all tables of a cell; raises an error if an outcome is wrong."""
    policy = Policy(max_in_flight=IN_FLIGHT)
    async with AsyncNamespace.connect(cell.impl, cell.properties, policy=policy) as namespace:
        await namespace.exists(TableId(next(ids(cell))))
        Peak()
        before, cpu, start = peak() / 1e6, cpu_seconds(), time.perf_counter()
        async with aclosing(outcomes(namespace, cell)) as found:
            there = [0, 0]
            async for is_table in found:
                there[is_table] += 1
        wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        most = peak() / 1e6
    if there != ([0, cell.tables] if cell.there else [cell.tables, 0]):
        raise RuntimeError(f"{cell.what}: {there[True]:,} of {cell.tables:,} tables existed")
    return Run(wall, cpu, before, most)


async def outcomes(namespace: AsyncNamespace, cell: Cell) -> AsyncGenerator[bool, None]:
    """Returns for each table whether it exists."""
    if cell.way == "kept":
        described = await namespace.describe_tables(ids(cell))
        for id in described.errors:
            yield id in described.tables
        for id in described.tables:
            yield id in described.tables
        return
    async with aclosing(namespace.stream_tables(ids(cell))) as stream:
        async for _, outcome in stream:
            yield not isinstance(outcome, Exception)


@contextmanager
def cells(tables: int, *, pages: bool) -> Iterator[Iterator[Cell]]:
    """Yields the cells, to be run while the context is open; each configures the catalog before it runs."""
    from benchmarks.support.stub_process import running_stub, set_switches

    def all_cells(endpoint: str) -> Iterator[Cell]:
        for latency in (0.0, 0.002):
            set_switches(endpoint, latency=latency)
            for way in GOALS:
                yield Cell(f"Iceberg, {latency * 1e3:g} ms", "iceberg", {"endpoint": endpoint}, way, tables)
        set_switches(endpoint)
        # The stub returns 404 for a prefix of two parts.
        missing = {"endpoint": endpoint, "warehouse": "not/there"}
        for way in GOALS:
            yield Cell("Iceberg, all tables missing", "iceberg", missing, way, tables, there=False)
        if pages:
            yield from unity_cells(tables)

    with running_stub() as endpoint:
        yield all_cells(endpoint)


def unity_cells(tables: int) -> Iterator[Cell]:
    """Returns the cells of a catalog whose listing contains locations."""
    from benchmarks.catalogs.sites import Extent, served

    with served("unity", Extent(SCHEMA, tables, 0, "s3://bucket/lake")) as server:
        server.ask("heal")
        for way in GOALS:
            yield Cell("Unity, pages, 0 ms", "unity", server.properties, way, tables)


def run_cell(cell: Cell) -> Run:
    """Runs a cell in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale", "--cell", json.dumps(asdict(cell))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout))


def report(runs: list[tuple[Cell, Run]], load: float) -> str:
    """Returns a table of all runs."""
    loads = f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after"
    lines = [
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {loads}; {IN_FLIGHT} in flight\n",
        "| catalog | results | tables | time, s | CPU, µs per table | imports, MB | most, MB | goal, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell, run in runs:
        goal = f"{GOALS[cell.way]}: {'met' if run.most <= GOALS[cell.way] else 'missed'}"
        lines.append(
            f"| {cell.what} | {cell.way} | {cell.tables:,} | {run.wall:.1f} | {run.cpu / cell.tables * 1e6:.0f} "
            f"| {run.before:.0f} | {run.most:.0f} | {goal} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--no-pages", action="store_true", help="omit the catalog that takes long to fill")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        told: dict[str, Any] = json.loads(options.cell)
        print(json.dumps(asdict(asyncio.run(measure(Cell(**told))))))
        return
    load = os.getloadavg()[0]
    with cells(options.tables, pages=not options.no_pages) as found:
        runs = [(cell, run_cell(cell)) for cell in found]
    print(report(runs, load))


if __name__ == "__main__":
    main()
