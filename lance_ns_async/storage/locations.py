"""Locations of tables: checks of locations that are registered or deleted, and default locations below a root."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Annotated
from urllib.parse import quote, unquote

from lance_namespace.errors import InvalidInputError, InvalidTableStateError
from pydantic import AfterValidator

from lance_ns_async.errors import error_about, nearest, shortened, spelled, suggest
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.lance_layout import FOLDERS

SCHEMES = (
    *("s3", "s3+ddb", "gs", "az", "abfss", "oss", "cos", "tos", "hf", "goosefs"),
    *("file", "file+uring", "file-object-store", "memory", "shared-memory"),
)
"""All URI schemes that Lance supports."""

_LOCAL = ("file", "file+uring", "file-object-store")
_OTHERS = ("s3a", "s3n", "abfs", "wasb", "wasbs", "adl", "hdfs", "viewfs", "http", "https")
"""Schemes of other tools, at which a catalog may contain tables and namespaces."""

_LIKENESS = 0.75  # How similar a suggested scheme must be; short names are easily similar by accident.

_MAX_MESSAGE_LENGTH = 200
_MAX_LOCAL_NAME_BYTES = 255  # Maximum length in bytes of a name in the usual local file systems.
_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories of control characters, and of line and paragraph separators."""
_RELATIVE = "is relative, so that it depends on the working directory"

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>//)?(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)
"""A scheme has at least two letters; a single letter is a Windows drive."""


_DRIVE = re.compile("[A-Za-z]:")

_UNIQUE = re.compile(r"-[0-9a-f]{12}(?P<end>(\.lance)?)$")  # The random suffix of a unique location.

RESERVED_NAMES = FOLDERS | {"metadata"}
"""Names of the folders with the files of a table; `metadata` is that of its catalog."""


def checked_root(value: str, *, also: Collection[str] = ()) -> str:
    """Returns the root unchanged.

    Args:
        value: A path or a URI.
        also: URI schemes to accept in addition to those of Lance.
    """
    if not value.strip():
        raise ValueError("it is empty; use a path, or a URI such as s3://bucket/data")
    path = _local_path(value, (*SCHEMES, *also))
    uri = _URI.fullmatch(value)
    if "://" in value and uri is not None and (problem := _problem_of_root(uri)) is not None:
        # Tables below such a root could be declared, but not dropped.
        raise ValueError(f"it {problem}")
    if path is not None:
        ancestor = next((place for place in (path, *path.parents) if os.path.exists(place)), None)
        if ancestor is not None and not os.path.isdir(ancestor):
            raise ValueError(f"{ancestor} is a file, not a directory")
    return value


def _local_path(root: str, schemes: Collection[str]) -> Path | None:
    """Returns the path of a root in the local file system; None for other storages."""
    uri = _URI.fullmatch(root)
    scheme = uri["scheme"].lower() if uri else ""
    if uri is None or not (uri["slashes"] or scheme in schemes or not uri["host"]):
        return Path(os.path.abspath(os.path.expanduser(root)))
    if not uri["slashes"]:
        raise ValueError("a URI has two slashes after the colon, as in file:///data or s3://bucket/data")
    if scheme not in schemes:
        raise ValueError(f"unknown scheme {scheme!r}, {suggest(scheme, schemes, likeness=_LIKENESS)}")
    if scheme in _LOCAL:
        if uri["host"] not in ("", "localhost"):
            raise ValueError("a URI of local files has three slashes after the colon, as in file:///data")
        return Path(unquote(uri["path"]) or "/")
    if not uri["host"] and not scheme.endswith("memory"):
        raise ValueError("it has no bucket; write e.g. s3://bucket/data")
    return None


def check_location(
    what: str, location: str, *, relative: bool = False, folder: bool = False, also: Collection[str] = ()
) -> None:
    """Checks that a location is unambiguous and belongs to one table, because a drop deletes everything under it.

    It must mean the same for each reader, whatever its working directory and its URI parser. It must not be a whole
    bucket or file system.

    Args:
        what: The owner of the location, for the message.
        location: An absolute path or a URI, as a user wrote it.
        relative: Whether the catalog accepts relative locations, and resolves them against its own root.
        folder: Whether the location is a parent of tables, which may be a whole bucket, and may have any scheme,
            because tables of other formats can be there.
        also: URI schemes to accept in addition to those of Lance.
    """
    schemes = None if folder else (*SCHEMES, *also)
    if (problem := _problem(location, relative=relative, folder=folder, schemes=schemes)) is not None:
        text = shortened(location, _MAX_MESSAGE_LENGTH)
        raise InvalidInputError(f"{what}: its location {text!r} {problem}")


def check_deletable(table: Table) -> None:
    """Checks the location of a table before a drop; another tool may have registered a location that is not safe.

    An ambiguous location means different things to different readers, so that a drop could delete other data.
    """
    if (problem := _problem(table.location)) is not None:
        text = shortened(table.location, _MAX_MESSAGE_LENGTH)
        raise error_about(
            InvalidTableStateError,
            table.id,
            f"nothing was deleted, because its location "
            f"{text!r} {problem}; deregister the table, and register it at the location of its data",
        )


