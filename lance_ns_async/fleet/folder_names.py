"""Names of tables whose catalog was lost, by the folders in which they are.

Default locations end with random digits: `ns/orders-3f9a01c2b7d4` in most catalogs, `3f9a01c2_ns$orders` in a directory
catalog. Both are the table `orders` in the namespace `ns`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lance_ns_async.model import DELIMITER
from lance_ns_async.storage.locations import name_of_segment, without_suffix

_SUFFIX = ".lance"
_NESTED = re.compile(r"(?P<digits>[0-9a-f]{8})_(?P<id>[^/]+)")
"""The folder of a table in a namespace of a directory catalog, in pylance's form."""


def original_names(path: str) -> Sequence[str]:
    """Returns the levels and the name of the table for which a folder was probably made: without random digits.

    Args:
        path: The path of the folder, relative to the root of the lake.
    """
    *levels, folder = path.split("/")
    if (nested := _nested(folder)) is not None:
        return [*levels, *nested[1]]
    if not (stem := without_suffix(folder)):
        return folder_names(path)
    return [*map(name_of_segment, levels), name_of_segment(_without_end(stem))]


def folder_names(path: str) -> Sequence[str]:
    """Returns the levels and a name that is unique for each folder: with its random digits, but without `.lance`."""
    *levels, folder = path.split("/")
    if (nested := _nested(folder)) is not None:
        digits, (*inner, name) = nested
        return [*levels, *inner, f"{digits}_{name}"]
    return [*levels, _without_end(folder)]


def _nested(folder: str) -> tuple[str, Sequence[str]] | None:
    match = _NESTED.fullmatch(folder)
    names = [] if match is None else match["id"].split(DELIMITER)
    return (match["digits"], names) if match is not None and len(names) > 1 and all(names) else None


def _without_end(folder: str) -> str:
    return folder.removesuffix(_SUFFIX) or folder
