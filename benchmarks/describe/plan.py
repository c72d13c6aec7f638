"""The cells of a describe benchmark, and their numbers of describes."""

from dataclasses import dataclass

from benchmarks.support.cell import Cell

LATENCIES = (0.0, 0.005, 0.02, 0.05)
IN_FLIGHT = (16, 64, 256)

COSTS = {"ours": 250e-6, "ours sync": 250e-6, "aiohttp": 130e-6, "peer": 400e-6, "peer threads": 420e-6}
"""Rough CPU seconds of a describe, only used to choose the number of describes."""
HTTPX_COSTS = {16: 1.5e-3, 64: 4e-3, 256: 8e-3}


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a measurement: rounds, seconds per run, and the minimum number of describes if CPU matters."""

    rounds: int
    seconds: float
    at_least: int = 0
    """Minimum number of describes in runs of ours and of aiohttp with 64 or more in flight."""
    goals_only: bool = False
    """Whether only the cells with goals are measured."""


QUICK = Extent(rounds=2, seconds=1.0, goals_only=True)
DEFAULT = Extent(rounds=3, seconds=1.0)
FULL = Extent(rounds=5, seconds=2.0, at_least=10_000)


def cells(extent: Extent) -> list[Cell]:
    """Returns all cells of one round."""
    wanted = goal_cells() if extent.goals_only else all_cells()
    return [Cell(*cell, describes=describes(extent, *cell)) for cell in wanted]


def all_cells() -> list[tuple[str, float, int]]:
    """Returns each stack at each latency, with all numbers of requests in flight for stacks that have this setting."""
    grid = [(stack, ms, c) for stack in ("ours", "aiohttp", "httpx") for ms in LATENCIES for c in IN_FLIGHT]
    peers = [cell for ms in LATENCIES for cell in (("peer", ms, 1), ("peer threads", ms, 64))]
    return [*grid, *peers, ("ours sync", 0.02, 64)]


def goal_cells() -> list[tuple[str, float, int]]:
    """Returns the cells with goals, each together with aiohttp, and one cell of each other stack."""
    goals = ((0.0, 64), (0.02, 64), (0.02, 256), (0.05, 256))
    others = (("ours sync", 64), ("httpx", 64), ("peer", 1), ("peer threads", 64))
    return [
        *((stack, latency, c) for stack in ("ours", "aiohttp") for latency, c in goals),
        *((stack, 0.02, c) for stack, c in others),
    ]


def describes(extent: Extent, stack: str, latency: float, in_flight: int) -> int:
    """Returns the number of describes of a run: at least two full waves, for about the requested time."""
    cost = HTTPX_COSTS[in_flight] if stack == "httpx" else COSTS[stack]
    wave = max(latency, cost * in_flight)
    count = max(2, round(extent.seconds / wave)) * in_flight
    if stack in ("ours", "aiohttp") and in_flight >= 64:
        return max(count, -(-extent.at_least // in_flight) * in_flight)
    return count
