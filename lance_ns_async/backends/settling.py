"""What becomes of a declare whose answer was lost: it is looked up, and never sent again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
)

from lance_ns_async.errors import Failure
from lance_ns_async.model import Table, TableId


async def settled(
    id: TableId, declare: Callable[[], Awaitable[Table]], find: Callable[[], Awaitable[Table | None]]
) -> Table:
    """The table that `declare` makes; where it may have been made without an answer, the one that `find` gives.

    `find` gives None for a table that another declare made. Where it fails, the first error stands: whether
    there is a table is unknown.
    """
    try:
        return await declare()
    except (ServiceUnavailableError, InternalError) as e:
        if isinstance(e.__cause__, Failure) and e.__cause__.delivered is False:
            raise
        lost = e
    try:
        found = await find()
    except LanceNamespaceError as e:
        raise lost from e
    if found is None:
        raise TableAlreadyExistsError(f"Table already exists: {id} (declare_table: made by another)") from lost
    return found
