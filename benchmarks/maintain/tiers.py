"""Rows that compactions write again, and what a scan reads, over many writes: `python -m benchmarks.maintain.tiers`.

A simulation: each write is followed by maintenance, by one of two rules.

- "merge all" is the planner of Lance: all adjacent small fragments are merged, and those with many deleted rows are
  rewritten. It is what pylance's `compact_files` executes, and also `OPTIMIZE` of lance-spark: that calls the same
  planner with the same defaults, and only executes each task of the plan in one of Spark.
- "`maintain`" is the rule of `lance_ns_async.operations.tiers`: Lance plans only for the fragments that it chooses.

Prints a row of Markdown for each pattern of writes; `--plot FILE` draws some of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import NamedTuple, TypeAlias

from lance_ns_async.operations.tiers import MAX_SMALL_FRAGMENTS, fragments_to_merge

TARGET_ROWS = 1024 * 1024
DELETED_SHARE = 0.1  # Lance's default for the share of deleted rows above which a fragment is rewritten.


@dataclass(eq=False, slots=True)
class Fragment:
    stored: int
    """Its rows, with the deleted ones."""
    live: int

    @property
    def has_many_deleted(self) -> bool:
        """Whether it is rewritten at any size."""
        return self.stored - self.live > DELETED_SHARE * self.stored


Tasks: TypeAlias = Sequence[Sequence[Fragment]]


def merge_all(fragments: Sequence[Fragment], target: int, excluded: Collection[Fragment] = ()) -> Tasks:
    """Returns the tasks that Lance plans; see `DefaultCompactionPlanner` in `rust/lance/src/dataset/optimize.rs`."""
    runs: list[list[Fragment]] = [[]]
    for it in fragments:
        if it not in excluded and (it.has_many_deleted or it.stored < target):
            runs[-1].append(it)
        else:
            runs.append([])
    tasks: list[list[Fragment]] = []
    for run in runs:
        tasks.append([])
        rows, left = 0, sum(it.live for it in run)
        for it in run:
            if rows >= target and left >= target:
                tasks.append([])
                rows = 0
            tasks[-1].append(it)
            rows += it.live
            left -= it.live
    return [task for task in tasks if len(task) > 1 or any(it.has_many_deleted for it in task)]


def merge_tiers(fragments: Sequence[Fragment], target: int) -> Tasks:
    """Returns the tasks that `maintain` plans."""
    rows = [it.stored if it.stored >= target else it.live for it in fragments]
    rewritten = {position for position, it in enumerate(fragments) if it.has_many_deleted}
    groups = fragments_to_merge(rows, target, MAX_SMALL_FRAGMENTS, rewritten)
    merged = {position for group in groups for position in group}
    excluded = {it for position, it in enumerate(fragments) if position not in merged | rewritten}
    return merge_all(fragments, target, excluded)


Rule: TypeAlias = Callable[[Sequence[Fragment], int], Tasks]
RULES: Mapping[str, Rule] = {"merge all": merge_all, "`maintain`": merge_tiers}


@dataclass(slots=True)
class Table:
    """The fragments of a table, and the rows that were written."""

    fragments: list[Fragment] = field(default_factory=list)
    written: int = 0
    """By appends and updates."""
    rewritten: int = 0
    """By compactions."""

    def append(self, rows: int) -> None:
        if rows:
            self.fragments.append(Fragment(rows, rows))
            self.written += rows

    def delete(self, every: int, first: int = 0) -> int:
        """Deletes one of so many rows, from the position of the first one on; returns how many it deletes."""
        start, deleted = 0, 0
        for it in self.fragments:
            positions = range(start + (first - start) % every, start + it.live, every)
            start += it.live
            it.live -= len(positions)
            deleted += len(positions)
        self.fragments = [it for it in self.fragments if it.live]
        return deleted

    def update(self, every: int, first: int) -> None:
        """Updates one of so many rows: Lance deletes them, and appends the new ones as a fragment."""
        self.append(self.delete(every, first))

    def compact(self, rule: Rule, target: int) -> None:
        """Executes tasks as Lance does: new fragments are the last ones, and have at least the target."""
        tasks = rule(self.fragments, target)
        replaced = {it for task in tasks for it in task}
        self.fragments = [it for it in self.fragments if it not in replaced]
        for task in tasks:
            rows = sum(it.live for it in task)
            number = max(1, rows // target)
            sizes = (rows // number + (position < rows % number) for position in range(number))
            self.fragments += [Fragment(size, size) for size in sizes]
            self.rewritten += rows


def append_and_delete(table: Table, step: int) -> None:
    if step % 100:
        table.append(1_000)
    else:
        table.delete(every=5)


def append_to_deleted(table: Table, step: int) -> None:
    if step == 1:
        table.delete(every=100)
    table.append(1)


def update(table: Table, step: int) -> None:
    table.update(every=100, first=step % 100)


PATTERNS: Mapping[str, tuple[Sequence[int], Callable[[Table, int], None]]] = {
    "appends of 1 row": ([], lambda table, _: table.append(1)),
    "appends of 1 row, to a table of 200,000 rows": ([200_000], lambda table, _: table.append(1)),
    "appends of 1 row, to 20 full fragments without 1 % of their rows": ([TARGET_ROWS] * 20, append_to_deleted),
    "appends of 1,000 rows": ([], lambda table, _: table.append(1_000)),
    "appends of 1 row, each twentieth of 1,000 rows": ([], lambda table, step: table.append(1 if step % 20 else 1_000)),
    "appends of 1,000 rows, each hundredth time a delete of 20 %": ([], append_and_delete),
    "updates of 1 % of 1,000,000 rows": ([1_000_000], update),
    "updates of 1 % of 20 full fragments": ([TARGET_ROWS] * 20, update),
}
"""The rows of the fragments at first, and the write of a step, by the name of a pattern."""


class State(NamedTuple):
    """A table after the maintenance of a step."""

    amplification: float
    """Rows that compactions have written for each row of an append or update."""
    fragments: int
    read: float
    """Rows that a scan reads, with the deleted ones, for each live row."""


def simulate(name: str, rule: Rule, steps: Iterable[int], target: int = TARGET_ROWS) -> Sequence[State]:
    """Returns the state after each step."""
    first, write = PATTERNS[name]
    table = Table([Fragment(rows, rows) for rows in first])
    states = []
    for step in steps:
        write(table, step)
        table.compact(rule, target)
        stored, live = (sum(column) for column in zip(*((it.stored, it.live) for it in table.fragments), strict=True))
        states.append(State(table.rewritten / table.written, len(table.fragments), stored / live))
    return states


def plot(steps: int, path: Path) -> None:
    """Draws both rules into an SVG file."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "tiers"
    titles = {
        "appends of 1 row": "appends of 1 row",
        "appends of 1,000 rows, each hundredth time a delete of 20 %": "appends of 1,000 rows,\ndeletes of 20 %",
        "updates of 1 % of 1,000,000 rows": "updates of 1 %\nof 1,000,000 rows",
    }
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    figure.supylabel("rows written again for each row")
    for axes, (name, title) in zip(figure.subplots(1, len(titles), sharey=True), titles.items(), strict=True):
        for (rule, plan), colour in zip(RULES.items(), ("#7a7a7a", "#d1495b"), strict=True):
            states = simulate(name, plan, range(1, steps + 1))
            label = f"{rule.strip('`')}: {mean(it.fragments for it in states):.1f} fragments"
            axes.plot([it.amplification for it in states], color=colour, label=label)
        axes.set(title=title, xlabel="writes", yscale="log", ylim=(0.1, 10_000))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(loc="upper left")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maintain.tiers", description=__doc__)
    parser.add_argument("--writes", type=int, default=1_000)
    parser.add_argument("--plot", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    columns = [f"{column}, {rule}" for column in ("written again", "fragments", "read") for rule in RULES]
    print(f"| {chosen.writes:,} writes | {' | '.join(columns)} |\n{'|---' * 7}|")
    for name in PATTERNS:
        results = [simulate(name, rule, range(1, chosen.writes + 1)) for rule in RULES.values()]
        written = [f"{it[-1].amplification:,.{1 if it[-1].amplification < 20 else 0}f}" for it in results]
        fragments = [f"{mean(state.fragments for state in it):.1f}" for it in results]
        read = [f"{mean(state.read for state in it):.2f}" for it in results]
        print(f"| {name} | {' | '.join([*written, *fragments, *read])} |")
    if chosen.plot:
        plot(chosen.writes, chosen.plot)


if __name__ == "__main__":
    main()
