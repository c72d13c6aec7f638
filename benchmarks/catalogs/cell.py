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
"""Tables that the peer describes before it is measured; it keeps nothing that more of them would warm."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured: a client, a task, and the tables that the task is about."""

    client: str
    task: str
    tables: int


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a cell gave; times in seconds, memory in bytes."""

    cell: Cell
    wrong: str
    """What makes the figures worthless; empty where everything was as it must be."""
    wall: float = 0.0
    cpu: float = 0.0
    """User and system time of the client process."""
    calls: int = 0
    """Remote calls; 0 where nobody counts them."""
    growth: int = 0
    """By how much memory grew at most after the first table was described."""
    peak: int = 0
    """The most memory that the process had."""
    loop: float = 0.0
    """CPU time of a fixed Python loop, before and after: how fast the machine was at that moment."""


def cells(site: Site, tasks: Sequence[str] | None = None) -> list[Cell]:
    """Every cell of one round: our tasks, and the two that the peer can do."""
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
    """Runs a cell in a fresh process. What went wrong is in the run, and never raised."""
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
    return checked(site, run, counter.count() if counter else None)


def last_words(text: str) -> str:
    """The error at the end of a traceback, a group's last one where there are many."""
    lines = [line.strip(" |+-") for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def checked(site: Site, run: Run, requests: int | None) -> Run:
    """The run with the calls that the service counted, and wrong where these or the time cannot be true."""
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
    """Does the task once to be warm, all connections open, and once to be measured. The peer warms up by less."""
    names = site.extent.some(cell.tables)
    async with CLIENTS[cell.client](site) as client:
        gc.collect()
        await client.describe(names[:1])
        memory = Peak()
        if cell.client == "ours":
            await done(client, cell, names)
        else:
            await client.describe(names[:PEER_WARMS])
        print(WARM, flush=True)
        sys.stdin.readline()
        loop = fixed_loop()
        gc.collect()
        calls, cpu, start = client.calls, time.process_time(), time.perf_counter()
        found = await done(client, cell, names)
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


async def done(client: Client, cell: Cell, names: Sequence[str]) -> dict[str, str] | list[str]:
    """What the task gives."""
    return await (client.list() if cell.task == "list" else client.describe(names))


def complaint(extent: Extent, cell: Cell, found: dict[str, str] | list[str]) -> str:
    """What is wrong with a result; empty where nothing is."""
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
    """A location as its catalog may have rewritten it: one of this machine has many spellings."""
    scheme, _, path = location.partition(":")
    return f"file:/{path.lstrip('/')}" if scheme == "file" else location


def parsed(text: str) -> tuple[Site, Cell]:
    """A site and a cell as they come in the command line."""
    given = json.loads(text)
    site = given["site"]
    site["extent"]["namespace"] = tuple(site["extent"]["namespace"])
    extent = Extent(**site.pop("extent"))
    return Site(**site, extent=extent), Cell(**given["cell"])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(*parsed(sys.argv[1])))))
