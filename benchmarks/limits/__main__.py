"""Bulk describes near the limits of a catalog, and the cost of failures: `python -m benchmarks.limits [--rounds 5]`.

No cell has a setting, except for those with a fixed limit, as a comparison. Catalogs that limit calls per second, as
Polaris does, are also measured with a bare aiohttp client: 32 workers that repeat each refused request until it is
answered, after a doubling random pause.

Each cell: time relative to the ideal, of a first and of a second bulk call, additional calls, lost tables, maximum of
requests in flight at the stub. The ideal is that of a client that knows the limit of the catalog; for failures, and if
nothing is limited, that of 64 in flight without failures.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import count
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.support.stub_process import counts, running_stub, set_switches
from lance_ns_async import AsyncNamespace, Policy

Switches = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The behaviour of a catalog, and the ideal time of a describe of all tables."""

    switches: Switches
    tables: int
    ideal: float


def with_cap(cap: int, latency: float, tables: int, **switches: float | int | str) -> Scenario:
    """Returns a catalog that refuses requests beyond a maximum in flight."""
    return Scenario({"cap": cap, "latency": latency, **switches}, tables, tables / cap * latency)


def without_limit(tables: int, latency: float = 0.02, waits: float = 0.0, **switches: float | int | str) -> Scenario:
    """Returns a catalog whose ideal is 64 requests in flight without failures, and the seconds `waits` at the end.

    Of a thousand tables, one is refused three times in a row.
    """
    return Scenario({"latency": latency, **switches}, tables, tables / 64 * latency + waits)


def with_rate(rate: int, tables: int) -> Scenario:
    """Returns a catalog with a token bucket that holds the requests of one second."""
    return Scenario({"rate": rate, "latency": 0.005}, tables, (tables - rate) / rate)


SIZES = (500, 5000)
KINDS: Mapping[str, Callable[[int], Scenario]] = {
    **{
        f"503 beyond {cap}, {latency * 1e3:.0f} ms": partial(with_cap, cap, latency)
        for cap in (20, 50, 200)
        for latency in (0.005, 0.02, 0.05)
    },
    "429 beyond 50, 20 ms": partial(with_cap, 50, 0.02, cap_status=429),
    "queue beyond 50, 20 ms": lambda tables: Scenario({"queue": 50, "latency": 0.02}, tables, tables / 50 * 0.02),
    "4 % failures, 20 ms": partial(without_limit, share_503=0.02, share_429=0.01, share_cut=0.01),
    "each tenth 429, 20 ms": partial(without_limit, share_429=0.1),
    "each tenth 429, Retry-After: 1, 20 ms": partial(without_limit, share_429=0.1, retry_after="1", waits=3.0),
    "nothing, 5 ms": partial(without_limit, latency=0.005),
    "nothing, 20 ms": partial(without_limit, latency=0.02),
    "nothing, 50 ms": partial(without_limit, latency=0.05),
}
SCENARIOS: Mapping[str, Scenario] = {
    f"{name}, {tables} tables": kind(tables) for name, kind in KINDS.items() for tables in SIZES
}

RATES: Mapping[str, Scenario] = {
    "40 a second, 300 tables": with_rate(40, 300),
    "100 a second, 1000 tables": with_rate(100, 1000),
    "400 a second, 3000 tables": with_rate(400, 3000),
}

DEFAULT, FIXED, BARE = "default", "fixed 64", "bare aiohttp, 32"
POLICIES: Mapping[str, Policy] = {DEFAULT: Policy(), FIXED: Policy(max_in_flight=64, adaptive=False)}


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of a cell."""

    slower: float
    again: float
    """The same for a second bulk call of the same namespace."""
    extra: float
    lost: int
    most: int


async def run(endpoint: str, scenario: Scenario, policy: Policy, seed: int) -> Run:
    """Describes all tables of the scenario twice."""
    # Namespaces of earlier runs must not share what they learned.
    gc.collect()
    ids = [("db", f"t{number}") for number in range(scenario.tables)]
    async with AsyncNamespace.connect("iceberg", {"endpoint": endpoint}, policy=policy) as namespace:
        set_switches(endpoint)
        await namespace.describe_tables(ids[:1])
        set_switches(endpoint, seed=seed, **scenario.switches)
        seconds, lost = [], 0
        for _ in range(2):
            begun = perf_counter()
            described = await namespace.describe_tables(ids)
            seconds.append(perf_counter() - begun)
            lost += len(described.errors)
    found = counts(endpoint)
    return Run(
        seconds[0] / scenario.ideal,
        seconds[1] / scenario.ideal,
        found["requests"] / scenario.tables / 2 - 1,
        lost,
        int(found["most_in_flight"]),
    )


async def run_bare(endpoint: str, scenario: Scenario, seed: int) -> Run:
    """Requests all tables of the scenario once, by aiohttp alone."""
    set_switches(endpoint, seed=seed, **scenario.switches)
    numbers = iter(range(scenario.tables))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            for attempt in count():
                async with session.get(f"{endpoint}/v1/namespaces/db/tables/t{number}") as response:
                    await response.read()
                if response.status == HTTPStatus.OK:
                    break
                await asyncio.sleep(random.uniform(0, min(5.0, 0.1 * 2**attempt)))

    begun = perf_counter()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(work(session))
    seconds = perf_counter() - begun
    found = counts(endpoint)
    extra, most = found["requests"] / scenario.tables - 1, int(found["most_in_flight"])
    return Run(seconds / scenario.ideal, seconds / scenario.ideal, extra, 0, most)


def main() -> None:
    """Runs all cells, each round in a new order, and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="a part of the names of the catalogs to run")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    cells = [(scenario, policy) for scenario in SCENARIOS for policy in POLICIES]
    cells += [(scenario, policy) for scenario in RATES for policy in (DEFAULT, BARE)]
    cells = [cell for cell in cells if arguments.only in cell[0]]
    scenarios = {**SCENARIOS, **RATES}
    runs: dict[tuple[str, str], list[Run]] = {cell: [] for cell in cells}
    load = os.getloadavg()[0]
    with running_stub() as endpoint:
        for number in range(rounds):
            for scenario, policy in random.Random(number).sample(cells, len(cells)):
                if policy == BARE:
                    outcome = run_bare(endpoint, scenarios[scenario], number)
                else:
                    outcome = run(endpoint, scenarios[scenario], POLICIES[policy], number)
                runs[scenario, policy].append(asyncio.run(outcome))
    print(f"medians of {rounds} rounds; load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end\n")
    print("| catalog | limit | time / ideal | again | extra calls | lost of all rounds | most in flight |")
    print("|---|---|---|---|---|---|---|")
    for (scenario, policy), found in runs.items():
        slower, again = median(it.slower for it in found), median(it.again for it in found)
        extra = median(it.extra for it in found)
        lost, most = sum(it.lost for it in found), max(it.most for it in found)
        print(f"| {scenario} | {policy} | {slower:.2f} | {again:.2f} | {extra:.1%} | {lost} | {most} |")


if __name__ == "__main__":
    main()
