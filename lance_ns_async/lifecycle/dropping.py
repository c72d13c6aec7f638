"""Drops of tables: the catalog removes the registration, then the data is deleted.

The catalog removes a registration for exactly one of several concurrent callers. If the process is killed afterwards,
the data has no registration any more; `fleet.audit` with `data_under` lists it. It affects no later table, because a
declaration without a location gets one that was never used before.

A requested location may be used again while its data is deleted. Therefore only files that were listed before the
removal are deleted, and those whose names a new table there could also use are deleted while the latest manifest still
prevents the creation of one.
"""

from __future__ import annotations

import gzip
import logging
import os
import tempfile
import zlib
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.backends.base import Backend
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import UnreadableRegistrationError
from lance_ns_async.lifecycle.claims import Claims
from lance_ns_async.lifecycle.manifests import number_of
from lance_ns_async.model import Table, TableId, local_path
from lance_ns_async.storage import datasets, dir_markers
from lance_ns_async.storage.files import delete, download, open_files
from lance_ns_async.storage.lance_layout import DATA, UNIQUE_NAMES, VERSIONS, has_manifest, is_data_file
from lance_ns_async.storage.locations import SCHEMES, without_suffix
from lance_ns_async.storage.threads import in_thread, under_way

log: logging.Logger = logging.getLogger(__name__)

_MAX_CONCURRENT = 16  # Maximum number of files that are deleted or read concurrently.

_UNIQUE_NAMES = (*UNIQUE_NAMES, "metadata/")  # `metadata` has the catalog's own files.

_METADATA = ".metadata.json"  # Suffix of the catalog's files that contain the id of their registration.

_GZIP_MAGIC = b"\x1f\x8b"


async def drop(backend: Backend, id: TableId, retain: Callable[[Table], Awaitable[None]] | None = None) -> Table:
    """Removes a table from the catalog, and then the data under its location; or hands it to `retain`.

    If another table is registered at the location, or the table itself is again, the data stays. So it does at a
    location such as `hdfs://`, which Lance cannot open.

    Returns:
        The table as it was registered. Its location is empty if the catalog had lost it.

    Cost: three calls, those for credentials, those of `Claims`, a listing and the deletes in the storage.
    """
    try:
        table = await locate(backend, id)
    except UnreadableRegistrationError:
        return await backend.deregister_table(id)
    scheme, is_uri, _ = table.location.partition("://")
    if is_uri and scheme not in SCHEMES and not backend.capabilities.drops:
        await backend.deregister_table(id, table)
        log.warning("table %s was only deregistered, because Lance cannot delete data at %s", id, table.location)
        return table
    if retain is not None:
        await retain(table)
        return table
    paths: Sequence[str] = () if backend.passes_on("drop_table") else await datasets.check_alone(table)
    if backend.capabilities.drops:
        await backend.drop_table(table)
        return table
    claims = Claims(backend)
    other = await claims.find(table)
    if other is None:
        before = await claims.names(table)
        paths = await in_thread(table, partial(_select, table, paths))
    await backend.deregister_table(id, table)
    left = f"the table is no longer registered; its remaining data is at {table.location}"
    try:
        if other is None:
            other = await claims.find_since(table, before)
        if other is None:
            await in_thread(table, partial(_delete, table, paths), changes=True)
    except LanceNamespaceError as e:
        raise type(e)(f"{e}; {left}") from e
    except CancelledError as e:
        e.add_note(left)
        raise
    if other is not None:
        why = "it was registered again" if other == id else f"table {other} is also"
        log.warning("table %s was only deregistered, because %s at %s", id, why, table.location)
    return table


_LAST_MARKS = (".json", ".purge", dir_markers.HIDDEN_MARK)
"""The ends of the names of marks that are deleted last, in this order: until all data and the marks of undrops are
deleted, another purge finishes this one, and then a directory hides what is left."""


