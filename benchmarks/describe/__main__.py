"""Speed of describing many tables: our bulk call compared with other clients."""

import argparse
import os
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.describe.plan import DEFAULT, FULL, QUICK, Extent, cells
from benchmarks.support.cell import Cell, Run, WrongRunError, run_cell
from benchmarks.support.progress import progress
from benchmarks.support.report import write
from benchmarks.support.stacks import STACKS
from benchmarks.support.stub_process import running_stub

ATTEMPTS = 3
SLOW = 1.3
"""A run is repeated once if the fixed loop takes this many times its minimum so far."""

PACKAGES = ("lance-ns-async", "aiohttp", "httpx", "lance-namespace-impls", "uvloop")


class Bench:
    """Runs cells on one stub, discards runs with invalid figures, and counts them."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._fastest_loop = float("inf")
        self.runs: list[Run] = []
        self.wrong: list[str] = []
        self.slow = 0

    def run(self, cell: Cell) -> None:
        """Runs a cell until a run is valid, at most a few times; the report names cells without a valid run."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                run = run_cell(self._endpoint, cell)
            except WrongRunError as error:
                self.wrong.append(f"{cell.stack}, {cell.latency * 1e3:g} ms, {cell.in_flight}: {error}")
                continue
            self._fastest_loop = min(self._fastest_loop, run.loop)
            if attempt == 1 and run.loop > SLOW * self._fastest_loop:
                self.slow += 1
                continue
            self.runs.append(run)
            return


def bench(extent: Extent, stacks: Sequence[str], seed: int) -> tuple[dict[str, str], list[Run]]:
    """Runs all rounds of all cells, each round in a new order, and returns them with the conditions."""
    order = random.Random(seed)
    wanted = [cell for cell in cells(extent) if cell.stack in stacks]
    load, start = os.getloadavg()[0], time.monotonic()
    with running_stub() as endpoint:
        bench = Bench(endpoint)
        for number in range(1, extent.rounds + 1):
            for cell in order.sample(wanted, len(wanted)):
                bench.run(cell)
                progress(f"round {number}/{extent.rounds}: {len(bench.runs)}/{len(wanted) * extent.rounds} runs")
    progress("")
    conditions = {
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()}",
        "load average": f"{load:.1f} before, {os.getloadavg()[0]:.1f} after",
        "versions": f"Python {platform.python_version()}, {', '.join(versions())}",
        "extent": f"{extent.rounds} rounds, seed {seed}, {time.monotonic() - start:.0f} s",
        "discarded and repeated": f"{len(bench.wrong)} wrong, {bench.slow} in slow moments",
        **({"wrong runs": "; ".join(bench.wrong)} if bench.wrong else {}),
    }
    return conditions, bench.runs


def versions() -> list[str]:
    """Returns the versions of the compared packages that are installed."""
    found: list[str] = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} from source or absent")
    return found


def main() -> None:
    """Runs the benchmark and writes its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.describe", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="extent", action="store_const", const=QUICK, help="the goals' cells, a minute")
    size.add_argument("--full", dest="extent", action="store_const", const=FULL, help="10,000 describes and more")
    parser.add_argument("--rounds", type=int, help="number of runs of each cell")
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=list(STACKS), help="only these")
    parser.add_argument("--seed", type=int, default=0, help="seed for the order of the cells")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results", help="where results go")
    parser.set_defaults(extent=DEFAULT)
    options = parser.parse_args()
    extent = replace(options.extent, rounds=options.rounds) if options.rounds else options.extent
    print(write(*bench(extent, options.stacks, options.seed), options.out))


if __name__ == "__main__":
    main()
