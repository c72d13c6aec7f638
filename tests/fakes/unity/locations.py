"""The storage locations that a Unity Catalog server accepts, and their stored form."""

from __future__ import annotations

import os
import re
from typing import Any

from .errors import internal, invalid

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)
_OUT_OF_URIS = re.compile(r'["<>\\^`{|}]|%(?![0-9a-fA-F]{2})')
_CLOUDS = {"s3", "gs", "abfs", "abfss"}


def normalised(location: Any) -> str:
    """Returns the location as it is stored."""
    if location is None:
        raise internal("Cannot invoke String.length() because storage_location is null")
    if not location:
        raise invalid("Path cannot be null or empty")
    if " " in location:
        raise invalid(f"Unsupported path: {location}")
    if result := _OUT_OF_URIS.search(location):
        raise invalid(f"Unsupported path: {location} ({result[0]!r})")
    scheme, rest = _split(location)
    if scheme == "file":
        stored = "file://" + _resolved(_local_path(rest))
    elif scheme in _CLOUDS:
        stored = _in_cloud(location, scheme, rest)
    else:
        raise invalid(f"Unsupported URI scheme: {scheme}")
    if len(location) > 2048:
        raise internal("Value too long for column: CHARACTER VARYING(2048)")
    return stored


def _split(location: str) -> tuple[str, str]:
    result = _SCHEME.fullmatch(location)
    return (result[1], result[2]) if result else ("file", location)


def _local_path(rest: str) -> str:
    if rest.startswith("//"):
        # The host becomes the first folder, even if it is localhost.
        return rest[1:]
    # A relative path is below the working directory of the server.
    return os.path.join(os.getcwd(), rest)


def _in_cloud(location: str, scheme: str, rest: str) -> str:
    bucket, _, path = rest.removeprefix("//").partition("/")
    inside = _resolved(path, is_uri=True)
    if inside == "/":
        raise invalid(f"External table storage location must include a non-empty path prefix: {location}")
    return f"{scheme}://{bucket}{inside}"


def _resolved(path: str, *, is_uri: bool = False) -> str:
    """Returns the path without dot segments; a URI keeps those that lead above its root."""
    kept: list[str] = []
    for part in path.split("/"):
        if part == ".." and is_uri and all(it == ".." for it in kept):
            kept.append(part)
        elif part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return "/" + "/".join(kept)
