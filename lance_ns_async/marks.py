"""What Lance's directory catalogs leave at the place of a table that was declared, and then is none any more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

_RESERVED, _HIDDEN = ".lance-reserved", ".lance-deregistered"
"""The files by which they know that a name is taken, and that it is hidden."""


def remove(location: str, options: Mapping[str, str] | None) -> None:
    """Removes the marks where nothing else is, and local folders with nothing in them. Blocks.

    At a root, where a name is a place, they stay unless it is hidden: somebody else may have declared it.
    """
    from lance.file import LanceFileSession

    session: Any = LanceFileSession(location, storage_options=dict(options or {}) or None)
    found = set(session.list())
    if found <= {_RESERVED, _HIDDEN} and (_HIDDEN in found or not location.endswith(".lance")):
        for mark in sorted(found, reverse=True):
            session.delete_file(mark)
    if (path := local_path(location)) is not None:
        for folder in (os.path.join(path, "data"), path):
            # It may hold what others are about to write.
            with suppress(OSError):
                os.rmdir(folder)


def clear(location: str, options: Mapping[str, str] | None) -> bool:
    """Removes a hidden table to which nothing was written, if there is one; tells whether.

    Blocks.
    """
    from lance.file import LanceFileSession

    session: Any = LanceFileSession(location, storage_options=dict(options or {}) or None)
    found = set(session.list())
    if _HIDDEN not in found or any(it not in (_RESERVED, _HIDDEN) and not it.startswith("data/.tmp") for it in found):
        return False
    for path in sorted(found, reverse=True):
        session.delete_file(path)
    return True


def local_path(location: str) -> str | None:
    """The path of a location in the local file system; None for one that is elsewhere."""
    if location.startswith("file:"):
        return os.path.abspath(unquote(urlsplit(location).path))
    return None if "://" in location else os.path.abspath(location)
