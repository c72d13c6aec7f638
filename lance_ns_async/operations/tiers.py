"""Which small fragments a compaction merges, so that few of them stay, and rows are seldom written again.

Appends leave small fragments at the end of a dataset. If there are too many of them, the last ones of about the same
size are merged, with all after them, as in a log-structured merge tree. Fragments of other sizes stay, because it would
cost much to write a large one again for a few rows. See the figures in `docs/pages/maintain.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

MAX_SMALL_FRAGMENTS = 12
"""Default of the number of small fragments that stay at the end of a dataset."""

_SAME = 2  # Fragments are of about the same size if none has more rows than this multiple of another one's.


def fragments_to_merge(
    rows: Sequence[int], target_rows: int, most: int, rewritten: Collection[int] = ()
) -> Sequence[range]:
    """Returns the positions of adjacent small fragments to merge.

    Small fragments before a large one are merged once, because appends do not add to them.

    Args:
        rows: The rows of each fragment, in order.
        target_rows: Fragments with fewer rows are small.
        most: Maximum number of small fragments that stay at the end.
        rewritten: The positions of fragments that are rewritten in any case.
    """
    groups, start = [], 0
    for position, count in enumerate(rows):
        if count >= target_rows:
            groups.append(range(start, position))
            start = position + 1
    groups.append(range(first_to_merge_at_end(rows, target_rows, most, rewritten), len(rows)))
    return [group for group in groups if len(group) > 1]


def first_to_merge_at_end(rows: Sequence[int], target_rows: int, most: int, rewritten: Collection[int] = ()) -> int:
    """Returns the position from which on small fragments at the end are merged; the number of fragments for none.

    A fragment that is rewritten in any case takes along those after it, if they do not have more rows.
    """
    start = next((place for place in range(len(rows), 0, -1) if rows[place - 1] >= target_rows), 0)
    taking = (place for place in rewritten if place >= start and rows[place] >= sum(rows[place + 1 :]))
    return min([start + first_to_merge(rows[start:], most), *taking])


def first_to_merge(rows: Sequence[int], most: int) -> int:
    """Returns the position from which on the fragments at the end are merged; the number of fragments for none."""
    left = [*rows]
    while len(left) > most:
        first, largest = len(left), 0
        # A single fragment is merged with those of the next size.
        while first and (largest == 0 or left[first - 1] <= _SAME * largest or len(left) - first < 2):
            first -= 1
            largest = max(largest, left[first])
        left[first:] = [sum(left[first:])]
    return len(rows) if len(left) == len(rows) else len(left) - 1