async def delete_data(table: Table, *, is_partial: bool) -> None:
    """Deletes the data at the location of a dropped table; last what marks it as one.

    Args:
        table: The table.
        is_partial: Whether a part may be deleted, so that files belong to it even if there is no version.

    Raises:
        InvalidTableStateError: The location contains other tables or files; nothing was deleted.

    Cost: two listings and the deletes.
    """
    paths = await datasets.check_alone(table)

    def work() -> None:
        own = [*paths, *_unfinished(table)] if is_partial else _select(table, paths)
        _delete(table, [path for path in own if not dir_markers.is_marker(path)])
        session = open_files(table.location, table.storage_options)
        place = local_path(table.location)
        for mark in sorted(filter(dir_markers.is_marker, paths), key=_rank):
            if place is not None and mark == dir_markers.HIDDEN_MARK:
                _remove_empty(place)  # pylance takes a folder with folders for a table.
            delete(session, mark)
        if place is not None:
            _remove_empty(place)

    await in_thread(table, work, changes=True)


def _rank(mark: str) -> int:
    """Returns the position of a mark in the order of deletions."""
    return next((rank for rank, end in enumerate(_LAST_MARKS, 1) if mark.endswith(end)), 0)


def _select(table: Table, paths: Sequence[str]) -> Sequence[str]:
    """Returns the paths that belong to the table, of all that are under its location. Blocks.

    If there is no dataset, other files may have been there before the table. At a requested location, a catalog may
    have written metadata files for a registration that it is about to make.
    """
    is_requested = without_suffix(table.location) is None
    is_dataset = has_manifest(paths)
    if is_dataset or not is_requested:
        paths = [*paths, *_unfinished(table)]
    if not is_dataset:
        made = "metadata/" if is_requested else ("metadata/", "_transactions/")
        paths = [
            path
            for path in paths
            if dir_markers.is_marker(path) or path.startswith(made) or (not is_requested and is_data_file(path))
        ]
    if not is_requested:
        return paths
    metadata = [path for path in paths if path.startswith("metadata/") and path.endswith(_METADATA)]
    if table.registration is None or not metadata:
        return paths
    session, registration = open_files(table.location, table.storage_options), table.registration.encode()
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        texts = pool.map(partial(_read, session), metadata)
        others = {path for path, text in zip(metadata, texts, strict=True) if registration not in text}
    return [path for path in paths if path not in others]


def _unfinished(table: Table) -> Sequence[str]:
    """Returns the local files of writers that were killed, such as `x.lance#1`; listings leave them out. Blocks."""
    place = local_path(table.location)
    if place is None or not os.path.isdir(folder := os.path.join(place, DATA)):
        return ()
    return [path for name in os.listdir(folder) if "#" in name and is_data_file(path := f"{DATA}/{name}")]


def _read(session: Any, path: str) -> bytes:
    """Returns the decompressed content of a file; empty if the file is gone."""
    with tempfile.TemporaryDirectory(prefix="lance-dropping-") as folder:
        local = os.path.join(folder, "file")
        if not download(session, path, local):
            return b""
        with open(local, "rb") as file:
            content = file.read()
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        # The file is damaged, and therefore belongs to no registration.
        return content


def _delete(table: Table, paths: Sequence[str]) -> None:
    """Deletes the files, and the folders that are empty afterwards. Blocks.

    A reader by path finds the latest version or nothing, never an older version.
    """
    session, work = open_files(table.location, table.storage_options), under_way()
    place = local_path(table.location)

    def delete_unique(path: str) -> None:
        if place is None or "#" not in path:
            delete(session, path)
            return
        with suppress(FileNotFoundError):
            os.remove(os.path.join(place, path))

    def delete_reusable(path: str) -> None:
        # Abandoned work continues, and must not delete files of a later table.
        work.check()
        delete(session, path)

    unique = [path for path in paths if path.startswith(_UNIQUE_NAMES)]
    reusable = set(paths).difference(unique)
    manifests = {number_of(path.removeprefix(f"{VERSIONS}/")): path for path in reusable}
    latest = None if (number := max(manifests, default=-1)) < 0 else manifests[number]
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        _finish(pool.map(delete_reusable, sorted(path for path in reusable if path != latest)))
        if latest is not None:
            delete_reusable(latest)
        _finish(pool.map(delete_unique, unique))
    if place is not None:
        _remove_empty(place)


def _finish(results: Any) -> None:
    """Waits for all results; raises the first error."""
    for _ in results:
        pass


def _remove_empty(folder: str) -> None:
    """Removes the empty folders in a folder, and the folder itself if it is empty."""
    for path, _, _ in os.walk(folder, topdown=False):
        # Other clients may be writing there.
        with suppress(OSError):
            os.rmdir(path)
