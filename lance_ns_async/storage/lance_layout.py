"""Lance's own layout: the names of the folders and files below the location of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable

VERSIONS = "_versions"  # The manifests of the versions.
DATA = "data"
BRANCHES = "tree"  # The branches, each with folders of its own.

DROP_NOTES = ".lance-ns-dropped"
"""The folder, in that of a table, with the files of drops that can be taken back; this package's own."""

PARTS = frozenset({VERSIONS, "_transactions", "_deletions", "_indices", "_refs"})
"""The folders that only Lance writes."""

FOLDERS = PARTS | {DATA, BRANCHES}
"""All folders of a table."""

UNIQUE_NAMES = (f"{DATA}/", "_transactions/", "_deletions/", "_indices/")
"""Beginnings of the paths of files whose names no later table uses."""

_DATA_FILE = re.compile(rf"{DATA}/(\.tmp.*|[^/]*\.lance|\.[^/]*#\d+|[^/]*\.lance#\d+)")

_VERSION = re.compile(f"{VERSIONS}/")


def is_data_file(path: str) -> bool:
    """Returns whether Lance wrote a data file; also an unfinished one of a writer that died, such as `x.lance#1`."""
    return _DATA_FILE.fullmatch(path) is not None


def has_manifest(paths: Iterable[str]) -> bool:
    """Returns whether there is a version, committed or not, among the files of a table."""
    return any(map(_VERSION.match, paths))
