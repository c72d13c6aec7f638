"""Concurrent opening of many tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.concurrency import each
from lance_ns_async.engine.describe import Progress, describe_tables, without_traceback
from lance_ns_async.errors import raise_first
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.threads import in_thread
from lance_ns_async.tables import meanwhile
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
    """Describes each table once, with credentials, and then opens it. Cost: as `describe_tables`."""
    wanted = list(dict.fromkeys(ids))
    described = await describe_tables(backend, wanted, max_in_flight=max_in_flight, vend=True)
    datasets: dict[TableId, LanceDataset] = {}
    errors = dict(described.errors)
    if progress is not None and errors:
        progress(len(errors))

    async def open_one(item: tuple[TableId, Table]) -> None:
        id, table = item
        try:
            async with meanwhile.explained(backend, table):
                datasets[id] = await in_thread(table, lambda: opener.open(table))
        except LanceNamespaceError as e:
            errors[id] = without_traceback(e)
        if progress is not None:
            progress(1)

    await each(open_one, described.tables.items(), max_in_flight=max_in_flight)
    return Opened(
        {id: datasets[id] for id in wanted if id in datasets}, {id: errors[id] for id in wanted if id in errors}
    )
