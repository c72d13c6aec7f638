"""Writes the measurements on a catalog as JSON and Markdown; run as a module, it reads them from the JSON."""

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.catalogs.cell import PEER_WARMS
from benchmarks.catalogs.figures import Figure, Figures, Goal, Ratio, Report, figures, goals, ratios
from benchmarks.support.figures import Spread
from benchmarks.support.report import spread, table

INTRODUCTION = """\
# {title}

{tables:,} Lance tables and {others:,} others in one namespace. Figures are medians, with the least and the greatest of
the rounds. Each run is a fresh process, and the runs of a round take turns in shuffled order. Ours have done their
task once before they are measured, so that all connections are open; the peer has described {warms} tables and keeps
nothing that more would warm. The catalog itself is warmed by a round that does not count.

CPU is user and system time of the measured client's process alone. Memory is what that process needed at most beyond
what it had when it had described one table. `peer` is lance-namespace-impls, which describes one table after another.
What every run gave is compared with what the catalog was filled with."""

TITLES = {
    "hive3": "Hive Metastore 3.1.3",
    "glue": "AWS Glue, moto",
    "polaris": "Apache Polaris, a fake with a latency of 20 ms, 64 calls in flight",
    "unity": "Unity Catalog, a fake with a latency of 20 ms",
}


def write(report: Report, out: Path) -> str:
    """Writes the JSON and Markdown files of a report, and returns the Markdown."""
    return _write_files(report.name, asdict(report), markdown(report), out)


def write_trial(
    name: str, title: str, rows: Sequence[tuple[str, str]], conditions: Mapping[str, Any], out: Path
) -> str:
    """Writes the results of a trial, as rows of names and values, and returns the Markdown."""
    text = "\n\n".join((f"# {title}", table(("", "found"), rows), *conditions_part(conditions))) + "\n"
    return _write_files(name, {"name": name, "found": dict(rows), "conditions": dict(conditions)}, text, out)


def markdown(report: Report) -> str:
    """Returns the whole report."""
    found = figures(report)
    introduction = INTRODUCTION.format(
        title=TITLES[report.impl], tables=report.tables, others=report.others, warms=PEER_WARMS
    )
    compared = ratios(found)
    head = ("the peer takes", "times the seconds", "times the CPU", "times the calls")
    parts = [
        introduction,
        *goals_part(report, found),
        "## Figures",
        figure_table(report, found),
        *(["## Ratios", table(head, [ratio_row(each) for each in compared])] if compared else []),
        *wrong_part(report),
        *conditions_part({**report.conditions, "fixed Python loop beside each run": f"{loops(report)} ms"}),
    ]
    return "\n\n".join(parts) + "\n"


def goals_part(report: Report, found: Figures) -> list[str]:
    """Returns the goals; empty if there are none for what was measured."""
    rows = [goal_row(goal, found) for goal in goals(report.impl)]
    return ["## Goals", table(("goal", "figure", ""), rows)] if report.aims else []


def goal_row(goal: Goal, found: Figures) -> tuple[str, str, str]:
    """Returns a goal, its figure, and whether it is met or by how much it is missed."""
    try:
        figure = goal.read(found)
    except KeyError:
        return goal.text, "", "not measured"
    distance = abs(figure / goal.bound - 1)
    verdict = f"met, {distance:.0%} to spare" if goal.met(figure) else f"**missed by {distance:.0%}**"
    return goal.text, f"{figure:.3g}", verdict


def figure_table(report: Report, found: Figures) -> str:
    """Returns a row for each cell, including cells without a valid run."""
    head = ("client and task", "calls", "seconds", "over ideal", "CPU, µs per table", "memory, MiB", "at most", "runs")
    names = dict.fromkeys((run.cell.client, run.cell.task) for run in report.runs)
    rows = []
    for client, task in sorted(names):
        figure = found.get((client, task))
        rows.append((f"{client}: {task}", *(figure_row(figure) if figure else [""] * 6 + ["none right"])))
    return table(head, rows)


def figure_row(figure: Figure) -> list[str]:
    """Returns the figures of one cell."""
    return [
        spread(figure.calls, ",.0f") if figure.calls.most else "not counted",
        spread(figure.wall, ".3f"),
        spread(figure.over_ideal, ".2f") if figure.over_ideal else "",
        spread(figure.cpu, ",.0f"),
        spread(figure.growth, ".1f"),
        f"{figure.peak.median:.0f}",
        str(figure.runs),
    ]


def ratio_row(ratio: Ratio) -> tuple[str, str, str, str]:
    """Returns one comparison."""
    calls = f"{ratio.calls:,.0f}" if ratio.calls else "not counted"
    return ratio.text, f"{ratio.seconds:.1f}", f"{ratio.cpu:.1f}", calls


def wrong_part(report: Report) -> list[str]:
    """Returns the errors and how often they occurred; empty if there were none."""
    if not report.wrong:
        return []
    counted = Counter((f"{run.cell.client}: {run.cell.task}", run.wrong) for run in report.wrong)
    rows = [(cell, str(times), wrong.replace("|", "/")) for (cell, wrong), times in counted.items()]
    return ["## Wrong runs", "Their figures are left out above.", table(("client and task", "runs", "what"), rows)]


def conditions_part(conditions: Mapping[str, Any]) -> list[str]:
    """Returns the conditions of the measurement."""
    return ["## Conditions", "\n".join(f"- {name}: {value}" for name, value in conditions.items())]


def loops(report: Report) -> str:
    """Returns the speed of the machine in each run, in milliseconds for a fixed loop."""
    timed = [run.loop * 1e3 for run in report.runs if run.loop]
    return spread(Spread.of(timed), ".1f") if timed else "unknown"


def _write_files(name: str, raw: Mapping[str, Any], text: str, out: Path) -> str:
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    (out / f"{name}.md").write_text(text)
    return text


if __name__ == "__main__":
    source = Path(sys.argv[1])
    print(write(Report.read(json.loads(source.read_text())), source.parent))
