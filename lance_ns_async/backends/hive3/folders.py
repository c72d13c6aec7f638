"""Folders of new tables, which the client creates before the metastore does.

If several clients create a table concurrently at one location, a metastore can delete the winner's data: if it created
the folder for a client that lost, it deletes the folder with all its content. It never deletes a folder that existed
before (`HMSHandler.create_table_core` in Hive 3.1.3 and 4.0.1).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from lance_namespace.errors import PermissionDeniedError

from lance_ns_async.model import Table, local_path
from lance_ns_async.storage import datasets, dir_markers
from lance_ns_async.storage.threads import in_thread


async def make(table: Table) -> Sequence[str]:
    """Creates the folder of a new table if possible; in an object store, writes the marker of a declared table.

    Returns:
        The new local folders, for `remove`.

    Raises:
        LanceNamespaceError: The storage does not respond, or its options are invalid.

    Cost:
        In an object store, one listing and one write.
    """
    if (path := local_path(table.location)) is not None:
        return _make_local(path)
    if datasets.is_at_hand(table):
        # A client without permission to write cannot have data at the location.
        with suppress(PermissionDeniedError):
            await in_thread(table, lambda: dir_markers.reserve(table.location, table.storage_options), changes=True)
    return ()


def _make_local(path: str) -> Sequence[str]:
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    new_folders: list[str] = []
    # The metastore may run on another machine, so the path may be invalid on this one.
    with suppress(OSError):
        for folder in reversed(missing):
            os.mkdir(folder)
            new_folders.append(folder)
    return new_folders


async def remove(table: Table, new_folders: Sequence[str]) -> None:
    """Removes the folders or the marker of a table that could not be created, unless they are in use."""
    for folder in reversed(new_folders):
        with suppress(OSError):
            os.rmdir(folder)
    if local_path(table.location) is None and datasets.is_at_hand(table):
        with suppress(PermissionDeniedError):
            await datasets.tidy(table)
