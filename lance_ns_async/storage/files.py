"""Files below a location, by their relative paths. All functions block."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_DIRECT = r"(?!\.\.?(?:/|$))[A-Za-z0-9_.= !$&'()+,:;@-]+"
DIRECT_PATH: re.Pattern[str] = re.compile(f"(?:{_DIRECT}(?:/{_DIRECT})*)?")
"""Paths that pylance looks up as they are; it would encode other characters in a path, but not in a URI."""

_BUCKET = re.compile(r"((?:s3|gs|az)://[a-z0-9._-]+)/([^ ]+?)/?")
"""URIs of stores whose authority is the bucket or container alone."""

_CONFIGURED = ("AWS_", "GOOGLE_", "AZURE_")  # The beginnings of the variables that configure the stores.


def open_files(location: str, options: Mapping[str, str] | None) -> Any:
    """Returns pylance's access to the files below a location, with the given storage options.

    Locations in one bucket share their connections: each access of its own takes 8 ms, and a TLS handshake.
    """
    if (bucket := _BUCKET.fullmatch(location)) is None or DIRECT_PATH.fullmatch(bucket[2]) is None:
        return _open(location, options)
    variables = frozenset((name, value) for name, value in os.environ.items() if name.startswith(_CONFIGURED))
    return _FilesBelow(_bucket(bucket[1], frozenset((options or {}).items()), variables), bucket[2])


def _open(location: str, options: Mapping[str, str] | None) -> Any:
    from lance.file import LanceFileSession

    return LanceFileSession(location, storage_options=dict(options or {}) or None)


@lru_cache(maxsize=16)
def _bucket(uri: str, options: frozenset[tuple[str, str]], _: frozenset[tuple[str, str]]) -> Any:
    return _open(f"{uri}/", dict(options))


if hasattr(os, "register_at_fork"):
    # Two processes must not use one connection.
    os.register_at_fork(after_in_child=_bucket.cache_clear)


class _FilesBelow:
    """The part of pylance's access to a bucket that is below a path."""

    def __init__(self, bucket: Any, path: str) -> None:
        self._bucket = bucket
        self._prefix = f"{path}/"

    def list(self, path: str | None = None) -> list[str]:
        return [self._relative(it) for it in self._bucket.list(self._at(path))]

    def list_with_delimiter(self, path: str | None = None) -> Any:
        result = self._bucket.list_with_delimiter(self._at(path))
        return type(result)([*map(self._relative, result.common_prefixes)], [*map(self._relative, result.objects)])

    def contains(self, path: str) -> bool:
        found: bool = self._bucket.contains(self._at(path))
        return found

    def delete_file(self, path: str) -> None:
        self._bucket.delete_file(self._at(path))

    def download_file(self, path: str, to: str) -> None:
        self._bucket.download_file(self._at(path), to)

    def upload_file(self, local: str, path: str) -> None:
        self._bucket.upload_file(local, self._at(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        content: bytes = self._bucket.read_range(self._at(path), start, length)
        return content

    def _at(self, path: str | None) -> str:
        return self._prefix + (path or "")

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._prefix)


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
