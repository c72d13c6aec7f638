"""Which parts of indexes a refresh merges.

An index has one part or several. A refresh adds a part for the rows that the index lacks, and merges it with the last
parts, which are written again. Each query asks all parts. Lance compacts no fragments of different parts together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_ns_async.operations import tiers

if TYPE_CHECKING:
    from lance import LanceDataset

MAX_PARTS = tiers.MAX_SMALL_FRAGMENTS
"""Maximum number of parts of an index that stay after a refresh."""

_SYSTEM_INDEX = "__lance"  # The beginning of the names of indexes that Lance keeps for itself.


@dataclass(frozen=True, slots=True)
class StaleIndex:
    """An index that a refresh changes."""

    lacking_rows: int
    """Number of rows that the index lacks."""
    merged_parts: int
    """Number of its last parts to merge with those rows; 0 for a part of their own."""
    rows: int
    """Number of rows that a refresh reads: those that it lacks, and those of the merged parts."""


def stale_indexes(
    dataset: LanceDataset, live: Mapping[int, int], compacted: Set[int], *, merges_parts: bool
) -> Mapping[str, StaleIndex]:
    """Returns the indexes that lack rows, that have too many parts, or whose parts divide fragments to compact.

    Args:
        dataset: The dataset.
        live: The rows of each fragment, by its id.
        compacted: The ids of the fragments at the end of the dataset that are to be merged.
        merges_parts: Whether an index that lacks no rows is stale because of its parts.
    """
    stale = {}
    for index in dataset.describe_indices():
        if index.name.startswith(_SYSTEM_INDEX):
            continue
        parts = [{*segment.fragment_ids} for segment in index.segments]
        lacking = live.keys() - set().union(*parts)
        rows = [sum(live.get(id, 0) for id in part) for part in parts]
        lacking_rows = sum(live[id] for id in lacking)
        if not any(rows) and lacking_rows < _least_rows(index):
            continue
        merged = max(_parts_to_merge(rows, lacking_rows), _parts_with(parts, lacking, compacted))
        if not any(rows):
            merged = len(parts)  # It was not trained yet.
        if lacking_rows or (merges_parts and merged > 1):
            stale[index.name] = StaleIndex(lacking_rows, merged, lacking_rows + sum(rows[len(rows) - merged :]))
    return stale


def _parts_to_merge(rows: Sequence[int], lacking_rows: int) -> int:
    """Returns the number of last parts to merge, so that few parts stay, and rows are seldom written again."""
    all_rows = [*rows, lacking_rows] if lacking_rows else rows
    return max(0, len(rows) - tiers.first_to_merge(all_rows, MAX_PARTS))


def _parts_with(parts: Sequence[Set[int]], lacking: Set[int], ids: Set[int]) -> int:
    """Returns the number of last parts from the first one with one of these fragments; 0 if one part has them all."""
    having = [place for place, part in enumerate(parts) if not ids.isdisjoint(part)]
    if not having or (len(having) == 1 and lacking.isdisjoint(ids)):
        return 0
    return len(parts) - having[0]


def _least_rows(index: Any) -> int:
    """Returns the number of rows that Lance needs to train an index; with fewer, it creates one without rows."""
    compression = (getattr(index, "details", None) or {}).get("compression", {})
    return 1 << compression["num_bits"] if compression.get("type") == "pq" else 0