def check_writable(table: Table) -> None:
    """Checks that a table is not at a relative location, which only another tool can have registered.

    A relative location depends on the working directory, so that a change could affect other data.
    """
    if is_relative(table.location):
        text = shortened(table.location, _MAX_MESSAGE_LENGTH)
        raise error_about(
            InvalidTableStateError,
            table.id,
            f"nothing was changed, because its location "
            f"{text!r} {_RELATIVE}; register the table at the location of its data",
        )


def check_default(table: Table, catalog: str) -> None:
    """Checks the location that a server chose for a new table.

    Args:
        table: The table, as the server registered it.
        catalog: The name of the catalog, for the message.
    """
    if is_relative(table.location):
        text = shortened(table.location, _MAX_MESSAGE_LENGTH)
        parent = f"of namespace {spelled(table.id.parent)}" if table.id.parent else "of its root"
        raise error_about(
            InvalidTableStateError,
            table.id,
            f"{catalog} chose the location {text!r}, which "
            f"{_RELATIVE}; nothing was written; set an absolute location {parent} on the server, or give the table one",
        )


def is_relative(location: str) -> bool:
    """Returns whether a location is a path that depends on the working directory of its reader."""
    return _URI.fullmatch(location) is None and not os.path.isabs(location)


def _problem(
    location: str, *, relative: bool = False, folder: bool = False, schemes: Collection[str] | None = None
) -> str | None:
    """Returns the problem of a location, with what to write instead; None if it is allowed.

    Args:
        schemes: The allowed URI schemes; None for all, except for misspelled ones.
    """
    if not location.strip():
        return "is empty; omit it for the default location"
    if location != location.strip():
        return "begins or ends with white space; remove it"
    if not location.isascii() and any(unicodedata.category(character) == "Cs" for character in location):
        return "cannot be encoded as UTF-8; remove lone surrogates"
    if not location.isprintable() and any(unicodedata.category(it) in _CONTROLS for it in location):
        return "has a control character or a line separator; remove it"
    uri = _URI.fullmatch(location)
    if uri is not None:
        return _problem_of_uri(uri, folder, schemes)
    if is_relative(location):
        if not relative:
            return f"{_RELATIVE}; use a complete URI or an absolute path, such as s3://bucket/tables/t.lance"
        if location.startswith("~"):
            return "begins with '~', which some readers expand to a home directory; write that, or use another name"
        if _DRIVE.match(location):
            return "begins with a Windows drive, which other systems read as a folder name; use another name"
        return _problem_of_names(location, folder)
    path = os.path.splitdrive(location)[1].replace(os.sep, "/").removeprefix("/")
    return _problem_of_names(path, folder) or _problem_of_length(path)


def _problem_of_uri(uri: re.Match[str], folder: bool, schemes: Collection[str] | None) -> str | None:
    scheme, host, path = uri["scheme"], uri["host"] if uri["slashes"] else "", uri["path"]
    if not uri["slashes"]:
        # Without two slashes, only file:/x is allowed, which is another spelling of file:///x.
        if scheme != "file" or uri["host"] or not path:
            return "is not a complete URI; write two slashes after the colon, as in file:///data/t or s3://bucket/t"
    if scheme != scheme.lower():
        return f"has a scheme in upper case; write {scheme.lower()}:"
    if schemes is not None and scheme not in schemes:
        return f"has the scheme {scheme!r}, which Lance cannot open; {suggest(scheme, SCHEMES, likeness=_LIKENESS)}"
    if scheme not in (*SCHEMES, *_OTHERS):
        # Lance does not support other schemes, so that it cannot delete anything there.
        near = nearest(scheme, SCHEMES, likeness=_LIKENESS)
        return f"has the unknown scheme {scheme!r}; did you mean {near}?" if near else None
    if scheme in _LOCAL and host:
        return f"has the host {host!r}, which some readers ignore and others read as a folder; write file:///data/t"
    if scheme not in _LOCAL and not host and not scheme.endswith("memory"):
        return "has no bucket; write e.g. s3://bucket/tables/t.lance"
    if bad_mark := next((mark for mark in "?#\\" if mark in host + path), None):
        # URI parsers cut a location off at `?` and `#`, and some treat a backslash as a slash.
        return f"has the character {bad_mark!r}, which URI parsers do not read as part of a name; remove it"
    if scheme.endswith("memory"):
        # Memory storages have no buckets: the host is the first folder.
        path = host + path
    problem = _problem_of_names(path.removeprefix("/"), folder, encoded=True)
    return _problem_of_length(unquote(path)) if problem is None and scheme in _LOCAL else problem


