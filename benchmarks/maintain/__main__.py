"""Compaction of many tables: `python -m benchmarks.maintain`, in seconds, and in ratios to a loop with pylance.

The lake is a directory catalog with tables of 40 fragments each. Each client gets a copy, in a process of its own.
Some tables are damaged. The loop skips their errors; lance-ray, if it is installed, gets a lake without them: it
stops at the first. Afterwards, the rows of all other tables are compared: their number and the sum of their ids.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time

import lance
import pyarrow as pa

from benchmarks.support.memory import peak
from lance_ns_async import Namespace

FRAGMENTS = 40
ROWS = 100
"""Rows of a fragment."""


def build(root: Path, tables: int, damaged: int) -> None:
    """Creates a lake in which some tables, evenly distributed, have lost a data file."""
    rows = pa.table({"id": pa.array(range(FRAGMENTS * ROWS), pa.int64()), "text": ["row"] * (FRAGMENTS * ROWS)})
    first = root / "first"
    lance.write_dataset(rows, first, max_rows_per_file=ROWS)
    for number in range(tables):
        shutil.copytree(first, root / "data" / f"t{number}.lance")
    shutil.rmtree(first)
    with Namespace.connect("dir", {"root": str(root)}) as namespace:
        # lance-ray cannot compact the tables of the root.
        namespace.create_namespace({"id": ["db"]})
        requests = [{"id": ["db", f"t{number}"], "location": f"data/t{number}.lance"} for number in range(tables)]
        if namespace.register_tables(requests).errors:
            raise SystemExit("the tables cannot be registered")
    for number in range(0, tables, max(1, tables // damaged)) if damaged else ():
        next((root / "data" / f"t{number}.lance" / "data").iterdir()).unlink()


def compact_in_a_loop(root: str) -> None:
    """Compacts one table after the other with pylance, as a script would."""
    with Namespace.connect("dir", {"root": root}) as namespace:
        for name in namespace.list_tables({"id": ["db"]}).tables:
            dataset = lance.dataset(namespace.describe_table({"id": ["db", name]}).location)
            try:
                dataset.optimize.compact_files()
            except Exception:  # damaged tables raise all kinds of errors
                continue


def compact_with_threads(root: str) -> None:
    """Compacts all tables with `fleet.maintain` in this process."""
    from lance_ns_async.fleet import sync

    with Namespace.connect("dir", {"root": root}) as namespace:
        print(sync.maintain(namespace, "db.*", index=False, cleanup=False).line(), file=sys.stderr)


def compact_with_spark(root: str) -> float:
    """Compacts all tables with Spark; returns the seconds without the start of Spark."""
    from lance_ns_async.fleet import sync
    from lance_ns_async.spark import SparkEngine
    from lance_ns_async.spark.local import local_spark

    spark = local_spark("benchmark")
    spark.range(8).repartition(8).mapInArrow(lambda batches: batches, "id long").count()
    started = perf_counter()
    with Namespace.connect("dir", {"root": root}) as namespace:
        report = sync.maintain(namespace, "db.*", index=False, cleanup=False, engine=SparkEngine(spark))
        print(report.line(), file=sys.stderr)
    seconds = perf_counter() - started
    spark.stop()
    return seconds


def compact_with_ray(root: str) -> float:
    """Compacts all tables with lance-ray; returns the seconds without the start of Ray."""
    import ray
    from lance_ray import compact_database

    ray.init(num_cpus=os.cpu_count(), log_to_driver=False, include_dashboard=False)
    started = perf_counter()
    compact_database(database=["db"], namespace_impl="dir", namespace_properties={"root": root})
    seconds = perf_counter() - started
    ray.shutdown()
    return seconds


CLIENTS: dict[str, Callable[[str], float | None]] = {
    "a loop with pylance": compact_in_a_loop,
    "`fleet.maintain`": compact_with_threads,
    "`fleet.maintain` with Spark": compact_with_spark,
    "lance-ray's `compact_database`": compact_with_ray,
}

NEEDS = {"`fleet.maintain` with Spark": "pyspark", "lance-ray's `compact_database`": "lance_ray"}
"""The module without which a client is omitted."""


def verify(root: Path, tables: int) -> tuple[int, int]:
    """Returns the number of compacted and of unchanged tables; fails if a compacted one has other rows."""
    compacted = 0
    for number in range(tables):
        dataset = lance.dataset(root / "data" / f"t{number}.lance")
        if dataset.version == 1:
            continue
        ids = dataset.to_table(columns=["id"])["id"].to_pylist()
        if len(dataset.get_fragments()) != 1 or sorted(ids) != [*range(FRAGMENTS * ROWS)]:
            raise SystemExit(f"t{number}: its rows differ")
        compacted += 1
    return compacted, tables - compacted


def measure(tables: int, damaged: int) -> Iterator[tuple[str, float, float, float, tuple[int, int]]]:
    """Yields each client with its seconds, its CPU a table, its peak of memory in bytes, and the numbers of `verify`.

    The CPU of the JVM and of the processes of Spark and Ray does not count.
    """
    for client in CLIENTS:
        if client in NEEDS and find_spec(NEEDS[client]) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            build(root, tables, 0 if "lance-ray" in client else damaged)
            command = [sys.executable, "-m", "benchmarks.maintain", "--client", client, "--root", folder]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            seconds, cpu, memory = json.loads(output.splitlines()[-1])
            yield client, seconds, cpu / tables, memory, verify(root, tables)


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maintain", description=__doc__)
    parser.add_argument("--tables", type=int, default=500, help="number of tables")
    parser.add_argument("--damaged", type=int, default=20, help="number of damaged tables")
    parser.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        started = perf_counter()
        cpu = process_time()
        seconds = CLIENTS[options.client](options.root)
        print(json.dumps([seconds or perf_counter() - started, process_time() - cpu, peak()]))
        return
    print("| client | seconds | ratio | CPU a table | peak of the process | compacted | unchanged |")
    print("|---|---|---|---|---|---|---|")
    loop = None
    for client, seconds, cpu, memory, (compacted, unchanged) in measure(options.tables, options.damaged):
        loop = loop or seconds
        print(
            f"| {client} | {seconds:.1f} | {seconds / loop:.2f} | {cpu * 1000:.1f} ms | {memory / 1e6:.0f} MB "
            f"| {compacted} | {unchanged} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
