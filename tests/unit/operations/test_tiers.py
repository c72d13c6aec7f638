"""Which small fragments are merged: the cost of many writes, and fragments that stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.maintain.tiers import PATTERNS, RULES, Table, append_and_delete, simulate, update
from lance_ns_async import Namespace
from lance_ns_async.fleet import CompactOptions, sync
from lance_ns_async.operations.tiers import fragments_to_merge

TARGET = 1 << 20
APPENDS = 1_000


def merge(rows: list[int], most: int = 12) -> int:
    """Merges fragments, and returns the number of rows that are written again."""
    written = 0
    for group in reversed(fragments_to_merge(rows, TARGET, most)):
        merged = sum(rows[group.start : group.stop])
        rows[group.start : group.stop] = [merged]
        written += merged
    return written


@pytest.mark.parametrize(
    ("sizes", "amplification"),
    [
        ([n * 37 % 100 + 1 for n in range(APPENDS)], 3.0),
        ([*range(1, APPENDS + 1)], 2.7),
        ([*range(APPENDS, 0, -1)], 3.0),
    ],
)
def test_rows_are_seldom_written_again(sizes: Sequence[int], amplification: float) -> None:
    """Each append is followed by maintenance; merging all would write each row some hundred times."""
    rows: list[int] = []
    written = 0
    for size in sizes:
        rows.append(size)
        written += merge(rows)
        assert len(rows) <= 12
    assert written <= amplification * sum(sizes)


@pytest.mark.parametrize(
    ("name", "amplification"), [*zip(PATTERNS, [2.8, 2.8, 2.8, 2.8, 2.1, 4.4, 9.0, 9.0], strict=True)]
)
def test_simulated_cost(name: str, amplification: float) -> None:
    """The figures of `docs/pages/maintain.md`."""
    assert round(simulate(name, RULES["`maintain`"], range(1, APPENDS + 1))[-1].amplification, 1) == amplification


class StoredTable:
    """A table of Lance with the writes of a simulated one."""

    def __init__(self, root: Path) -> None:
        self.path, self.ids = root / "t.lance", 0

    def append(self, rows: int) -> None:
        ids = pa.array(range(self.ids, self.ids + rows), pa.int64())
        lance.write_dataset(pa.table({"id": ids, "value": ids}), self.path, mode="append" if self.ids else "create")
        self.ids += rows

    def delete(self, every: int, first: int = 0) -> None:
        lance.dataset(self.path).delete(self._where(every, first))

    def update(self, every: int, first: int) -> None:
        lance.dataset(self.path).update({"value": "value + 1"}, self._where(every, first))

    def _where(self, every: int, first: int) -> str:
        return f"id IN ({', '.join(map(str, lance.dataset(self.path).to_table()['id'].to_pylist()[first::every]))})"

    def compact(self, rule: str, target: int) -> None:
        if rule == "merge all":
            lance.dataset(self.path).optimize.compact_files(target_rows_per_fragment=target)
        else:
            with Namespace.connect("dir", {"root": str(self.path.parent)}) as namespace:
                sync.maintain(namespace, "t", compact=CompactOptions(target_rows=target), index=False, cleanup=False)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("fragments", "write", "steps"),
    [
        (0, lambda table, step: table.append(1 if step % 20 else 1_000), range(1, 41)),
        (0, append_and_delete, range(80, 120)),
        (4, update, range(1, 41)),
    ],
)
def test_simulation_has_the_fragments_of_lance(
    tmp_path: Path, rule: str, fragments: int, write: Callable[[Table | StoredTable, int], None], steps: range
) -> None:
    simulated, stored, target = Table(), StoredTable(tmp_path), 3_000
    for table in (simulated, stored):
        for _ in range(fragments):
            table.append(target)
    for step in steps:
        write(simulated, step)
        write(stored, step)
        simulated.compact(RULES[rule], target)
        stored.compact(rule, target)
        seen = [it.metadata for it in lance.dataset(stored.path).get_fragments()]
        assert [(it.stored, it.stored - it.live) for it in simulated.fragments] == [
            (it.physical_rows, it.num_deletions) for it in seen
        ]


@pytest.mark.parametrize(
    ("rows", "most", "expected"),
    [
        ([], 12, []),
        ([5], 1, []),
        ([5, 5], 1, [range(2)]),
        ([1] * 12, 12, []),
        ([1] * 13, 12, [range(13)]),
        ([1_000, 500, *[1] * 11], 12, [range(2, 13)]),
        ([1_000, 1_000, 1_000, 1], 3, [range(4)]),
        ([5, 5, TARGET, 5, 5, TARGET, TARGET, 5, 5], 12, [range(2), range(3, 5)]),
        ([TARGET, 5, TARGET, 5], 1, []),
    ],
)
def test_groups(rows: Sequence[int], most: int, expected: list[range]) -> None:
    assert list(fragments_to_merge(rows, TARGET, most)) == expected


@pytest.mark.parametrize(
    ("rows", "rewritten", "expected"),
    [
        ([9, 5, 4], {0}, [range(3)]),
        ([9, 5, 5], {0}, []),
        ([9, 5, 5], {0, 1}, [range(1, 3)]),
        ([9, 5, TARGET, 9, 5], {0, 2, 4}, [range(2)]),
    ],
)
def test_a_fragment_that_is_rewritten_takes_along_others(
    rows: Sequence[int], rewritten: Set[int], expected: list[range]
) -> None:
    assert list(fragments_to_merge(rows, TARGET, 12, rewritten)) == expected


@given(st.lists(st.integers(0, 2 * TARGET), max_size=60), st.integers(1, 20))
def test_few_small_fragments_stay_and_a_second_run_changes_nothing(rows: list[int], most: int) -> None:
    total = sum(rows)
    merge(rows, most)
    small = 0
    while small < len(rows) and rows[-1 - small] < TARGET:
        small += 1
    assert sum(rows) == total and small <= most
    assert not merge(rows, most)
