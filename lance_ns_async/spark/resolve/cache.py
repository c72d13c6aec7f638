"""Cache of resolved tables with a limited lifetime and size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import Lock
from time import time
from typing import Any

from lance_ns_async.model import Table, TableId
from lance_ns_async.spark.resolve.location import expiry
from lance_ns_async.spark.resolve.patterns import Wanted
from lance_ns_async.storage.datasets import Details

LEAD = 60.0
"""Default number of seconds before their expiry from which storage options count as expired."""


@dataclass(slots=True)
class Known:
    """A cached table: its description, and the details of its dataset if it was opened."""

    table: Table
    until: float
    """End of the lifetime of this entry, in seconds since 1970."""
    expires_at: float | None
    """Expiry of the storage options, in seconds since 1970; None if they do not expire."""
    details: Details | None = None


class Memory:
    """LRU cache of at most `limit` tables, for at most `ttl` seconds each.

    Thread-safe. A pickled copy is empty.
    """

    def __init__(self, *, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        self._known: dict[TableId, Known] = {}
        self._lock = Lock()

    def get(self, id: TableId, *, lasting: float = LEAD) -> Known | None:
        """Returns the entry of a table; None if there is none or its options expire within `lasting` seconds."""
        with self._lock:
            known = self._known.pop(id, None)
            if known is not None:
                # The entry moves to the end, because the first entries are the least recently used.
                self._known[id] = known
        if known is None or time() >= known.until:
            return None
        return known if known.expires_at is None or time() + lasting < known.expires_at else None

    def learn(self, table: Table) -> Known:
        """Adds a table that was just described and returns its entry."""
        known = Known(table, time() + self._ttl, expiry(table.storage_options))
        with self._lock:
            self._known.pop(table.id, None)
            self._known[table.id] = known
            for id in list(islice(self._known, max(0, len(self._known) - self._limit))):
                del self._known[id]
        return known

    def forget(self, wanted: Wanted | None = None) -> None:
        """Removes the tables that `wanted` selects; None for all."""
        with self._lock:
            known = list(self._known)
        # Matching many ids may take long, so it runs without the lock.
        going = known if wanted is None else [id for id in known if any(p.matches(id) for p in wanted.patterns)]
        with self._lock:
            for id in (*(wanted.ids if wanted else ()), *going):
                self._known.pop(id, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Memory, ttl=self._ttl, limit=self._limit), ()
