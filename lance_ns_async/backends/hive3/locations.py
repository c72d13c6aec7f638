"""Locations in a Hive Metastore, which does not keep them as they are written."""

from __future__ import annotations

import re

_SLASHES = re.compile(r"^file:/(?!/)")
_BEGINNING = re.compile(r"(?:[^/:]+:)?(?://[^/]*)?")


def from_hive(location: str) -> str:
    """A location as others write it: metastores give `file:/x` for `file:///x`."""
    return _SLASHES.sub("file:///", location)


def to_hive(location: str) -> str:
    """A location as the server will give it back: metastores keep neither a slash at the end nor `file:/x`."""
    return from_hive(location.rstrip("/") or "/")


def is_complete(place: str) -> bool:
    """Whether a place is kept as it was sent; a server completes others by its own file system."""
    return "://" in place


def is_at(location: str, place: str) -> bool:
    """Whether a location is what the server makes of a place that it was sent."""
    return location == place if is_complete(place) else path(location) == path(place)


def path(location: str) -> str:
    """A location without scheme and host."""
    return _BEGINNING.sub("", location, count=1)
