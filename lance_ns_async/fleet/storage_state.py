"""The state of the storage at a table's location, as audits compare it with the registration. Functions block."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, TableVersionNotFoundError

from lance_ns_async.model import Table, local_path
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.dir_markers import HIDDEN_MARK, is_marker
from lance_ns_async.storage.lance_layout import VERSIONS
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.pylance_errors import translate_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


_END = b"LANC"  # The last bytes of each Lance file.
_MOST_READS = 100  # Maximum number of data files of a table whose ends are read.


@dataclass(frozen=True, slots=True)
class StorageState:
    """The result of the examination of one location."""

    exists: bool = True
    """Whether there is a folder, or in an object store any file."""
    has_parent: bool = True
    """Whether the folder above exists; if not, the whole storage may be unreachable, for example not mounted."""
    has_manifest: bool = False
    """Whether a version was committed."""
    has_data: bool = False
    """Whether there are files other than markers."""
    is_hidden: bool = False
    """Whether a directory catalog has deregistered the table."""
    schema: pa.Schema | None = None
    """The columns of the dataset; None if there is no version."""
    missing: Sequence[str] = ()
    """Files of the newest version that do not exist, if they were looked for."""
    damaged: Sequence[str] = ()
    """Data files of the newest version that are no complete Lance files, if they were read."""
    error: LanceNamespaceError | None = None
    """Why the location could not be read completely."""


def look(table: Table, opener: Opener, *, deep: bool = False) -> StorageState:
    """Returns the state of the storage at a table's location.

    Args:
        table: The registration.
        opener: Opens the dataset.
        deep: Whether the files of the newest version are looked for, and the ends of some of them are read.

    Raises:
        OSError: A local folder could not be read.
        LanceNamespaceError: The dataset could not be opened.

    Cost:
        One open, and in an object store a listing if there is no version. With `deep` two listings, and at most 100
        reads of a few bytes.
    """
    if (path := local_path(table.location)) is not None:
        return _look_at_folder(table, path, opener, deep)
    dataset = _open(table, opener)
    if dataset is not None:
        return _look_at_dataset(table, dataset, deep)
    names: Sequence[str] = files.open_files(table.location, table.storage_options).list()
    return StorageState(exists=bool(names), has_data=not all(map(is_marker, names)), is_hidden=HIDDEN_MARK in names)


def _look_at_folder(table: Table, path: str, opener: Opener, deep: bool) -> StorageState:
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return StorageState(exists=False, has_parent=os.path.isdir(os.path.dirname(path)))
    is_hidden = HIDDEN_MARK in names
    if VERSIONS in names and (dataset := _open(table, opener)) is not None:
        return replace(_look_at_dataset(table, dataset, deep), is_hidden=is_hidden)
    others = [name for name in names if not is_marker(name)]
    has_data = any(_has_files(os.path.join(path, name)) for name in others)
    return StorageState(has_data=has_data, is_hidden=is_hidden)


def _has_files(path: str) -> bool:
    return not os.path.isdir(path) or any(names for _, _, names in os.walk(path))


def _look_at_dataset(table: Table, dataset: LanceDataset, deep: bool) -> StorageState:
    state = StorageState(has_manifest=True, has_data=True, schema=dataset.schema)
    if not deep:
        return state
    with translate_errors(table):
        missing = datasets.missing_files(table, dataset)
        return replace(state, missing=missing, damaged=_damaged_files(table, dataset, missing))


def _damaged_files(table: Table, dataset: LanceDataset, missing: Sequence[str]) -> Sequence[str]:
    """Returns the data files whose end is not that of a Lance file; reads at most 100 files, spread over all."""
    sizes = [(path, size) for path, size in datasets.files_of_rows(dataset).items() if size and path not in missing]
    session = files.open_files(table.location, table.storage_options)
    damaged = []
    for path, size in sizes[:: len(sizes) // _MOST_READS + 1]:
        try:
            end = session.read_range(path, size - len(_END), len(_END))
        except OSError:
            # The file is shorter than the manifest says, or was deleted meanwhile; the second look tells.
            end = b""
        if end != _END:
            damaged.append(path)
    return damaged


def _open(table: Table, opener: Opener) -> LanceDataset | None:
    """Opens the newest version; None if there is none."""
    for last in (False, True):
        try:
            return opener.open(table)
        except TableNotFoundError:
            return None
        except TableVersionNotFoundError:
            # The version was deleted between the listing and the read, by a cleanup.
            if last:
                raise
    raise AssertionError
