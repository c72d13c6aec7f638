"""Default locations of new catalogs and tables, and conversion between locations and the form that Hive stores."""

from __future__ import annotations

import re

from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.storage.locations import default_location

_SLASHES = re.compile(r"^file:/(?!/)")
_BEGINNING = re.compile(r"(?:[^/:]+:)?(?://[^/]*)?")


def default_catalog_location(root: str | None, id: NamespaceId) -> str:
    """Returns the default location of a new catalog: `{root}/{catalog}`."""
    return default_location(root, TableId([id.name.lower()]))


def default_table_location(root: str | None, id: TableId) -> str:
    """Returns the default location of a new table: `{root}/{database}.db/{table}`.

    In a catalog other than `hive`, it is below `{root}/{catalog}`.
    """
    *catalog, database, name = (level.lower() for level in id)
    below = (f"{database}.db", name)
    return to_hive(default_location(root, TableId(below if catalog == ["hive"] else (*catalog, *below))))


def from_hive(location: str) -> str:
    """Returns a location of a metastore in the usual form: `file:///x` for `file:/x`."""
    return _SLASHES.sub("file:///", location)


def to_hive(location: str) -> str:
    """Returns a location in the form in which it is read back: `file:///x`, and without a slash at the end."""
    return from_hive(location.rstrip("/") or "/")


def is_complete(location: str) -> bool:
    """Returns whether a server stores the location unchanged; it completes other paths with its own file system."""
    return "://" in location


def is_at(location: str, sent_location: str) -> bool:
    """Returns whether a server returns `location` for the location `sent_location`."""
    return location == sent_location if is_complete(sent_location) else path(location) == path(sent_location)


def path(location: str) -> str:
    """Returns the path of a location, without scheme and host."""
    return _BEGINNING.sub("", location, count=1)
