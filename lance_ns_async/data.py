"""What only the dataset itself can tell or do, once a catalog has located it: served by pylance in worker threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    ServiceUnavailableError,
    TableNotFoundError,
    UnsupportedOperationError,
)

from lance_ns_async.concurrency import each
from lance_ns_async.faults import translated
from lance_ns_async.model import Table, TableId
from lance_ns_async.policy import remaining

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which a storage that says nothing is given up, where no operation's time ends sooner."""

THREADS = 16
"""How many datasets are opened at once."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which state of a dataset is meant: a version or a tag, on a branch; all None for the latest on main."""

    version: int | None = None
    tag: str | None = None
    branch: str | None = None

    def __post_init__(self) -> None:
        if self.tag is not None and (self.version is not None or self.branch is not None):
            raise InvalidInputError(f"tag {self.tag!r}: a tag already names a version and a branch; give it alone")


LATEST = Snapshot()


@dataclass(frozen=True, slots=True)
class Details:
    """What opening a dataset tells."""

    version: int
    schema: pa.Schema
    rows: int
    fragments: int
    deleted_rows: int


async def details(table: Table, snapshot: Snapshot = LATEST) -> Details:
    """What the dataset tells in the state `snapshot` names; costs one open."""
    return await in_thread(table, lambda: _details(opened(table, snapshot)))


def schema_json(schema: pa.Schema) -> dict[str, Any]:
    """The schema in JSON Arrow form, as the spec's models take it."""
    from lance.schema import schema_to_json

    try:
        found: dict[str, Any] = schema_to_json(schema)
    except ValueError as e:
        raise UnsupportedOperationError(
            f"Not supported: the schema has a column that JSON Arrow form cannot say ({e}); open the dataset for it"
        ) from e
    return found


async def is_only_declared(table: Table) -> bool:
    """Whether nothing was written to the table yet; costs one open."""
    try:
        await in_thread(table, lambda: opened(table, LATEST))
    except TableNotFoundError:
        return True
    return False


async def written(tables: Sequence[Table]) -> Sequence[Table]:
    """Those of the tables that hold data, in their order; costs an open each, side by side."""
    declared: set[TableId] = set()

    async def check(table: Table) -> None:
        if table.version is None and await is_only_declared(table):
            declared.add(table.id)

    await each(check, tables, max_in_flight=THREADS)
    return [table for table in tables if table.id not in declared]


async def check_alone(table: Table) -> None:
    """Raises InvalidTableStateError where other datasets lie under the table's location; costs a listing of it."""
    if found := await in_thread(table, lambda: neighbours(table)):
        raise InvalidTableStateError(
            f"Invalid table state: {table.id} (drop_table would delete {len(found)} other tables that lie under its "
            f"location {table.location}, such as {found[0]}; deregister it, and move or drop those first)"
        )


async def drop(table: Table) -> None:
    """Deletes everything under the table's location; a location without a dataset counts as dropped."""
    try:
        await in_thread(table, lambda: delete(table))
    except InvalidTableStateError:
        # A catalog's own files may lie where nothing was ever written by Lance.
        if not await is_only_declared(table):
            raise


def neighbours(table: Table) -> Sequence[str]:
    """Where other datasets lie under the table's location; blocks: for `in_thread`."""
    from lance.file import LanceFileSession

    options = dict(table.storage_options or {}) or None
    files = LanceFileSession(table.location, storage_options=options).list()
    found = {path.partition("/_versions/")[0] for path in files if "/_versions/" in path}
    if any(place.startswith("tree/") for place in found):
        # There a dataset keeps its branches.
        found -= {f"tree/{branch}" for branch in opened(table, LATEST).branches.list()}
    return sorted(found)


def delete(table: Table) -> None:
    """Deletes everything under the table's location; blocks: for `in_thread`."""
    import lance

    options = dict(table.storage_options or {}) or None
    lance.LanceDataset.drop(table.location, storage_options=options, ignore_not_found=True)


def opened(table: Table, snapshot: Snapshot) -> Any:
    """The dataset in that state; blocks, and raises what pylance raises: for `in_thread`."""
    import lance

    options = dict(table.storage_options or {}) or None
    version = snapshot.tag if snapshot.tag is not None else snapshot.version
    if snapshot.branch is None:
        return lance.dataset(table.location, version=version, storage_options=options)
    dataset = lance.dataset(table.location, storage_options=options)
    return dataset.checkout_version((snapshot.branch, snapshot.version))


def _details(dataset: Any) -> Details:
    stats = dataset.stats.dataset_stats()
    return Details(
        version=dataset.version,
        schema=dataset.schema,
        rows=dataset.count_rows(),
        fragments=stats["num_fragments"],
        deleted_rows=stats["num_deleted_rows"],
    )


async def in_thread(table: Table, work: Callable[[], T], *, patience: float = PATIENCE, changes: bool = False) -> T:
    """What `work` on the table's storage gives in a worker thread, within the operation's time; raises our errors.

    Work given up goes on in its thread, because nothing can stop it there: one that `changes` something may yet do so.
    """
    left = remaining()
    try:
        # asyncio's own: anyio's may take a cancellation for its time-out when both come at once.
        async with asyncio.timeout(PATIENCE if left is None else min(left, patience)):
            return await _aside(lambda: _translated(table, work))
    except TimeoutError as e:
        unknown = "; whether it took effect is unknown" if changes else ""
        message = f"{table.id} (its storage at {table.location} did not answer within the operation's time{unknown})"
        raise ServiceUnavailableError(f"Service unavailable: {message}") from e


async def _aside(work: Callable[[], T]) -> T:
    """What `work` gives in a worker thread, of which so many run at once."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_limiter())


def _translated(table: Table, work: Callable[[], T]) -> T:
    with translated(table):
        return work()


_THREAD_LIMIT: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("lance_ns_async_threads")


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _THREAD_LIMIT.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(THREADS)
        _THREAD_LIMIT.set(limiter)
        return limiter
