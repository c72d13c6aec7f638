"""Draws the limit, the pace, and what a catalog answers and refuses over time: `python -m benchmarks.limits.picture`.

Tables are described over `rest` by the default policy, of catalogs in another process that are 20 ms away.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from time import perf_counter

from matplotlib.figure import Figure

from benchmarks.limits.__main__ import LATENCY, SLOW
from benchmarks.support.stub_process import running_stub, set_switches
from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.observers import Call

SITUATIONS: Mapping[str, tuple[int, float, Mapping[str, float]]] = {
    "at most 50 in flight": (4000, 0.05, {"cap": 50}),
    "at most 100 a second": (700, 0.2, {"rate": 100}),
    "each tenth refused, whatever the load": (4000, 0.05, {"every_429": 10, **SLOW}),
    "an outage of one second": (4000, 0.05, {"outage": 1.0}),
}
"""The tables, the seconds between two samples, and the switches of the catalog, for each situation."""

TOPS = {"at most 100 a second": 400}
"""The most calls a second to draw, where a burst at the beginning would hide the rest."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one moment, and the calls that were answered and refused until then."""

    at: float
    limit: int
    pace: float
    answered: int
    refused: int


@dataclass(slots=True)
class Recorder:
    """Samples of a bulk describe."""

    namespace: AsyncNamespace
    begun: float = field(default_factory=perf_counter)
    answered: int = 0
    refused: int = 0
    samples: list[Sample] = field(default_factory=list)

    def count(self, call: Call) -> None:
        """Counts an attempt."""
        if call.outcome == "ok":
            self.answered += 1
        else:
            self.refused += 1

    def sample(self) -> None:
        """Takes a sample."""
        limiter = self.namespace.session.caller.slots._limiter
        assert limiter is not None
        pace = limiter.pacer.rate
        now = perf_counter() - self.begun
        limit = self.namespace.snapshot().limit
        self.samples.append(Sample(now, limit, pace if pace < inf else nan, self.answered, self.refused))

    async def watch(self, every: float) -> None:
        """Takes samples until it is cancelled."""
        while True:
            self.sample()
            await asyncio.sleep(every)


async def record(tables: int, every: float, switches: Mapping[str, float]) -> list[Sample]:
    """Returns samples of a bulk describe."""
    with running_stub() as endpoint:
        async with AsyncNamespace.connect("rest", {"uri": endpoint}) as namespace:
            await namespace.describe_tables([("db", "t0")])
            set_switches(endpoint, latency=LATENCY, **switches)
            recorder = Recorder(namespace)
            with namespace.session.caller.observe(recorder.count):
                async with asyncio.TaskGroup() as group:
                    watcher = group.create_task(recorder.watch(every))
                    await namespace.describe_tables([("db", f"t{number}") for number in range(tables)])
                    watcher.cancel()
            recorder.sample()
            return recorder.samples


def plot(recorded: Mapping[str, list[Sample]], path: Path) -> None:
    """Plots one column for each situation."""
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    axes = figure.subplots(2, len(recorded), sharex="col", height_ratios=(2, 3))
    for (name, samples), limit, speed in zip(recorded.items(), *axes, strict=True):
        times = [sample.at for sample in samples]
        limit.step(times, [sample.limit for sample in samples], where="post", color="tab:blue")
        limit.set_title(name, fontsize=10)
        limit.set_ylim(bottom=0)
        pairs = list(pairwise(samples))
        for what, color in (("answered", "tab:green"), ("refused", "tab:red")):
            speeds = [(getattr(b, what) - getattr(a, what)) / (b.at - a.at) for a, b in pairs]
            speed.step(times[1:], speeds, where="pre", color=color, label=f"{what}, calls a second")
        speed.plot(times, [sample.pace for sample in samples], "--", color="tab:blue", label="pace, calls a second")
        speed.set_ylim(bottom=0, top=TOPS.get(name))
        speed.set_xlabel("seconds")
    axes[0][0].set_ylabel("limit, calls in flight")
    axes[1][0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Records all situations and writes the picture."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits.picture", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "results", help="where the picture goes"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    plot({name: asyncio.run(record(*situation)) for name, situation in SITUATIONS.items()}, options.out / "limits.svg")


if __name__ == "__main__":
    main()
