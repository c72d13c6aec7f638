"""Table locations in a directory catalog: relative paths, their validation, and their URIs.

A place is the location of a table, relative to the root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from posixpath import normpath
from urllib.parse import quote, unquote

from lance_ns_async.backends.directory.manifest import MANIFEST
from lance_ns_async.storage.dir_markers import DROPPED
from lance_ns_async.storage.lance_layout import FOLDERS

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<host>[^/]*)(?P<path>.*)", re.DOTALL)
_LOCAL = ("file", "file+uring", "file-object-store")
_PLAIN = "!$&'()*+,-./:;=@[]^_|~"
"""Characters that pylance does not percent-encode in the path of a URI, besides letters and digits."""

_USUAL = re.compile(r"(?!__)[A-Za-z0-9_][A-Za-z0-9_$. -]*")
"""Relative locations that need no normalization and no further checks."""

OF_LANCE = FOLDERS | {".lance-reserved", ".lance-deregistered", "_latest.manifest"}
"""The names that Lance uses in the folder of a table."""


class OutsideError(ValueError):
    """A location that is invalid for a table.

    The text gives the reason as a verb phrase, to be placed after the location in a message.
    """


@dataclass(frozen=True, slots=True)
class RootNames:
    """The symbolic links at a local root, read once for many tables."""

    links: Collection[str] = ()
    """Names of symbolic links."""
    folders: dict[str, str] = field(default_factory=dict)
    """Paths of folders with their real paths, so that each folder is resolved once."""


class TableLocations:
    """The root of a catalog, and the table locations below it."""

    def __init__(self, root: str) -> None:
        uri = _URI.fullmatch(root)
        self.root = root
        """A path or a URI, without a trailing slash."""
        self.local: str | None = root if uri is None else None
        """The path of the root in the local file system; None for an object store."""
        if uri is not None and uri["scheme"].lower() in _LOCAL:
            self.local = unquote(uri["path"]) or "/"
        self._base = f"file://{quote(root, safe=_PLAIN)}" if uri is None else quote(root, safe=f"{_PLAIN}%")

    def uri(self, place: str) -> str:
        """Returns the URI of a table, spelled as pylance does."""
        return f"{self._base.rstrip('/')}/{quote(place, safe=_PLAIN)}"

    def at_root(self, name: str) -> str:
        """Returns the location of a table at the root, spelled as pylance does."""
        return f"{self.root.rstrip('/')}/{name}.lance"

    def path(self, place: str) -> str:
        """Returns the local path of a relative location; requires a local root."""
        return os.path.join(self.local or "", place)

    def has_files(self, place: str) -> bool:
        """Returns whether there may be files at a relative location; in an object store, without looking."""
        return self.local is not None and os.path.lexists(self.path(place))

    def relative(self, location: str) -> str:
        """Returns a location relative to the root; raises OutsideError if it is not inside the root."""
        if not location.strip():
            raise OutsideError("is empty; omit it for the catalog's default location")
        if not _URI.match(location) and not location.startswith("/"):
            return inside(location)
        path, roots = self._comparable(location)
        for root in roots:
            if path is not None and path.startswith(f"{root.rstrip('/')}/"):
                return inside(path[len(root.rstrip("/")) + 1 :])
        raise OutsideError(f"is not inside {self.masked_root}")

    def can_contain(self, folder: str) -> bool:
        """Returns whether some of the places below a folder can be inside the root; `folder` is a path or a URI."""
        path, roots = self._comparable(folder)
        return path is not None and any(is_within(path, root) or is_within(root, path) for root in roots)

    def _comparable(self, location: str) -> tuple[str | None, Collection[str]]:
        """Returns the path of a location and those of the root; None if the location is in another storage."""
        if self.local is None:
            return unquote(location), {unquote(self.root)}
        uri = _URI.fullmatch(location)
        is_foreign = uri is not None and (uri["scheme"].lower() not in _LOCAL or uri["host"] not in ("", "localhost"))
        path = None if is_foreign else normpath(unquote(uri["path"]) if uri is not None else location)
        return path, {normpath(self.local), os.path.realpath(self.local)}

    def normalize(self, place: str, names: RootNames | None = None) -> str:
        """Returns a relative location in normalized form.

        Args:
            names: The names at the root, which save file-system accesses; None reads what is needed.
        """
        place = inside(place)
        if self.local is None:
            return place
        top, _, rest = place.partition("/")
        if not rest and not (top in names.links if names is not None else os.path.islink(self.path(top))):
            return place
        root = _real_folder(self.local, names)
        real, manifest = self._real_path(place, names), _real_folder(os.path.join(root, MANIFEST), names)
        if real == root or not is_within(real, root):
            raise OutsideError(f"leads out of {self.masked_root} by a symbolic link")
        if is_within(real, manifest) or is_within(manifest, real):
            raise OutsideError(f"leads to the catalog's own table {MANIFEST} by a symbolic link")
        return place

    def real(self, place: str, names: RootNames) -> str:
        """Returns a relative location with symbolic links resolved, relative to the root."""
        if self.local is None or ("/" not in place and place not in names.links):
            return place
        real, root = self._real_path(place, names), _real_folder(self.local, names)
        inner = f"{root.rstrip('/')}/"
        return real[len(inner) :] if real.startswith(inner) else os.path.relpath(real, root)

    def _real_path(self, place: str, names: RootNames | None) -> str:
        path = self.path(place)
        if names is None:
            return os.path.realpath(path)
        folder, name = os.path.split(path)
        path = os.path.join(_real_folder(folder, names), name)
        return os.path.realpath(path) if os.path.islink(path) else path

    def read_names(self) -> RootNames:
        """Reads the names at a local root; returns no names for an object store."""
        if self.local is None or not os.path.isdir(self.local):
            return RootNames()
        with os.scandir(self.local) as entries:
            return RootNames({entry.name for entry in entries if entry.is_symlink()})

    @property
    def masked_root(self) -> str:
        """The root for messages, without secrets."""
        return masked_uri(self.root)


def _real_folder(path: str, names: RootNames | None) -> str:
    if names is None:
        return os.path.realpath(path)
    if (real := names.folders.get(path)) is None:
        real = names.folders[path] = os.path.realpath(path)
    return real


def inside(place: str) -> str:
    """Returns a relative location in normalized form; raises OutsideError if it is invalid for a table."""
    if _USUAL.fullmatch(place):
        return place
    if place.startswith("/") or _URI.match(place):
        raise OutsideError("is not relative to the root")
    if place and not place.strip():
        raise OutsideError("is blank")
    segments = [segment for segment in place.split("/") if segment not in ("", ".")]
    for segment in segments:
        # The location must stay the same however often a reader of the URI percent-decodes it.
        text, last = segment, ""
        while text != last:
            text, last = unquote(text), text
            if text in (".", "..") or (text != segment and "/" in text):
                raise OutsideError("has dot segments; write it without '.' and '..'")
        if not text.isprintable():
            raise OutsideError("has characters that are not printable")
    if not segments:
        raise OutsideError("is the root of the catalog itself")
    if segments[0].casefold() == MANIFEST or segments[0].startswith(DROPPED):
        raise OutsideError(f"is where the catalog keeps its own files ({segments[0]})")
    return "/".join(segments)


def is_within(place: str, outer: str) -> bool:
    """Returns whether a path equals the other path or is inside it."""
    return f"{place.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")


def is_file_of(place: str, table: str) -> bool:
    """Returns whether a relative location is among the files that Lance writes for a table at another location."""
    return place != table and is_within(place, table) and place[len(table) + 1 :].partition("/")[0] in OF_LANCE


def masked_uri(root: str) -> str:
    """Returns a path or URI for messages, with user, password and query of the URI masked."""
    uri = _URI.fullmatch(root)
    if uri is None:
        return root
    user, at, host = uri["host"].rpartition("@")
    # In abfss://container@account, the part before the @ is no secret.
    if at and (":" in user or not uri["scheme"].startswith("abfs")):
        user = "***"
    host = f"{user}{at}{host}"
    path, mark, _ = uri["path"].partition("?")
    return f"{uri['scheme']}://{host}{path}{mark and '?***'}"
