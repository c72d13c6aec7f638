"""Bulk describes of catalogs that refuse requests, with the default policy: `python -m benchmarks.limits [--runs 5]`.

1,000 tables are described over `rest`, twice in a row: by the first namespace for a catalog, and by a second one, which
begins with what the process has learned. The catalog is a process of its own, new for each run, and 20 ms away.
"Slow" refusals take those 20 ms, too; others come at once. With `--busy`, two other processes spin beside it.

Columns; times are medians of the runs:

- seconds: "endless" over the limit of a run, which is 60 s, or four times a computed ideal if that is longer.
- ideal: of a client that knows the limit. For calls per second it is computed: the tables that the catalog does not
  accept at once, divided by the rate. Otherwise it is measured after each run, as the mean of two bulk calls of the
  package with a fixed limit, `Policy(adaptive=False, max_in_flight=...)`: the capacity of the catalog, or 64 where
  nothing limits the calls. This peer meets the same refusals by chance, and its pauses begin at one latency. For an
  outage, it describes the catalog without it, and the seconds of the outage are added.
- ratio, worst: seconds / ideal of the same run, the median and the largest.
- additional: requests beyond one for each table; in brackets those of the peer. One in each bulk call is the question
  whether the catalog describes many tables in one request; it does not.
- lost: tables without an answer in all runs; in brackets those of the peer, without which the ideal would be too low.
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
from statistics import mean, median
from time import perf_counter

from benchmarks.support.progress import progress
from benchmarks.support.report import table
from benchmarks.support.stub_process import counts, running_stub, set_switches
from lance_ns_async import AsyncNamespace, Policy

TABLES = 1000
LATENCY = 0.02
LONGEST = 60.0
SLOW = {"slow_refusals": 1}
HEAD = ("the catalog", "namespace", "seconds", "ideal", "ratio", "worst", "additional", "lost")
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
    """The bulk calls of the first and the second namespace, and their ideal seconds."""

    default: Sequence[Bulk]
    peer: Sequence[Bulk]
    """The same with a fixed limit; empty if the ideal is computed."""
    ideals: Sequence[float]


def run(scenario: Scenario, seed: int) -> Run:
    """Measures a scenario once."""
    switches, longest = {"latency": LATENCY, **scenario.switches}, max(LONGEST, 4 * max(scenario.seconds))
    default = asyncio.run(describe_twice(switches, Policy(), seed, longest))
    if not scenario.fixed:
        return Run(default, (), scenario.seconds)
    policy = Policy(adaptive=False, max_in_flight=scenario.fixed, backoff_initial=LATENCY, max_retries=10)
    peer = asyncio.run(describe_twice({**switches, "outage": 0.0}, policy, seed, longest))
    measured = mean(bulk.seconds for bulk in peer)
    return Run(default, peer, [measured + computed for computed in scenario.seconds])


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
    begun, seconds, errors = perf_counter(), inf, 0
    try:
        async with asyncio.timeout(longest):
            described = await namespace.describe_tables([("db", f"t{number}") for number in range(TABLES)])
            seconds, errors = perf_counter() - begun, len(described.errors)
    except TimeoutError:
        progress(f"not done after {longest:.0f} s\n")
    return Bulk(seconds, (counts(endpoint)["requests"] - requests) / TABLES - 1, errors)


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
    rows, medians, worsts = [], [], []
    for name, found in runs.items():
        peers = [bulk for each in found for bulk in each.peer]
        for number, namespace in enumerate(("first", "second")):
            bulks, ideals = [each.default[number] for each in found], [each.ideals[number] for each in found]
            ratios = [bulk.seconds / ideal for bulk, ideal in zip(bulks, ideals, strict=True)]
            medians.append(median(ratios))
            worsts.append(max(ratios))
            times = median(bulk.seconds for bulk in bulks), median(ideals), medians[-1], worsts[-1]
            shown = (f"{time:.2f}" if time < inf else "endless" for time in times)
            counted = (f"{of(bulks)} ({of(peers)})" if peers else of(bulks) for of in (additional, lost))
            rows.append((name, namespace, *shown, *counted))
    summary = " and ".join(
        f"{sum(it > bound for it in medians)} over {bound} ({sum(it > bound for it in worsts)} in the worst run)"
        for bound in (1.3, 3)
    )
    return f"{table(HEAD, rows)}\n\nOf {len(rows)} cells, {summary}."


def additional(bulks: Sequence[Bulk]) -> str:
    """Returns the median of the additional requests of the bulk calls that were not endless."""
    shares = [bulk.additional for bulk in bulks if bulk.seconds < inf]
    return f"{median(shares):.1%}" if shares else "-"


def lost(bulks: Sequence[Bulk]) -> str:
    """Returns the number of tables without an answer."""
    return str(sum(bulk.lost for bulk in bulks))


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
