"""`open` and `open_many`: tables as datasets of pylance."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    InvalidInputError,
)

from lance_ns_async.calls.tasks import in_slices
from lance_ns_async.engine.results import BulkResult
from lance_ns_async.many import open_many as opening_many
from lance_ns_async.operations import requests
from lance_ns_async.progress import ProgressCallback, Steps, show_progress
from lance_ns_async.session import Session
from lance_ns_async.storage.datasets import Snapshot

if TYPE_CHECKING:
    from lance import LanceDataset


async def open(
    session: Session, id: Iterable[str], *, version: int | str | None = None, branch: str | None = None
) -> LanceDataset:
    if isinstance(version, str):
        snapshot = Snapshot(tag=version, branch=branch)
    else:
        snapshot = Snapshot(None if version is None else _number(version), branch=branch)
    return await session.read(id, lambda dataset, _: dataset, snapshot)


async def open_many(
    session: Session,
    ids: Iterable[Iterable[str]],
    *,
    max_in_flight: int | None = None,
    timeout: float | None = None,
    progress: bool | ProgressCallback = False,
) -> BulkResult[LanceDataset]:
    with session.within(timeout), show_progress(progress, "open tables") as show:
        table_ids = dict.fromkeys(await in_slices(session.table, requests.several(ids)))
        return await opening_many.open_many(
            session.backend,
            session.locator,
            session.opener,
            table_ids,
            max_in_flight=session.workers(max_in_flight),
            progress=Steps(len(table_ids), show).settle,
        )


def _number(version: object) -> int:
    try:
        return operator.index(version)  # type: ignore[arg-type]  # other types raise TypeError
    except TypeError:
        raise InvalidInputError(f"version {version!r}: must be a number or the name of a tag") from None
