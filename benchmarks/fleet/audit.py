"""Audits 2,000 tables of an Iceberg catalog at 20 ms latency, beside a loop that looks at one table after another.

Run it with `python -m benchmarks.fleet.audit [TABLES]`. The loop looks at every tenth table; its time is scaled. Its
steps are those of the usual script: describe the table, open its dataset. The ideal is the number of calls, divided by
the calls in flight, times the latency. The catalog runs in a process of its own.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import lance
import pyarrow as pa

from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.fleet import Report
from lance_ns_async.fleet.audits import audit
from tests.fakes.iceberg import FakeIceberg

LATENCY = 0.02
SHARE = 10


def plant(server: FakeIceberg, root: Path, tables: int) -> None:
    lance.write_dataset(pa.table({"id": [1]}), root / "first")
    for number in range(tables):
        folder = root / f"t{number}"
        shutil.copytree(root / "first", folder)
        properties = {"table_type": "lance", "gc.enabled": "false"}
        server.add_table(["sales"], folder.name, properties=properties, location=folder.as_uri())


async def run_audit(endpoint: str) -> tuple[Report, int]:
    async with AsyncNamespace.connect("iceberg", {"endpoint": endpoint}) as namespace:
        return await audit(namespace, "sales.*"), namespace.snapshot().max_in_flight


def loop_seconds(endpoint: str, tables: int) -> float:
    with Namespace.connect("iceberg", {"endpoint": endpoint}) as namespace:
        namespace.exists(["sales", "t0"])
        started = perf_counter()
        for number in range(0, tables, SHARE):
            location = namespace.describe_table({"id": ["sales", f"t{number}"]}).location
            lance.dataset(location).schema  # noqa: B018
        return (perf_counter() - started) * SHARE


def serve(root: Path, tables: int) -> None:
    """Serves the catalog until standard input ends; prints its endpoint."""
    with FakeIceberg() as server:
        plant(server, root, tables)
        server.delay(LATENCY)
        print(server.endpoint, flush=True)
        sys.stdin.read()


@contextmanager
def serving(root: Path, tables: int) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.fleet.audit", str(tables), str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.communicate()


def main(tables: int) -> None:
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), tables) as endpoint:
        report, in_flight = asyncio.run(run_audit(endpoint))
        ideal = report.calls / in_flight * LATENCY
        loop = loop_seconds(endpoint, tables)
    print(report.line())
    print(f"one by one: {loop:.1f} s (scaled from {tables // SHARE} tables), {loop / report.seconds:.0f} times as long")
    print(f"ideal: {ideal:.2f} s with {in_flight} calls in flight; audit takes {report.seconds / ideal:.2f} of it")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(Path(sys.argv[2]), int(sys.argv[1]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
