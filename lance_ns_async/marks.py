"""What Lance's directory catalogs leave at the place of a table that was declared, and then is none any more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

MARKS = frozenset({".lance-reserved", ".lance-deregistered"})
"""The files by which they know that a name is taken, or hidden."""


def remove(location: str, options: Mapping[str, str] | None) -> None:
    """Removes the marks where nothing else is, and local folders with nothing in them. Blocks."""
    from lance.file import LanceFileSession

    session: Any = LanceFileSession(location, storage_options=dict(options or {}) or None)
    found = session.list()
    if MARKS.issuperset(found):
        for mark in found:
            session.delete_file(mark)
    sweep(location)


def sweep(location: str) -> None:
    """Removes local folders with nothing in them, for directory catalogs take them for tables. Blocks."""
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
