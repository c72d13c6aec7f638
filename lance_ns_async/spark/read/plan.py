"""What Spark's processes are told to read, and how it is shared out among tasks.

Imported in Spark's own Python processes, so it imports next to nothing.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace
from math import ceil

OPENING = 10_000
"""How many rows take about as long to read as one table takes to open."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A table to read, or a share of its fragments."""

    table: str
    """The table's id as one string."""
    location: str
    version: int
    rows: int
    fragments: int
    options: Mapping[str, str] | None = field(default=None, repr=False)
    share: int = 0
    """Which share this is, counted from 0."""
    shares: int = 1
    """Into how many shares the table's fragments are split."""

    @property
    def weight(self) -> int:
        """About how long it takes, in rows."""
        return self.rows // self.shares + OPENING


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is to be read."""

    entries: Sequence[Entry]
    groups: int
    """How many tasks are to read it."""
    table_column: str | None
    filterable: Sequence[str] = ()
    """Columns on which Lance and Spark agree about every comparison."""
    pushes_filters: bool = False
    """Whether Spark is asked for its filters."""

    def split(self) -> list[Plan]:
        """The plan as one a task, without filters."""
        return [Plan(group, 1, self.table_column) for group in grouped(self.entries, self.groups)]

    def encode(self) -> str:
        """The plan as text; packed, because entries resemble each other and there may be many."""
        rows = [
            (e.table, e.location, e.version, e.rows, e.fragments, e.options and dict(e.options), e.share, e.shares)
            for e in self.entries
        ]
        told = (rows, self.groups, self.table_column, list(self.filterable), self.pushes_filters)
        return base64.b64encode(zlib.compress(json.dumps(told).encode(), 3)).decode()

    @classmethod
    def decode(cls, text: str) -> Plan:
        """What `encode` wrote."""
        rows, *rest = json.loads(zlib.decompress(base64.b64decode(text)))
        return cls([Entry(*row) for row in rows], *rest)


def grouped(entries: Iterable[Entry], groups: int) -> list[list[Entry]]:
    """The entries in at most so many groups of about equal weight, each in the order given; never none.

    A table heavier than a fair share of the whole is split by its fragments.
    """
    shares = _split(list(entries), groups)
    loads = [(0, n) for n in range(max(1, min(groups, len(shares))))]
    heapify(loads)
    found: list[list[int]] = [[] for _ in loads]
    # The heaviest first, each where there is least: no group ends more than one table above the others.
    for i in sorted(range(len(shares)), key=lambda i: -shares[i].weight):
        load, lightest = loads[0]
        found[lightest].append(i)
        heapreplace(loads, (load + shares[i].weight, lightest))
    return [[shares[i] for i in sorted(group)] for group in found]


def _split(entries: Sequence[Entry], groups: int) -> list[Entry]:
    fair = sum(entry.weight for entry in entries) / groups
    found: list[Entry] = []
    for entry in entries:
        wanted = ceil(entry.rows / max(fair - OPENING, OPENING))
        shares = max(1, min(entry.fragments, wanted, groups))
        found += (replace(entry, share=share, shares=shares) for share in range(shares))
    return found
