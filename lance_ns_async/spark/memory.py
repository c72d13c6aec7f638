"""What a resolver has learned about tables, each for a while."""

from __future__ import annotations

from dataclasses import dataclass
from time import time

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
    """Knows at most `limit` tables for at most `ttl` seconds each; the longest known go first."""

    def __init__(self, *, ttl: float, limit: int) -> None:
        self._ttl = ttl
        self._limit = limit
        self._known: dict[TableId, Known] = {}

    def get(self, id: TableId) -> Known | None:
        """What is known of the table; None where it is unknown or about to expire."""
        known = self._known.get(id)
        return known if known is not None and time() < known.until else None

    def learn(self, table: Table) -> Known:
        """Remembers a table that was just described."""
        expires_at = expiry(table.storage_options)
        until = time() + self._ttl
        known = Known(table, until if expires_at is None else min(until, expires_at - LEAD))
        self._known.pop(table.id, None)
        self._known[table.id] = known
        while len(self._known) > self._limit:
            del self._known[next(iter(self._known))]
        return known

    def forget(self, wanted: Wanted | None = None) -> None:
        """Forgets some tables, or all."""
        if wanted is None:
            self._known.clear()
            return
        matching = [id for id in list(self._known) if any(pattern.matches(id) for pattern in wanted.patterns)]
        for id in (*wanted.ids, *matching):
            self._known.pop(id, None)
