"""Concurrent opening of many tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.concurrency import each
from lance_ns_async.engine.describe import Progress, describe_tables
from lance_ns_async.engine.locate import located
from lance_ns_async.errors import raise_first
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.threads import in_thread
from lance_ns_async.tables import concurrent_changes
from lance_ns_async.tables.opening import Opener

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of opening many tables: datasets and errors by id. One failed table does not affect the others."""

    datasets: Mapping[TableId, LanceDataset] = field(default_factory=dict)
    errors: Mapping[TableId, LanceNamespaceError] = field(default_factory=dict)
    """The error of each id that is not in `datasets`."""

    def raise_for_errors(self) -> Opened:
        """Returns this result if all tables were opened.

        Raises:
            LanceNamespaceError: The first error; its message says how many others there are.
        """
        raise_first(self.errors.values(), len(self))
        return self

    def __len__(self) -> int:
        return len(self.datasets) + len(self.errors)


async def open_many(
    backend: Backend, opener: Opener, ids: Iterable[TableId], *, max_in_flight: int, progress: Progress | None
) -> Opened:
    """Describes and opens each table once.

    Cost: as `describe_tables`, or one call per table if the catalog vends credentials.
    """
    unique_ids = list(dict.fromkeys(ids))
    datasets: dict[TableId, LanceDataset] = {}
    errors: dict[TableId, LanceNamespaceError] = {}
    tables: dict[TableId, Table] = {}
    can = backend.capabilities
    # No catalog vends credentials for several tables in one call.
    if (can.describe_batch or can.listing_has_locations) and not can.vends:
        descriptions = await describe_tables(backend, unique_ids, max_in_flight=max_in_flight)
        tables.update(descriptions.tables)
        errors.update(descriptions.errors)
        if progress is not None and errors:
            progress(len(errors))

    async def open_one(id: TableId) -> None:
        try:
            table = tables.get(id) or await located(backend, id)
            async with concurrent_changes.explain(backend, table):
                datasets[id] = await in_thread(table, lambda: opener.open(table))
        except LanceNamespaceError as e:
            errors[id] = e
        if progress is not None:
            progress(1)

    await each(open_one, [id for id in unique_ids if id not in errors], max_in_flight=max_in_flight)
    return Opened(
        {id: datasets[id] for id in unique_ids if id in datasets}, {id: errors[id] for id in unique_ids if id in errors}
    )
