"""One measurement: a fresh process does one task on a site, `python -m benchmarks.catalogs.cell <json>`.

It reports when it is warm, waits for a line, and then does the task again. Only this second run is measured.
"""

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.catalogs.clients import CLIENTS, Client
from benchmarks.catalogs.extent import Extent
from benchmarks.catalogs.memory import Peak, peak
from benchmarks.catalogs.sites import Counter, Site
from benchmarks.support.cell import fixed_loop

WARM = "warm"
WITHIN = 600.0
PEER_WARMS = 20
"""Number of tables that the peer describes as warm-up; it has no cache that would need more."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The subject of a measurement: a client, a task, and its tables."""

    client: str
    task: str
    tables: int


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of a cell; times in seconds, memory in bytes."""

    cell: Cell
    wrong: str
    """The reason why the figures are invalid; empty if they are valid."""
    wall: float = 0.0
    cpu: float = 0.0
    """User and system time of the client process."""
    calls: int = 0
    """Number of remote calls; 0 if they are not counted."""
    growth: int = 0
    """Maximum growth of memory after the first describe."""
    peak: int = 0
    """Peak memory of the process."""
    loop: float = 0.0
    """CPU time of a fixed Python loop, before and after, as a measure of the machine's speed."""


def cells(site: Site, tasks: Sequence[str] | None = None) -> list[Cell]:
    """Returns the cells of one round: our tasks, and the two that the peer supports."""
    every = site.extent.tables
    some = min(500, every)
    found = [
        Cell("ours", "describe 5", 5),
        Cell("ours", "describe 500", some),
        Cell("ours", "describe all", every),
        Cell("ours", "list", every),
        Cell("peer", "describe 500", some),
        Cell("peer", "list", every),
    ]
    return [cell for cell in found if tasks is None or cell.task in tasks]


def run_cell(site: Site, cell: Cell, counter: Counter | None) -> Run:
    """Runs a cell in a new process. Errors are recorded in the run and not raised."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.catalogs.cell",
        json.dumps({"site": asdict(site), "cell": asdict(cell)}),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        if process.stdout.readline().strip() == WARM and counter:
            counter.clear()
        try:
            told, told_on_error = process.communicate("go\n", timeout=WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            return Run(cell, f"not done within {WITHIN:g} s")
    if process.returncode:
        return Run(cell, last_words(told_on_error))
    run = Run(cell, **json.loads(told))
    return check_counts(site, run, counter.count() if counter else None)


def last_words(text: str) -> str:
    """Returns the error at the end of a traceback; the last one of a group."""
    lines = [line.strip(" |+-") for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def check_counts(site: Site, run: Run, requests: int | None) -> Run:
    """Returns the run with the counted calls; marked as invalid if their number or the time is impossible."""
    given = asdict(run) | {"cell": run.cell}
    ideal = site.ideal(run.cell.task)
    if ideal is not None and run.wall < ideal and not run.wrong:
        given["wrong"] = f"{run.wall:.3f} s, less than the ideal {ideal:.3f} s: no latency"
    if requests is not None:
        if run.cell.client == "ours" and run.calls != requests and not run.wrong:
            given["wrong"] = f"{requests} requests for {run.calls} calls"
        given["calls"] = requests
    return Run(**given)


async def measure(site: Site, cell: Cell) -> dict[str, Any]:
    """Runs the task once as warm-up, which opens all connections, and once measured. The peer has a smaller warm-up."""
    names = site.extent.some(cell.tables)
    async with CLIENTS[cell.client](site) as client:
        gc.collect()
        await client.describe(names[:1])
        memory = Peak()
        if cell.client == "ours":
            await run_task(client, cell, names)
        else:
            await client.describe(names[:PEER_WARMS])
        print(WARM, flush=True)
        sys.stdin.readline()
        loop = fixed_loop()
        gc.collect()
        calls, cpu, start = client.calls, time.process_time(), time.perf_counter()
        found = await run_task(client, cell, names)
        wall, cpu, calls = time.perf_counter() - start, time.process_time() - cpu, client.calls - calls
        growth = memory.growth
        loop = (loop + fixed_loop()) / 2
    return {
        "wrong": complaint(site.extent, cell, found),
        "wall": wall,
        "cpu": cpu,
        "calls": calls,
        "growth": growth,
        "peak": peak(),
        "loop": loop,
    }


async def run_task(client: Client, cell: Cell, names: Sequence[str]) -> dict[str, str] | list[str]:
    """Returns the result of the task."""
    return await (client.list() if cell.task == "list" else client.describe(names))


def complaint(extent: Extent, cell: Cell, found: dict[str, str] | list[str]) -> str:
    """Returns the error in a result; empty if it is correct."""
    if isinstance(found, list):
        expected = extent.lance()
        if sorted(found) != expected:
            return f"listed {len(set(found) & set(expected))} of {len(expected)} tables, and {len(found)} names in all"
        return ""
    astray = [name for name in extent.some(cell.tables) if plain(found.get(name, "")) != plain(extent.location(name))]
    if astray:
        return f"{len(astray)} of {cell.tables} locations wrong; {astray[0]} at {found.get(astray[0], 'no place')}"
    return "" if len(found) == cell.tables else f"{len(found)} tables described, {cell.tables} asked for"


def plain(location: str) -> str:
    """Returns a location in one form, because catalogs rewrite local ones."""
    scheme, _, path = location.partition(":")
    return f"file:/{path.lstrip('/')}" if scheme == "file" else location


def parse_arguments(text: str) -> tuple[Site, Cell]:
    """Returns the site and the cell in the command line."""
    given = json.loads(text)
    site = given["site"]
    site["extent"]["namespace"] = tuple(site["extent"]["namespace"])
    extent = Extent(**site.pop("extent"))
    return Site(**site, extent=extent), Cell(**given["cell"])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(*parse_arguments(sys.argv[1])))))
