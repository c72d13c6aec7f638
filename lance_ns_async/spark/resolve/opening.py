"""Concurrent opening of many datasets on the driver, for their versions, schemas and sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from lance_ns_async.calls.concurrency import each
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage import datasets
from lance_ns_async.storage.datasets import Details, Snapshot
from lance_ns_async.storage.threads import THREADS


@dataclass(frozen=True, slots=True)
class Opened:
    """The outcome of opening many datasets; a failure does not affect the other datasets."""

    details: Mapping[TableId, Details]
    errors: Mapping[TableId, LanceNamespaceError]


async def open_tables(
    tables: Iterable[Table],
    *,
    max_in_flight: int = THREADS,
    timeout: float | None = None,
    settled: Callable[[], None] = lambda: None,
    finish: Callable[[TableId, int], Awaitable[object]] | None = None,
) -> Opened:
    """Opens each dataset once, at the version of its catalog or else the latest, in worker threads.

    Equal schemas become one shared object.

    Args:
        tables: The tables to open.
        max_in_flight: The maximum number of datasets to open at once.
        timeout: Seconds after which the remaining tables fail with ServiceUnavailableError; None for no limit.
        settled: Called after each table.
        finish: Called with the id and the version if the storage lacks the version that the catalog names; the dataset
            is then opened again.
    """
    details: dict[TableId, Details] = {}
    errors: dict[TableId, LanceNamespaceError] = {}
    schemas: dict[object, object] = {}
    waiting = {table.id: table for table in tables}

    async def opened(table: Table) -> Details:
        snapshot = Snapshot(version=table.version)
        try:
            return await datasets.details(table, snapshot)
        except (TableNotFoundError, TableVersionNotFoundError):
            if finish is None or table.version is None:
                raise
        await finish(table.id, table.version)
        return await datasets.details(table, snapshot)

    async def visit(table: Table) -> None:
        try:
            found = await opened(table)
        except TableNotFoundError:
            # The catalog has the table, so only its data is missing.
            errors[table.id] = InvalidTableStateError(
                f"Invalid table state: {table.id} (declared, nothing written yet at {table.location})"
            )
        except LanceNamespaceError as e:
            errors[table.id] = e
        else:
            # Metadata that differs between tables would make schemas with the same columns unequal.
            schema = found.schema.remove_metadata()
            details[table.id] = replace(found, schema=schemas.setdefault(schema, schema))
        settled()

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await each(visit, waiting.values(), max_in_flight=min(max_in_flight, THREADS))
    for id in waiting:
        if id not in details and id not in errors:
            errors[id] = ServiceUnavailableError(f"Service unavailable: {id} (its time was over before it was open)")
    return Opened(details, errors)
