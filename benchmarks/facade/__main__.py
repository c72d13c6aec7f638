"""Overhead of the sync namespace: single calls of `describe_table`, and calls from Lance.

`python -m benchmarks.facade` describes tables of a stub catalog without latency in both forms, and with
lance-namespace-impls, in alternating rounds. It prints the median CPU and wall time of a call, the overhead as the
median of the differences between rounds, and the ratio to lance-namespace-impls. The overhead is less if the caller and
the background thread share a core, as with `taskset -c 0`.
"""

import argparse
import asyncio
import gc
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.support.cell import cpu_seconds
from benchmarks.support.stacks import peer, peer_describe
from benchmarks.support.stub_process import running_stub
from lance_ns_async import AsyncNamespace, Namespace, Policy

SIDE_BY_SIDE = 8
TABLE = ["ns00", "table_000000"]
POLICY = Policy(max_in_flight=64)
PEER = "lance-namespace-impls"

Describe = Callable[[int], Awaitable[None]]
"""Describes a table a number of times."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds per call."""

    cpu: float
    wall: float


def request() -> Any:
    """A new request in the form in which pylance's Python side makes it."""
    from lance_namespace import DescribeTableRequest

    return DescribeTableRequest(id=TABLE, version=None)


class Request(dict[str, Any]):
    """A request in the form in which Lance's Rust side passes it."""


def ways(asynchronous: AsyncNamespace, sync: Namespace, incumbent: Any) -> Mapping[str, Describe]:
    """Returns the ways by name; each is compared with the preceding way whose name begins with "async"."""

    async def call_async(calls: int) -> None:
        for _ in range(calls):
            await asynchronous.describe_table(request())

    async def call_sync(calls: int) -> None:
        # This runs in the current thread although a loop runs in it, because nothing else is in progress.
        for _ in range(calls):
            sync.describe_table(request())

    async def called_with_dicts(calls: int) -> None:
        for _ in range(calls):
            sync.describe_table(Request(id=TABLE))

    async def awaited_side_by_side(calls: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SIDE_BY_SIDE):
                group.create_task(call_async(calls // SIDE_BY_SIDE))

    async def called_side_by_side(calls: int) -> None:
        def work(_: int) -> None:
            for _ in range(calls // SIDE_BY_SIDE):
                sync.describe_table(request())

        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(work, range(SIDE_BY_SIDE)))

    async def call_incumbent(calls: int) -> None:
        for _ in range(calls):
            peer_describe(incumbent, (TABLE[0], TABLE[1]))

    return {
        PEER: call_incumbent,
        "async": call_async,
        "sync": call_sync,
        "sync, dicts": called_with_dicts,
        f"async, {SIDE_BY_SIDE} tasks": awaited_side_by_side,
        f"sync, {SIDE_BY_SIDE} threads": called_side_by_side,
    }


async def cost(describe: Describe, calls: int) -> Cost:
    """Measures the cost of one way in one round."""
    gc.collect()
    cpu, start = cpu_seconds(), time.perf_counter()
    await describe(calls)
    wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    return Cost(cpu / calls * 1e6, wall / calls * 1e6)


async def measure(endpoint: str, rounds: int, calls: int) -> dict[str, list[Cost]]:
    """Returns the costs of all ways as lists of rounds, after connections, imports and threads were created."""
    properties = {"endpoint": endpoint}
    async with AsyncNamespace.connect("iceberg", properties, policy=POLICY) as asynchronous:
        with Namespace.connect("iceberg", properties, policy=POLICY) as sync, closing(peer(endpoint)) as incumbent:
            found = ways(asynchronous, sync, incumbent)
            for describe in found.values():
                await describe(SIDE_BY_SIDE * 4)
            costs: dict[str, list[Cost]] = {name: [] for name in found}
            for _ in range(rounds):
                for name, describe in found.items():
                    costs[name].append(await cost(describe, calls))
            return costs


def report(costs: Mapping[str, list[Cost]]) -> str:
    """Returns a table of the medians, one line per way."""
    lines = [
        f"| way | CPU µs | wall µs | wall over {PEER} | CPU over async | wall over async |",
        "|---|---|---|---|---|---|",
    ]
    base: list[Cost] = []
    for name, rounds in costs.items():
        relative = median(mine.wall / its.wall for mine, its in zip(rounds, costs[PEER], strict=True))
        line = f"| {name} | {middle(rounds, 'cpu'):.0f} | {middle(rounds, 'wall'):.0f} | {relative:.2f} |"
        if name == PEER or name.startswith("async"):
            base = rounds
            lines.append(f"{line} | |")
            continue
        cells = []
        for what in ("cpu", "wall"):
            pairs = [(getattr(mine, what), getattr(its, what)) for mine, its in zip(rounds, base, strict=True)]
            added, ratio = median(mine - its for mine, its in pairs), median(mine / its for mine, its in pairs)
            cells.append(f"{added:+.0f} ({ratio:.2f}x)")
        lines.append(f"{line} {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def middle(rounds: list[Cost], what: str) -> float:
    """Returns the median of one quantity."""
    return median(float(getattr(cost, what)) for cost in rounds)


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.facade", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="number of measurements of each way")
    parser.add_argument("--calls", type=int, default=200, help="describes in each measurement")
    options = parser.parse_args()
    with running_stub() as endpoint:
        costs = asyncio.run(measure(endpoint, options.rounds, options.calls))
    print(f"Python {platform.python_version()}, {options.rounds} rounds of {options.calls} calls\n", file=sys.stderr)
    print(report(costs))


if __name__ == "__main__":
    main()
