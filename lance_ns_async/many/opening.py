"""`open` and `open_many`: tables as datasets of pylance."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from lance_namespace.errors import (
    InvalidInputError,
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
from lance_ns_async.lifecycle import concurrent_changes
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.many.search import describe_selected, read_selection
from lance_ns_async.model import Table, TableId
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.session import Session
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import THREADS, in_thread

if TYPE_CHECKING:
    from lance import LanceDataset


S = TypeVar("S")
T = TypeVar("T")


async def open(
    session: Session, id: Iterable[str], *, version: int | str | None = None, branch: str | None = None
) -> LanceDataset:
    if isinstance(version, str):
        snapshot = Snapshot(tag=version, branch=branch)
    else:
        snapshot = Snapshot(None if version is None else _number(version), branch=branch)
    return await session.read(id, lambda dataset, _: dataset, snapshot)


async def open_many(
    session: Session,
    what: What,
    *,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> BulkResult[LanceDataset]:
    with session.within(timeout), show_progress(progress, "open tables") as show:
        selection, workers = await read_selection(session, what), session.workers(max_in_flight)
        described = await describe_selected(session, selection, vend_credentials=True, max_in_flight=workers)
        steps = Steps(len(described), show)
        if described.errors:
            steps.advance(len(described.errors))

        async def open_one(table: Table) -> LanceDataset:
            async with concurrent_changes.explain_conflict(session.backend, table):
                return await in_thread(table, lambda: session.opener.open(table))

        # In the order of the request; tables that patterns matched come last.
        ordered = dict.fromkeys([*(id for id in selection.ids if id in described.tables), *described.tables])
        tables = {id: described.tables[id] for id in ordered}
        opened = await open_each(tables, open_one, max_in_flight=workers, progress=steps.advance)
    errors = {**described.errors, **without_absent(opened.errors, selection)}
    ordered = dict.fromkeys([*(id for id in selection.ids if id in errors), *errors])
    return BulkResult(opened.tables, {id: errors[id] for id in ordered}, described.unlisted)


def without_absent(
    errors: Mapping[TableId, LanceNamespaceError], selection: Selection
) -> Mapping[TableId, LanceNamespaceError]:
    """Returns the errors but those of matches of a pattern that are missing meanwhile, or have no data yet."""
    requested = set(selection.ids)
    absent = (TableNotFoundError, NamespaceNotFoundError)
    return {id: error for id, error in errors.items() if id in requested or not isinstance(error, absent)}


def _number(version: object) -> int:
    try:
        return operator.index(version)  # type: ignore[arg-type]  # other types raise TypeError
    except TypeError:
        raise InvalidInputError(f"version {version!r}: must be a number or the name of a tag") from None


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
