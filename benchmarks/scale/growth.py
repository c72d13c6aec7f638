"""Memory over time of streams with a million items: `python -m benchmarks.scale.growth`.

Each stream runs in a fresh process, against a stub catalog that is 2 ms away. The resident memory of the client process
is measured after every hundredth of the items, and plotted. A stream must not need more memory for more items.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.soak.report import resident
from benchmarks.support.cell import NAMESPACES
from benchmarks.support.stub_process import running_stub, set_switches
from lance_ns_async import AsyncNamespace

LATENCY = 0.002
POINTS = 100
WARM_UP = 0.1
"""The share of the items after which memory must not grow any more."""

Sample = tuple[int, float, float]
"""Items, seconds, and resident memory in MB."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of items from the stub catalog."""

    impl: str
    address: str
    """The property with the address of the catalog."""
    items: int
    open: Callable[[AsyncNamespace, int], AsyncGenerator[Any, None]]
    """Opens the stream for a number of items."""


def described(namespace: AsyncNamespace, items: int) -> AsyncGenerator[Any, None]:
    """Describes tables, one call for each."""
    return namespace.stream_tables((f"ns{number % NAMESPACES:02}", f"table_{number:07}") for number in range(items))


def listed(namespace: AsyncNamespace, items: int) -> AsyncGenerator[Any, None]:
    """Lists the tables of one namespace."""
    return namespace.iter_tables([f"tables-{items}"])


def walked(namespace: AsyncNamespace, items: int) -> AsyncGenerator[Any, None]:
    """Lists the tables of many namespaces, ten in each."""
    return namespace.iter_tables([f"namespaces-{items // 10}"], recursive=True)


STREAMS: Mapping[str, Stream] = {
    "stream_tables, one call per table": Stream("iceberg", "endpoint", 1_000_000, described),
    "iter_tables, one namespace": Stream("rest", "uri", 1_000_000, listed),
    "iter_tables, 10,000 namespaces": Stream("rest", "uri", 100_000, walked),
}


async def measure(endpoint: str, name: str, items: int) -> list[Sample]:
    """Returns samples of a stream; raises an error if it has not exactly the items."""
    stream = STREAMS[name]
    samples: list[Sample] = []
    count, every = 0, max(1, items // POINTS)
    async with AsyncNamespace.connect(stream.impl, {stream.address: endpoint}) as namespace:
        start = time.perf_counter()
        async with aclosing(stream.open(namespace, items)) as results:
            async for result in results:
                if isinstance(result, tuple) and isinstance(result[1], Exception):
                    raise result[1]
                count += 1
                if count % every == 0:
                    samples.append((count, time.perf_counter() - start, resident()))
    if count != items:
        raise RuntimeError(f"{name}: {count:,} of {items:,} items")
    return samples


def run(endpoint: str, name: str, items: int) -> list[Sample]:
    """Runs a stream in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale.growth", "--run", json.dumps([endpoint, name, items])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [tuple(sample) for sample in json.loads(done.stdout)]


def report(results: Mapping[str, list[Sample]]) -> str:
    """Returns a table with the memory after the warm-up and at the end."""
    lines = ["| stream | items | time, s | memory after a tenth, MB | most after that, MB |", "|---|---|---|---|---|"]
    for name, samples in results.items():
        late = samples[int(len(samples) * WARM_UP) :]
        most = max(memory for _, _, memory in late)
        lines.append(f"| {name} | {samples[-1][0]:,} | {samples[-1][1]:.0f} | {late[0][2]:.0f} | {most:.0f} |")
    return "\n".join(lines)


def plot(results: Mapping[str, list[Sample]], path: Path) -> None:
    """Plots memory and time by the share of the items."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    memory, seconds = figure.subplots(1, 2)
    for name, samples in results.items():
        shares = [count / samples[-1][0] * 100 for count, _, _ in samples]
        memory.plot(shares, [megabytes for _, _, megabytes in samples], label=f"{name}, {samples[-1][0]:,} items")
        seconds.plot(shares, [passed for _, passed, _ in samples])
    memory.set(title="Resident memory, MB", xlabel="% of the items")
    memory.set_ylim(bottom=0)
    memory.legend(fontsize=8, loc="lower right")
    seconds.set(title="Seconds", xlabel="% of the items")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measures, prints the table and writes the plot."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.growth", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of the items, for a quick run")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results", help="where the plot goes")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(asyncio.run(measure(*json.loads(options.run)))))
        return
    with running_stub() as endpoint:
        set_switches(endpoint, latency=LATENCY)
        results = {name: run(endpoint, name, int(stream.items * options.share)) for name, stream in STREAMS.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    plot(results, options.out / "growth.svg")
    print(report(results))


if __name__ == "__main__":
    main()
