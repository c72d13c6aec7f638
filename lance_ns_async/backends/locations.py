"""Where tables go that are declared without a location: below a root, which is a property."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, unquote

from pydantic import AfterValidator

from lance_ns_async.model import TableId

SCHEMES = (
    *("s3", "s3+ddb", "gs", "az", "abfss", "oss", "cos", "tos", "hf", "goosefs"),
    *("file", "file+uring", "file-object-store", "memory", "shared-memory"),
)
"""All that Lance knows."""

_LOCAL = ("file", "file+uring", "file-object-store")
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>//)?(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)
"""A scheme has two letters or more: one is a drive."""


def checked_root(value: str, *, also: Collection[str] = ()) -> str:
    """The root as it was given; ValueError for one that cannot be meant. `also` are schemes beside those of Lance."""
    if not value.strip():
        raise ValueError("it is empty; give a path, or a URI such as s3://bucket/data")
    if (path := _local_path(value, {*SCHEMES, *also})) is not None:
        found = next((place for place in (path, *path.parents) if os.path.exists(place)), None)
        if found is not None and not os.path.isdir(found):
            raise ValueError(f"{found} is a file, not a directory")
    return value


def _local_path(root: str, schemes: Collection[str]) -> Path | None:
    """Where it is in the file system, if it is there; ValueError for a URI that leads nowhere."""
    uri = _URI.fullmatch(root)
    scheme = uri["scheme"].lower() if uri else ""
    if uri is None or not (uri["slashes"] or scheme in schemes or not uri["host"]):
        return Path(os.path.abspath(os.path.expanduser(root)))
    if not uri["slashes"]:
        raise ValueError("a URI goes on with two slashes, as in file:///data or s3://bucket/data")
    if scheme not in schemes:
        near = get_close_matches(scheme, schemes, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else f"Lance knows {', '.join(SCHEMES)}"
        raise ValueError(f"unknown scheme {scheme!r}, {hint}")
    if scheme in _LOCAL:
        if uri["host"] not in ("", "localhost"):
            raise ValueError("a URI of local files goes on with three slashes, as in file:///data")
        return Path(unquote(uri["path"]) or "/")
    if not uri["host"] and not scheme.endswith("memory"):
        raise ValueError("it names no bucket; write e.g. s3://bucket/data")
    return None


Root = Annotated[str, AfterValidator(checked_root)]
"""A directory, which need not exist yet: a local path, or a URI of a storage that Lance knows."""


def default_location(root: str | None, id: TableId) -> str:
    """`{root}/{namespace levels}/{table}` as a URI; a root without scheme is a local path, None the working one."""
    if root is not None and "://" in root:
        base = root.rstrip("/")
    else:
        base = Path(root or ".").expanduser().resolve().as_uri()
    return "/".join((base, *(segment(name) for name in id)))


def segment(name: str) -> str:
    """The name as one path segment that no reader of URIs decodes: odd characters become `~` and two digits.

    Percent-encoding would not do: where a location is decoded, `..%2F..` leaves the root.
    """
    if name in (".", ".."):
        return name.replace(".", "~2E")
    return quote(name, safe="").replace("~", "%7E").replace("%", "~")
