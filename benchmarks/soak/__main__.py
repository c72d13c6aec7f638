"""Search for leaks: describes for hours, with faults, expiring tokens and cancelled calls.

`python -m benchmarks.soak --describes 1000000` or `--minutes 30` describes tables of a stub catalog in rounds. Each
round has different faults, and makes all kinds of calls concurrently. After each round, when no call is in progress, it
measures memory, open files, tasks, threads and objects. It prints a table, and writes it with a plot.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from benchmarks.soak.calls import Calls
from benchmarks.soak.report import Sample, sample, write
from benchmarks.soak.stub import running_guarded_stub
from benchmarks.support.stub_process import set_switches
from lance_ns_async import AsyncNamespace, Namespace, Policy

WEATHERS: Sequence[dict[str, float | int | str]] = (
    {"latency": 0.002},
    {"latency": 0.002, "share_503": 0.02, "share_429": 0.01, "share_cut": 0.01, "slow_refusals": 1},
    {"latency": 0.005, "cap": 24},
    {"latency": 0.005, "cap": 16, "cap_status": 429, "retry_after": "0"},
    {"latency": 0.005, "queue": 16},
    {"latency": 0.0, "share_cut": 0.05},
)
"""The faults of the catalog in successive rounds."""

SECONDS = 5.0
"""Approximate duration of a round in seconds."""
POLICY = Policy(backoff_initial=0.01, backoff_max=0.2)
HEDGING = Policy(backoff_initial=0.01, backoff_max=0.2, hedge_after=0.01)


async def soak(endpoint: str, describes: int | None, minutes: float | None) -> tuple[list[Sample], Calls]:
    """Yields a sample after each round, until the number of tables or of minutes is reached."""
    properties = {"endpoint": endpoint, "credential": "soak:secret"}
    chance = random.Random(0)
    samples: list[Sample] = []
    calls = Calls(chance)
    begun = time.monotonic()
    async with (
        AsyncNamespace.connect("iceberg", properties, policy=POLICY) as plain,
        AsyncNamespace.connect("iceberg", properties, policy=HEDGING) as hedging,
    ):
        while True:
            await anyio.to_thread.run_sync(lambda: set_switches(endpoint, seed=len(samples), **weather(len(samples))))
            calls.until = time.monotonic() + SECONDS
            with plain.observe(calls.observe), hedging.observe(calls.observe):
                await play(plain, hedging, properties, calls)
            samples.append(await sample(time.monotonic() - begun, calls, (plain, hedging)))
            progress(samples[-1])
            if describes is not None and calls.settled >= describes:
                break
            if minutes is not None and time.monotonic() - begun >= 60 * minutes:
                break
    return samples, calls


async def play(plain: AsyncNamespace, hedging: AsyncNamespace, properties: Mapping[str, str], calls: Calls) -> None:
    """Runs one round, with all kinds of calls concurrently."""
    async with anyio.create_task_group() as group:
        group.start_soon(calls.bulk, plain)
        group.start_soon(calls.bulk, hedging)
        group.start_soon(calls.stream, plain)
        for _ in range(8):
            group.start_soon(calls.singles, plain)
            group.start_soon(calls.singles, hedging)
        group.start_soon(in_passing, properties, calls)


async def in_passing(properties: Mapping[str, str], calls: Calls) -> None:
    """Opens and closes further namespaces: an async one, and a sync one in a thread."""
    async with AsyncNamespace.connect("iceberg", properties, policy=POLICY) as namespace:
        calls.note(await namespace.describe_tables(calls.some(100)))

    def in_a_thread() -> None:
        with Namespace.connect("iceberg", properties, policy=POLICY) as namespace:
            calls.note(namespace.describe_tables(calls.some(100)))

    await anyio.to_thread.run_sync(in_a_thread)


def weather(number: int) -> dict[str, float | int | str]:
    """Returns the faults of a round."""
    return WEATHERS[number % len(WEATHERS)]


def progress(seen: Sample) -> None:
    """Prints the progress if standard error is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{seen.seconds:6.0f} s, {seen.describes:,} describes, {seen.memory:.1f} MB ", end="", file=sys.stderr)


def main() -> None:
    """Runs the test, and writes the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    end = parser.add_mutually_exclusive_group(required=True)
    end.add_argument("--describes", type=int, help="number of tables to describe")
    end.add_argument("--minutes", type=float, help="duration in minutes")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results", help="where results go")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with running_guarded_stub() as endpoint:
        samples, calls = asyncio.run(soak(endpoint, options.describes, options.minutes))
    print(write(samples, calls, f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after", options.out))


if __name__ == "__main__":
    main()
