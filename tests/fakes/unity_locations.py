"""The storage locations a Unity Catalog server takes, and how it keeps them."""

from __future__ import annotations

import os
import re
from typing import Any

from .unity_errors import internal, invalid

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)
_CLOUDS = {"s3", "gs", "abfs", "abfss"}


def normalised(location: Any) -> str:
    """The location as it is stored."""
    if location is None:
        raise internal("Cannot invoke String.length() because storage_location is null")
    if not location:
        raise invalid("Path cannot be null or empty")
    if " " in location:
        raise invalid(f"Unsupported path: {location}")
    scheme, rest = _split(location)
    if scheme == "file":
        stored = "file://" + _resolved(_without_host(rest))
    elif scheme in _CLOUDS:
        stored = _in_cloud(location, scheme, rest)
    else:
        raise invalid(f"Unsupported URI scheme: {scheme}")
    if len(location) > 2048:
        raise internal("Value too long for column: CHARACTER VARYING(2048)")
    return stored


def _split(location: str) -> tuple[str, str]:
    found = _SCHEME.fullmatch(location)
    return (found[1], found[2]) if found else ("file", location)


def _without_host(rest: str) -> str:
    if rest.startswith("//"):
        _, _, path = rest[2:].partition("/")
        return f"/{path}"
    # A relative path lies below the directory the server was started in.
    return os.path.join(os.getcwd(), rest)


def _in_cloud(location: str, scheme: str, rest: str) -> str:
    bucket, _, path = rest.removeprefix("//").partition("/")
    inside = _resolved(path)
    if inside == "/":
        raise invalid(f"External table storage location must include a non-empty path prefix: {location}")
    return f"{scheme}://{bucket}{inside}"


def _resolved(path: str) -> str:
    kept: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    return "/" + "/".join(kept)
