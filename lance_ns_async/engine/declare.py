"""Bulk declare: registers many tables, in batches where the catalog has them, else concurrently one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError, UnauthenticatedError

from lance_ns_async.backends.base import Backend, Declaration
from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.describe import without_traceback
from lance_ns_async.model import Table, TableId

Outcome: TypeAlias = Table | LanceNamespaceError

Record: TypeAlias = Callable[[Declaration, Outcome], Awaitable[None]]
"""Receives each declaration with its outcome when that is known."""


async def declare_tables(
    backend: Backend, declarations: Iterable[Declaration], record: Record, *, max_in_flight: int
) -> None:
    """Registers each table once.

    After a 401, and after the end of the operation's time, the remaining tables fail without a call. If a batch fails
    as a whole, each of its tables gets the error.

    Args:
        backend: The backend to call.
        declarations: The tables, with different ids.
        record: Receives the outcomes.
        max_in_flight: Maximum number of concurrent declarations. Batches run one after another, because each of them
            changes the same state of the catalog.

    Cost:
        A declaration for each table, or a call for each `Capabilities.declare_batch` tables.
    """
    end: LanceNamespaceError | None = None

    def futile() -> LanceNamespaceError | None:
        left = remaining()
        if left is not None and left <= 0:
            why = "the operation's time ended before this table was registered; set a longer timeout"
            return ServiceUnavailableError(f"Service unavailable: the catalog (register_tables: {why})")
        return end

    async def step(batch: tuple[Declaration, ...]) -> None:
        nonlocal end
        outcomes: Mapping[TableId, Outcome]
        if (error := futile()) is not None:
            outcomes = dict.fromkeys((it.id for it in batch), error)
        else:
            try:
                outcomes = await _declare(backend, batch)
            except LanceNamespaceError as e:
                outcomes = dict.fromkeys((it.id for it in batch), without_traceback(e))
                if isinstance(e, UnauthenticatedError):
                    # A 401 applies to every table.
                    why = f"this table was not registered, because another call was not authenticated: {e}"
                    end = UnauthenticatedError(f"Unauthenticated: the catalog (register_tables: {why})")
        for it in batch:
            await record(it, outcomes[it.id])

    size = backend.capabilities.declare_batch
    await each(step, _batches(declarations, size or 1), max_in_flight=1 if size else max_in_flight)


def _batches(declarations: Iterable[Declaration], size: int) -> Iterator[tuple[Declaration, ...]]:
    waiting = iter(declarations)
    while batch := tuple(islice(waiting, size)):
        yield batch


async def _declare(backend: Backend, batch: tuple[Declaration, ...]) -> Mapping[TableId, Outcome]:
    if len(batch) > 1:
        return await backend.declare_tables(batch)
    it = batch[0]
    if it.location is None:
        return {it.id: await backend.declare_table(it.id, None, it.properties, it.schema)}
    return {it.id: await backend.register_table(it.id, it.location, it.properties, it.schema)}
