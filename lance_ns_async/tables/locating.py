"""Where a table is, with what it takes to read and write it there."""

from __future__ import annotations

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Backend
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import Table, TableId


async def located(backend: Backend, id: TableId) -> Table:
    """The table, with the credentials that its catalog gives out for it.

    A catalog may refuse to give out any; then the configured ones must do, and it costs another call.
    """
    try:
        return await backend.describe_table(id, vend=True)
    except NotALanceTableError:
        raise
    except InvalidInputError:
        return await backend.describe_table(id)
