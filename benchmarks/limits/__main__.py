"""Bulk describes of catalogs that refuse requests, with the default policy: `python -m benchmarks.limits [--runs 5]`.

1,000 tables are described over `rest`, twice in a row: by the first namespace for a catalog, and by a second one, which
begins with what the process has learned. The catalog is a process of its own, new for each run, and 20 ms away.
"Slow" refusals take those 20 ms, too; others come at once. With `--busy`, two other processes spin beside it.

The columns of the table:

- seconds: the median of the runs; "endless" if it is over the time limit of 60 s, or of four times a longer ideal.
- ideal: the time of a client that knows the limit. For calls per second it is computed: the tables that the catalog
  does not accept at once, divided by the rate. Otherwise it is the median of a named peer, measured in the same runs:
  the package with a fixed limit, `Policy(adaptive=False, max_in_flight=...)`, of the catalog's capacity, or of 64 where
  nothing limits the calls. It meets the same refusals by chance and repeats them after a pause that begins at one
  latency. An outage is added as it is.
- ratio, worst: the median and the longest time, divided by the ideal.
- additional: requests beyond one for each table, median; in brackets those of the peer, which nobody can avoid. One in
  each bulk call is the question whether the catalog describes many tables at once; it does not.
- lost: tables without an answer, in all runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from statistics import median
from time import perf_counter

from benchmarks.support.progress import progress
from benchmarks.support.report import table
from benchmarks.support.stub_process import counts, running_stub, set_switches
from lance_ns_async import AsyncNamespace, Policy

TABLES = 1000
LATENCY = 0.02
LONGEST = 60.0
SLOW = {"slow_refusals": 1}
BUSY_LOOPS = 2
SPIN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@dataclass(frozen=True, slots=True)
class Scenario:
    """The behaviour of a catalog, and the client that knows it."""

    switches: Mapping[str, float | int | str]
    fixed: int = 64
    """The calls in flight of the peer; 0 if the ideal is computed."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """The computed part of the ideal, for the first and the second namespace."""


def with_rate(rate: int, /, **switches: float) -> Scenario:
    """Returns a catalog that accepts the calls of one second at once, and then that many a second."""
    return Scenario(switches, 0, ((TABLES - rate) / rate, TABLES / rate))


SCENARIOS: Mapping[str, Scenario] = {
    "nothing limited": Scenario({}),
    "each tenth refused, slow": Scenario({"every_429": 10, **SLOW}),
    "each tenth refused, slow, `Retry-After: 1`": Scenario({"every_429": 10, "retry_after": "1", **SLOW}),
    "20 % refused by chance": Scenario({"share_429": 0.2}),
    "20 % refused by chance, slow": Scenario({"share_429": 0.2, **SLOW}),
    "30 % refused by chance": Scenario({"share_429": 0.3}),
    "30 % refused by chance, slow": Scenario({"share_429": 0.3, **SLOW}),
    "10 % refused by chance, 100 a second": with_rate(100, rate=100, share_429=0.1),
    "10 % refused by chance, 50 in flight": Scenario({"share_429": 0.1, "cap": 50}, 50),
    "200 in each second of the clock": with_rate(200, window=200),
    "40 a second": with_rate(40, rate=40),
    **{f"{cap} in flight": Scenario({"cap": cap}, cap) for cap in (20, 50, 200)},
    "50 in flight, 429, slow": Scenario({"cap": 50, "cap_status": 429, **SLOW}, 50),
    "queue beyond 50": Scenario({"queue": 50}, 50),
    "outage of 3 s": Scenario({"outage": 3.0}, 64, (3.0, 0.0)),
}


@dataclass(frozen=True, slots=True)
class Bulk:
    """One describe of all tables."""

    seconds: float
    additional: float
    """Requests beyond one for each table, as a share."""
    lost: int


@dataclass(frozen=True, slots=True)
class Run:
    """The describes by the first and the second namespace: with the default policy, and by the peer if there is one."""

    default: Sequence[Bulk]
    peer: Sequence[Bulk]


def run(scenario: Scenario, seed: int) -> Run:
    """Measures a scenario once."""
    switches, longest = {"latency": LATENCY, **scenario.switches}, max(LONGEST, 4 * max(scenario.seconds))
    default = asyncio.run(describe_twice(switches, Policy(), seed, longest))
    if not scenario.fixed:
        return Run(default, ())
    fixed = Policy(adaptive=False, max_in_flight=scenario.fixed, backoff_initial=LATENCY, max_retries=10)
    return Run(default, asyncio.run(describe_twice({**switches, "outage": 0.0}, fixed, seed, longest)))


async def describe_twice(
    switches: Mapping[str, float | int | str], policy: Policy, seed: int, longest: float
) -> list[Bulk]:
    """Describes all tables of a new catalog by two namespaces, one after the other."""
    with running_stub() as endpoint:
        properties = {"uri": endpoint}
        async with AsyncNamespace.connect("rest", properties, policy=policy) as first:
            # Imports and the first connection are not measured.
            await first.describe_tables([("db", "t0")])
            set_switches(endpoint, seed=seed, **switches)
            bulks = [await describe(endpoint, first, longest)]
            # What was learned lives as long as a namespace, so the first one stays open.
            async with AsyncNamespace.connect("rest", properties, policy=policy) as second:
                return [*bulks, await describe(endpoint, second, longest)]


async def describe(endpoint: str, namespace: AsyncNamespace, longest: float) -> Bulk:
    """Describes all tables; after `longest` seconds, it gives up."""
    requests = counts(endpoint)["requests"]
    begun, seconds, lost = perf_counter(), inf, 0
    try:
        async with asyncio.timeout(longest):
            described = await namespace.describe_tables([("db", f"t{number}") for number in range(TABLES)])
            seconds, lost = perf_counter() - begun, len(described.errors)
    except TimeoutError:
        progress(f"not done after {longest:.0f} s\n")
    return Bulk(seconds, (counts(endpoint)["requests"] - requests) / TABLES - 1, lost)


@contextmanager
def spinning(loops: int) -> Iterator[None]:
    """Keeps processors busy with endless loops in other processes, which end with this one."""
    processes = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def report(runs: Mapping[str, Sequence[Run]]) -> str:
    """Returns the table, and how many of its rows are far from the ideal."""
    rows, ratios, worsts = [], [], []
    for name, found in runs.items():
        scenario = SCENARIOS[name]
        peers = [bulk for each in found for bulk in each.peer]
        measured = median(bulk.seconds for bulk in peers) if peers else 0.0
        unavoidable = f" ({median(bulk.additional for bulk in peers):.1%})" if peers else ""
        for number, (namespace, computed) in enumerate(zip(("first", "second"), scenario.seconds, strict=True)):
            bulks, ideal = [each.default[number] for each in found], measured + computed
            seconds = median(bulk.seconds for bulk in bulks)
            ratios.append(seconds / ideal)
            worsts.append(max(bulk.seconds for bulk in bulks) / ideal)
            figures = (f"{figure:.2f}" if figure < inf else "endless" for figure in (ratios[-1], worsts[-1]))
            additional = f"{median(bulk.additional for bulk in bulks):.1%}{unavoidable}"
            lost = str(sum(bulk.lost for bulk in bulks))
            taken = f"{seconds:.2f}" if seconds < inf else "endless"
            rows.append((name, namespace, taken, f"{ideal:.2f}", *figures, additional, lost))
    head = ("the catalog", "namespace", "seconds", "ideal", "ratio", "worst", "additional", "lost")
    summary = (
        f"{len(rows)} cells, over 1.3 and over 3: {count_over(ratios)} by the median, {count_over(worsts)} by the worst"
    )
    return f"{table(head, rows)}\n\n{summary}"


def count_over(ratios: Sequence[float]) -> str:
    """Returns how many ratios are over 1.3, and how many over 3."""
    return " and ".join(str(sum(ratio > bound for ratio in ratios)) for bound in (1.3, 3.0))


def main() -> None:
    """Runs all scenarios, each time in a new order, and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.limits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each scenario")
    parser.add_argument("--only", default="", help="parts of the names of the scenarios to run, separated by |")
    parser.add_argument("--busy", action="store_true", help="run beside two processes that spin")
    options = parser.parse_args()
    names = [name for name in SCENARIOS if any(part in name for part in options.only.split("|"))]
    if not names:
        parser.error(f"--only matches no scenario; choose from: {'; '.join(SCENARIOS)}")
    runs: dict[str, list[Run]] = {name: [] for name in names}
    load = os.getloadavg()[0]
    with spinning(BUSY_LOOPS if options.busy else 0):
        for number in range(options.runs):
            for name in random.Random(number).sample(names, len(names)):
                progress(f"run {number + 1}/{options.runs}: {name}")
                runs[name].append(run(SCENARIOS[name], number))
    progress("")
    beside = "beside two busy loops" if options.busy else "no busy loops"
    print(f"{options.runs} runs, {beside}; load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end\n")
    print(report(runs))


if __name__ == "__main__":
    main()
