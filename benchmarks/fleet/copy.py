"""Copies 2,000 tables between catalogs at 20 ms latency, beside a loop that copies one table after another.

Run it with `python -m benchmarks.fleet.copy [TABLES]`. Source and target are fakes in processes of their own. The loop
copies every twentieth table; its time is scaled. Its steps are those of the usual script: describe the table in the
source, declare it in the target. The ideal is the time for the same calls alone, in bulk: a listing of the source,
which describes each table, and a registration of all tables in another namespace of the target.
"""

import asyncio
import sys
from time import perf_counter, process_time

from benchmarks.fleet.served import Served, served
from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.fleet import Report, copy

LATENCY = 0.02
SHARE = 20
TARGETS = {"iceberg": ["copied"], "polaris": ["lake", "copied"]}
"""The namespace of the copies by the kind of the target."""


async def ideal_seconds(source: Served, target: Served, impl: str) -> float:
    home = [*TARGETS[impl][:-1], "bulk"]
    async with (
        AsyncNamespace.connect("iceberg", source.properties) as first,
        AsyncNamespace.connect(impl, target.properties) as second,
    ):
        await second.create_namespace({"id": home})
        started = perf_counter()
        ids = [id async for id in first.iter_tables(["sales"])]
        requests = [{"id": [*home, id.name], "location": f"s3://lake/{id.name}"} for id in ids]
        (await second.register_tables(requests)).raise_for_errors()
        return perf_counter() - started


async def run_copy(source: Served, target: Served, impl: str) -> tuple[Report, float]:
    """Returns the report, and the seconds of CPU."""
    async with (
        AsyncNamespace.connect("iceberg", source.properties) as first,
        AsyncNamespace.connect(impl, target.properties) as second,
    ):
        cpu = process_time()
        report = await copy(first, second, "sales.*", to={"sales": ".".join(TARGETS[impl])})
        return report, process_time() - cpu


def loop_seconds(source: Served, target: Served, impl: str, tables: int) -> float:
    """Returns the seconds that the usual script would take."""
    home = [*TARGETS[impl][:-1], "loop"]
    with Namespace.connect("iceberg", source.properties) as first, Namespace.connect(impl, target.properties) as to:
        to.create_namespace({"id": home})
        started = perf_counter()
        for number in range(0, tables, SHARE):
            name = f"t{number:05}"
            table = first.describe_table({"id": ["sales", name]})
            properties = {"number": (table.properties or {}).get("number", "")}
            to.declare_table({"id": [*home, name], "location": table.location, "properties": properties})
        return (perf_counter() - started) * SHARE


def main(tables: int) -> None:
    for impl in TARGETS:
        with served("iceberg", tables) as source, served(impl, 0) as target:
            source.clear(LATENCY)
            target.clear(LATENCY)
            ideal = asyncio.run(ideal_seconds(source, target, impl))
            report, cpu = asyncio.run(run_copy(source, target, impl))
            loop = loop_seconds(source, target, impl, tables)
        print(f"iceberg to {impl}: {report.line()}; {cpu:.2f} s of CPU")
        print(f"one by one: {loop:.1f} s (scaled from {tables // SHARE}), {loop / report.seconds:.0f} times as long")
        print(f"ideal: {ideal:.2f} s; copy takes {report.seconds / ideal:.2f} of it")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
