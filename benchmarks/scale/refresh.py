"""A refresh of 5,000 known tables, with and without ETags: `python -m benchmarks.scale.refresh`.

Each run is a fresh process that describes all tables twice, in a stub of Iceberg's REST catalog, and measures the
second time.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median

from benchmarks.support.answers import location
from benchmarks.support.cell import cpu_seconds, table_names
from benchmarks.support.stub_process import counts, running_stub, set_switches
from lance_ns_async import AsyncNamespace

TABLES = 5_000
LATENCY = 0.005
MORE_COLUMNS = {"2 KB": 4, "50 KB": 775}
"""Additional columns of each table, by the size of a response."""


@dataclass(frozen=True, slots=True)
class Run:
    """A refresh: seconds and CPU seconds of the client, and what the stub counted."""

    wall: float
    cpu: float
    requests: int
    confirmed: int
    received: int
    sent: int


async def measure(endpoint: str, tables: int, entries: int, more_columns: int) -> Run:
    """Describes tables twice; returns the second time. Raises an error if a location is wrong."""
    names = table_names(tables)
    properties = {"endpoint": endpoint, "rest_table_cache_max_entries": str(entries)}
    async with AsyncNamespace.connect("iceberg", properties) as namespace:
        set_switches(endpoint, more_columns=more_columns, latency=LATENCY)
        await namespace.describe_tables(names)
        before = counts(endpoint)
        cpu, start = cpu_seconds(), time.perf_counter()
        result = await namespace.describe_tables(names)
        wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        after = counts(endpoint)
    if [table.location for table in result.tables.values()] != [location(*name) for name in names]:
        raise RuntimeError("wrong locations")
    counted = {name: int(after[name] - before[name]) for name in ("requests", "confirmed", "received", "sent")}
    return Run(wall, cpu, **counted)


def run(endpoint: str, *arguments: int) -> Run:
    """Measures in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale.refresh", "--run", json.dumps([endpoint, *arguments])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Run(**json.loads(done.stdout))


def main() -> None:
    """Measures, and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.refresh", description=__doc__)
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(asdict(asyncio.run(measure(*json.loads(options.run))))))
        return
    load = os.getloadavg()[0]
    cells = list(product(MORE_COLUMNS, (0, options.tables)))
    runs: dict[tuple[str, int], list[Run]] = {cell: [] for cell in cells}
    with running_stub() as endpoint:
        for _ in range(options.rounds):
            for size, entries in cells:
                runs[size, entries].append(run(endpoint, options.tables, entries, MORE_COLUMNS[size]))
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs; load average {load:.1f}; medians\n")
    print("| response | ETags | requests | 304 | requests, MB | responses, MB | time, s | CPU, µs per table |")
    print("|---|---|---|---|---|---|---|---|")
    for (size, entries), found in runs.items():
        one, wall, cpu = found[0], median(it.wall for it in found), median(it.cpu for it in found)
        print(
            f"| {size} | {'yes' if entries else 'no'} | {one.requests:,} | {one.confirmed:,} "
            f"| {one.received / 1e6:.1f} | {one.sent / 1e6:.1f} | {wall:.2f} | {cpu / options.tables * 1e6:.0f} |"
        )


if __name__ == "__main__":
    main()
