"""Medians and ranges of the runs of each cell, and the goals."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.support.cell import Run

Key = tuple[str, float, int]
"""A stack, a latency in seconds, and a maximum of requests in flight."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, minimum and maximum of one quantity over the runs of a cell."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        found = list(values)
        return cls(median(found), min(found), max(found))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a cell from all its runs."""

    describes: int
    runs: int
    cpu: Spread
    """Microseconds of client CPU per describe."""
    rate: Spread
    """Describes per second."""
    over_ideal: Spread | None
    """Wall time relative to the ideal; None without latency."""


def figures(runs: Iterable[Run]) -> dict[Key, Figures]:
    """Returns the figures of each cell that was run."""
    by_cell: defaultdict[Key, list[Run]] = defaultdict(list)
    for run in runs:
        by_cell[run.cell.stack, run.cell.latency, run.cell.in_flight].append(run)
    return {key: figures_of(found) for key, found in by_cell.items()}


def figures_of(runs: list[Run]) -> Figures:
    """Returns the figures of one cell."""
    cell = runs[0].cell
    return Figures(
        describes=cell.describes,
        runs=len(runs),
        cpu=Spread.of(run.cpu / cell.describes * 1e6 for run in runs),
        rate=Spread.of(cell.describes / run.wall for run in runs),
        over_ideal=Spread.of(run.wall / cell.ideal for run in runs) if cell.latency else None,
    )


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound, and a function that returns the figure; it raises KeyError if the figure was not measured."""

    text: str
    bound: float
    read: Callable[[Mapping[Key, Figures]], float]
    at_least: bool = False

    def met(self, figure: float) -> bool:
        """Returns whether a figure is within the bound."""
        return figure >= self.bound if self.at_least else figure <= self.bound


def goals() -> list[Goal]:
    """Returns the goals."""
    return [
        Goal("CPU per describe in bulk, 20 ms, 64 in flight: at most 200 µs", 200, lambda f: cpu(f, 0.02, 64)),
        Goal("the same, stretch: at most 130 µs", 130, lambda f: cpu(f, 0.02, 64)),
        Goal(
            "growth of that from 64 to 256 in flight: at most 1.3x", 1.3, lambda f: cpu(f, 0.02, 256) / cpu(f, 0.02, 64)
        ),
        Goal("wall / ideal, 20 ms, 64 in flight: at most 1.3", 1.3, lambda f: over_ideal(f, 0.02, 64)),
        Goal("wall / ideal, 50 ms, 256 in flight: at most 1.4", 1.4, lambda f: over_ideal(f, 0.05, 256)),
        Goal(
            "speed against the sequential peer, 20 ms, 64 in flight: at least 50x",
            50,
            lambda f: f["ours", 0.02, 64].rate.median / f["peer", 0.02, 1].rate.median,
            at_least=True,
        ),
    ]


def cpu(found: Mapping[Key, Figures], latency: float, in_flight: int) -> float:
    """Returns our median CPU in microseconds per describe."""
    return found["ours", latency, in_flight].cpu.median


def over_ideal(found: Mapping[Key, Figures], latency: float, in_flight: int) -> float:
    """Returns our median wall time relative to the ideal."""
    spread = found["ours", latency, in_flight].over_ideal
    assert spread, "a latency has an ideal"
    return spread.median
