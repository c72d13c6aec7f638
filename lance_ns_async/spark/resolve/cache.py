"""Cache of resolved tables with a limited lifetime and size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import Lock
from time import time
from typing import Any

from lance_ns_async.many.patterns import Selection
from lance_ns_async.model import Table, TableId
from lance_ns_async.spark.resolve.location import expiry
from lance_ns_async.storage.datasets import Details

LEAD = 60.0
"""Default number of seconds before their expiry from which storage options count as expired."""


@dataclass(slots=True)
class CacheEntry:
    """A cached table: its description, and the details of its dataset if it was opened."""

    table: Table
    until: float
    """End of the lifetime of this entry, in seconds since 1970."""
    expires_at: float | None
    """Expiry of the storage options, in seconds since 1970; None if they do not expire."""
    details: Details | None = None


class LocationCache:
    """LRU cache of at most `limit` tables, for at most `ttl` seconds each.

    Thread-safe. A pickled copy is empty.
    """

    def __init__(self, *, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        self._entries: dict[TableId, CacheEntry] = {}
        self._lock = Lock()

    def get(self, id: TableId, *, lasting: float = LEAD) -> CacheEntry | None:
        """Returns the entry of a table; None if there is none or its options expire within `lasting` seconds."""
        with self._lock:
            entry = self._entries.pop(id, None)
            if entry is not None:
                # The entry moves to the end, because the first entries are the least recently used.
                self._entries[id] = entry
        if entry is None or time() >= entry.until:
            return None
        return entry if entry.expires_at is None or time() + lasting < entry.expires_at else None

    def learn(self, table: Table) -> CacheEntry:
        """Adds a table that was just described and returns its entry."""
        entry = CacheEntry(table, time() + self._ttl, expiry(table.storage_options))
        with self._lock:
            self._entries.pop(table.id, None)
            self._entries[table.id] = entry
            for id in list(islice(self._entries, max(0, len(self._entries) - self._limit))):
                del self._entries[id]
        return entry

    def forget(self, selection: Selection | None = None) -> None:
        """Removes the tables of `selection`; None for all."""
        with self._lock:
            ids = list(self._entries)
        # Matching many ids may take long, so it runs without the lock.
        going = ids if selection is None else [id for id in ids if any(p.matches(id) for p in selection.patterns)]
        with self._lock:
            for id in (*(selection.ids if selection else ()), *going):
                self._entries.pop(id, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(LocationCache, ttl=self._ttl, limit=self._limit), ()
