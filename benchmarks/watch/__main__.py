"""Looks of a watch at many tables: `python -m benchmarks.watch --tables 10000` counts calls and measures the lag.

The peer is a loop with the same client that lists and describes every table at each look. Each catalog but `dir` is a
fake in another process, unless `--endpoint URL` is the address of a real server; the tables are on the local disk.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import tempfile
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.support.progress import progress
from benchmarks.support.report import table
from benchmarks.watch.catalogs import CATALOGS, clear, fill, opened
from lance_ns_async import AsyncNamespace, NamespaceId, TableId
from lance_ns_async.calls.observers import Call
from lance_ns_async.many.watching import Watch

T = TypeVar("T")
LOOKS = 6
"""Looks in a minute with `every=10`, which examine every table once with `examine_every=60`."""
EVERY = 0.5
"""Seconds between the looks whose lag is measured."""
NOTES = f"""\
Calls are those that `ns.observe` receives. Reads of versions are listings of storage, which it does not see: each table
is examined once a minute, as computed. If a catalog vends credentials for remote tables, each read has a call more.
Seconds are medians; a minute has {LOOKS} looks: `every=10, examine_every=60`. The lag is from the return of another
client's `declare_table` to the event, with versions, `every={EVERY}`. The loop is `list_all_tables` of each namespace
and `describe_tables`; if listings contain tables of other formats, both describe every table."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one look costs."""

    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one catalog."""

    tables: int
    token: int
    """Bytes of the token."""
    listing: Sequence[Cost]
    """The first look without versions, and looks that examine nothing."""
    plain: Sequence[Cost]
    """The same, and looks of one minute."""
    versions: Sequence[Cost]
    """The first look with versions, and looks of one minute."""
    loop: Sequence[Cost]
    lags: Sequence[float]


def rows(by_catalog: Mapping[str, Figures]) -> Iterator[Sequence[str]]:
    """Yields the rows of the report."""
    columns = list(by_catalog.values())

    def minute(looks: Sequence[Cost]) -> int:
        return sum(it.calls for it in looks[1:])

    def of(looks: Sequence[Cost]) -> str:
        return f"{median(it.calls for it in looks):,.0f} / {seconds(looks):.3f} s"

    yield "first look (`watch_token`), `versions=False`", *(of(it.plain[:1]) for it in columns)
    yield "the same, `versions=True`", *(of(it.versions[:1]) for it in columns)
    yield "token, bytes per table", *(f"{it.token / it.tables:.0f}" for it in columns)
    yield "look, nothing happened, nothing examined", *(of(it.listing[1:]) for it in columns)
    yield "the same, 1/6 examined, `versions=False`", *(of(it.plain[1:]) for it in columns)
    yield "the same, 1/6 examined, `versions=True`", *(of(it.versions[1:]) for it in columns)
    yield "calls a minute, `versions=False`", *(f"{minute(it.plain):,}" for it in columns)
    yield "calls a minute, `versions=True`", *(f"{minute(it.versions):,}" for it in columns)
    yield "reads of versions a minute beside them", *(f"{it.tables:,}" for it in columns)
    yield "look of the loop: calls / seconds", *(of(it.loop) for it in columns)
    yield "loop over watch, calls a minute", *(f"{LOOKS * it.loop[0].calls / minute(it.plain):.1f}" for it in columns)
    yield "loop over watch, seconds of a look", *(f"{seconds(it.loop) / seconds(it.plain[1:]):.1f}" for it in columns)
    yield "lag: median (most)", *(f"{median(it.lags):.2f} ({max(it.lags):.2f}) s" for it in columns)
    yield f"lag over `every={EVERY}`", *(f"{median(it.lags) / EVERY:.1f}" for it in columns)


def seconds(looks: Sequence[Cost]) -> float:
    """Returns the median."""
    return median(it.seconds for it in looks)


async def measure(impl: str, properties: Mapping[str, str], folder: Path, options: argparse.Namespace) -> Figures:
    """Returns the figures of a catalog; removes the tables from one that is not a fake."""
    async with AsyncNamespace.connect(impl, properties) as ns:
        namespaces = await fill(ns, impl, folder, options.tables)
        what = [f"{'$'.join(namespace)}$**" for namespace in namespaces]
        loop: list[Cost] = []
        for number in range(options.rounds):
            progress(f"{impl}: loop {number + 1}/{options.rounds}")
            assert await measured(ns, loop, look_at_all(ns, namespaces)) == options.tables
        progress(f"{impl}: looks")
        plain = await looks(ns, what, 1 / LOOKS, versions=False)
        versions = await looks(ns, what, 1 / LOOKS, versions=True)
        listing = await looks(ns, what, 0.0, versions=False)
        progress(f"{impl}: lag")
        token = await ns.watch_token(what)
        async with AsyncNamespace.connect(impl, properties) as other:
            seen = await follow(ns, what, token, other, namespaces[0], options.lags)
        if options.endpoint:
            await clear(ns, namespaces)
    return Figures(options.tables, len(token), listing, plain, versions, loop, seen)


async def measured(ns: AsyncNamespace, costs: list[Cost], work: Awaitable[T]) -> T:
    """Returns the result, and adds the cost."""
    calls: list[Call] = []
    gc.collect()
    with ns.observe(calls.append):
        start = time.perf_counter()
        result = await work
        costs.append(Cost(len(calls), time.perf_counter() - start))
    return result


async def looks(ns: AsyncNamespace, what: Sequence[str], share: float, *, versions: bool) -> Sequence[Cost]:
    """Returns the costs of the first look, and of those of a minute in which nothing happens."""
    watch = Watch(ns.session, what, versions=versions)
    costs: list[Cost] = []
    await measured(ns, costs, watch.begin())
    for _ in range(LOOKS):
        assert not await measured(ns, costs, watch.look(share))
    return costs


async def look_at_all(ns: AsyncNamespace, namespaces: Sequence[NamespaceId]) -> int:
    """Lists and describes every table; returns their number."""
    listings = await asyncio.gather(*(ns.list_all_tables({"id": list(namespace)}) for namespace in namespaces))
    ids = [TableId(name) for listing in listings for name in listing.tables]
    return len((await ns.describe_tables(ids)).raise_for_errors().tables)


async def follow(
    ns: AsyncNamespace, what: Sequence[str], token: str, other: AsyncNamespace, parent: NamespaceId, count: int
) -> Sequence[float]:
    """Returns the lags of the events of a number of declarations by another client, in seconds."""
    events: asyncio.Queue[tuple[Sequence[str], float]] = asyncio.Queue()

    async def read() -> None:
        async with aclosing(ns.watch(what, since=token, every=EVERY)) as changes:
            async for change in changes:
                events.put_nowait((change.id, time.perf_counter()))

    lags: list[float] = []
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read())
        # The first look goes on after the token, with an examination of every table.
        for number in range(count + 1):
            await asyncio.sleep(random.random() * EVERY)
            id = parent.table(f"late_{number}")
            await other.declare_table({"id": list(id)})
            declared = time.perf_counter()
            found, at = await events.get()
            assert found == id
            lags.append(at - declared)
        reader.cancel()
    return lags[1:]


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watch", description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--catalog", choices=CATALOGS, action="append", help="default: dir and all fakes")
    parser.add_argument("--endpoint", metavar="URL", help="the address of a running catalog, with --catalog")
    parser.add_argument("--rounds", type=int, default=3, help="looks of the loop")
    parser.add_argument("--lags", type=int, default=10, help="declarations whose lag is measured")
    options = parser.parse_args()
    if options.endpoint and len(options.catalog or ()) != 1:
        parser.error("--endpoint needs one --catalog")
    by_catalog: dict[str, Figures] = {}
    for impl in options.catalog or CATALOGS:
        with tempfile.TemporaryDirectory(prefix="lance-ns-watch-") as name:
            folder = Path(name).resolve()
            with opened(impl, folder, options.endpoint) as properties:
                by_catalog[impl] = asyncio.run(measure(impl, properties, folder, options))
    progress("")
    print(f"{options.tables:,} tables in {len(by_catalog)} catalogs\n")
    print(table(("", *by_catalog), list(rows(by_catalog))))
    print(f"\n{NOTES}")


if __name__ == "__main__":
    main()
