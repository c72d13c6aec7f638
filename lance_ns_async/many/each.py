"""Work on each of many tables, as many at once as there are threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.describe import Advance, without_traceback
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import error_about
from lance_ns_async.many.patterns import Selection
from lance_ns_async.model import TableId
from lance_ns_async.storage.threads import THREADS

S = TypeVar("S")
T = TypeVar("T")


async def open_each(
    tables: Mapping[TableId, S], open_one: Callable[[S], Awaitable[T]], *, max_in_flight: int, progress: Advance | None
) -> BulkResult[T]:
    """Opens tables that are already located, as many at once as there are threads.

    After the end of the operation's time, the remaining tables fail without being opened.

    Args:
        tables: The tables, by the ids of the result.
        open_one: Returns the dataset of a table, or what it read from it.
        max_in_flight: Maximum number of datasets to open at once.
        progress: Receives the number of completed tables.

    Returns:
        The results in the order of the tables.
    """
    datasets: dict[TableId, T] = {}
    errors: dict[TableId, LanceNamespaceError] = {}

    async def visit(id: TableId) -> None:
        try:
            left = remaining()
            if left is not None and left <= 0:
                raise error_about(
                    ServiceUnavailableError,
                    id,
                    "the operation's time ended before the table was opened; set a longer timeout",
                )
            datasets[id] = await open_one(tables[id])
        except LanceNamespaceError as e:
            errors[id] = without_traceback(e)
        if progress is not None:
            progress(1)

    await each(visit, tables, max_in_flight=min(max_in_flight, THREADS))
    return BulkResult(
        {id: datasets[id] for id in tables if id in datasets}, {id: errors[id] for id in tables if id in errors}
    )


def without_absent(
    errors: Mapping[TableId, LanceNamespaceError], selection: Selection
) -> Mapping[TableId, LanceNamespaceError]:
    """Returns the errors but those of matches of a pattern that are missing meanwhile, or have no data yet."""
    requested = set(selection.ids)
    absent = (TableNotFoundError, NamespaceNotFoundError)
    return {id: error for id, error in errors.items() if id in requested or not isinstance(error, absent)}
