"""Locations of tables, with the credentials to read and write there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from lance_namespace.errors import InvalidInputError, TableNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.concurrency import each
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import Table, TableId


async def located(backend: Backend, id: TableId) -> Table:
    """Returns the table with the credentials that its catalog vends.

    A catalog may refuse to vend credentials; then the configured ones are used, which costs another call.
    """
    if not backend.capabilities.vends:
        return await backend.describe_table(id)
    try:
        return await backend.describe_table(id, vend=True)
    except NotALanceTableError:
        raise
    except InvalidInputError:
        return await backend.describe_table(id)


async def located_many(backend: Backend, tables: Sequence[Table], *, max_in_flight: int) -> Sequence[Table]:
    """Locates the tables concurrently and returns them in their order; tables that no longer exist are omitted."""
    found: dict[TableId, Table] = {}

    async def locate(table: Table) -> None:
        with suppress(TableNotFoundError):
            found[table.id] = await located(backend, table.id)

    await each(locate, tables, max_in_flight=max_in_flight)
    return [found[table.id] for table in tables if table.id in found]
