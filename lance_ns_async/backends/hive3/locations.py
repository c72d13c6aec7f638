"""Locations: defaults of new catalogs and tables, the form that Hive stores, and folders that the client creates."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress

from lance_namespace.errors import PermissionDeniedError

from lance_ns_async.model import NamespaceId, Table, TableId, local_path
from lance_ns_async.storage import datasets, dir_markers
from lance_ns_async.storage.locations import default_location
from lance_ns_async.storage.threads import in_thread

_SLASHES = re.compile(r"^file:/(?!/)")
_BEGINNING = re.compile(r"(?:[^/:]+:)?(?://[^/]*)?")


def default_catalog_location(root: str | None, id: NamespaceId) -> str:
    """Returns the default location of a new catalog: `{root}/{catalog}`."""
    return default_location(root, TableId([id.name.lower()]))


def default_table_location(root: str | None, id: TableId) -> str:
    """Returns the default location of a new table: `{root}/{database}.db/{table}`.

    In a catalog other than `hive`, it is below `{root}/{catalog}`.
    """
    *catalog, database, name = (level.lower() for level in id)
    below = (f"{database}.db", name)
    return to_hive(default_location(root, TableId(below if catalog == ["hive"] else (*catalog, *below))))


def from_hive(location: str) -> str:
    """Returns a location of a metastore in the usual form: `file:///x` for `file:/x`."""
    return _SLASHES.sub("file:///", location)


def to_hive(location: str) -> str:
    """Returns a location in the form in which it is read back: `file:///x`, and without a slash at the end."""
    return from_hive(location.rstrip("/") or "/")


def is_complete(location: str) -> bool:
    """Returns whether a server stores the location unchanged; it completes other paths with its own file system."""
    return "://" in location


def is_at(location: str, sent_location: str) -> bool:
    """Returns whether a server returns `location` for the location `sent_location`."""
    return location == sent_location if is_complete(sent_location) else path(location) == path(sent_location)


def path(location: str) -> str:
    """Returns the path of a location, without scheme and host."""
    return _BEGINNING.sub("", location, count=1)


async def make_folder(table: Table) -> Sequence[str]:
    """Creates the folder of a new table if possible; in an object store, writes the marker of a declared table.

    Returns:
        The new local folders, for `remove_folder`.

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


async def remove_folder(table: Table, new_folders: Sequence[str]) -> None:
    """Removes the folders or the marker of a table that could not be created, unless they are in use."""
    for folder in reversed(new_folders):
        with suppress(OSError):
            os.rmdir(folder)
    if local_path(table.location) is None and datasets.is_at_hand(table):
        with suppress(PermissionDeniedError):
            await datasets.tidy(table)
