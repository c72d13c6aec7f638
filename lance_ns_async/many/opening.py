"""`open` and `open_many`: tables as datasets of pylance."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from lance_namespace.errors import InvalidInputError

from lance_ns_async.lifecycle import concurrent_changes
from lance_ns_async.many.each import open_each, without_absent
from lance_ns_async.many.engines import OpenedTables
from lance_ns_async.many.patterns import What
from lance_ns_async.many.search import describe_selected, read_selection
from lance_ns_async.model import Table
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.session import Session, traced
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import in_thread

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


@traced
async def open_many(
    session: Session,
    what: What,
    *,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> OpenedTables:
    with session.within(timeout), show_progress(progress, "open tables") as show:
        selection, workers = await read_selection(session, what), session.workers(max_in_flight)
        described = await describe_selected(session, selection, vend_credentials=True, max_in_flight=workers)
        steps = Steps(len(described), show)
        if described.errors:
            steps.advance(len(described.errors))

        async def open_one(table: Table) -> LanceDataset:
            async with concurrent_changes.explain_conflict(session.backend, table):
                return await in_thread(table, lambda: session.opener.open(table))

        # In the order of the request; tables that patterns matched come last.
        ordered = dict.fromkeys([*(id for id in selection.ids if id in described.tables), *described.tables])
        tables = {id: described.tables[id] for id in ordered}
        opened = await open_each(tables, open_one, max_in_flight=workers, progress=steps.advance)
    errors = {**described.errors, **without_absent(opened.errors, selection)}
    ordered = dict.fromkeys([*(id for id in selection.ids if id in errors), *errors])
    return OpenedTables(opened.tables, {id: errors[id] for id in ordered}, described.unlisted)


def _number(version: object) -> int:
    try:
        return operator.index(version)  # type: ignore[arg-type]  # other types raise TypeError
    except TypeError:
        raise InvalidInputError(f"version {version!r}: must be a number or the name of a tag") from None
