"""The longest block of the event loop in each scenario, for which all other tasks have to wait.

`python -m benchmarks.stalls` measures all scenarios, each in a separate process. `--quick` uses a tenth of the tables,
`--only dir` runs the scenarios with that text in their names, and `--explain` shows where the loop's thread was.
There are two figures for each: wall time, which includes other processes, the GIL of worker threads and garbage
collections, and the CPU time of the loop's own thread. `--freeze` excludes all objects that are loaded before from
garbage collections, as `gc.freeze()` does in a program.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.report import table

TABLES = 20_000
DATASETS = 500
"""Number of tables of the directory that contain data to open."""
ROWS = 2_000_000
"""Number of rows that are written."""

BEAT = 0.001
"""Seconds between two ticks."""

BOUND = 0.05
"""Seconds that no stall should exceed."""

Work = Callable[[Any, Mapping[str, Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one scenario, in seconds."""

    whole: float
    """Duration."""
    stalled: float
    """The longest gap between two ticks by the clock."""
    busy: float
    """The longest CPU time of the loop's thread in one gap, apart from garbage collections."""
    collected: float
    """The longest garbage collection of Python, which blocks all threads: a part of the gap by the clock."""
    cpu: float
    """CPU time of the process."""


class Ticker:
    """A task in the event loop that records the longest gap between two ticks."""

    def __init__(self) -> None:
        self.stalled = self.busy = self.collected = 0.0
        self.last = time.perf_counter()
        self._thread = threading.get_ident()
        self._began = self._began_cpu = self._in_gap = 0.0

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        while True:
            clock, cpu = time.perf_counter(), time.thread_time()
            self.last, self._in_gap = clock, 0.0
            await asyncio.sleep(BEAT)
            self.stalled = max(self.stalled, time.perf_counter() - clock - BEAT)
            self.busy = max(self.busy, time.thread_time() - cpu - self._in_gap)

    def collect(self, phase: str, _: Mapping[str, int]) -> None:
        """Measures a garbage collection; a callback of `gc`."""
        if phase == "start":
            self._began, self._began_cpu = time.perf_counter(), time.thread_time()
            return
        self.collected = max(self.collected, time.perf_counter() - self._began)
        if threading.get_ident() == self._thread:
            self._in_gap += time.thread_time() - self._began_cpu


class Watch(threading.Thread):
    """Records where the loop's thread is while it is blocked."""

    def __init__(self, ticker: Ticker) -> None:
        super().__init__(daemon=True)
        self._ticker = ticker
        self._loop = threading.get_ident()
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        """Reads the stack every few milliseconds."""
        while True:
            time.sleep(0.004)
            if time.perf_counter() - self._ticker.last > BOUND / 2:
                stack = traceback.extract_stack(sys._current_frames()[self._loop])
                self.seen[" < ".join(f"{Path(it.filename).name}:{it.lineno} {it.name}" for it in stack[:-7:-1])] += 1


@asynccontextmanager
async def ticking() -> AsyncIterator[Ticker]:
    """Runs a `Ticker` while the context is open."""
    ticker = Ticker()
    gc.callbacks.append(ticker.collect)
    task = asyncio.create_task(ticker.run())
    try:
        yield ticker
        # A block at the very end delays the next tick, which is still to come.
        await asyncio.sleep(2 * BEAT)
    finally:
        gc.callbacks.remove(ticker.collect)
        task.cancel()


async def describe_all(ns: Any, site: Mapping[str, Any]) -> None:
    """Describes all tables."""
    (await ns.describe_tables([[*site["namespace"], name] for name in site["names"]])).raise_for_errors()


async def list_all(ns: Any, site: Mapping[str, Any]) -> None:
    """Lists a namespace in one page."""
    found = await ns.list_tables({"id": site["namespace"]})
    assert len(found.tables) == len(site["names"])


async def list_many(ns: Any, site: Mapping[str, Any]) -> None:
    """Lists a namespace with the descriptions of its tables."""
    (await ns.list_many([site["namespace"]])).raise_for_errors()


async def iterate(ns: Any, site: Mapping[str, Any]) -> None:
    """Iterates over all tables."""
    assert len([id async for id in ns.iter_tables(site["namespace"])]) == len(site["names"])


async def write(ns: Any, site: Mapping[str, Any]) -> None:
    """Writes a table of some rows, and reads it."""
    import pyarrow as pa

    # The rows are zeros, because only the write is measured.
    rows = pa.table({"i": pa.nulls(site["rows"], pa.int64()).fill_null(0), "s": pa.nulls(site["rows"], pa.string())})
    await ns.write(["written"], rows, mode="overwrite")
    await ns.count_table_rows({"id": ["written"]})


async def open_many(ns: Any, site: Mapping[str, Any]) -> None:
    """Opens tables."""
    (await ns.open_many([[name] for name in site["names"][: site["datasets"]]])).raise_for_errors()


