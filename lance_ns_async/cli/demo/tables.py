"""Creation of those tables of the demo that do not exist yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from lance_ns_async.cli.catalog import Catalog
from lance_ns_async.cli.demo.content import rows, schema
from lance_ns_async.cli.progress import Bar

if TYPE_CHECKING:
    from lance_ns_async import AsyncNamespace, NamespaceId, TableId

_OURS = re.compile(r"notes_\d{5,}")
_AT_ONCE = 8
"""Number of tables created concurrently; more would wait for a processor or for the embedded catalog's single log."""


@dataclass(frozen=True, slots=True)
class Creation:
    """The result of the creation of the tables."""

    new: int
    """Number of tables that were missing or had another number of rows."""
    existing: int
    seconds: float


def table_ids(parent: NamespaceId, count: int) -> Sequence[TableId]:
    """Returns the ids of the first `count` tables of the demo."""
    return [parent.table(f"notes_{number:05}") for number in range(count)]


async def make(catalog: Catalog, ids: Sequence[TableId], count: int, bar: Bar) -> Creation:
    """Creates or overwrites tables, so that each one has `count` rows."""
    async with catalog.open_async() as namespace:
        start = perf_counter()
        new = await _make(namespace, ids, count, bar)
        return Creation(new, len(ids) - new, perf_counter() - start)


async def drop(catalog: Catalog, parent: NamespaceId, bar: Bar) -> None:
    """Removes the demo's tables with their data; other tables in the namespace stay."""
    async with catalog.open_async() as namespace:
        if await namespace.exists(parent):
            await _drop(namespace, parent, bar)


async def _make(namespace: AsyncNamespace, ids: Sequence[TableId], count: int, bar: Bar) -> int:
    from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError

    from lance_ns_async.calls.tasks import each

    # The describe comes first, because it rejects an id that is too short for the catalog before any creation.
    descriptions = await namespace.describe_tables(ids)
    for error in descriptions.errors.values():
        if not isinstance(error, NamespaceNotFoundError | TableNotFoundError):
            raise error
    await _make_namespaces(namespace, ids[0].parent)
    new = 0

    async def see_to(id: TableId) -> None:
        nonlocal new
        table = descriptions.tables.get(id)
        if table is None:
            location, options = await _declare(namespace, id)
            count_now = None
        else:
            location, options = table.location, table.storage_options
            count_now = await anyio.to_thread.run_sync(_count_rows, id, location, options)
        if count_now != count:
            mode = "create" if count_now is None else "overwrite"
            await anyio.to_thread.run_sync(_write, id, location, options, count, mode)
            new += 1
        bar.advance()

    await each(see_to, ids, max_in_flight=_AT_ONCE)
    return new


async def _drop(namespace: AsyncNamespace, parent: NamespaceId, bar: Bar) -> None:
    from lance_namespace import DropTableRequest

    from lance_ns_async.calls.tasks import each

    async with aclosing(namespace.iter_tables(parent)) as tables:
        ours = [id async for id in tables if _OURS.fullmatch(id.name)]

    async def drop_one(id: TableId) -> None:
        await namespace.drop_table(DropTableRequest(id=list(id)))
        bar.advance()

    await each(drop_one, ours, max_in_flight=_AT_ONCE)


async def _make_namespaces(namespace: AsyncNamespace, id: NamespaceId) -> None:
    from lance_namespace import CreateNamespaceRequest

    from lance_ns_async.model import NamespaceId

    for depth in range(1, len(id) + 1):
        # The catalog may not permit the creation of a level that already exists.
        if not await namespace.exists(NamespaceId(id[:depth])):
            await namespace.create_namespace(CreateNamespaceRequest(id=list(id[:depth]), mode="ExistOk"))


async def _declare(namespace: AsyncNamespace, id: TableId) -> tuple[str, Mapping[str, str] | None]:
    from lance_namespace import DeclareTableRequest
    from lance_namespace.errors import InternalError

    response = await namespace.declare_table(DeclareTableRequest(id=list(id)))
    if response.location is None:
        raise InternalError(f"Internal error: {id} (declare_table: the catalog returned no location)")
    return response.location, response.storage_options


def _count_rows(id: TableId, location: str, options: Mapping[str, str] | None) -> int | None:
    """Returns the number of rows in the table; None if nothing was written yet."""
    import lance
    from lance_namespace.errors import InvalidTableStateError

    try:
        dataset: Any = lance.dataset(location, storage_options=dict(options or {}) or None)
    except ValueError as error:
        if "was not found" not in str(error):
            raise
        return None
    if not dataset.schema.equals(schema()):
        raise InvalidTableStateError(f"table {id} has other columns than the demo's tables; use another --namespace")
    rows_now: int = dataset.count_rows()
    return rows_now


def _write(id: TableId, location: str, options: Mapping[str, str] | None, count: int, mode: str) -> None:
    import lance

    lance.write_dataset(rows(str(id), count), location, mode=mode, storage_options=dict(options or {}) or None)
