"""`open` and `open_many`: tables as datasets of pylance."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, ServiceUnavailableError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.tasks import each, in_slices
from lance_ns_async.engine.describe import Advance, describe_tables, without_traceback
from lance_ns_async.engine.locate import Locator
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import error_about
from lance_ns_async.lifecycle import concurrent_changes
from lance_ns_async.model import Table, TableId
from lance_ns_async.operations import requests
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.session import Session
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.opening import Opener
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
    ids: Iterable[Iterable[str]],
    *,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> BulkResult[LanceDataset]:
    with session.within(timeout), show_progress(progress, "open tables") as show:
        table_ids = dict.fromkeys(await in_slices(session.table, requests.several(ids)))
        return await open_tables(
            session.backend,
            session.locator,
            session.opener,
            table_ids,
            max_in_flight=session.workers(max_in_flight),
            progress=Steps(len(table_ids), show).advance,
        )


def _number(version: object) -> int:
    try:
        return operator.index(version)  # type: ignore[arg-type]  # other types raise TypeError
    except TypeError:
        raise InvalidInputError(f"version {version!r}: must be a number or the name of a tag") from None


async def open_tables(
    backend: Backend,
    locator: Locator,
    opener: Opener,
    ids: Iterable[TableId],
    *,
    max_in_flight: int,
    progress: Advance | None,
) -> BulkResult[LanceDataset]:
    """Describes each table once, with credentials, and then opens it. Cost: as `describe_tables`."""

    async def open_one(table: Table) -> LanceDataset:
        async with concurrent_changes.explain_conflict(backend, table):
            return await in_thread(table, lambda: opener.open(table))

    unique_ids = list(dict.fromkeys(ids))
    descriptions = await describe_tables(backend, unique_ids, max_in_flight=max_in_flight, locator=locator)
    if progress is not None and descriptions.errors:
        progress(len(descriptions.errors))
    tables = {id: descriptions.tables[id] for id in unique_ids if id in descriptions.tables}
    result = await open_each(tables, open_one, max_in_flight=max_in_flight, progress=progress)
    errors = {**descriptions.errors, **result.errors}
    return replace(result, errors={id: errors[id] for id in unique_ids if id in errors})


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
