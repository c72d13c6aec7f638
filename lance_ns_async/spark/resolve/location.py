"""Location of one table, with its version, its storage options and their expiry."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any

from lance_ns_async.many.patterns import Selection
from lance_ns_async.model import EXPIRY, Table, TableId
from lance_ns_async.storage.datasets import Details
from lance_ns_async.storage.options import LEAD, expiry

if TYPE_CHECKING:
    import pyarrow as pa

SOON = 600.0
"""Number of seconds before their expiry from which storage options cause a warning."""


REFRESH = "refresh the locations before each long job"


def without_expiry(storage_options: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns the storage options for a reader that has only those that it starts with, and cannot renew them."""
    return {key: value for key, value in (storage_options or {}).items() if key != EXPIRY} or None


@dataclass(frozen=True, slots=True)
class Location:
    """The location of one table and how to read it. Pickles and copies do not contain the storage options."""

    id: TableId
    location: str
    """A URI or a path, as `lance.dataset` accepts it."""
    version: int | None = None
    """The version to read; None for the latest at the time of reading."""
    rows: int | None = None
    """Number of rows in that version; None if the dataset was not opened."""
    fragments: int | None = None
    """Number of fragments in that version; None if the dataset was not opened."""
    storage_options: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    """Options for access to the storage, including secrets; None if there are none or they were omitted."""
    expires_at: float | None = None
    """Expiry of the storage options, in seconds since 1970; None if they do not expire."""
    schema: pa.Schema | None = field(default=None, repr=False, hash=False)
    """The schema of that version; tables with equal schemas share one object. None if the dataset was not opened."""

    @classmethod
    def of(cls, table: Table, details: Details | None) -> Location:
        """Returns the location of a table, with the details of its dataset if it was opened.

        Args:
            table: The description of the table.
            details: The details of its dataset; None if it was not opened.
        """
        options = table.storage_options
        it = cls(table.id, table.location, table.version, storage_options=options, expires_at=expiry(options))
        if details is None:
            return it
        return replace(
            it, version=details.version, rows=details.rows, fragments=details.fragments, schema=details.schema
        )

    def renewed(self, table: Table) -> Location:
        """Returns the same version with the location and the storage options of a newer description.

        Args:
            table: The newer description of the table.
        """
        options = table.storage_options
        return replace(self, location=table.location, storage_options=options, expires_at=expiry(options))

    def table(self) -> Table:
        """Returns the table with the location, version and storage options that opening its dataset needs."""
        return Table(self.id, self.location, storage_options=self.storage_options, version=self.version)

    def __reduce__(self) -> tuple[Any, ...]:
        bare = (self.id, self.location, self.version, self.rows, self.fragments, None, self.expires_at, self.schema)
        return Location, bare


def warn_of_expiry(locations: Iterable[Location], *, stacklevel: int, remedy: str = REFRESH) -> None:
    """Issues one warning if storage options have expired or expire soon; `stacklevel` 1 refers to the caller."""
    expiring = (at.expires_at for at in locations if at.storage_options is not None and at.expires_at is not None)
    moments = [moment for moment in expiring if moment < time() + SOON]
    if not moments:
        return
    seconds = min(moments) - time()
    when = f"expire in {seconds:.0f} s" if seconds > 0 else "have expired"
    warnings.warn(
        f"the storage options of {len(moments)} tables {when}, and a Spark read or write keeps the options that "
        f"it starts with: {remedy}",
        stacklevel=stacklevel + 1,
    )


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
