"""Many tables opened side by side."""

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
from lance_ns_async.tables import meanwhile
from lance_ns_async.tables.opening import Opener

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True, slots=True)
class Opened:
    """The outcome of opening many tables: one bad table never spoils the others."""

    datasets: Mapping[TableId, LanceDataset] = field(default_factory=dict)
    errors: Mapping[TableId, LanceNamespaceError] = field(default_factory=dict)
    """What went wrong for each id that is not in `datasets`."""

    def raise_for_errors(self) -> Opened:
        """Itself where all were opened; otherwise raises the first error, saying how many more there are."""
        raise_first(self.errors.values(), len(self))
        return self

    def __len__(self) -> int:
        return len(self.datasets) + len(self.errors)


async def open_many(
    backend: Backend, opener: Opener, ids: Iterable[TableId], *, max_in_flight: int, progress: Progress | None
) -> Opened:
    """Describes and opens each table once; costs what describing many costs, or a call each where credentials come."""
    wanted = list(dict.fromkeys(ids))
    datasets: dict[TableId, LanceDataset] = {}
    errors: dict[TableId, LanceNamespaceError] = {}
    tables: dict[TableId, Table] = {}
    can = backend.capabilities
    # No catalog gives out credentials for many tables at once.
    if (can.describe_batch or can.listing_has_locations) and not can.vends:
        described = await describe_tables(backend, wanted, max_in_flight=max_in_flight)
        tables.update(described.tables)
        errors.update(described.errors)
        if progress is not None and errors:
            progress(len(errors))

    async def open_one(id: TableId) -> None:
        try:
            table = tables.get(id) or await located(backend, id)
            async with meanwhile.explained(backend, table):
                datasets[id] = await in_thread(table, lambda: opener.open(table))
        except LanceNamespaceError as e:
            errors[id] = e
        if progress is not None:
            progress(1)

    await each(open_one, [id for id in wanted if id not in errors], max_in_flight=max_in_flight)
    return Opened(
        {id: datasets[id] for id in wanted if id in datasets}, {id: errors[id] for id in wanted if id in errors}
    )
