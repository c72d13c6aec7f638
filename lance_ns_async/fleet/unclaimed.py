"""Data in a storage that no table of a catalog claims: where it is, its size and age, and what is missing of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.calls.tasks import each
from lance_ns_async.fleet.audit_checks import DROPPED, UNCLAIMED, Finding
from lance_ns_async.fleet.folder_walk import ExaminedFolder, FolderKind, FolderWalker, walk_folders
from lance_ns_async.fleet.registered import RegisteredTables
from lance_ns_async.fleet.run import Run, failure_row
from lance_ns_async.fleet.table_search import read_facts
from lance_ns_async.lifecycle import retention
from lance_ns_async.model import Table, TableId, local_path
from lance_ns_async.rendering import time_span
from lance_ns_async.session import Session
from lance_ns_async.storage import datasets
from lance_ns_async.storage.folders import LISTINGS, Folders
from lance_ns_async.storage.threads import in_thread

_DATA = frozenset({FolderKind.TABLE, FolderKind.UNFINISHED})


async def find_unclaimed(
    session: Session, uri: str, storage_options: Mapping[str, str] | None, run: Run
) -> Sequence[Finding]:
    """Returns a finding for each unclaimed table below a folder or bucket, with its size and age.

    The storage is walked before the catalog is read, so that a table is not reported which is registered meanwhile. A
    folder that is dropped meanwhile is not reported either, because each one is looked at again. Folders that cannot be
    listed are rows of the run. Without storage options, those of the catalog's properties and the environment are used.

    Cost: the listings of `discover`; a listing and a bulk describe of the whole catalog, and for each unclaimed table
    two listings and an open.
    """
    options = session.backend.configured_options if storage_options is None else storage_options
    folders = Folders(uri, options)
    walker = FolderWalker(folders, sees_dropped=True)
    folders_with_data: list[ExaminedFolder] = []

    def on_folder(folder: ExaminedFolder) -> None:
        if not folder.path and folder.kind is FolderKind.VANISHED:
            raise InvalidInputError(f"data under {folders.root!r}: there is no such folder, or it is empty")
        if folder.kind in _DATA:
            folders_with_data.append(folder)

    def on_error(location: str, error: LanceNamespaceError) -> None:
        run.add(failure_row(location, error, location))

    await walk_folders(walker, [""], on_folder, on_error)
    registered = await RegisteredTables.read(session)
    unclaimed: list[Finding] = []
    now = datetime.now(UTC)

    async def look_again(folder: ExaminedFolder) -> None:
        location = folders.location(folder.path)
        if any(await registered.claims([location])):
            return
        again = await walker.look(folder.path)
        if again.kind in _DATA and (table := await retention.read(location, options)) is not None:
            until = table.until.isoformat(timespec="seconds")
            seen = f"table {table.id} was dropped, and can be brought back until {until}"
            unclaimed.append(Finding(DROPPED, location, seen, location))
        elif again.kind in _DATA:
            size, modified, missing = await _measure(location, options)
            seen = "no table has this location" if again.kind is FolderKind.TABLE else again.reason
            if missing:
                seen = describe_missing(missing)
            if size is not None and modified is not None:
                age = time_span(max(0.0, (now - modified).total_seconds()))
                seen += f" ({size} bytes, last changed {age} ago)"
            changed = None if modified is None else modified.isoformat(timespec="seconds")
            fields = {"bytes": size, "modified": changed}
            unclaimed.append(Finding(UNCLAIMED, location, seen, location, fields))

    await each(look_again, folders_with_data, max_in_flight=LISTINGS)
    run.counters["listings"] = folders.listings
    return sorted(unclaimed, key=lambda finding: str(finding.location))


async def find_missing(location: str, options: Mapping[str, str] | None) -> Sequence[str]:
    """Returns the data files of the newest version that do not exist. Cost: one open and a listing of these files."""
    table = _table(location, options)
    return await in_thread(table, lambda: datasets.missing_files(table, datasets.open_snapshot(table)))


def describe_missing(missing: Sequence[str]) -> str:
    """Returns the reason why a table is not complete."""
    return (
        f"its newest version names {len(missing)} data files that do not exist, such as {missing[0]}: they were "
        "removed, perhaps by a drop that was interrupted; restore them, or delete the folder if nobody needs it"
    )


async def _measure(
    location: str, options: Mapping[str, str] | None
) -> tuple[int | None, datetime | None, Sequence[str]]:
    """Returns the size in bytes and the last change of a folder, and the missing data files of its newest version.

    In a local folder, the first two are those of all files, else those of the newest version; None if there is none.

    Cost: one open, a listing of the data files, and in a local folder a walk.
    """
    table = _table(location, options)

    def read() -> tuple[int | None, datetime | None, Sequence[str]]:
        dataset = datasets.open_snapshot(table)
        facts = read_facts(table.id, location, {}, dataset)
        return facts.size, facts.last_write, datasets.missing_files(table, dataset)

    try:
        size, modified, missing = await in_thread(table, read)
    except LanceNamespaceError:
        # It has no version, or a damaged one.
        size, modified, missing = None, None, ()
    if (path := local_path(location)) is not None:
        size, modified = await in_thread(table, lambda: measure_folder(path))
    return size, modified, missing


def _table(location: str, options: Mapping[str, str] | None) -> Table:
    return Table(TableId([location]), location, storage_options=options)


def measure_folder(path: str) -> tuple[int, datetime | None]:
    """Returns the bytes of all files below a folder, and their last change; None if there are none. Blocks."""
    size, newest = 0, 0.0
    for folder, _, names in os.walk(path):
        for name in (".", *names):
            # A drop may be deleting the files.
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(folder, name))
                size += 0 if name == "." else status.st_size
                newest = max(newest, status.st_mtime)
    return size, datetime.fromtimestamp(newest, UTC) if newest else None
