"""Discovery of a lake: `python -m benchmarks.fleet` finds tables among other objects, and registers them.

The lake has ten objects for each table: on local disk, or with `--s3` in moto, a fake S3 in another process. Folders
with other files are among the tables, and traps, which only look like tables. The catalog is a fresh directory catalog
in the same folder, or with `--impl iceberg` a fake Iceberg REST catalog. Listings are printed beside their bound: 1.1
for each table and each other folder, and the further pages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support.memory import peak
from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet import discover

GOAL_MB = 300
TABLES_BESIDE = 200
"""Tables in one folder."""


def keys(tables: int) -> Iterator[str]:
    """Yields the keys of the lake: ten for each table."""
    for number in range(tables):
        suffix = ".lance" if number % 4 else ""
        table = f"area{number // TABLES_BESIDE % 10}/group{number // TABLES_BESIDE}/t{number}{suffix}"
        yield f"{table}/_versions/18446744073709551614.manifest"
        yield f"{table}/_transactions/0-{number}.txn"
        yield from (f"{table}/data/{part}.lance" for part in range(7))
        yield f"area{number // TABLES_BESIDE % 10}/raw/day={number % 97}/{number}.parquet"
    for number in range(tables // 1_000):
        yield f"traps/outer{number}.lance/_versions/1.manifest"
        yield f"traps/outer{number}.lance/inner.lance/_versions/1.manifest"
        yield f"traps/outer{number}.lance/tree/branch/_versions/1.manifest"
        yield f"traps/staged{number}.lance/_versions/1.manifest-8f14"
        yield f"traps/{'/'.join(['long' * 50] * 4)}/{number}.lance/_versions/1.manifest"


def build(root: Path, tables: int) -> int:
    """Creates the lake on disk; returns the number of its files."""
    count, last = 0, ""
    for key in keys(tables):
        folder = os.path.join(root, os.path.dirname(key))
        if folder != last:
            os.makedirs(folder, exist_ok=True)
            last = folder
        os.close(os.open(os.path.join(root, key), os.O_CREAT | os.O_WRONLY))
        count += 1
    return count


async def run(uri: str, impl: str, properties: dict[str, str], options: dict[str, str] | None, dry_run: bool) -> None:
    async with AsyncNamespace.connect(impl, properties) as namespace:
        began, cpu = time.perf_counter(), time.process_time()
        report = await discover(namespace, uri, into=["lake"], storage_options=options, dry_run=dry_run)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    counters = report.counters
    found = counters["tables"] + counters["folders"]
    for row in report.having("failed")[:1]:
        print(row.reason[:300])
    print(
        json.dumps(
            {
                "counts": dict(report.counts),
                "seconds": round(wall, 1),
                "cpu": round(cpu, 1),
                "calls": report.calls,
                **counters,
                "bound": round(1.1 * found + counters["pages"]),
                "peak_mb": round(peak() / 1e6),
                "goal_mb": GOAL_MB,
            }
        ),
        flush=True,
    )


def serve_s3(tables: int) -> None:
    """Serves the lake by moto until standard input ends; prints the URL."""
    import logging

    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    s3 = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="key", aws_secret_access_key="hush", region_name="us-east-1"
    )
    s3.create_bucket(Bucket="lake")
    for key in keys(tables):
        s3.put_object(Bucket="lake", Key=key, Body=b"")
    print(url, flush=True)
    sys.stdin.read()
    server.stop()


def options_of(url: str) -> dict[str, str]:
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "hush", "aws_region": "us-east-1"}
    return {"aws_endpoint": url, "allow_http": "true", **keys}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--tables", type=int, default=20_000)
    parser.add_argument("--s3", action="store_true", help="use moto instead of the local disk")
    parser.add_argument("--impl", choices=["dir", "iceberg"], default="dir")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_s3(arguments.tables)
        return
    with tempfile.TemporaryDirectory(prefix="lance-lake-") as folder:
        options, server, uri = None, None, folder
        if arguments.s3:
            command = [sys.executable, "-m", "benchmarks.fleet", "--serve", "--tables", str(arguments.tables)]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert server.stdout is not None
            options, uri = options_of(server.stdout.readline().strip()), "s3://lake"
        else:
            print(f"{build(Path(folder), arguments.tables)} files", flush=True)
        properties = {"root": uri, **{f"storage.{key}": value for key, value in (options or {}).items()}}
        try:
            if arguments.impl == "iceberg":
                from tests.fakes.iceberg import FakeIceberg

                with FakeIceberg() as catalog:
                    asyncio.run(run(uri, "iceberg", {"endpoint": catalog.url}, options, arguments.dry_run))
            else:
                asyncio.run(run(uri, "dir", properties, options, arguments.dry_run))
        finally:
            if server is not None:
                server.communicate()


if __name__ == "__main__":
    main()
