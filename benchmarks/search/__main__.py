"""The nearest rows of many tables: `search_many`, loops with pylance, and one table with all rows.

`python -m benchmarks.search --tables 1000 --rows 10000` writes the tables, and searches them in new processes that take
turns. With `--index`, each table has an index. All must find the same rows; with an index, the loops must.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

import lance
import numpy as np
import pyarrow as pa

from benchmarks.support.progress import progress
from lance_ns_async import AsyncNamespace

DIMENSION = 32
K = 10
STACKS = {
    "ours": "`search_many`",
    "threads": "loop with pylance, 16 threads",
    "loop": "loop with pylance",
    "one": "one table with all rows",
}


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10_000, help="rows of each table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--index", action="store_true", help="create an index of each table")
    parser.add_argument("--stack", choices=STACKS, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stack:
        print(json.dumps(measure(options.stack, options.root)))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, options.tables, options.rows, indexed=options.index)
        print(compare(root, options.rounds, options.tables, indexed=options.index))


def write(root: Path, tables: int, rows: int, *, indexed: bool) -> None:
    """Writes the tables, and the table with all rows beside them."""
    random = np.random.default_rng(7)
    for number in range(tables):
        progress(f"write {number + 1}/{tables}")
        vectors = random.random((rows, DIMENSION), dtype=np.float32)
        table = pa.table(
            {
                "id": pa.array(range(number * rows, (number + 1) * rows)),
                "vector": pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSION),
            }
        )
        dataset = lance.write_dataset(table, root / "lake" / f"t{number:04}.lance")
        if indexed:
            dataset.create_index("vector", "IVF_PQ", num_partitions=8, num_sub_vectors=8)
        lance.write_dataset(table, root / "one.lance", mode="append" if number else "create")
    if indexed:
        progress("index the table with all rows")
        lance.dataset(root / "one.lance").create_index("vector", "IVF_PQ", num_partitions=256, num_sub_vectors=8)
    progress("")


def compare(root: Path, rounds: int, tables: int, *, indexed: bool) -> str:
    """Returns the medians of the rounds as a Markdown table."""
    results: dict[str, list[tuple[float, float]]] = {stack: [] for stack in STACKS}
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for stack in STACKS:
            progress(f"round {number + 1}/{rounds}: {stack}")
            command = [sys.executable, "-m", "benchmarks.search", "--stack", stack, "--root", str(root)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            seconds, memory, found[stack] = json.loads(done.stdout)
            results[stack].append((seconds, memory))
    progress("")
    same = [stack for stack in STACKS if not (indexed and stack == "one")]
    if wrong := [stack for stack in same if not np.allclose(found[stack], found["loop"])]:
        raise SystemExit(f"{wrong[0]} found other rows: {found}")
    lines = ["| search | seconds | of `search_many` | memory |", "|---|---|---|---|"]
    ours = median(seconds for seconds, _ in results["ours"])
    for stack, runs in results.items():
        seconds = median(it for it, _ in runs)
        memory = max(it for _, it in runs)
        lines.append(f"| {STACKS[stack]} | {seconds:.2f} | {seconds / ours:.2f} | {memory:.0f} MiB |")
    return "\n".join(lines)


def measure(stack: str, root: Path) -> tuple[float, float, list[float]]:
    """Returns the seconds, the most memory in MiB, and the distances that a search has found."""
    query = [0.5] * DIMENSION
    if stack == "ours":
        seconds, distances = asyncio.run(search(root / "lake", query))
    else:
        paths = [root / "one.lance"] if stack == "one" else sorted((root / "lake").iterdir())
        began = time.perf_counter()
        with ThreadPoolExecutor(16 if stack == "threads" else 1) as threads:
            results = threads.map(partial(nearest, query=query), paths)
            distances = sorted(it for result in results for it in result)[:K]
        seconds = time.perf_counter() - began
    (line,) = (it for it in Path("/proc/self/status").read_text().splitlines() if it.startswith("VmHWM:"))
    return seconds, int(line.split()[1]) / 1024, distances


async def search(root: Path, query: list[float]) -> tuple[float, list[float]]:
    """Returns the seconds and the distances of a search of all tables of a catalog."""
    async with AsyncNamespace.connect("dir", {"root": str(root)}) as ns:
        # The modules of the loops are imported before, too.
        await ns.search_many("no_such_table", vector=query)
        began = time.perf_counter()
        found = (await ns.search_many("*", vector=query, k=K)).raise_for_errors()
        seconds = time.perf_counter() - began
    return seconds, found.rows["_distance"].to_pylist()


def nearest(path: Path, query: list[float]) -> list[float]:
    """Returns the distances of the nearest rows of a table."""
    rows = lance.dataset(path).to_table(nearest={"column": "vector", "q": query, "k": K}, prefilter=True)
    distances: list[float] = rows["_distance"].to_pylist()
    return distances


if __name__ == "__main__":
    main()
