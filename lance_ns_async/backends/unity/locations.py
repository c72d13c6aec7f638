"""Table locations of Unity Catalog: validation and normalization."""

from __future__ import annotations

import re
from os.path import isabs
from pathlib import Path

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId

SCHEMES = ("file", "s3", "gs", "abfss")
"""The URI schemes that the server accepts, in lower case only, and that Lance can open."""

_LONGEST = 2048
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def normalize_location(id: TableId, raw: str) -> str:
    """Returns the location in the form that the server accepts, which is always a URI.

    Args:
        raw: A URI, or an absolute local path.
    """
    if not raw:
        raise _location_error(id, raw, "is empty; omit it for the default location")
    scheme = _SCHEME.match(raw)
    if not scheme and not isabs(raw):
        raise _location_error(id, raw, "is relative; give an absolute path or a URI")
    location = raw if scheme else Path(raw).as_uri()
    if raw.startswith("s3a://"):
        location = f"s3://{raw.removeprefix('s3a://')}"
    elif scheme and scheme[1] not in SCHEMES:
        raise _location_error(id, raw, f"has the scheme {scheme[1]!r}; use one of {', '.join(SCHEMES)}")
    if re.match(r"file:[^/]", raw):
        raise _location_error(id, raw, "is a relative file URI; give an absolute one, file:///path")
    if any(c.isspace() or not c.isprintable() for c in location):
        raise _location_error(id, raw, "has a space or a control character; write it percent-encoded, a space as %20")
    if len(location) > _LONGEST:
        raise _location_error(id, f"{raw[:40]}...", f"has {len(location)} characters; at most {_LONGEST} are allowed")
    _, bucket, path = _parts(location)
    if not path or (not bucket and not location.startswith("file:")):
        raise _location_error(id, raw, "has no bucket, or no path in it; give both, e.g. s3://bucket/tables/t.lance")
    return location


def stored_location(location: str) -> str:
    """Returns the normalized form in which the server stores a location."""
    scheme, bucket, path = _parts(location)
    return f"{scheme}://{'' if scheme == 'file' else bucket}/{path}"


def _parts(location: str) -> tuple[str, str, str]:
    """Returns scheme, bucket and path, with dot segments resolved."""
    scheme, _, rest = location.partition(":")
    bucket, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in ("", "."):
            names.append(name)
    return scheme, bucket, "/".join(names)


def _location_error(id: TableId, location: str, why: str) -> InvalidInputError:
    return InvalidInputError(f"table {id}: its location {location!r} {why}")
