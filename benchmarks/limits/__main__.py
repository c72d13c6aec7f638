"""Bulk describes near the limits of a catalog, and the cost of failures: `python -m benchmarks.limits [--rounds 5]`.


Catalogs that limit calls per second, as Polaris does, are measured with the default policy and with a bare aiohttp
client: 32 workers that repeat each refused request until it is answered, after a doubling random pause.

Each cell: time relative to the ideal, additional calls, lost tables, maximum of requests in flight at the stub. The
ideal is that of a client that knows the limit of the catalog; for failures, that of 64 in flight without failures.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from statistics import median
from time import perf_counter

import aiohttp

from benchmarks.support.stub_process import counts, running_stub, set_switches
from lance_ns_async import AsyncNamespace, Policy

TABLES = 3000

Switches = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The behaviour of a catalog, and the ideal time of a describe of all tables."""

    switches: Switches
    tables: int
    ideal: float


def with_cap(cap: int, latency: float, tables: int) -> Scenario:
    """Returns a catalog that refuses requests beyond a maximum in flight."""
    return Scenario({"cap": cap, "latency": latency}, tables, tables / cap * latency)


SCENARIOS: Mapping[str, Scenario] = {
    "503 beyond 50, 20 ms": with_cap(50, 0.02, TABLES),
    "503 beyond 50, 20 ms, 500 tables": with_cap(50, 0.02, 500),
    "503 beyond 50, 50 ms": with_cap(50, 0.05, TABLES),
    "429 beyond 50, 20 ms": Scenario({"cap": 50, "latency": 0.02, "cap_status": 429}, TABLES, TABLES / 50 * 0.02),
    "queue beyond 50, 20 ms": Scenario({"queue": 50, "latency": 0.02}, TABLES, TABLES / 50 * 0.02),
    "4 % failures, 20 ms": Scenario(
        {"share_503": 0.02, "share_429": 0.01, "share_cut": 0.01, "latency": 0.02}, TABLES, TABLES / 64 * 0.02
    ),
    "nothing, 20 ms": Scenario({"latency": 0.02}, TABLES, TABLES / 64 * 0.02),
}


def with_rate(rate: int, tables: int) -> Scenario:
    """Returns a catalog with a token bucket that holds the requests of one second."""
    return Scenario({"rate": rate, "latency": 0.005}, tables, (tables - rate) / rate)


RATES: Mapping[str, Scenario] = {
    "40 a second, 300 tables": with_rate(40, 300),
    "100 a second, 1000 tables": with_rate(100, 1000),
    "400 a second, 3000 tables": with_rate(400, 3000),
}

POLICIES: Mapping[str, Policy] = {
    "adaptive, at most 256": Policy(max_in_flight=256, max_retries=7),
    "adaptive, at most 64": Policy(max_in_flight=64, max_retries=7),
    "fixed 32": Policy(max_in_flight=32, max_retries=7, adaptive=False),
    "fixed 64": Policy(max_in_flight=64, max_retries=7, adaptive=False),
    "fixed 256": Policy(max_in_flight=256, max_retries=7, adaptive=False),
}


DEFAULT, BARE = "default", "bare aiohttp, 32"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of a cell."""

    slower: float
    extra: float
    lost: int
    most: int


async def run(endpoint: str, scenario: Scenario, policy: Policy, seed: int) -> Run:
    """Describes all tables of the scenario once."""
    # Namespaces of earlier runs must not share what they learned.
    gc.collect()
    ids = [("db", f"t{number}") for number in range(scenario.tables)]
    async with AsyncNamespace.connect("iceberg", {"endpoint": endpoint}, policy=policy) as namespace:
        set_switches(endpoint)
        await namespace.describe_tables(ids[:1])
        set_switches(endpoint, seed=seed, **scenario.switches)
        begun = perf_counter()
        described = await namespace.describe_tables(ids)
        seconds = perf_counter() - begun
    found = counts(endpoint)
    return Run(
        seconds / scenario.ideal,
        found["requests"] / scenario.tables - 1,
        len(described.errors),
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
    return Run(seconds / scenario.ideal, found["requests"] / scenario.tables - 1, 0, int(found["most_in_flight"]))


def main() -> None:
    """Runs all cells, each round in a new order, and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rates", action="store_true", help="run only the catalogs that limit calls per second")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    cells = [] if arguments.rates else [(scenario, policy) for scenario in SCENARIOS for policy in POLICIES]
    cells += [(scenario, policy) for scenario in RATES for policy in (DEFAULT, BARE)]
    scenarios, policies = {**SCENARIOS, **RATES}, {**POLICIES, DEFAULT: Policy()}
    runs: dict[tuple[str, str], list[Run]] = {cell: [] for cell in cells}
    load = os.getloadavg()[0]
    with running_stub() as endpoint:
        for number in range(rounds):
            for scenario, policy in random.Random(number).sample(cells, len(cells)):
                if policy == BARE:
                    outcome = run_bare(endpoint, scenarios[scenario], number)
                else:
                    outcome = run(endpoint, scenarios[scenario], policies[policy], number)
                runs[scenario, policy].append(asyncio.run(outcome))
    print(f"medians of {rounds} rounds; load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end\n")
    print("| catalog | limit | time / ideal | extra calls | lost of all rounds | most in flight |")
    print("|---|---|---|---|---|---|")
    for (scenario, policy), found in runs.items():
        slower, extra = median(it.slower for it in found), median(it.extra for it in found)
        lost, most = sum(it.lost for it in found), max(it.most for it in found)
        print(f"| {scenario} | {policy} | {slower:.2f} | {extra:.1%} | {lost} | {most} |")


if __name__ == "__main__":
    main()
