"""Writes the results of a benchmark as JSON, Markdown and a plot; run as a module, it reads them from the JSON."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support.cell import Cell, Run
from benchmarks.support.figures import Figures, Goal, Key, Spread, figures, goals
from benchmarks.support.stacks import STACKS

INTRODUCTION = """\
# Describing many tables at once

One describe is one `GET` of an Iceberg table of 1.6 KB from a stub catalog on the same machine, read and
decoded. Figures are medians; each run is a fresh process, and the stacks take turns in shuffled order.

Client CPU is user and system time of the measured part: imports, the catalog's configuration and the first
connection come before it, opening the other connections is in it. `peer` is lance-namespace-impls, one table
after another; `peer threads` is the same in 64 threads with one namespace object each. `aiohttp` and `httpx`
are those libraries alone: they send, read, decode and check, no more."""

CPU = "CPU of the client, µs per describe (least - most)"
WALL = "Wall time / ideal (least - most); the ideal is full waves of one latency each"
RATE = "Describes per second"
EXTENT = "Describes a run"


def write(conditions: Mapping[str, Any], runs: Sequence[Run], out: Path) -> str:
    """Writes describe.json, describe.md and describe.svg, and returns the Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    raw = {"conditions": conditions, "runs": [asdict(run) for run in runs]}
    (out / "describe.json").write_text(json.dumps(raw, indent=1) + "\n")
    found = figures(runs)
    plotted = find_spec("matplotlib") is not None
    if plotted:
        from benchmarks.describe.plot import plot

        plot(found, out / "describe.svg")
    text = markdown(conditions, runs, found, plotted)
    (out / "describe.md").write_text(text)
    return text


def read(path: Path) -> tuple[dict[str, Any], list[Run]]:
    """Returns the conditions and runs of an earlier benchmark."""
    raw = json.loads(path.read_text())
    return raw["conditions"], [Run(**{**run, "cell": Cell(**run["cell"])}) for run in raw["runs"]]


def markdown(conditions: Mapping[str, Any], runs: Sequence[Run], found: Mapping[Key, Figures], plotted: bool) -> str:
    """Returns the whole report."""
    parts = [
        INTRODUCTION,
        "## Goals",
        table(("goal", "figure", ""), [goal_row(goal, found) for goal in goals()]),
        *(["![CPU, wall time and speed](describe.svg)"] if plotted else []),
        f"## {CPU}",
        grid(found, lambda f: spread(f.cpu, ".0f")),
        f"## {WALL}",
        grid(found, lambda f: spread(f.over_ideal, ".2f") if f.over_ideal else ""),
        f"## {RATE}",
        grid(found, lambda f: f"{f.rate.median:,.0f}"),
        f"## {EXTENT}",
        grid(found, lambda f: f"{f.describes:,} x {f.runs}"),
        "## Conditions",
        "\n".join(f"- {name}: {value}" for name, value in {**conditions, **machine_state(runs)}.items()),
    ]
    return "\n\n".join(parts) + "\n"


def goal_row(goal: Goal, found: Mapping[Key, Figures]) -> tuple[str, str, str]:
    """Returns a goal, its figure, and whether it is met or by how much it is missed."""
    try:
        figure = goal.read(found)
    except KeyError:
        return goal.text, "", "not measured"
    distance = abs(figure / goal.bound - 1)
    verdict = f"met, {distance:.0%} to spare" if goal.met(figure) else f"**missed by {distance:.0%}**"
    return goal.text, f"{figure:.0f}" if goal.bound >= 10 else f"{figure:.2f}", verdict


def grid(found: Mapping[Key, Figures], show: Callable[[Figures], str]) -> str:
    """Returns one quantity by latency and requests in flight, one column per stack, without empty rows."""
    stacks = [stack for stack in STACKS if any(key[0] == stack for key in found)]
    rows: list[tuple[str, ...]] = []
    for latency, in_flight in sorted({key[1:] for key in found}):
        of_row = (found.get((stack, latency, in_flight)) for stack in stacks)
        cells = [show(figure) if figure else "" for figure in of_row]
        if any(cells):
            rows.append((f"{latency * 1e3:g}", str(in_flight), *cells))
    return table(("ms", "in flight", *stacks), rows)


def spread(values: Spread, form: str) -> str:
    """Returns a median with its range."""
    if values.least == values.most:
        return format(values.median, form)
    return f"{values.median:{form}} ({values.least:{form}} - {values.most:{form}})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table, padded for terminals; all columns but the first are right-aligned."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    left = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = (
        (row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)))
        for row in (head, left, *rows)
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def machine_state(runs: Sequence[Run]) -> dict[str, str]:
    """Returns how much the speed of the machine varied, and the stub's share of its time."""
    loops = Spread.of(run.loop * 1e3 for run in runs)
    stub = median(run.stub_cpu / run.cell.describes * 1e6 for run in runs)
    late = median(run.stub_late / run.cell.describes * 1e3 for run in runs if run.cell.latency)
    return {
        "fixed Python loop beside each run": f"{spread(loops, '.1f')} ms",
        "stub": f"{stub:.0f} µs of CPU an answer; it holds answers {late:.1f} ms longer than the latency",
    }


if __name__ == "__main__":
    source = Path(sys.argv[1])
    print(write(*read(source), source.parent))
