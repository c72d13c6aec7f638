"""Locations that clients may name: below the folders of the catalog itself, and below allowed prefixes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lance_namespace import CreateNamespaceRequest
from lance_namespace.errors import InvalidInputError, PermissionDeniedError
from pydantic import BaseModel

from lance_ns_async.errors import shortened
from lance_ns_async.model import as_s3, local_path
from lance_ns_async.storage.locations import check_location, checked_root, is_relative

_TABLE_PLACES = ("location", "write.*path", "write.*location")
"""Names of table properties that hold locations, as shell patterns: Iceberg servers write files there."""

_NAMESPACE_PLACES = ("*location*",)  # Names of namespace properties that hold locations, as shell patterns.

_OPTION = re.compile(
    r"(aws|azure|google|gcs|gcp|oss|cos|tos|hf|goosefs|s3|adls|storage|headers?|client)[_.].*"
    r"|.*endpoint.*|.*proxy.*|.*authority.*|.*emulator.*|.*credentials.*|.*token_file|allow_(http|invalid_certificates)"
    r"|account(_name)?|bucket(_name)?|container(_name)?|service_account.*"
)
"""Storage options, in lower case, that name a place or an identity.

Glue, Polaris, Lakekeeper and REST servers use the properties of tables as storage options.
"""

_LONGEST_KEY = 1_000  # Maximum length of the key of a property, which is compared with the patterns above.

_REGIONS = ("region", "default_region")
_REGION = re.compile("[A-Za-z0-9-]*")
"""A region without special characters: other values would change the host name of the storage."""


class AllowedLocations:
    """The locations that clients of one gateway may name: below `own_folders` of the namespace, and below prefixes.

    Without prefixes (None), clients may name any location, and any storage options. Without a namespace (None), they
    may name only locations below the prefixes, and none in the folders of the catalog.
    """

    def __init__(self, namespace: object, prefixes: Iterable[str] | None) -> None:
        self._namespace = namespace
        self._prefixes = None if prefixes is None else tuple(map(_prefix, prefixes))

    async def check(self, request: BaseModel) -> None:
        """Checks everything in a request that names a place.

        A refusal accesses neither the catalog nor the storage at the place, and is the same whether or not the place
        exists. A namespace with an own folder may be read.
        """
        if self._prefixes is None:
            return
        if getattr(request, "storage_options", None):
            raise PermissionDeniedError(
                "Permission denied: storage_options (this server uses those of its catalog; omit them, or set "
                "storage.* properties of the catalog)"
            )
        # A commit of several operations contains whole requests.
        for operation in getattr(request, "operations", None) or ():
            for _, inner in operation:
                if isinstance(inner, BaseModel):
                    await self.check(inner)
        parent: Sequence[str] = (getattr(request, "id", None) or ())[:-1]
        if not isinstance(request, CreateNamespaceRequest):
            _check_options(getattr(request, "properties", None) or {})
        for what, place, is_folder in named_places(request):
            await self._check(what, place, parent, folder=is_folder)

    async def _check(self, what: str, location: str, parent: Sequence[str], *, folder: bool = False) -> None:
        check_location(what, location, relative=True, folder=folder)
        if is_relative(location) and self._namespace is not None:
            # The operation refuses it, unless the catalog resolves it against its own root.
            return
        for folders in (self._prefixes or (), await self._own_folders(parent)):
            for outer in folders:
                if await asyncio.to_thread(is_below, location, outer):
                    return
        raise PermissionDeniedError(
            f"Permission denied: {what} {shortened(location, 200)!r} (it is not below a folder of the catalog; use a "
            "URI below one, omit it for the default location, or start the server with --allow-location)"
        )

    async def _own_folders(self, parent: Sequence[str]) -> Sequence[str]:
        own_folders: Any = getattr(self._namespace, "own_folders", None)
        return () if own_folders is None else await own_folders(parent)


def named_places(request: BaseModel) -> Iterator[tuple[str, str, bool]]:
    """Yields each place in a request: what names it, the place, and whether it is a folder for several tables."""
    is_namespace = isinstance(request, CreateNamespaceRequest)
    if isinstance(location := getattr(request, "location", None), str):
        yield "location", location, False
    patterns = _NAMESPACE_PLACES if is_namespace else _TABLE_PLACES
    properties: Mapping[str, str] = getattr(request, "properties", None) or {}
    for name, value in properties.items():
        if any(fnmatchcase(name.lower(), pattern) for pattern in patterns):
            yield f"property {shortened(name, 80)!r}", value, is_namespace


def is_below(location: str, folder: str) -> bool:
    """Returns whether a location is inside a folder, but not the folder itself.

    A path and a URI are never the same place: some catalogs complete a path with another file system. Symbolic links
    are resolved in the folder and below it; nothing outside of the folder is accessed. Blocks for local folders.
    """
    if ("://" in location) != ("://" in folder):
        return False
    place, outer = local_path(location), local_path(folder)
    if place is None or outer is None:
        return place is outer and _plain(location).startswith(f"{_plain(folder)}/")
    real = os.path.realpath(outer)
    for root in (outer, real):
        prefix = f"{root.rstrip('/')}/"
        if place.startswith(prefix) and place != prefix:
            return os.path.realpath(place).startswith(f"{real.rstrip('/')}/")
    return False


def _plain(uri: str) -> str:
    """Returns the URI of an object store, decoded, and without a slash at its end."""
    scheme, _, rest = uri.partition("://")
    return as_s3(f"{scheme.lower()}://{unquote(rest).rstrip('/')}")


def _prefix(prefix: str) -> str:
    """Returns a prefix as a URI."""
    try:
        checked_root(prefix, also=("s3a", "s3n", "abfs"))
        if is_relative(prefix) and not prefix.startswith("~"):
            raise ValueError("it is relative; use an absolute path, or a URI such as s3://bucket/data")
    except ValueError as e:
        raise InvalidInputError(f"allow_locations {prefix!r}: {e}") from e
    return prefix if "://" in prefix else Path(prefix).expanduser().absolute().as_uri()


def _check_options(properties: Mapping[str, str]) -> None:
    """Raises PermissionDeniedError for properties that some catalogs use as storage options of a table."""
    for name, value in properties.items():
        if len(name) > _LONGEST_KEY:
            raise InvalidInputError(f"property {shortened(name, 80)!r}: longer than {_LONGEST_KEY} characters")
        key = name.lower()
        if _OPTION.fullmatch(key) or (key in _REGIONS and not _REGION.fullmatch(value)):
            raise PermissionDeniedError(
                f"Permission denied: property {shortened(name, 80)!r} (storage options may not be set by clients of "
                "this server; use another name, or set a storage.* property of the catalog)"
            )
