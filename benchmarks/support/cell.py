"""One measurement: a fresh process describes tables, `python -m benchmarks.support.cell <endpoint> <json>`."""

import asyncio
import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from resource import RUSAGE_SELF, getrusage

from benchmarks.support.answers import location
from benchmarks.support.stacks import STACKS, Name
from benchmarks.support.stub_process import counts, set_switches

NAMESPACES = 20


class WrongRunError(Exception):
    """A run did not do what it claims, so its figures are invalid."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The subject of a measurement: a stack, the latency in seconds, the maximum in flight, the number of describes."""

    stack: str
    latency: float
    in_flight: int
    describes: int

    @property
    def ideal(self) -> float:
        """Returns the seconds that the latency alone takes, in full waves; 0 without latency."""
        return -(-self.describes // self.in_flight) * self.latency


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of a cell; times in seconds."""

    cell: Cell
    wall: float
    cpu: float
    """User and system time of the client process, during the measured part only."""
    loop: float
    """CPU time of a fixed Python loop, before and after, as a measure of the machine's speed."""
    requests: int
    connections: int
    most_in_flight: int
    stub_cpu: float
    stub_late: float
    """Total delay of the stub's responses beyond the latency, in seconds."""


def run_cell(endpoint: str, cell: Cell) -> Run:
    """Runs a cell in a fresh process; raises WrongRunError if its figures are invalid."""
    command = [sys.executable, "-m", "benchmarks.support.cell", endpoint, json.dumps(asdict(cell))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise WrongRunError(done.stderr.strip().rpartition("\n")[2])
    run = Run(cell, **json.loads(done.stdout))
    if run.requests != cell.describes:
        raise WrongRunError(f"{run.requests} requests for {cell.describes} describes")
    if run.most_in_flight > cell.in_flight:
        raise WrongRunError(f"{run.most_in_flight} in flight, {cell.in_flight} allowed")
    if run.wall < cell.ideal:
        raise WrongRunError(f"{run.wall:.3f} s, less than the ideal {cell.ideal:.3f} s: no latency")
    return run


def table_names(count: int) -> list[Name]:
    """Returns the first tables of the stub's catalog, distributed over its namespaces."""
    return [(f"ns{number % NAMESPACES:02}", f"table_{number:06}") for number in range(count)]


async def measure(endpoint: str, cell: Cell) -> dict[str, float]:
    """Describes all tables of a cell once, after the first connection and all imports."""
    set_switches(endpoint)
    first, *names = table_names(cell.describes + 1)
    async with STACKS[cell.stack](endpoint, cell.in_flight) as describe:
        await describe([first])
        set_switches(endpoint, latency=cell.latency)
        loop_before = fixed_loop()
        gc.collect()
        cpu, start = cpu_seconds(), time.perf_counter()
        found = await describe(names)
        wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        seen = counts(endpoint)
        loop_after = fixed_loop()
    if found != [location(*name) for name in names]:
        raise WrongRunError("the locations belong to other tables")
    return {
        "wall": wall,
        "cpu": cpu,
        "loop": (loop_before + loop_after) / 2,
        "requests": seen["requests"],
        "connections": seen["connections"],
        "most_in_flight": seen["most_in_flight"],
        "stub_cpu": seen["cpu"],
        "stub_late": seen["late"],
    }


def cpu_seconds() -> float:
    """Returns the user and system time of this process."""
    usage = getrusage(RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def fixed_loop() -> float:
    """Returns the CPU seconds of a fixed amount of Python work, the best of three."""
    return min(_timed_loop() for _ in range(3))


def _timed_loop() -> float:
    start = time.process_time()
    found: dict[str, int] = {}
    for number in range(40_000):
        key = f"table_{number % 997}"
        found[key] = found.get(key, 0) + number
    return time.process_time() - start


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], Cell(**json.loads(sys.argv[2]))))))
