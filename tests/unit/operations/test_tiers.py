"""Which small fragments are merged: the cost of many appends, and fragments that stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def bursts() -> Iterator[int]:
    while True:
        yield from [1] * 19
        yield 1_000


@pytest.mark.parametrize(
    ("sizes", "amplification"),
    [
        ([1] * APPENDS, 2.8),
        ([n * 37 % 100 + 1 for n in range(APPENDS)], 3.0),
        ([*range(1, APPENDS + 1)], 2.7),
        ([*range(APPENDS, 0, -1)], 3.0),
        ([size for size, _ in zip(bursts(), range(APPENDS), strict=False)], 2.8),
        ([200_000, *repeat(1, APPENDS)], 0.02),
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


@given(st.lists(st.integers(0, 2 * TARGET), max_size=60), st.integers(1, 20))
def test_few_small_fragments_stay_and_a_second_run_changes_nothing(rows: list[int], most: int) -> None:
    total = sum(rows)
    merge(rows, most)
    small = 0
    while small < len(rows) and rows[-1 - small] < TARGET:
        small += 1
    assert sum(rows) == total and small <= most
    assert not merge(rows, most)
