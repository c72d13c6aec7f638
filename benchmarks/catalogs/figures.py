"""Medians and ranges of the measurements on a catalog, the ratios to the peer, and the goals."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.catalogs.cell import Cell, Run
from benchmarks.support.figures import Spread


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report is made of."""

    name: str
    """The name of its files."""
    impl: str
    tables: int
    others: int
    aims: bool
    """Whether the goals are meant for such an extent."""
    ideals: Mapping[str, float]
    """Seconds that no client can beat, by task."""
    conditions: Mapping[str, Any]
    runs: Sequence[Run]

    @classmethod
    def read(cls, raw: dict[str, Any]) -> "Report":
        """The report that became this JSON."""
        runs = [Run(**{**run, "cell": Cell(**run["cell"])}) for run in raw.pop("runs")]
        return cls(**raw, runs=runs)

    @property
    def wrong(self) -> list[Run]:
        """The runs whose figures mean nothing."""
        return [run for run in self.runs if run.wrong]


@dataclass(frozen=True, slots=True)
class Figure:
    """What the right runs of one cell say together."""

    cell: Cell
    runs: int
    wall: Spread
    """Seconds."""
    cpu: Spread
    """Microseconds of client CPU a table."""
    calls: Spread
    growth: Spread
    """MiB."""
    peak: Spread
    """MiB."""
    over_ideal: Spread | None
    """Wall time over ideal; None where there is no ideal."""


Figures = Mapping[tuple[str, str], Figure]
"""By client and task."""


def figures(report: Report) -> Figures:
    """The figures of every cell that has a right run."""
    by_cell: defaultdict[Cell, list[Run]] = defaultdict(list)
    for run in report.runs:
        if not run.wrong:
            by_cell[run.cell].append(run)
    return {
        (cell.client, cell.task): figure(cell, found, report.ideals.get(cell.task)) for cell, found in by_cell.items()
    }


def figure(cell: Cell, runs: Sequence[Run], ideal: float | None) -> Figure:
    """The figures of one cell."""
    return Figure(
        cell,
        len(runs),
        wall=Spread.of(run.wall for run in runs),
        cpu=Spread.of(run.cpu / cell.tables * 1e6 for run in runs),
        calls=Spread.of(run.calls for run in runs),
        growth=Spread.of(run.growth / 2**20 for run in runs),
        peak=Spread.of(run.peak / 2**20 for run in runs),
        over_ideal=Spread.of(run.wall / ideal for run in runs) if ideal and cell.client == "ours" else None,
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as much the peer takes of something."""

    text: str
    seconds: float
    cpu: float
    calls: float | None
    """None where they are not counted."""


def ratios(found: Figures) -> list[Ratio]:
    """What can be compared of what was measured: the same task, or tables one by one with all at once."""
    pairs = (
        ("describing 500 tables", "describe 500", "describe 500"),
        ("a table, theirs of 500, ours of all", "describe 500", "describe all"),
        ("listing", "list", "list"),
    )
    return [
        ratio(text, found["peer", theirs], found["ours", mine])
        for text, theirs, mine in pairs
        if ("peer", theirs) in found and ("ours", mine) in found
    ]


def ratio(text: str, theirs: Figure, mine: Figure) -> Ratio:
    """The peer's figures over ours, each for a table."""
    share = mine.cell.tables / theirs.cell.tables
    calls = theirs.calls.median * share / mine.calls.median if theirs.calls.median and mine.calls.median else None
    return Ratio(
        text,
        seconds=theirs.wall.median * share / mine.wall.median,
        cpu=theirs.cpu.median / mine.cpu.median,
        calls=calls,
    )


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound, and how to read the figure it binds; reading one that was not measured is a KeyError."""

    text: str
    bound: float
    read: Callable[[Figures], float]
    at_least: bool = False

    def met(self, figure: float) -> bool:
        """Whether a figure keeps the bound."""
        return figure >= self.bound if self.at_least else figure <= self.bound


def goals(impl: str) -> list[Goal]:
    """What is aimed for with a catalog."""
    match impl:
        case "hive3":
            return [
                Goal("list: at most 0.1 s", 0.1, lambda f: f["ours", "list"].wall.median),
                Goal("describe all: at most 1.5 s", 1.5, lambda f: f["ours", "describe all"].wall.median),
                Goal("CPU: at most 40 µs per table", 40, lambda f: f["ours", "describe all"].cpu.median),
            ]
        case "glue":
            return [Goal("describing 500: at least 15 times as fast as the peer", 15, faster, at_least=True)]
        case _:
            return [Goal("describe all: at most 1.3 of the ideal time", 1.3, over_ideal)]


def over_ideal(found: Figures) -> float:
    """Time over the ideal of describing everything."""
    spread = found["ours", "describe all"].over_ideal
    assert spread, "only a catalog with latency has an ideal"
    return spread.median


def faster(found: Figures) -> float:
    """How many times as fast as the peer we describe 500 tables."""
    return ratio("", found["peer", "describe 500"], found["ours", "describe 500"]).seconds
