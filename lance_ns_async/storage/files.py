"""Files below a location, by their relative paths. All functions block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def open_files(location: str, options: Mapping[str, str] | None) -> Any:
    """Returns pylance's access to the files below a location, with the given storage options."""
    from lance.file import LanceFileSession

    return LanceFileSession(location, storage_options=dict(options or {}) or None)


def delete(session: Any, path: str) -> None:
    """Deletes a file; a missing file is not an error."""
    try:
        session.delete_file(path)
    except OSError:
        # Only the text of the error says that a file is missing, and it differs between storages.
        if session.contains(path):
            raise


def download(session: Any, path: str, to: str) -> bool:
    """Copies a file to a local path; returns False if the file does not exist."""
    try:
        session.download_file(path, to)
    except OSError:
        if session.contains(path):
            raise
        return False
    return True
