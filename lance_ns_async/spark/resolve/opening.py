"""Opening many datasets at once on the driver, to learn their versions, schemas and sizes."""

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
    """The outcome of opening many datasets: one that fails never spoils the others."""

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
    """Opens each dataset once, at the version its catalog tells or else the latest, in worker threads.

    A version that its catalog tells of and its storage lacks is given to `finish`, and the dataset opened again.
    What is not open after `timeout` seconds fails with ServiceUnavailableError. Equal schemas become one object.
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
            # Its catalog has it, so what was not found is the data.
            errors[table.id] = InvalidTableStateError(
                f"Invalid table state: {table.id} (declared, nothing written yet at {table.location})"
            )
        except LanceNamespaceError as e:
            errors[table.id] = e
        else:
            # What a table says about itself beside its columns would keep equal schemas apart.
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
