"""What a resolver has learned about tables, each for a while."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from threading import Lock
from time import time
from typing import Any

from lance_ns_async.data import Details
from lance_ns_async.model import Table, TableId
from lance_ns_async.spark.locations import expiry
from lance_ns_async.spark.patterns import Wanted

LEAD = 60.0
"""How many seconds before they expire storage options are taken for expired."""


@dataclass(slots=True)
class Known:
    """A table as it was described, and as it was opened if it was."""

    table: Table
    until: float
    details: Details | None = None


class Memory:
    """Knows at most `limit` tables for at most `ttl` seconds each; the longest known go first.

    May be shared by threads. Pickled it is empty.
    """

    def __init__(self, *, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        self._known: dict[TableId, Known] = {}
        self._lock = Lock()

    def get(self, id: TableId) -> Known | None:
        """What is known of the table; None where it is unknown or about to expire."""
        with self._lock:
            known = self._known.get(id)
        return known if known is not None and time() < known.until else None

    def learn(self, table: Table) -> Known:
        """Remembers a table that was just described."""
        expires_at = expiry(table.storage_options)
        until = time() + self._ttl
        known = Known(table, until if expires_at is None else min(until, expires_at - LEAD))
        with self._lock:
            # Put anew, so that it is the last in order.
            self._known.pop(table.id, None)
            self._known[table.id] = known
            for id in list(islice(self._known, max(0, len(self._known) - self._limit))):
                del self._known[id]
        return known

    def forget(self, wanted: Wanted | None = None) -> None:
        """Forgets some tables, or all."""
        with self._lock:
            known = list(self._known)
        # Matching many may take long, so nobody waits for it.
        going = known if wanted is None else [id for id in known if any(p.matches(id) for p in wanted.patterns)]
        with self._lock:
            for id in (*(wanted.ids if wanted else ()), *going):
                self._known.pop(id, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Memory, ttl=self._ttl, limit=self._limit), ()