def _problem_of_length(path: str) -> str | None:
    """Returns the problem of a local path with a name that no local file system accepts."""
    longest = max(map(len, path.encode().split(b"/")))
    if longest <= _MAX_LOCAL_NAME_BYTES:
        return None
    return f"has a name of {longest} bytes, and local file systems accept at most {_MAX_LOCAL_NAME_BYTES}; shorten it"


def _problem_of_names(path: str, folder: bool, *, encoded: bool = False) -> str | None:
    """Returns the problem of a path below the root of its storage; a slash at its end is allowed."""
    if folder and not path:
        return None
    if not path.strip("/"):
        return "is the root of its storage; use a folder in it for the table only"
    names = path.removesuffix("/").split("/")
    while True:
        if "" in names:
            return "has two slashes in a row, or three at its beginning; some catalogs and stores read them as one"
        if dots := next((name for name in names if name in (".", "..")), None):
            return f"has {dots!r} in its path; remove it"
        plain_names = [unquote(name) for name in names] if encoded else names
        if plain_names == names:
            return None
        if any(
            unicodedata.category(character) in _CONTROLS or character in "/\\" for character in "".join(plain_names)
        ):
            return "has a slash or a control character that is percent-encoded; remove it"
        # Some readers decode a name twice, so that a name encoded twice is checked, too.
        names = plain_names


def _problem_of_root(uri: re.Match[str]) -> str | None:
    if bad_mark := next((mark for mark in "?#\\" if mark in uri["host"] + uri["path"]), None):
        return f"has the character {bad_mark!r}, which URI parsers do not read as part of a name; remove it"
    return _problem_of_names(uri["path"].removeprefix("/"), folder=True, encoded=True)


Root = Annotated[str, AfterValidator(checked_root)]
"""A directory, which need not exist yet: a local path, or a URI of a storage that Lance supports."""


def root_uri(root: str | None) -> str:
    """Returns a root as a URI without a slash at its end, in the only spelling that all readers understand alike.

    Args:
        root: A URI or a local path; None means the working directory.
    """
    if root is None or "://" not in root:
        return Path(root or ".").expanduser().resolve().as_uri()
    scheme, _, rest = root.partition("://")
    scheme = scheme.lower()
    if scheme in _LOCAL and rest.startswith("localhost/"):
        rest = rest.removeprefix("localhost")
    return f"{scheme}://{rest.rstrip('/')}"


def default_location(root: str | None, id: TableId) -> str:
    """Returns `{root}/{namespace levels}/{table}` as a URI.

    Args:
        root: A URI or a local path; None means the working directory.
        id: The id of the table.
    """
    return "/".join((root_uri(root), *map(_level, id[:-1]), segment(id[-1])))


def unique_location(location: str) -> str:
    """Returns the location with a random suffix: `{root}/{namespace}/{table}-{12 hexadecimal digits}`.

    The name before the suffix is cut so that the whole folder name fits into a local file system.
    """
    stem = location.removesuffix(".lance")
    suffix = f"-{token_hex(6)}{location[len(stem) :]}"
    folder, slash, name = stem.rpartition("/")
    return f"{folder}{slash}{_cut(name, suffix)}"


def without_suffix(location: str) -> str | None:
    """Returns the location without the random suffix of `unique_location`; None if it has none."""
    match = _UNIQUE.search(location)
    return None if match is None else location[: match.start()] + location[match.start("end") :]


def location_beside(location: str) -> str:
    """Returns a location that was never used, beside an existing one, for another copy of its table."""
    return unique_location(without_suffix(location.rstrip("/")) or location.rstrip("/"))


def segment(name: str) -> str:
    """Returns the name as one path segment that no URI parser decodes: special characters become `~` and two digits.

    Percent-encoding is not safe: if a location is decoded, `..%2F..` leaves the root. A segment that is too long for a
    local file system is cut, and ends with `~_` and a digest of the name.
    """
    if name in (".", ".."):
        return name.replace(".", "~2E")
    text = quote(name, safe="").replace("~", "%7E").replace("%", "~")
    return text if len(text) <= _MAX_LOCAL_NAME_BYTES else _cut(text, f"~_{sha256(name.encode()).hexdigest()[:12]}")


def _cut(text: str, end: str) -> str:
    """Returns the text with this end, cut before it to the length of a local name, but not inside an escape."""
    room = _MAX_LOCAL_NAME_BYTES - len(end)
    return (text if len(text) <= room else re.sub("[~%].?$", "", text[:room])) + end


def name_of_segment(text: str) -> str:
    """Returns the name whose `segment` is this text; the text itself if it is no segment of another name."""
    name = unquote(text.replace("%", "%25").replace("~", "%"))
    return name if text in (segment(name), _level(name)) else text


def _level(name: str) -> str:
    """Returns the segment of a namespace level, which no unique location of a table can have."""
    text = segment(name)
    return text if (match := _UNIQUE.search(text)) is None else f"{text[: match.start()]}~2D{text[match.start() + 1 :]}"
