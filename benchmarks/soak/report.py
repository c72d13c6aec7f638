"""The measurements of a soak test, and whether they grow."""

import asyncio
import gc
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize
from statistics import fmean, linear_regression

from matplotlib.figure import Figure

from benchmarks.soak.calls import Calls
from lance_ns_async import AsyncNamespace

WARM_UP = 0.25
"""The share of rounds that is ignored for growth, because pools, caches and the allocator fill up first."""

UNIT = 100_000
"""Number of describes to which growth refers."""

MEMORY_ALLOWED, OBJECTS_ALLOWED = 1.0, 1000.0
"""Growth for this number of describes that counts as none: MB, and Python objects."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state after a round, when no call is in progress."""

    seconds: float
    describes: int
    memory: float
    """Resident memory in MB."""
    files: int
    tasks: int
    threads: int
    objects: int
    """Number of objects that Python's garbage collector tracks."""
    taken: int
    """Slots for calls that are in use or waited for."""


async def sample(seconds: float, calls: Calls, namespaces: Sequence[AsyncNamespace]) -> Sample:
    """Returns the current state."""
    # A connection that was aborted in the last turn of the loop is closed in the next.
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    slots = {namespace.session.caller.slots for namespace in namespaces}
    return Sample(
        seconds=seconds,
        describes=calls.settled,
        memory=resident(),
        files=open_files(),
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        objects=len(gc.get_objects()),
        taken=sum(one._used + one._waiting.count() for one in slots),
    )


def resident() -> float:
    """Returns the resident memory of this process in MB; Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize() / 1e6


def open_files() -> int:
    """Returns the number of open files and sockets of this process, including the folder that is read for it."""
    return len(list(Path("/proc/self/fd").iterdir()))


def growth(samples: Sequence[Sample], what: str) -> float:
    """Returns the growth of a quantity for each `UNIT` describes, after the warm-up."""
    late = samples[int(len(samples) * WARM_UP) :]
    return linear_regression([s.describes / UNIT for s in late], [float(getattr(s, what)) for s in late]).slope


def write(samples: Sequence[Sample], calls: Calls, conditions: str, out: Path) -> str:
    """Writes `soak.md` and `soak.svg`; returns the text."""
    text = report(samples, calls, conditions)
    out.mkdir(parents=True, exist_ok=True)
    (out / "soak.md").write_text(text)
    plot(samples, out / "soak.svg")
    return text


def report(samples: Sequence[Sample], calls: Calls, conditions: str) -> str:
    """Returns a table of some of the samples, and the growth."""
    last = samples[-1]
    lines = [
        "# Soak test",
        "",
        f"{last.describes:,} describes in {len(samples)} rounds, {last.seconds / 60:.1f} minutes; {conditions}.",
        f"Correct responses {calls.right:,}, wrong responses {calls.wrong}; cancelled calls {calls.given_up:,}; "
        f"failed {calls.failed.total():,}"
        + (f" ({', '.join(f'{n:,} {kind}' for kind, n in calls.failed.most_common())})." if calls.failed else "."),
        "",
        "Remote calls by outcome: "
        + ", ".join(f"{n:,} {outcome}" for outcome, n in calls.outcomes.most_common())
        + ".",
        "",
        "| minutes | describes | memory, MB | open files | tasks | threads | objects | slots taken |",
        "|---|---|---|---|---|---|---|---|",
    ]
    shown = sorted({round(i * (len(samples) - 1) / 14) for i in range(15)})
    lines += [
        f"| {s.seconds / 60:.1f} | {s.describes:,} | {s.memory:.1f} | {s.files} | {s.tasks} | {s.threads} "
        f"| {s.objects:,} | {s.taken} |"
        for s in (samples[i] for i in shown)
    ]
    return "\n".join([*lines, "", *verdict(samples), ""])


def verdict(samples: Sequence[Sample]) -> list[str]:
    """Returns in words whether anything grows."""
    if len(samples) < 8:
        return ["Too few rounds to detect growth."]
    late = samples[int(len(samples) * WARM_UP) :]
    half = len(late) // 2
    said = []
    for what, unit, allowed in (("memory", "MB", MEMORY_ALLOWED), ("objects", "objects", OBJECTS_ALLOWED)):
        slope = growth(samples, what)
        first, second = (fmean(getattr(s, what) for s in part) for part in (late[:half], late[half:]))
        grows = "grows" if slope > allowed else "does not grow"
        said.append(
            f"- {what} {grows}: {slope:+,.2f} {unit} for each {UNIT:,} describes after the first "
            f"{WARM_UP:.0%} of rounds; mean of their first half {first:,.1f}, of the second {second:,.1f}."
        )
    most = {what: max(getattr(s, what) for s in samples) for what in ("tasks", "taken", "files", "threads")}
    said.append(
        f"- at most, between rounds: {most['tasks']} tasks (one is the test itself), {most['taken']} slots taken, "
        f"{most['files']} open files, {most['threads']} threads."
    )
    return said


def plot(samples: Sequence[Sample], path: Path) -> None:
    """Plots the samples by the number of describes."""
    figure = Figure(figsize=(12, 8), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    xs = [s.describes / UNIT for s in samples]
    shown = (
        ("memory", "resident memory, MB"),
        ("objects", "objects of the garbage collector"),
        ("files", "open files"),
        ("threads", "threads"),
    )
    for axes, (what, title) in zip(panels.flat, shown, strict=True):
        axes.plot(xs, [getattr(s, what) for s in samples], color="#d1495b", linewidth=1)
        axes.axvline(xs[int(len(xs) * WARM_UP)], color="black", linestyle=":", linewidth=1)
        axes.set(title=title)
        axes.set_ylim(bottom=0)
    for axes in panels[-1]:
        axes.set_xlabel(f"describes, in {UNIT:,}")
    figure.savefig(path, metadata={"Date": None})
