"""Planning over a partitioned directory: `python -m benchmarks.partitions --partitions 100000 --keep 100`.

The partitions are days by regions, and a condition on the days keeps some of them; only those have rows. The peers are
a prefetch of all tables by the same client, without the condition, and a loop with pylance over the kept tables.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from math import inf, isinf
from statistics import median

import lance
import pyarrow as pa

from benchmarks.support.progress import progress
from benchmarks.support.report import table
from lance_ns_async import AsyncNamespace
from lance_ns_async.calls.observers import Call
from lance_ns_async.spark.resolver import LocationResolver

REGIONS = 10
ROWS = 1_000
"""Rows of each kept partition."""
FIRST = date(2000, 1, 1)
SCHEMA = pa.schema([("day", pa.date32()), ("region", pa.string()), ("id", pa.int64())])
PEER, LOOP = '`prefetch("**", pin_versions=False)`', "loop of `lance.dataset(location).to_table()`"
NOTES = f"""\
Seconds are medians of the rounds; the prefetch of all tables has its own number of rounds, and the calls of one that
was given up are those until then. Cold is the first call of a new namespace, which reads the manifest; files are in the
cache of the operating system. Warm is the same call again; each prefetch has a new resolver without cached tables.
Calls are those that `ns.observe` receives: opens of tables are none. Each kept partition has {ROWS:,} rows in one file;
the others have no data, so that the prefetch of all tables pins no versions. The loop is given the locations, and reads
without the condition, which holds for all rows; the disk is local, where opening one table after another costs least.
"""

Way = Callable[[AsyncNamespace], Awaitable[int]]
"""Plans or reads, and returns the number of tables or rows."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call of a way costs; infinite seconds if it did not end in time."""

    found: int
    calls: int
    seconds: float


