"""Speed of listing and describing the tables of one catalog, compared with the peer.

`python -m benchmarks.catalogs hive3` fills a catalog and measures. `--memory`, `--throttle`, `--expiry`, `--stall` and
`--churn` run one other experiment instead, on the catalogs that support it.
"""

import argparse
import os
import platform
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.catalogs.cell import Run, cells, run_cell
from benchmarks.catalogs.figures import Report
from benchmarks.catalogs.report import write, write_trial
from benchmarks.catalogs.sites import opened
from benchmarks.catalogs.trials import TRIALS
from benchmarks.support.progress import progress

TABLES = {"hive3": (2000, 500), "glue": (2000, 500), "polaris": (5000, 0), "unity": (5000, 0)}
"""Default numbers of Lance tables and of other tables, by catalog."""
MEMORY_TABLES = 20_000
QUICK_SHARE = 10
PACKAGES = ("lance-ns-async", "aiohttp", "aiobotocore", "lance-namespace-impls", "boto3", "thrift", "moto")


@dataclass(frozen=True, slots=True)
class Plan:
    """The extent of the measurements."""

    impl: str
    tables: int
    others: int
    rounds: int
    seed: int
    tasks: Sequence[str] | None = None
    """The cells to measure; None for all."""
    clients: Sequence[str] = ("ours", "peer")
    aims: bool = True
    """Whether the goals apply."""


def bench(plan: Plan, name: str) -> Report:
    """Returns all rounds of a catalog's cells, in random order, after one round that only warms up the catalog."""
    order = random.Random(plan.seed)
    load, start = os.getloadavg()[0], time.monotonic()
    runs: list[Run] = []
    progress(f"{plan.impl}: filling it with {plan.tables + plan.others:,} tables")
    with opened(plan.impl, plan.tables, plan.others) as (site, counter):
        filled = time.monotonic() - start
        wanted = [cell for cell in cells(site, plan.tasks) if cell.client in plan.clients]
        for number in range(plan.rounds + 1):
            for cell in order.sample(wanted, len(wanted)):
                progress(f"round {number}/{plan.rounds}: {cell.client}, {cell.task}")
                run = run_cell(site, cell, counter)
                # Errors in the warm-up round are reported, too.
                if number or run.wrong:
                    runs.append(run)
        ideals = {cell.task: ideal for cell in wanted if (ideal := site.ideal(cell.task)) is not None}
    progress("")
    conditions = {
        **surroundings(load),
        "extent": f"{plan.rounds} rounds, seed {plan.seed}, {time.monotonic() - start:.0f} s, {filled:.0f} s to fill",
    }
    return Report(name, plan.impl, plan.tables, plan.others, plan.aims, ideals, conditions, runs)


def surroundings(load: float) -> dict[str, Any]:
    """Returns other conditions that affect the figures."""
    return {
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()}",
        "load average": f"{load:.1f} before, {os.getloadavg()[0]:.1f} after",
        "versions": f"Python {platform.python_version()}, {', '.join(versions())}",
    }


def versions() -> Iterator[str]:
    """Returns the versions of the packages involved, if they are installed."""
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


def try_out(trial: str, plan: Plan, out: Path) -> str:
    """Runs one experiment on one catalog, and writes its results."""
    load = os.getloadavg()[0]
    title, rows = TRIALS[trial][plan.impl](plan.tables, plan.others)
    return write_trial(f"catalogs-{plan.impl}-{trial}", title, rows, surroundings(load), out)


def main() -> None:
    """Measures one catalog and writes the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalogs", description=__doc__)
    parser.add_argument("catalog", choices=TABLES)
    parser.add_argument("--tables", type=int, help="number of Lance tables")
    parser.add_argument("--others", type=int, help="number of tables of other formats")
    parser.add_argument("--rounds", type=int, help="number of runs of each cell")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tables, once, as a check")
    parser.add_argument("--seed", type=int, default=0, help="seed for the order of the cells")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results", help="where results go")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--memory", action="store_true", help="listing and describing 20,000 tables")
    for trial, impls in TRIALS.items():
        what.add_argument(f"--{trial}", dest="trial", action="store_const", const=trial, help=", ".join(impls))
    parser.set_defaults(trial=None)
    options = parser.parse_args()
    if options.trial and options.catalog not in TRIALS[options.trial]:
        parser.error(f"--{options.trial} is for {' and '.join(TRIALS[options.trial])}")
    plan = read_plan(options)
    if options.trial:
        print(try_out(options.trial, plan, options.out))
    else:
        name = f"catalogs-{plan.impl}" + ("-memory" if options.memory else "")
        print(write(bench(plan, name), options.out))


def read_plan(options: argparse.Namespace) -> Plan:
    """Returns the extent in the command line."""
    tables, others = (MEMORY_TABLES, 0) if options.memory else TABLES[options.catalog]
    rounds = 3 if options.memory else 5
    if options.quick:
        tables, others, rounds = tables // QUICK_SHARE, others // QUICK_SHARE, 1
    plan = Plan(
        options.catalog,
        tables if options.tables is None else options.tables,
        others if options.others is None else options.others,
        options.rounds or rounds,
        options.seed,
    )
    if options.memory:
        return replace(plan, tasks=("list", "describe all"), clients=("ours",), aims=False)
    return plan


if __name__ == "__main__":
    main()
