"""Speed of listing and describing the tables of one catalog, compared with the peer.

`python -m benchmarks.catalogs glue` fills a catalog and measures. Each run is a fresh process that does a task once to
open its connections, and then once more, which is measured.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from lance_namespace import DescribeTableRequest, ListTablesRequest

from benchmarks.catalogs.sites import SITES, Extent, Site
from benchmarks.support.cell import WrongRunError, cpu_seconds
from benchmarks.support.figures import Spread
from benchmarks.support.progress import progress
from benchmarks.support.report import spread, table
from lance_ns_async import AsyncNamespace

TABLES = {"glue": (2000, 500), "hive3": (2000, 500), "polaris": (5000, 0), "unity": (5000, 0)}
"""Default numbers of Lance tables and of other tables, by catalog."""
PEERS = {"glue": "GlueNamespace", "hive3": "Hive3Namespace", "polaris": "PolarisNamespace", "unity": "UnityNamespace"}
SOME = 500
PEER_WARMS = 20
"""Number of tables that the peer describes as warm-up; it has no cache that would need more."""
QUICK_SHARE = 10
WITHIN_SECONDS = 600

Result = list[str] | dict[str, str]
"""The names of all tables, or the locations of tables by their names."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The subject of a measurement: a client, a task, and its tables."""

    client: str
    task: str
    tables: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of a cell, in seconds."""

    wall: float
    cpu: float
    """User and system time of the client process."""


def cells(tables: int) -> list[Cell]:
    """Returns the cells of one round: our tasks, and the two that the peer supports."""
    some = min(SOME, tables)
    ours = [Cell("ours", task, count) for task, count in (("describe 500", some), ("describe all", tables))]
    return [*ours, Cell("ours", "list", tables), Cell("peer", "describe 500", some), Cell("peer", "list", tables)]


async def run_ours(site: Site, cell: Cell, names: Sequence[str]) -> Run:
    """Measures the bulk calls of `AsyncNamespace`."""
    async with AsyncNamespace.connect(site.impl, site.properties) as ns:

        async def work() -> Result:
            if cell.task == "list":
                listing = await ns.list_tables(ListTablesRequest(id=list(site.extent.namespace)))
                return list(listing.tables)
            result = await ns.describe_tables([(*site.extent.namespace, name) for name in names])
            return {id.name: table.location for id, table in result.raise_for_errors().tables.items()}

        await work()
        return await timed(work, lambda result: check(site.extent, names, result))


async def run_peer(site: Site, cell: Cell, names: Sequence[str]) -> Run:
    """Measures the peer, which describes one table after another."""
    namespace = getattr(import_module(f"lance_namespace_impls.{site.impl}"), PEERS[site.impl])(**site.peer_properties)

    def describe(name: str) -> str:
        location: str = namespace.describe_table(DescribeTableRequest(id=[*site.peer_namespace, name])).location
        return location

    async def work() -> Result:
        if cell.task == "list":
            return list(namespace.list_tables(ListTablesRequest(id=list(site.peer_namespace))).tables)
        return {name: describe(name) for name in names}

    for name in site.extent.some(PEER_WARMS):
        describe(name)
    return await timed(work, lambda result: check(site.extent, names, result))


async def timed(work: Callable[[], Any], check: Callable[[Result], None]) -> Run:
    """Returns the time of work whose result is right."""
    gc.collect()
    cpu, start = cpu_seconds(), time.perf_counter()
    result = await work()
    run = Run(time.perf_counter() - start, cpu_seconds() - cpu)
    check(result)
    return run


def check(extent: Extent, names: Sequence[str], result: Result) -> None:
    """Fails unless a result has all tables, and their locations."""
    if isinstance(result, list):
        if sorted(result) != extent.lance():
            raise WrongRunError(f"listed {len(result)} names instead of {extent.tables} tables")
        return
    wrong = [name for name in names if plain(result.get(name, "")) != plain(extent.location(name))]
    if wrong or len(result) != len(names):
        raise WrongRunError(f"{len(wrong)} of {len(names)} locations are wrong, such as that of {wrong[:1]}")


def plain(location: str) -> str:
    """Returns a location in one form, because catalogs rewrite local ones."""
    scheme, _, path = location.partition(":")
    return f"file:/{path.lstrip('/')}" if scheme == "file" else location


def run_cell(site: Site, cell: Cell) -> Run:
    """Runs a cell in a fresh process."""
    argument = json.dumps({"site": asdict(site), "cell": asdict(cell)})
    command = [sys.executable, "-m", "benchmarks.catalogs", "--cell", argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False)
    if done.returncode:
        raise WrongRunError(f"{cell.client}, {cell.task}: {done.stderr.strip().rpartition(': ')[2]}")
    return Run(**json.loads(done.stdout))


def run_here(argument: str) -> Run:
    """Runs a cell in this process."""
    given = json.loads(argument)
    extent = Extent(**{**given["site"].pop("extent")})
    site, cell = Site(**given["site"], extent=extent), Cell(**given["cell"])
    run = {"ours": run_ours, "peer": run_peer}[cell.client]
    return asyncio.run(run(site, cell, extent.some(cell.tables)))


def measure(impl: str, tables: int, others: int, rounds: int, seed: int) -> tuple[dict[Cell, list[Run]], set[str]]:
    """Returns all rounds of a catalog's cells, in random order, after one round that only warms up the catalog.

    Wrong results of the peer are returned, too; one of ours ends the benchmark.
    """
    order, runs, wrong = random.Random(seed), defaultdict[Cell, list[Run]](list), set[str]()
    progress(f"{impl}: filling it with {tables + others:,} tables")
    with SITES[impl](tables, others) as site:
        for number in range(rounds + 1):
            for cell in order.sample(every := cells(tables), len(every)):
                progress(f"round {number}/{rounds}: {cell.client}, {cell.task}")
                try:
                    run = run_cell(site, cell)
                except WrongRunError as e:
                    if cell.client == "ours":
                        raise
                    wrong.add(str(e))
                    continue
                if number:
                    runs[cell].append(run)
    progress("")
    return runs, wrong


def report(impl: str, runs: dict[Cell, list[Run]], wrong: set[str]) -> str:
    """Returns the figures and the ratios as Markdown."""
    rows, medians = [], dict[tuple[str, str], tuple[float, float]]()
    for cell in sorted(runs, key=lambda cell: (cell.client, cell.task)):
        wall = Spread.of(run.wall for run in runs[cell])
        cpu = Spread.of(run.cpu / cell.tables * 1e6 for run in runs[cell])
        medians[cell.client, cell.task] = wall.median / cell.tables, cpu.median
        rows.append((f"{cell.client}: {cell.task}", spread(wall, ".3f"), spread(cpu, ",.0f")))
    pairs = (("describe 500", "describe 500"), ("describe 500", "describe all"), ("list", "list"))
    ratios = [
        (
            f"{theirs}, ours {task}",
            *(f"{a / b:.1f}" for a, b in zip(medians["peer", theirs], medians["ours", task], strict=True)),
        )
        for theirs, task in pairs
        if ("peer", theirs) in medians
    ]
    machine = f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    parts = (
        f"# {impl}",
        "Medians (least - most) of fresh processes; `peer` is lance-namespace-impls, one table after another.",
        table(("client and task", "seconds", "CPU, µs per table"), rows),
        table(("the peer takes, per table", "times the seconds", "times the CPU"), ratios),
        *sorted(wrong),
        machine,
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measures one catalog, and writes the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalogs", description=__doc__)
    parser.add_argument("catalog", choices=TABLES, nargs="?", default="glue")
    parser.add_argument("--tables", type=int, help="number of Lance tables")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of each cell")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tables, once, as a check")
    parser.add_argument("--seed", type=int, default=0, help="seed for the order of the cells")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results", help="where results go")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(asdict(run_here(options.cell))))
        return
    share = QUICK_SHARE if options.quick else 1
    tables, others = (count // share for count in TABLES[options.catalog])
    rounds = 1 if options.quick else options.rounds
    runs, wrong = measure(options.catalog, options.tables or tables, others, rounds, options.seed)
    text = report(options.catalog, runs, wrong)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"catalogs-{options.catalog}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
