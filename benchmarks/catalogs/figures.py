"""Medians and ranges of the measurements on a catalog, the ratios to the peer, and the goals."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.catalogs.cell import Cell, Run
from benchmarks.support.figures import Spread


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report."""

    name: str
    """The name of its files."""
    impl: str
    tables: int
    others: int
    aims: bool
    """Whether the goals apply to the extent."""
    ideals: Mapping[str, float]
    """The ideal time in seconds, by task."""
    conditions: Mapping[str, Any]
    runs: Sequence[Run]

    @classmethod
    def read(cls, raw: dict[str, Any]) -> "Report":
        """Returns the report in a JSON text."""
        runs = [Run(**{**run, "cell": Cell(**run["cell"])}) for run in raw.pop("runs")]
        return cls(**raw, runs=runs)

    @property
    def wrong(self) -> list[Run]:
        """The runs with invalid figures."""
        return [run for run in self.runs if run.wrong]


@dataclass(frozen=True, slots=True)
class Figure:
    """The figures of one cell, from its valid runs."""

    cell: Cell
    runs: int
    wall: Spread
    """Seconds."""
    cpu: Spread
    """Client CPU per table, in microseconds."""
    calls: Spread
    growth: Spread
    """MiB."""
    peak: Spread
    """MiB."""
    over_ideal: Spread | None
    """Wall time relative to the ideal; None if there is no ideal."""


Figures = Mapping[tuple[str, str], Figure]
"""By client and task."""


def figures(report: Report) -> Figures:
    """Returns the figures of each cell with a valid run."""
    by_cell: defaultdict[Cell, list[Run]] = defaultdict(list)
    for run in report.runs:
        if not run.wrong:
            by_cell[run.cell].append(run)
    return {
        (cell.client, cell.task): figure(cell, found, report.ideals.get(cell.task)) for cell, found in by_cell.items()
    }


def figure(cell: Cell, runs: Sequence[Run], ideal: float | None) -> Figure:
    """Returns the figures of one cell."""
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
    """The peer's figure relative to ours."""

    text: str
    seconds: float
    cpu: float
    calls: float | None
    """None if they are not counted."""


def ratios(found: Figures) -> list[Ratio]:
    """Returns the ratios of comparable measurements: the same task, or single describes and a bulk describe."""
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
    """Returns the peer's figures relative to ours, per table."""
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
    """A bound, and a function that returns the figure; it raises KeyError if the figure was not measured."""

    text: str
    bound: float
    read: Callable[[Figures], float]
    at_least: bool = False

    def met(self, figure: float) -> bool:
        """Returns whether a figure is within the bound."""
        return figure >= self.bound if self.at_least else figure <= self.bound


def goals(impl: str) -> list[Goal]:
    """Returns the goals for a catalog."""
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
    """Returns the time of a describe of all tables relative to the ideal."""
    spread = found["ours", "describe all"].over_ideal
    assert spread, "only a catalog with latency has an ideal"
    return spread.median


def faster(found: Figures) -> float:
    """Returns the speed of a describe of 500 tables relative to the peer."""
    return ratio("", found["peer", "describe 500"], found["ours", "describe 500"]).seconds
