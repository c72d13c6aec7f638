"""The page of dropped tables, and the form that brings one back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lance_namespace.errors import TableAlreadyExistsError

from lance_ns_async.gateway.explorer.layout import Page
from lance_ns_async.gateway.explorer.reading import READ_SECONDS, outcome
from lance_ns_async.gateway.rights import GrantedNamespace
from lance_ns_async.model import TableId
from lance_ns_async.rendering import time_span
from lance_ns_async.tabular import Row

_MAX_TABLES = 100


@dataclass(frozen=True, slots=True)
class DroppedTables:
    """The dropped tables that a page shows, the last dropped first."""

    tables: Sequence[tuple[Row, str]]  # With the time that is left.
    more: int  # The number of tables that were dropped earlier.
    errors: Sequence[Row]  # Folders that could not be read.


async def dropped_page(namespace: GrantedNamespace, *, can_undrop: bool) -> Page:
    """Returns the page of the last 100 dropped tables; `can_undrop` adds a form to each.

    Cost: see `fleet.dropped`, for at most 15 seconds.
    """
    return Page("Dropped tables", "dropped.html", {"result": await outcome(_read(namespace)), "can_undrop": can_undrop})


async def _read(namespace: GrantedNamespace) -> DroppedTables:
    async with asyncio.timeout(READ_SECONDS):
        report, number = await namespace.dropped(_MAX_TABLES)
    now = datetime.now(UTC)
    tables = [(row, _time_left(row, now)) for row in report.rows if isinstance(row.id, TableId)]
    return DroppedTables(tables, number - len(tables), [row for row in report.rows if not isinstance(row.id, TableId)])


def _time_left(row: Row, now: datetime) -> str:
    """Returns how long a table can be brought back, or that this may end now."""
    seconds = (datetime.fromisoformat(row.fields["until"]) - now).total_seconds()
    if row.outcome != "dropped" or seconds <= 0:
        return row.outcome
    return time_span(seconds)


async def undrop(namespace: GrantedNamespace, location: str, id_text: str) -> TableId:
    """Brings back the table at a location, and returns its id; an empty text means the former id."""
    try:
        table = await namespace.undrop(location, TableId(id_text) if id_text else None)
    except TableAlreadyExistsError as e:
        raise TableAlreadyExistsError(f"{e}; go back, and type another id beside the table") from e
    return table.id