SCENARIOS: Mapping[str, tuple[Work, ...]] = {
    "iceberg": (describe_all,),
    "polaris": (describe_all, list_all, iterate),
    "unity": (describe_all, list_all, list_many, iterate),
    "dir": (describe_all, list_all, list_many, iterate, write, open_many),
}


async def measure(work: Work, site: Mapping[str, Any], *, explain: bool, freeze: bool) -> Figures:
    """Measures a scenario, after a call that connects and loads libraries."""
    from lance_ns_async import AsyncNamespace

    async with AsyncNamespace.connect(site["impl"], site["properties"]) as ns:
        await ns.exists([*site["namespace"], site["names"][0]])
        if work in (write, open_many):
            # Loads pylance, which holds the GIL during the import.
            await ns.open([site["names"][0]])
        gc.collect()
        if freeze:
            gc.freeze()
        async with ticking() as ticker:
            watch = Watch(ticker)
            if explain:
                watch.start()
            clock, cpu = time.perf_counter(), time.process_time()
            await work(ns, site)
            whole, cpu = time.perf_counter() - clock, time.process_time() - cpu
        for place, count in watch.seen.most_common(12):
            print(f"{count:4} {place}", file=sys.stderr)
        return Figures(whole, ticker.stalled, ticker.busy, ticker.collected, cpu)


@contextmanager
def site_of(impl: str, tables: int, datasets: int, rows: int) -> Iterator[Mapping[str, Any]]:
    """Provides a catalog full of tables, in a separate process or in a directory, and its properties."""
    names = [f"table_{number:06}" for number in range(tables)]
    site: dict[str, Any] = {"impl": impl, "datasets": datasets, "rows": rows, "names": names}
    match impl:
        case "iceberg":
            from benchmarks.support.stub_process import running_stub

            with running_stub() as endpoint:
                yield {**site, "namespace": ["big"], "properties": {"endpoint": endpoint}}
        case "dir":
            with tempfile.TemporaryDirectory(prefix="lance-ns-bench-") as folder:
                _fill(Path(folder), names)
                yield {**site, "namespace": [], "properties": {"root": folder}}
        case _:
            from benchmarks.catalogs.sites import SITES

            with SITES[impl](tables, 0) as found:
                yield {**site, "namespace": list(found.extent.namespace), "properties": dict(found.properties)}


def _fill(folder: Path, names: list[str]) -> None:
    """Creates a dataset, and copies it for each name."""
    import lance
    import pyarrow as pa

    first = folder / f"{names[0]}.lance"
    lance.write_dataset(pa.table({"i": range(10)}), str(first))
    for name in names[1:]:
        shutil.copytree(first, folder / f"{name}.lance")


def main() -> None:
    """Measures the scenarios that the command line names, and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stalls", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="with a tenth of the tables")
    parser.add_argument(
        "--only", default="", help="only scenarios with this text in their names, such as unity or list"
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of measurements of each; the best one counts")
    parser.add_argument("--explain", action="store_true", help="print where the loop's thread was during blocks")
    parser.add_argument("--freeze", action="store_true", help="after gc.freeze()")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SITE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, site = options.one[0], json.loads(Path(options.one[1]).read_text(encoding="utf-8"))
        work = next(it for it in SCENARIOS[site["impl"]] if it.__name__ == name)
        print(json.dumps(asdict(asyncio.run(measure(work, site, explain=options.explain, freeze=options.freeze)))))
        return
    part = 10 if options.quick else 1
    flags = [f"--{flag}" for flag in ("explain", "freeze") if getattr(options, flag)]
    rows = []
    for impl, works in SCENARIOS.items():
        wanted = [it.__name__ for it in works if options.only in f"{impl} {it.__name__}"]
        if not wanted:
            continue
        with site_of(impl, TABLES // part, DATASETS // part, ROWS // part) as site, tempfile.TemporaryDirectory() as at:
            told = Path(at) / "site.json"
            told.write_text(json.dumps(site), encoding="utf-8")
            for name in wanted:
                rounds = [_run(name, told, flags) for _ in range(options.rounds)]
                rows.append(_row(f"{impl} {name}", rounds))
                print(" ".join(rows[-1]), file=sys.stderr)
    print(table(["scenario", "stall ms", "loop CPU ms", "gc ms", "whole s", "CPU s"], rows))


def _run(name: str, site: Path, flags: list[str]) -> Figures:
    command = [sys.executable, "-m", "benchmarks.stalls", "--one", name, str(site), *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Figures(**json.loads(done.stdout))


def _row(name: str, rounds: list[Figures]) -> list[str]:
    """Returns the minimum of each figure, because other processes only increase them."""
    least = {key: min(asdict(it)[key] for it in rounds) for key in asdict(rounds[0])}
    stalls = [f"{least[key] * 1e3:.0f}" for key in ("stalled", "busy", "collected")]
    return [name, *stalls, f"{least['whole']:.2f}", f"{least['cpu']:.2f}"]


if __name__ == "__main__":
    main()
