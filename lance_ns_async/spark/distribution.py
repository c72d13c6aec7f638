"""Distribution of work among Spark tasks.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from typing import TypeVar

T = TypeVar("T")


def distribute(items: Sequence[T], weight: Callable[[T], int], groups: int) -> list[list[T]]:
    """Distributes items among at most `groups` groups of about equal weight, each in the order of the items.

    Returns:
        The groups; at least one, which is empty if there are no items.
    """
    loads = [(0, n) for n in range(max(1, min(groups, len(items))))]
    heapify(loads)
    members: list[list[int]] = [[] for _ in loads]
    # Each item goes to the lightest group, heaviest items first, so groups differ by at most one item's weight.
    for i in sorted(range(len(items)), key=lambda i: -weight(items[i])):
        load, lightest = loads[0]
        members[lightest].append(i)
        heapreplace(loads, (load + weight(items[i]), lightest))
    return [[items[i] for i in sorted(group)] for group in members]
