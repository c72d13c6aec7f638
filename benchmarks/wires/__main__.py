"""HTTP clients that could carry our calls: CPU of a describe, and whether they survive what our users do.

`python -m benchmarks.wires` describes tables of a stub catalog with bare clients, in alternating rounds. Their CPU time
includes that of their own threads. Afterwards it uses each client in a forked child of a process that used it before,
and ends processes after cancelled requests.
"""

import argparse
import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median

import anyio

from benchmarks.support.cell import Cell, Run, run_cell, table_names
from benchmarks.support.progress import progress
from benchmarks.support.stacks import STACKS
from benchmarks.support.stub_process import running_stub, set_switches

WIRES = ("aiohttp", "httpx", "niquests", "pyqwest", "pyreqwest", "wreq")
IN_FLIGHT = (64, 256)
SLOW = ("httpx", "niquests")
"""Clients that get a tenth of the describes."""
DESCRIBES = 10_240
ENDS = 8
"""How many processes end after cancelled requests."""


def measure(rounds: int, wires: list[str]) -> Mapping[tuple[str, int], float]:
    """Returns the median CPU time of a describe in µs, by client and requests in flight."""
    runs: dict[tuple[str, int], list[Run]] = {}
    with running_stub() as endpoint:
        for number in range(rounds):
            for wire in wires:
                for in_flight in IN_FLIGHT:
                    describes = DESCRIBES // 10 if wire in SLOW else DESCRIBES
                    progress(f"round {number + 1}/{rounds}: {wire}, {in_flight} in flight")
                    cell = Cell(wire, 0.02, in_flight, describes // in_flight * in_flight)
                    runs.setdefault((wire, in_flight), []).append(run_cell(endpoint, cell))
    progress("")
    return {key: median(run.cpu / run.cell.describes * 1e6 for run in those) for key, those in runs.items()}


async def describe_some(endpoint: str, wire: str) -> None:
    """Describes some tables."""
    async with STACKS[wire](endpoint, 8) as describe:
        await describe(table_names(16))


async def cancel_some(endpoint: str, wire: str) -> None:
    """Cancels describes, and leaves the client to the end of the interpreter."""
    client = STACKS[wire](endpoint, 64)
    describe = await client.__aenter__()
    with anyio.move_on_after(0.05):
        await describe(table_names(6400))


def fork(endpoint: str, wire: str) -> None:
    """Uses a client, forks, and uses it in the child; exits with the child's outcome."""
    asyncio.run(describe_some(endpoint, wire))
    if child := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    asyncio.run(describe_some(endpoint, wire))
    os._exit(0)


def end(endpoint: str, wire: str) -> None:
    """Ends the interpreter after cancelled requests."""
    asyncio.run(cancel_some(endpoint, wire))


TRIALS: Mapping[str, Callable[[str, str], None]] = {"fork": fork, "end": end}


def attempt(endpoint: str, wire: str, trial: str) -> str:
    """Runs a trial in a fresh process; returns its outcome."""
    command = [sys.executable, "-m", "benchmarks.wires", "--trial", trial, endpoint, wire]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        subprocess.run(["pkill", "-f", f"--trial {trial} {endpoint} {wire}"], check=False)
        return "hangs"
    if done.returncode == 0:
        return "works"
    return f"signal {-done.returncode}" if done.returncode < 0 else "fails"


def report(cpu: Mapping[tuple[str, int], float], trials: Mapping[str, tuple[str, str]]) -> str:
    """Returns a table of all clients."""
    header = [f"CPU µs, {count} in flight" for count in IN_FLIGHT]
    lines = [
        f"| client | version | {' | '.join(header)} | in a forked child | end after cancelled requests |",
        "|---|---|" + "---|" * (len(header) + 2),
    ]
    for wire, (forked, ended) in trials.items():
        cells = " | ".join(
            f"{cpu[wire, count]:.0f} ({cpu[wire, count] / cpu['aiohttp', count]:.2f})" for count in IN_FLIGHT
        )
        lines.append(f"| {wire} | {version(wire)} | {cells} | {forked} | {ended} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wires", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trial", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trial:
        trial, endpoint, wire = options.trial
        TRIALS[trial](endpoint, wire)
        return
    wires = [wire for wire in WIRES if find_spec(wire)]
    cpu = measure(options.rounds, wires)
    trials: dict[str, tuple[str, str]] = {}
    with running_stub() as endpoint:
        set_switches(endpoint, latency=0.02)
        for wire in wires:
            ends = [attempt(endpoint, wire, "end") for _ in range(ENDS)]
            bad = [it for it in ends if it != "works"]
            ended = f"{len(bad)} of {ENDS}: {bad[0]}" if bad else "works"
            trials[wire] = attempt(endpoint, wire, "fork"), ended
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {options.rounds} rounds\n", file=sys.stderr)
    print(report(cpu, trials))


if __name__ == "__main__":
    main()
