"""Concurrent opening of many datasets on the driver, for their versions, schemas and sizes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from lance_namespace.errors import InvalidTableStateError, TableNotFoundError, TableVersionNotFoundError

from lance_ns_async.engine.describe import Advance
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.errors import error_about
from lance_ns_async.many.opening import open_each
from lance_ns_async.model import EXPIRY, Table, TableId
from lance_ns_async.storage.datasets import Details, Snapshot, read_details
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.threads import THREADS, in_thread


async def open_tables(
    opener: Opener,
    tables: Iterable[Table],
    *,
    max_in_flight: int = THREADS,
    progress: Advance | None = None,
    finish: Callable[[TableId, int], Awaitable[object]] | None = None,
) -> BulkResult[Details]:
    """Opens each dataset once, at the version of its catalog or else the latest, and reads its details.

    Equal schemas become one shared object.

    Args:
        opener: Opens the datasets.
        tables: The tables to open.
        max_in_flight: The maximum number of datasets to open at once.
        progress: Receives the number of completed tables.
        finish: Called with the id and the version if the storage lacks the version that the catalog names; the dataset
            is then opened again.
    """
    schemas: dict[object, object] = {}

    async def read(table: Table) -> Details:
        # The version is known and the credentials are new, so Lance needs no calls to the catalog.
        options = {key: value for key, value in (table.storage_options or {}).items() if key != EXPIRY}
        plain = replace(table, managed_versioning=False, storage_options=options or None)
        return await in_thread(table, lambda: read_details(opener.open(plain, Snapshot(version=table.version))))

    async def open_one(table: Table) -> Details:
        try:
            try:
                details = await read(table)
            except (TableNotFoundError, TableVersionNotFoundError):
                if finish is None or table.version is None:
                    raise
                await finish(table.id, table.version)
                details = await read(table)
        except TableNotFoundError:
            # The catalog has the table, so only its data is missing.
            raise error_about(
                InvalidTableStateError, table.id, f"declared, nothing written yet at {table.location}"
            ) from None
        # Metadata that differs between tables would make schemas with the same columns unequal.
        schema = details.schema.remove_metadata()
        return replace(details, schema=schemas.setdefault(schema, schema))

    by_id = {table.id: table for table in tables}
    return await open_each(by_id, open_one, max_in_flight=max_in_flight, progress=progress)
