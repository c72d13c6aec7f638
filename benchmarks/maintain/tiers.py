"""Rows that compactions write again, and fragments, over many appends: `python -m benchmarks.maintain.tiers`.

Each append is followed by maintenance, by the rule of `maintain` and by one that merges all small fragments, as
pylance's `compact_files` does. Prints a row of Markdown for each pattern; `--plot FILE` draws the first one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import matplotlib
from matplotlib.figure import Figure

from lance_ns_async.operations.tiers import MAX_SMALL_FRAGMENTS, fragments_to_merge

TARGET_ROWS = 1024 * 1024
RULES = {"merge all": 1, "`maintain`": MAX_SMALL_FRAGMENTS}
"""The maximum number of small fragments of each rule."""

PATTERNS: Mapping[str, Callable[[int], Sequence[int]]] = {
    "1 row": lambda n: [1] * n,
    "1 to 100 rows": lambda n: [size for random in [Random(1)] for size in (random.randint(1, 100) for _ in range(n))],
    "1 row, each twentieth time 1,000 rows": lambda n: [1 if i % 20 else 1_000 for i in range(1, n + 1)],
    "1 row, to a table of 200,000 rows": lambda n: [200_000, *[1] * n],
}
"""The rows of each append, by the name of a pattern."""


def simulate(sizes: Sequence[int], most: int) -> tuple[Sequence[float], Sequence[int]]:
    """Returns, after each append, the rows that were written again for each row, and the number of fragments."""
    rows: list[int] = []
    written, shares, counts = 0, [], []
    for size in sizes:
        rows.append(size)
        for group in reversed(fragments_to_merge(rows, TARGET_ROWS, most)):
            merged = sum(rows[group.start : group.stop])
            rows[group.start : group.stop] = [merged]
            written += merged
        shares.append(written / sum(rows))
        counts.append(len(rows))
    return shares, counts


def plot(appends: int, path: Path) -> None:
    """Draws the rows and the fragments of both rules into an SVG file."""
    matplotlib.rcParams["svg.hashsalt"] = "tiers"
    figure = Figure(figsize=(10, 4), layout="constrained")
    written, fragments = figure.subplots(1, 2)
    for (name, most), colour in zip(RULES.items(), ("#7a7a7a", "#d1495b"), strict=True):
        shares, counts = simulate(PATTERNS["1 row"](appends), most)
        written.plot(shares, color=colour, label=name.strip("`"))
        fragments.plot(counts, color=colour, label=name.strip("`"))
    written.set(xlabel="appends of one row", title="Rows written again for each row", yscale="log", ylim=(0.1, None))
    written.yaxis.set_major_formatter("{x:g}")
    fragments.set(xlabel="appends of one row", title="Fragments", ylim=(0, MAX_SMALL_FRAGMENTS + 1))
    written.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maintain.tiers", description=__doc__)
    parser.add_argument("--appends", type=int, default=1_000)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    print(f"| {chosen.appends:,} appends of | {' | '.join(RULES)} | fragments at most |\n|---|---|---|---|")
    for name, sizes in PATTERNS.items():
        results = [simulate(sizes(chosen.appends), most) for most in RULES.values()]
        cells = [f"{shares[-1]:.3g}" for shares, _ in results]
        print(f"| {name} | {' | '.join(cells)} | {max(results[-1][1])} |")
    if chosen.plot:
        plot(chosen.appends, chosen.plot)


if __name__ == "__main__":
    main()
