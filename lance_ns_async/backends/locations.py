"""Where a table goes that is declared without a location."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from lance_ns_async.model import TableId


def default_location(root: str | None, id: TableId) -> str:
    """`{root}/{namespace levels}/{table}` as a URI; a root without scheme is a local path, None the working one."""
    if root is not None and "://" in root:
        base = root.rstrip("/")
    else:
        base = Path(root or ".").resolve().as_uri()
    return "/".join((base, *(segment(name) for name in id)))


def segment(name: str) -> str:
    """The name as one path segment that no reader of URIs decodes: odd characters become `~` and two digits.

    Percent-encoding would not do: where a location is decoded, `..%2F..` leaves the root.
    """
    if name in (".", ".."):
        return name.replace(".", "~2E")
    return quote(name, safe="").replace("~", "%7E").replace("%", "~")
