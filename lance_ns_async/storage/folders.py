"""Listings of folders, one level at a time, in the local file system and in object stores.

Object stores are listed by pylance, with the storage options of Lance: it needs no further library, and a listing costs
one request for each page, as with pyarrow and obstore.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import anyio
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError

from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.tasks import in_slices
from lance_ns_async.model import Table, TableId, local_path, place_of, same_place
from lance_ns_async.storage import files
from lance_ns_async.storage.locations import check_location, checked_root
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.threads import PATIENCE, Work, in_thread

T = TypeVar("T")

LISTINGS = 64
"""Maximum number of concurrent listings of one `Folders`."""

PAGE = 1_000
"""Number of entries in a page of the usual object stores."""

_PLAIN = "!$&'()*+,-./:;=@[]^_|~"
"""Characters that pylance does not percent-encode in the path of a URI, besides letters and digits."""


_LOCAL = "file://"  # The beginning of `place_of` for a location in the local file system.


@dataclass(frozen=True, slots=True)
class Folder:
    """The content of a folder."""

    folders: tuple[str, ...] = ()
    """Names of the folders in it, without symbolic links."""
    files: tuple[str, ...] = ()
    """Names of the files in it."""


class Folders:
    """The folders below a root.

    Args:
        root: A local path or a URI.
        options: Storage options, as for `lance.dataset`.
    """

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        try:
            checked_root(root)
        except ValueError as e:
            raise InvalidInputError(f"uri {root!r}: {e}") from e
        self._path = local_path(os.path.expanduser(root))
        is_uri = "://" in root
        self.root: str = root.rstrip("/") if is_uri or self._path is None else self._path
        if is_uri:
            check_location("uri", self.root if urlsplit(self.root).path else f"{self.root}/", folder=True)
        self._is_uri = is_uri
        self._options = options
        self._session: Any = None
        self._limiter = anyio.CapacityLimiter(LISTINGS)
        self.listings: int = 0
        """Number of listings so far."""
        self.pages: int = 0
        """Number of further pages of these listings, estimated by the number of entries."""

    def location(self, path: str) -> str:
        """Returns the location of a folder, by its path relative to the root."""
        if not path:
            return self.root
        return f"{self.root.rstrip('/')}/{quote(path, safe=_PLAIN) if self._is_uri else path}"

    async def list(self, path: str) -> Folder | None:
        """Returns the content of a folder, by its path relative to the root; None if it does not exist.

        In an object store, a folder without content does not exist.

        Cost:
            One request for each page of an object store.
        """
        self.listings += 1
        if self._path is not None:
            folder = await self._in_thread(path, partial(_list_local, os.path.join(self._path, path)))
        else:
            folder = await self._in_thread(path, partial(self._list_remote, path))
        if folder is not None:
            self.pages += max(0, len(folder.folders) + len(folder.files) - 1) // PAGE
        return folder

    def _list_remote(self, path: str) -> Folder | None:
        if files.DIRECT_PATH.fullmatch(path):
            if self._session is None:
                self._session = files.open_files(self.root, self._options)
            result = self._session.list_with_delimiter(path or None)
        else:
            result = files.open_files(self.location(path), self._options).list_with_delimiter()
        folders = tuple(prefix.rstrip("/").rpartition("/")[2] for prefix in result.common_prefixes)
        # An object with the name of the folder is a marker that some tools write.
        names = tuple(key.rpartition("/")[2] for key in result.objects if key.rstrip("/") != path)
        return Folder(folders, names) if result.common_prefixes or result.objects else None

    async def _in_thread(self, path: str, work: Callable[[], T]) -> T:
        left = remaining()
        location = self.location(path)
        place = Table(TableId([path or self.root]), location)

        def run() -> T:
            with translate_errors(place):
                return work()

        try:
            async with asyncio.timeout(PATIENCE if left is None else left):
                return await Work(location).run(run, self._limiter)
        except TimeoutError as e:
            raise ServiceUnavailableError(f"Service unavailable: the storage did not list {location} in time") from e


def _list_local(path: str) -> Folder | None:
    folders, names = [], []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif not entry.is_symlink():
                    names.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Folder(tuple(sorted(folders)), tuple(names))


def place_key(location: str) -> str:
    """Returns a text that is equal for all spellings of one location, also through links and mounts. Blocks."""
    place = place_of(location)
    if not place.startswith(_LOCAL):
        return place
    path = os.path.realpath(place.removeprefix(_LOCAL))
    try:
        folder = os.stat(path)
    except OSError:
        return _LOCAL + path
    # Some network file systems have no numbers of files.
    return f"{folder.st_dev}/{folder.st_ino}" if folder.st_ino else _LOCAL + path


async def place_keys(locations: Collection[str]) -> Sequence[str]:
    """Returns the `place_key` of each location; local ones are looked up in a thread."""
    keys = await in_slices(place_of, locations)
    if (one := next((location for location in locations if place_of(location).startswith(_LOCAL)), None)) is None:
        return keys
    return await in_thread(Table(TableId([one]), one), lambda: [place_key(location) for location in locations])


async def find_same_place(location: str, others: Collection[str]) -> str | None:
    """Returns the first of other locations that is the same place, also through links; None if there is none."""
    if not others:
        return None
    if (other := next((other for other in others if same_place(other, location)), None)) is not None:
        return other
    # Only a local location can be reached by links.
    candidates = [other for other in (location, *others) if place_of(other).startswith(_LOCAL)]
    if location not in candidates[:1]:
        return None
    key, *keys = await place_keys(candidates)
    return next((other for other, its in zip(candidates[1:], keys, strict=True) if its == key), None)
