"""Memory and time of many rows through a gateway: written in parts, scanned, and read by one query.

`python -m benchmarks.rest.rows --mib 2048` writes and reads 2 GiB. Each step is a process of its own, whose memory is
the most that it holds beyond that of a connected process. The peer is `query_table`, whose response is held as a whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from benchmarks.support.progress import progress
from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import serving

PART_MIB = 64
SCHEMA = pa.schema({"id": pa.int64(), "data": pa.binary()})
ID = ["rows"]


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rest.rows", description=__doc__)
    parser.add_argument("--mib", type=int, default=2048, help="size of the rows")
    parser.add_argument("--mib-at-once", type=int, default=200, help="size of the rows that one query returns")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--properties", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(asyncio.run(measure(options.step, options.properties, options.mib))))
    else:
        asyncio.run(compare(options.mib, options.mib_at_once))


async def compare(mib: int, at_once: int) -> None:
    """Serves a directory, runs each step in a process of its own, and prints a Markdown table."""
    print("| step | rows | seconds | memory of the client |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        async with AsyncNamespace.connect("dir", {"root": root}) as ns, serving(ns) as gateway:
            headers = {f"header.{name}": value for name, value in gateway.headers.items()}
            properties = {
                "uri": gateway.url,
                "data_operations": "remote",
                "operation_timeout": "10m",
                "attempt_timeout": "10m",
                "max_response_bytes": str(2**31),
                **headers,
            }
            for step, size in (("insert", mib), ("scan", mib), ("query", at_once)):
                progress(f"{step}: {size} MiB")
                seconds, memory = await run(step, properties, size)
                print(f"| {TITLES[step]} | {size} MiB | {seconds:.1f} | {memory:.0f} MiB |")
            progress("")


TITLES = {
    "insert": f"`insert_into_table`, readers of {PART_MIB} MiB",
    "scan": "`scan`",
    "query": "`query_table`, one response",
}


async def run(step: str, properties: Mapping[str, str], mib: int) -> tuple[float, float]:
    """Returns the seconds and the MiB of memory of a step in a new process."""
    command = [sys.executable, "-m", "benchmarks.rest.rows", "--step", step, "--mib", str(mib)]
    command += ["--properties", json.dumps(properties)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{step} ended with code {process.returncode}")
    seconds, memory = json.loads(output)
    return seconds, memory


async def measure(step: str, properties: Mapping[str, str], mib: int) -> tuple[float, float]:
    """Runs a step; returns its seconds, and the memory in MiB beyond that before it."""
    async with AsyncNamespace.connect("rest", properties) as ns:
        await ns.exists(ID)
        before, began = most_memory(), time.perf_counter()
        match step:
            case "insert":
                await ns.create_table({"id": ID}, SCHEMA.empty_table().to_reader())
                for start in range(0, mib, PART_MIB):
                    await ns.insert_into_table({"id": ID}, rows(start, min(start + PART_MIB, mib)))
                size = mib
            case "scan":
                size = 0
                async for batch in ns.scan(ID):
                    size += batch.num_rows
            case _:
                response = await ns.query_table({"id": ID, "k": mib, "vector": {}})
                with pa.ipc.open_file(response.data) as file:
                    size = sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))
        if size != mib:
            raise SystemExit(f"{step}: {size} rows of {mib}")
        return time.perf_counter() - began, most_memory() - before


def most_memory() -> float:
    """Returns the most memory that the process has held so far, in MiB. `getrusage` includes that of the parent."""
    (line,) = (it for it in Path("/proc/self/status").read_text().splitlines() if it.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def rows(start: int, end: int) -> pa.RecordBatchReader:
    """Returns a reader of rows of 1 MiB."""

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(start, end):
            yield pa.record_batch({"id": [number], "data": [bytes([number % 256]) * 2**20]}, SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


if __name__ == "__main__":
    main()
