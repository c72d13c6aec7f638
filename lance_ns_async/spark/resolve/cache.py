"""What a resolver has learned about tables, each for a while."""

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
"""How many seconds before they expire storage options are taken for expired, unless a caller needs more."""


@dataclass(slots=True)
class Known:
    """A table as it was described, and as it was opened if it was."""

    table: Table
    until: float
    """When it is to be asked for again, in seconds since 1970."""
    expires_at: float | None
    """When its storage options expire, in the same seconds; None where they do not."""
    details: Details | None = None


class Memory:
    """Knows at most `limit` tables for at most `ttl` seconds each; the longest unused go first.

    May be shared by threads. Pickled it is empty.
    """

    def __init__(self, *, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        self._known: dict[TableId, Known] = {}
        self._lock = Lock()

    def get(self, id: TableId, *, lasting: float = LEAD) -> Known | None:
        """What is known of the table; None where it is unknown, or its storage options last no `lasting` seconds."""
        with self._lock:
            known = self._known.pop(id, None)
            if known is not None:
                # Put back last, because the first are the longest unused.
                self._known[id] = known
        if known is None or time() >= known.until:
            return None
        return known if known.expires_at is None or time() + lasting < known.expires_at else None

    def learn(self, table: Table) -> Known:
        """Remembers a table that was just described."""
        known = Known(table, time() + self._ttl, expiry(table.storage_options))
        with self._lock:
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
