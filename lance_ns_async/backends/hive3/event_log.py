"""Reading the event log of a Hive Metastore.

Concurrent changes may be recorded with the same number, so that one of them appears after the other was read: in Hive
2.3 (HIVE-16886), and in Hive 3.1 if the server's database is Derby (HIVE-21880). A position therefore also has the
number of events that were read there.
"""

from __future__ import annotations

from collections.abc import Sequence

from lance_ns_async.backends.base import CatalogEvents
from lance_ns_async.backends.hive3.events import HiveEvent, Position, subjects
from lance_ns_async.backends.hive3.metastore import Metastore
from lance_ns_async.model import NamespaceId, TableId

READ_EVENTS = "read_events"
"""The name of the backend's method that makes the calls."""

_PAGE_SIZE = 100  # Number of events read by one call; an event of a table with many partitions may have megabytes.


async def events_at(hive: Metastore, number: int, subjects: Sequence[TableId] | None) -> CatalogEvents:
    """Returns the position after the events of a number, with these subjects. Cost: one call."""
    page = await hive.events_after(number - 1, _PAGE_SIZE, READ_EVENTS)
    return CatalogEvents(str(Position(number, _count(page, number))), subjects)


async def changes(hive: Metastore, start: Position, current: int, *, has_catalogs: bool) -> CatalogEvents:
    """Returns what has changed after a position, at least up to the current number.

    Args:
        start: The position up to which events were read before.
        current: The number of the newest event.
        has_catalogs: Whether ids begin with the catalog.

    Returns:
        The changes, without subjects if events are missing, or were added at a position that was already read.

    Cost: one call, and one more for every 100 further events, or if there are no subjects.
    """
    if start.number > current:
        # The metastore has a new database, or an older state of it.
        return await events_at(hive, current, None)
    changed_ids: set[NamespaceId | TableId] = set()
    last = start.number
    at = last - 1
    while True:
        page = await hive.events_after(at, _PAGE_SIZE, READ_EVENTS)
        if _count(page, start.number) > start.count:
            return await events_at(hive, current, None)
        for event in page:
            if event.number == start.number:
                continue
            changed = subjects(event, has_catalogs=has_catalogs)
            if event.number > last + 1 or changed is None:
                return await events_at(hive, current, None)
            last = event.number
            changed_ids.update(changed)
        if len(page) < _PAGE_SIZE:
            break
        # Events of one number may be on two pages, so the last number is read again.
        at = max(at + 1, last - 1)
    if last < current:
        return await events_at(hive, current, None)
    return CatalogEvents(str(Position(last, _count(page, last))), changed_ids)


def _count(page: Sequence[HiveEvent], number: int) -> int:
    """Returns the number of events with a number."""
    return sum(event.number == number for event in page)