async def fill(root: str, partitions: int, keep: int) -> str:
    """Adds the partitions in one commit, writes rows to the kept ones, and returns the condition that keeps them."""
    days = [FIRST + timedelta(number) for number in range(partitions // REGIONS)]
    first = days[len(days) // 2]
    end = first + timedelta(keep // REGIONS)
    regions = [f"region{number}" for number in range(REGIONS)]
    async with AsyncNamespace.connect("dir", {"root": root}) as ns:
        progress(f"add {partitions:,} partitions")
        spec = await ns.partition_by(["day", "region"], schema=SCHEMA)
        values = {"day": [day for day in days for _ in regions], "region": regions * len(days)}
        columns = [pa.array(values[field.field_id], field.result_type) for field in spec.fields]
        await ns.session.backend.add_partitions(spec, pa.table(columns, [field.column for field in spec.fields]))
        progress(f"write {keep:,} partitions")
        kept = [(day, region) for day in days if first <= day < end for region in regions]
        ids = range(len(kept) * ROWS)
        rows = [[it[column] for it in kept for _ in range(ROWS)] for column in (0, 1)]
        written = await ns.write_partitions(pa.table([*rows, ids], SCHEMA))
        assert len(written) == keep
    return f"day >= date '{first}' AND day < date '{end}'"


def plans(where: str) -> Mapping[str, Way]:
    """Returns the ways to plan, by their names."""

    async def partitions(ns: AsyncNamespace, where: str | None) -> int:
        return len(await ns.list_partitions(where))

    async def prefetch(ns: AsyncNamespace, where: str | None, *, pin: bool) -> int:
        resolver = LocationResolver(ns)
        return len(await resolver.aprefetch("**", where=where, pin_versions=pin, on_error="raise", progress=False))

    return {
        "`list_partitions(where)`": partial(partitions, where=where),
        "`list_partitions()`": partial(partitions, where=None),
        '`prefetch("**", where=where, pin_versions=True)`': partial(prefetch, where=where, pin=True),
        PEER: partial(prefetch, where=None, pin=False),
    }


def reads(where: str, locations: Sequence[str]) -> Mapping[str, Way]:
    """Returns the ways to read the kept rows, by their names."""

    async def partitioned(ns: AsyncNamespace) -> int:
        return int((await ns.open_partitions(where)).to_table().num_rows)

    async def loop(ns: AsyncNamespace) -> int:
        return int(pa.concat_tables([lance.dataset(location).to_table() for location in locations]).num_rows)

    return {"`open_partitions(where).to_table()`": partitioned, LOOP: loop}


async def measure(way: Way, ns: AsyncNamespace, limit: float) -> Cost:
    """Returns the cost of one call."""
    calls: list[Call] = []
    found = 0
    gc.collect()
    with ns.observe(calls.append):
        start = time.perf_counter()
        try:
            async with asyncio.timeout(limit):
                found = await way(ns)
        except TimeoutError:
            return Cost(found, len(calls), inf)
        return Cost(found, len(calls), time.perf_counter() - start)


async def compare(root: str, ways: Mapping[str, Way], options: argparse.Namespace) -> Mapping[str, Sequence[Cost]]:
    """Returns the costs of each way: cold and warm ones in turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    for number in range(options.rounds):
        for name, way in ways.items():
            if name == PEER and number >= options.peer_rounds:
                continue
            async with AsyncNamespace.connect("dir", {"root": root}) as ns:
                progress(f"round {number + 1}/{options.rounds}: {name}, cold")
                costs[name].append(cold := await measure(way, ns, options.limit))
                progress(f"round {number + 1}/{options.rounds}: {name}, warm")
                # What was given up when cold would be given up when warm, too.
                costs[name].append(cold if isinf(cold.seconds) else await measure(way, ns, options.limit))
    return costs


def rows(costs: Mapping[str, Sequence[Cost]], peer: str, limit: float) -> Iterator[Sequence[str]]:
    """Yields the rows of one table of the report."""

    def shown(seconds: float) -> str:
        return f"{seconds:.3f} s" if not isinf(seconds) else f"> {limit:,.0f} s"

    def ratio(mine: float, other: float) -> str:
        if isinf(mine):
            return ""
        return f"> {limit / mine:,.0f}" if isinf(other) else f"{other / mine:,.2f}"

    by_name = {name: [median(it.seconds for it in its[start::2]) for start in (0, 1)] for name, its in costs.items()}
    for name, its in costs.items():
        both = by_name[name]
        ratios = map(ratio, both, by_name[peer])
        yield name, f"{its[-1].found:,}", f"{its[0].calls:,} / {its[-1].calls:,}", *map(shown, both), *ratios


async def run(root: str, options: argparse.Namespace) -> None:
    """Fills a directory, measures, and prints the figures."""
    where = await fill(root, options.partitions, options.keep)
    async with AsyncNamespace.connect("dir", {"root": root}) as ns:
        locations = [it.location for it in await ns.list_partitions(where)]
        assert len(locations) == options.keep
        # These import all modules.
        await LocationResolver(ns).aprefetch("**", where=where, progress=False)
        await ns.open_partitions(where)
    planned = await compare(root, plans(where), options)
    read = await compare(root, reads(where, locations), options)
    progress("")
    print(f"{options.partitions:,} partitions, of which `{where}` keeps {options.keep:,}\n")
    ends = ("calls, cold / warm", "cold", "warm", "peer over it, cold", "warm")
    print(table(("plan", "tables", *ends), list(rows(planned, PEER, options.limit))))
    print()
    print(table(("read", "rows", *ends), list(rows(read, LOOP, options.limit))))
    print(f"\n{NOTES}", end="")


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000, help=f"a multiple of {REGIONS}")
    parser.add_argument("--keep", type=int, default=100, help=f"a multiple of {REGIONS}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-rounds", type=int, default=1, help="rounds of the prefetch of all tables")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which one call is given up")
    options = parser.parse_args()
    if options.partitions % REGIONS or options.keep % REGIONS or not 0 < 2 * options.keep <= options.partitions:
        parser.error(f"both numbers must be multiples of {REGIONS}, and at most half of the partitions can be kept")
    with tempfile.TemporaryDirectory(prefix="lance-ns-partitions-") as root:
        asyncio.run(run(root, options))


if __name__ == "__main__":
    main()
