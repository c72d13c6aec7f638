"""Where a table goes that is declared without a location."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def default_location(root: str | None, id: TableId) -> str:
    """`{root}/{namespace levels}/{table}` as a URI; a root without scheme is a local path, None the working one."""
    if root is not None and "://" in root:
        base = root.rstrip("/")
    elif root is not None and _SCHEME.match(root):
        raise InvalidInputError(
            f"root {root!r}: a URI goes on with two slashes, as in file:///data or s3://bucket/data"
        )
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
