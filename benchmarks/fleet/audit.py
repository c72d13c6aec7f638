"""Audits 2,000 tables of an Iceberg catalog at 20 ms latency, beside a loop that looks at one table after another.

Run it with `python -m benchmarks.fleet.audit [TABLES]`. The loop looks at every tenth table; its time is scaled. Its
steps are those of the usual script: describe the table, open its dataset. The ideal is the time for the same calls and
opens alone, one after the other: a listing, which describes each table, and the opens in 16 threads. The catalog runs
in a process of its own.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import lance
import pyarrow as pa

from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.fleet import Report
from lance_ns_async.fleet.audits import audit
from lance_ns_async.storage.threads import THREADS
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


async def run_audit(endpoint: str) -> Report:
    async with AsyncNamespace.connect("iceberg", {"endpoint": endpoint}) as namespace:
        return await audit(namespace, "sales.*")


async def ideal_seconds(endpoint: str, root: Path) -> float:
    started = perf_counter()
    async with AsyncNamespace.connect("iceberg", {"endpoint": endpoint}) as namespace:
        ids = [id async for id in namespace.iter_tables(["sales"])]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda id: lance.dataset(root / id.name).schema, ids))
    return perf_counter() - started


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
        ideal = asyncio.run(ideal_seconds(endpoint, Path(folder)))
        report = asyncio.run(run_audit(endpoint))
        loop = loop_seconds(endpoint, tables)
    print(report.line())
    print(f"one by one: {loop:.1f} s (scaled from {tables // SHARE} tables), {loop / report.seconds:.0f} times as long")
    print(f"ideal: {ideal:.2f} s; audit takes {report.seconds / ideal:.2f} of it")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(Path(sys.argv[2]), int(sys.argv[1]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
