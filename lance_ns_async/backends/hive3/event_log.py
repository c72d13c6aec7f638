"""Reading the event log of a Hive Metastore."""

from __future__ import annotations

from lance_ns_async.backends.base import CatalogEvents
from lance_ns_async.backends.hive3.events import subjects
from lance_ns_async.backends.hive3.metastore import Metastore
from lance_ns_async.model import NamespaceId, TableId

READ_EVENTS = "read_events"
"""The name of the backend's method that makes the calls."""

_PAGE = 100
"""Number of events read by one call; an event of a table with many partitions may have megabytes."""


async def changes(hive: Metastore, start: int, current: int, *, has_catalogs: bool) -> CatalogEvents:
    """Returns what has changed after a position, at least up to the current one.

    Hive 2.3 may record concurrent changes with the same position (HIVE-16886), so that one of them appears after the
    other was read. The subjects therefore include those of the event at `start`, if Hive 2 has recorded it.

    Args:
        start: The position up to which events were read before.
        current: The position of the newest event.
        has_catalogs: Whether ids begin with the catalog, so that the server is not a Hive 2.

    Cost: one call for every 100 events; none if there are none, except without catalogs.
    """
    lost = CatalogEvents(str(current), None)
    if start > current:
        # The metastore has a new database, or an older state of it.
        return lost
    overlap = 0 if has_catalogs else 1
    found: set[NamespaceId | TableId] = set()
    last = start
    at = start - overlap
    while at < current:
        page = await hive.events_after(at, _PAGE, READ_EVENTS)
        if not page and last < current:
            return lost
        for event in page:
            if event.number <= start and event.catalog is not None:
                continue
            changed = subjects(event, has_catalogs=has_catalogs)
            if event.number > last + 1 or changed is None:
                return lost
            last = max(last, event.number)
            found.update(changed)
        # Events of one position may be on two pages.
        at = max(at + 1, last - overlap) if len(page) == _PAGE else last
    return CatalogEvents(str(last), found)
