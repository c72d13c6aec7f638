"""Writes Spark's planning times as JSON, Markdown and a plot; run as a module, it reads them from the JSON."""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks.connector.cell import WARM, Run
from benchmarks.connector.plot import Key, plot
from benchmarks.support.figures import Spread
from benchmarks.support.report import spread, table

INTRODUCTION = """\
# Planning SQL over many tables

One query is a `UNION ALL` of tables of ten rows on a local disk, its brackets balanced, in a catalog that answers each
describe after a latency. `straight` is Spark's Lance connector, which asks that catalog itself; `endpoint` is the same
SQL and connector, served by the driver with `Locations.serve`; `dataframe` is `Locations.dataframe`, without connector
and SQL.

`resolve` is the prefetch, over a new connection; that of a DataFrame opens each dataset, which the connector does while
it plans. Execution reads every row and begins when the physical plan is there. Each run is a fresh process, warmed by a
union of {warm} other tables at no latency, and the runs of a round take turns in shuffled order. Figures are seconds:
medians, with the least and the greatest; memory is the most of any run, with the JVM as driver and executor in one."""

MEMORY = (attrgetter("driver_mib"), attrgetter("jvm_mib"), attrgetter("worker_mib"))

GOALS = {0.02: 14.0, 0.05: 30.0}
"""The required speed-up of the endpoint over `straight`, by latency, for the largest number of tables."""


def write(name: str, conditions: Mapping[str, Any], runs: Sequence[Run], out: Path) -> str:
    """Writes the JSON and Markdown files, and returns the Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    raw = {"conditions": conditions, "runs": [asdict(run) for run in runs]}
    (out / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    found = by_cell(runs)
    text = markdown(conditions, runs, found)
    (out / f"{name}.md").write_text(text)
    plot(found, out / f"{name}.svg")
    return text


def by_cell(runs: Sequence[Run]) -> Mapping[Key, Sequence[Run]]:
    """Returns the runs of each cell, sorted by size."""
    found: defaultdict[Key, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.tables, run.latency)):
        found[run.tables, run.latency, run.way, run.spark].append(run)
    return found


def markdown(conditions: Mapping[str, Any], runs: Sequence[Run], found: Mapping[Key, Sequence[Run]]) -> str:
    """Returns the whole report."""
    seconds = ("resolve", "analysis", "planning", "until planned", "execution")
    head = ("tables", "ms", "way", "Spark", *seconds, "describes", "MiB of driver, JVM, worker", "runs")
    loads = Spread.of(run.load for run in runs)
    parts = [
        INTRODUCTION.format(warm=WARM),
        "## Goals",
        table(("goal", "figure", ""), list(goal_rows(found))),
        "## Seconds",
        table(head, [row(key, of_key) for key, of_key in found.items()]),
        "## Conditions",
        "\n".join(f"- {name}: {value}" for name, value in conditions.items()),
        f"- load average when a run began: {spread(loads, '.1f')}",
    ]
    return "\n\n".join(parts[:-1]) + f"\n{parts[-1]}\n"


def row(key: Key, runs: Sequence[Run]) -> tuple[str, ...]:
    """Returns the medians of one cell."""

    def seconds(read: Callable[[Run], float]) -> str:
        return spread(Spread.of(map(read, runs)), ".1f")

    tables, latency, way, spark = key
    return (
        f"{tables:,}",
        f"{latency * 1e3:g}",
        way,
        spark,
        seconds(lambda run: run.resolve),
        seconds(lambda run: run.analysis),
        seconds(lambda run: run.planning),
        seconds(lambda run: run.planned),
        seconds(lambda run: run.execution),
        spread(Spread.of(run.describes for run in runs), ",.0f"),
        ", ".join(f"{max(map(read, runs)):,}" for read in MEMORY),
        str(len(runs)),
    )


def goal_rows(found: Mapping[Key, Sequence[Run]]) -> list[tuple[str, str, str]]:
    """Returns the speed-ups of planning through the driver for which there is a goal."""
    rows: list[tuple[str, str, str]] = []
    for latency, bound in GOALS.items():
        text = f"until planned, {latency * 1e3:g} ms: the endpoint at least {bound:g}x as fast as straight"
        ways = ("straight", "endpoint")
        both = [{key[0]: key for key in found if key[1:3] == (latency, way)} for way in ways]
        if not (sizes := both[0].keys() & both[1].keys()):
            rows.append((text, "", "not measured"))
            continue
        tables = max(sizes)
        straight, endpoint = (Spread.of(run.planned for run in found[keys[tables]]).median for keys in both)
        figure = straight / endpoint
        distance = abs(figure / bound - 1)
        verdict = f"met, {distance:.0%} to spare" if figure >= bound else f"**missed by {distance:.0%}**"
        rows.append((f"{text}, {tables:,} tables", f"{figure:.1f}", verdict))
    return rows


if __name__ == "__main__":
    source = Path(sys.argv[1])
    raw = json.loads(source.read_text())
    print(write(source.stem, raw["conditions"], [Run(**run) for run in raw["runs"]], source.parent))
