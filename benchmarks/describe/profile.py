"""CPU profile of a bulk describe: samples one stack in this process, in µs per describe.

The sampler counts the function of the current line every few milliseconds of CPU time, and C functions together with
the Python function that called them. So its cost is small and does not distort the result.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from benchmarks.support.cell import cpu_seconds, table_names
from benchmarks.support.report import table
from benchmarks.support.stacks import STACKS, Name
from benchmarks.support.stub_process import running_stub, set_switches

INTERVAL = 0.001
"""Seconds of CPU time between samples; the kernel's clock may make it 4 ms."""

Place = tuple[str, str]
"""A source file, and the name of a function in it."""


class Samples:
    """Numbers of samples for each function, in which it was running or was waiting for a function that it called."""

    def __init__(self) -> None:
        self.total = 0
        self.own: Counter[Place] = Counter()
        self.within: Counter[Place] = Counter()
        self.libraries: Counter[str] = Counter()

    def take(self, _: int, frame: FrameType | None) -> None:
        """Counts the current stack; a signal handler."""
        places = list(stack(frame))
        if not places:
            return
        self.total += 1
        self.own[places[0]] += 1
        self.libraries[library(places[0][0])] += 1
        self.within.update(set(places))


def stack(frame: FrameType | None) -> Iterator[Place]:
    """Yields the functions of the stack, innermost first."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_code.co_qualname
        frame = frame.f_back


def library(file: str) -> str:
    """Returns the package of a source file; for our own code and the standard library, the module."""
    path = Path(file)
    parts = path.parts
    if "lance_ns_async" in parts:
        return "/".join(parts[parts.index("lance_ns_async") :])
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1]
    # A package of the standard library has its own name, a module has the name of its file.
    return path.parent.name if path.parent.name in sys.stdlib_module_names else path.name


@contextmanager
def sampling(samples: Samples) -> Iterator[None]:
    """Samples the main thread while the context is open."""
    before = signal.signal(signal.SIGPROF, samples.take)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


async def sample_stacks(endpoint: str, options: argparse.Namespace) -> str:
    """Describes many tables under the sampler, and prints where the time was spent."""
    first, *names = table_names(options.describes + 1)
    samples = Samples()
    async with STACKS[options.stack](endpoint, options.in_flight) as describe:
        await describe([first])
        set_switches(endpoint, latency=options.latency)
        gc.collect()
        cpu = cpu_seconds()
        with sampling(samples):
            await describe(names)
        cpu = (cpu_seconds() - cpu) / options.describes * 1e6
    # Functions in nearly every sample are only the entry, so they are omitted.
    inner = Counter({place: count for place, count in samples.within.items() if count < 0.97 * samples.total})
    return "\n\n".join(
        (
            f"{options.stack}: {cpu:.0f} µs of CPU per describe, {samples.total} samples",
            share_table("library or module", samples.libraries, samples.total, cpu, options.top),
            share_table("function itself", by_name(samples.own), samples.total, cpu, options.top),
            share_table("function and all it calls", by_name(inner), samples.total, cpu, options.top),
        )
    )


def by_name(places: Counter[Place]) -> Counter[str]:
    """Returns the counts by readable names."""
    named: Counter[str] = Counter()
    for (file, function), count in places.items():
        named[f"{library(file)}: {function}"] += count
    return named


def share_table(head: str, counts: Counter[str], total: int, cpu: float, top: int) -> str:
    """Returns the largest shares, in microseconds per describe."""
    rows = [(name, f"{count / total * cpu:.1f}") for name, count in counts.most_common(top)]
    return table((head, "µs per describe"), rows)


async def profile_calls(endpoint: str, options: argparse.Namespace, names: Sequence[Name]) -> cProfile.Profile:
    """Describes some tables under the deterministic profiler, which is slow, but counts calls."""
    async with STACKS[options.stack](endpoint, options.in_flight) as describe:
        await describe(names[:1])
        with cProfile.Profile() as profile:
            await describe(names[1:])
    return profile


def main() -> None:
    """Profiles a stack."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.describe.profile", description=__doc__)
    parser.add_argument("--stack", choices=STACKS, default="ours")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds")
    parser.add_argument("--describes", type=int, default=40_000)
    parser.add_argument("--top", type=int, default=30, help="rows of each table")
    parser.add_argument("--calls", action="store_true", help="count calls with cProfile instead")
    options = parser.parse_args()
    with running_stub() as endpoint:
        if options.calls:
            profile = asyncio.run(profile_calls(endpoint, options, table_names(options.describes // 10)))
            pstats.Stats(profile).sort_stats("tottime").print_stats(options.top)
        else:
            print(asyncio.run(sample_stacks(endpoint, options)))


if __name__ == "__main__":
    main()
