"""Speed of describing many tables over the Lance REST Namespace protocol, compared with Iceberg and with pylance.

`python -m benchmarks.rest` describes 5,000 tables of a stub server with a latency of 20 ms, 64 at once.
"""

import argparse
import os
from collections import defaultdict
from statistics import median

from benchmarks.support.cell import Cell, Run, run_cell
from benchmarks.support.progress import progress
from benchmarks.support.stub_process import running_stub

STACKS = {
    "ours rest": "`rest`, bulk call",
    "ours": "`iceberg`, bulk call",
    "pylance rest": "pylance's `RestNamespace`, 64 threads",
}
LATENCY = 0.02
IN_FLIGHT = 64


def measure(describes: int, rounds: int) -> list[Run]:
    """Returns the runs of all stacks; they take turns, and each run is a new process."""
    cells = [Cell(stack, LATENCY, IN_FLIGHT, describes) for stack in STACKS]
    runs = []
    with running_stub() as endpoint:
        for number in range(1, rounds + 1):
            for cell in cells:
                progress(f"round {number}/{rounds}: {cell.stack}")
                runs.append(run_cell(endpoint, cell))
    progress("")
    return runs


def report(runs: list[Run]) -> str:
    """Returns the medians of the runs as a Markdown table, and the ratios."""
    by_stack: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_stack[run.cell.stack].append(run)
    lines = ["| client | wall / ideal | CPU, µs per describe | connections |", "|---|---|---|---|"]
    cpu = {}
    for stack, group in by_stack.items():
        cell = group[0].cell
        walls = sorted(run.wall / cell.ideal for run in group)
        cpus = sorted(run.cpu / cell.describes * 1e6 for run in group)
        cpu[stack] = median(cpus)
        lines.append(
            f"| {STACKS[stack]} | {median(walls):.2f} ({walls[0]:.2f} - {walls[-1]:.2f}) "
            f"| {median(cpus):.0f} ({cpus[0]:.0f} - {cpus[-1]:.0f}) | {max(run.connections for run in group)} |"
        )
    ratios = ", ".join(f"{cpu['ours rest'] / cpu[peer]:.2f} of {STACKS[peer]}" for peer in ("ours", "pylance rest"))
    return "\n".join([*lines, "", f"CPU of `rest`: {ratios}.", f"Load average: {os.getloadavg()[0]:.1f}."])


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rest", description=__doc__)
    parser.add_argument("--describes", type=int, default=5000, help="number of describes in a run")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of each client")
    options = parser.parse_args()
    print(report(measure(options.describes, options.rounds)))


if __name__ == "__main__":
    main()
