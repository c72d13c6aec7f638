"""Files below a location, by their paths relative to it. Everything here blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def open_session(location: str, options: Mapping[str, str] | None) -> Any:
    """Returns pylance's access to the files below a location, with the storage options that it takes."""
    from lance.file import LanceFileSession

    return LanceFileSession(location, storage_options=dict(options or {}) or None)


def delete(session: Any, path: str) -> None:
    """Deletes a file that may be gone already."""
    try:
        session.delete_file(path)
    except OSError:
        # A missing file is told only by the text of the error, which differs between storages.
        if session.contains(path):
            raise


def download(session: Any, path: str, to: str) -> bool:
    """Copies a file to a local path; returns False where there is none."""
    try:
        session.download_file(path, to)
    except OSError:
        if session.contains(path):
            raise
        return False
    return True
