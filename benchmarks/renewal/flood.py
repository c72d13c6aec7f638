"""Thousands of tasks that ask the endpoint in the driver at once: `python -m benchmarks.renewal.flood`.

The requests come from another process, each by a connection of its own. Meanwhile, the driver makes calls of its own,
one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import aiohttp

from lance_ns_async.spark import LocationResolver
from tests.fakes.s3 import KeyedS3, RenewingPolaris

TABLES = 200


async def ask_all(uri: str, token: str, number: int) -> None:
    """Asks for the credentials of the tables, and prints the median, the 99th percentile, and the failures."""
    seconds: list[float] = []
    failures = 0

    async def ask(client: aiohttp.ClientSession, id: str) -> None:
        nonlocal failures
        started = perf_counter()
        try:
            body = {"vend_credentials": True}
            async with client.post(f"{uri}/v1/table/{id}/describe", json=body, headers={"x-lance-token": token}) as it:
                it.raise_for_status()
                await it.read()
        except aiohttp.ClientError:
            failures += 1
        seconds.append(perf_counter() - started)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        await asyncio.gather(*(ask(client, f"c$db$t{n % TABLES:04}") for n in range(number)))
    seconds.sort()
    median, p99 = seconds[number // 2], seconds[number * 99 // 100]
    print(f"median {median:.2f} s, p99 {p99:.2f} s, {failures} failed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        uri, token = arguments.ask
        asyncio.run(ask_all(uri, token, arguments.requests))
        return
    with KeyedS3() as s3, RenewingPolaris(s3) as catalog:
        catalog.add_lance_tables("c", ("db",), TABLES)
        catalog.lasts = 40.0
        with LocationResolver.connect("polaris", catalog.properties, vend_credentials=True) as resolver:
            locations = resolver.prefetch("c.db.*", on_error="raise", pin_versions=False, progress=False)
            spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
            renewal = resolver._renewal(locations.values(), spark)
            command = [sys.executable, "-m", "benchmarks.renewal.flood", "--requests", str(arguments.requests)]
            print(f"memory of the driver before: {memory():.0f} MiB")
            for _ in range(arguments.rounds):
                own, issued = [], len(catalog.issued)
                with subprocess.Popen([*command, "--ask", renewal.uri, renewal.token]) as flood:
                    while flood.poll() is None:
                        started = perf_counter()
                        resolver.namespace.describe_namespace({"id": ["c", "db"]})
                        own.append(perf_counter() - started)
                own.sort()
                print(
                    f"  the driver's own {len(own):,} calls: median {own[len(own) // 2] * 1000:.1f} ms, longest "
                    f"{own[-1] * 1000:.0f} ms; {len(catalog.issued) - issued} keys; at most {memory():.0f} MiB",
                    flush=True,
                )


def memory() -> float:
    """Returns the maximum of the memory of this process until now, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
