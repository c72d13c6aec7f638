"""Data of dropped tables in a storage: folders whose drop was interrupted, and the size and age of what is left."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.fleet.conditions import read_facts
from lance_ns_async.model import Table, TableId, local_path
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.threads import in_thread

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True, slots=True)
class Leftover:
    """What is in a folder that no table claims."""

    size: int | None
    """In bytes: of all files in a local folder, else of the newest version; None if that cannot be read."""
    modified: datetime | None
    """The time of the last change, or of the newest version; None if that cannot be read."""
    missing: Sequence[str] = ()
    """The data files that the newest version names, and that do not exist."""


async def find_missing(location: str, options: Mapping[str, str] | None) -> Sequence[str]:
    """Returns the data files that the newest version of a dataset names, and that do not exist.

    Raises:
        LanceNamespaceError: The dataset cannot be opened or listed.

    Cost:
        One open, and a listing of the data files.
    """
    table = _table(location, options)
    return await in_thread(table, lambda: _missing(table, datasets.open_snapshot(table)))


def describe_missing(missing: Sequence[str]) -> str:
    """Returns the reason why a table is not complete."""
    return (
        f"its newest version names {len(missing)} data files that do not exist, such as {missing[0]}: a drop of it was "
        "probably interrupted; delete the folder, or restore the files"
    )


async def measure(location: str, options: Mapping[str, str] | None) -> Leftover:
    """Returns what is in a folder. Cost: one open, a listing of the data files, and in a local folder a walk."""
    table = _table(location, options)

    def work() -> Leftover:
        dataset = datasets.open_snapshot(table)
        facts = read_facts(table.id, location, {}, dataset)
        return Leftover(facts.size, facts.last_write, _missing(table, dataset))

    try:
        leftover = await in_thread(table, work)
    except LanceNamespaceError:
        # It has no version, or a damaged one.
        leftover = Leftover(None, None)
    if (path := local_path(location)) is None:
        return leftover
    size, modified = await in_thread(table, lambda: _measure_folder(path))
    return Leftover(size, modified, leftover.missing)


def _table(location: str, options: Mapping[str, str] | None) -> Table:
    return Table(TableId([location]), location, storage_options=options)


def _missing(table: Table, dataset: LanceDataset) -> Sequence[str]:
    # A file with a base is in the folder of another dataset, of which this one is a shallow clone.
    named = {
        f"data/{file.path}"
        for fragment in dataset.get_fragments()
        for file in fragment.metadata.files
        if file.base_id is None
    }
    if not named:
        return []
    return sorted(named.difference(files.open_session(table.location, table.storage_options).list("data")))


def _measure_folder(path: str) -> tuple[int, datetime | None]:
    size, newest = 0, 0.0
    for folder, _, names in os.walk(path):
        for name in (".", *names):
            # A drop may be deleting the files.
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(folder, name))
                size += 0 if name == "." else status.st_size
                newest = max(newest, status.st_mtime)
    return size, datetime.fromtimestamp(newest, UTC) if newest else None
