"""Marker files of Lance's directory catalogs at the locations of tables that were only declared."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from lance_ns_async.model import local_path
from lance_ns_async.storage import files
from lance_ns_async.storage.lance_layout import DROP_NOTES

RESERVED_MARK, HIDDEN_MARK = ".lance-reserved", ".lance-deregistered"
"""The markers of a reserved name and of a hidden table."""

DROPPED = ".lance-ns-dropped-"
"""Prefix of the names to which a directory catalog renames the folders of dropped tables, before it deletes them."""

_DRAFT = "lance-marker.staging."  # Prefix of a marker that pylance is writing; it remains if the process is killed.


def is_marker(name: str) -> bool:
    """Returns whether a file in a table's folder is a marker, complete or not."""
    return name in (RESERVED_MARK, HIDDEN_MARK) or name.startswith((_DRAFT, f"{DROP_NOTES}/"))


def reserve(location: str, options: Mapping[str, str] | None) -> None:
    """Writes the marker of a declared table if there are no files. Blocks."""
    session = files.open_files(location, options)
    if not session.list():
        with tempfile.NamedTemporaryFile(prefix="lance-reserved-") as empty:
            session.upload_file(empty.name, RESERVED_MARK)


def remove(location: str, options: Mapping[str, str] | None) -> None:
    """Removes the markers if there are no other files, and empty local folders. Blocks.

    A location that ends with `.lance` is determined by the table's name, so another client may have declared the same
    table. Its markers are removed only if the table is hidden.
    """
    session = files.open_files(location, options)
    paths = set(session.list())
    if all(map(is_marker, paths)) and (HIDDEN_MARK in paths or not location.endswith(".lance")):
        for mark in sorted(paths, reverse=True):
            files.delete(session, mark)
    _remove_empty_folders(location)


def is_only_declared(path: str) -> bool:
    """Returns whether a local folder has only the markers of a table and no written data. Blocks."""
    others = {name for name in os.listdir(path) if not is_marker(name)}
    return others <= {"data"} and not _has_files(os.path.join(path, "data"))


def clear(location: str, options: Mapping[str, str] | None) -> bool:
    """Removes a hidden table to which nothing was written; returns whether there was one.

    Blocks.
    """
    session = files.open_files(location, options)
    paths = set(session.list())
    if HIDDEN_MARK not in paths or not all(is_marker(it) or it.startswith("data/.tmp") for it in paths):
        return False
    for path in sorted(paths, reverse=True):
        files.delete(session, path)
    # Below a root, pylance treats even an empty folder as a table.
    _remove_empty_folders(location)
    return True


def _has_files(path: str) -> bool:
    return os.path.isdir(path) and bool(os.listdir(path))


def _remove_empty_folders(location: str) -> None:
    if (path := local_path(location)) is not None:
        for folder in (os.path.join(path, "data"), os.path.join(path, DROP_NOTES), path):
            # The folder may contain files that other clients are writing.
            with suppress(OSError):
                os.rmdir(folder)
