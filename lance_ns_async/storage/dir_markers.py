"""What Lance's directory catalogs leave at the place of a table that was declared, and then is none any more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from lance_ns_async.storage import files

_RESERVED, HIDDEN = ".lance-reserved", ".lance-deregistered"
"""The files by which they know that a name is taken, and that it is hidden."""


def remove(location: str, options: Mapping[str, str] | None) -> None:
    """Removes the marks where nothing else is, and local folders with nothing in them. Blocks.

    At a root, where a name is a place, they stay unless it is hidden: somebody else may have declared it.
    """
    session = files.open_session(location, options)
    found = set(session.list())
    if found <= {_RESERVED, HIDDEN} and (HIDDEN in found or not location.endswith(".lance")):
        for mark in sorted(found, reverse=True):
            files.delete(session, mark)
    _remove_empty_folders(location)


def is_only_declared(path: str) -> bool:
    """Returns whether a local folder has the marks of a table, and nothing that was written to it. Blocks."""
    return set(os.listdir(path)) <= {_RESERVED, HIDDEN, "data"} and not _has_files(os.path.join(path, "data"))


def clear(location: str, options: Mapping[str, str] | None) -> bool:
    """Removes a hidden table to which nothing was written, if there is one; tells whether.

    Blocks.
    """
    session = files.open_session(location, options)
    found = set(session.list())
    if HIDDEN not in found or any(it not in (_RESERVED, HIDDEN) and not it.startswith("data/.tmp") for it in found):
        return False
    for path in sorted(found, reverse=True):
        files.delete(session, path)
    # For pylance, a folder is a table at the root, even one with nothing in it.
    _remove_empty_folders(location)
    return True


def _has_files(path: str) -> bool:
    return os.path.isdir(path) and bool(os.listdir(path))


def _remove_empty_folders(location: str) -> None:
    if (path := local_path(location)) is not None:
        for folder in (os.path.join(path, "data"), path):
            # It may hold what others are about to write.
            with suppress(OSError):
                os.rmdir(folder)


def local_path(location: str) -> str | None:
    """The path of a location in the local file system; None for one that is elsewhere."""
    if location.startswith("file:"):
        return os.path.abspath(unquote(urlsplit(location).path))
    return None if "://" in location else os.path.abspath(location)


def same_place(one: str, other: str) -> bool:
    """Returns whether two spellings of a location mean the same place."""
    return _plain(one) == _plain(other)


def _plain(location: str) -> str:
    local = local_path(location)
    return location.rstrip("/") if local is None else f"file://{local}"
