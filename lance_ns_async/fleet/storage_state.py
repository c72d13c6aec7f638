"""The state of the storage at a table's location, as audits compare it with the registration. Functions block."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, TableVersionNotFoundError

from lance_ns_async.model import Table, local_path
from lance_ns_async.storage.dir_markers import HIDDEN_MARK, is_marker
from lance_ns_async.storage.files import open_session
from lance_ns_async.tables.opening import Opener

if TYPE_CHECKING:
    import pyarrow as pa


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
    error: LanceNamespaceError | None = None
    """Why the location could not be read completely."""


def look(table: Table, opener: Opener) -> StorageState:
    """Returns the state of the storage at a table's location.

    Raises:
        OSError: A local folder could not be read.
        LanceNamespaceError: The dataset could not be opened.

    Cost:
        One open, and in an object store a listing if there is no version.
    """
    if (path := local_path(table.location)) is not None:
        return _look_at_folder(table, path, opener)
    schema = _schema(table, opener)
    if schema is not None:
        return StorageState(has_manifest=True, has_data=True, schema=schema)
    names: Sequence[str] = open_session(table.location, table.storage_options).list()
    return StorageState(exists=bool(names), has_data=not all(map(is_marker, names)), is_hidden=HIDDEN_MARK in names)


def _look_at_folder(table: Table, path: str, opener: Opener) -> StorageState:
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return StorageState(exists=False, has_parent=os.path.isdir(os.path.dirname(path)))
    is_hidden = HIDDEN_MARK in names
    if "_versions" in names and (schema := _schema(table, opener)) is not None:
        return StorageState(has_manifest=True, has_data=True, is_hidden=is_hidden, schema=schema)
    others = [name for name in names if not is_marker(name)]
    has_data = any(_has_files(os.path.join(path, name)) for name in others)
    return StorageState(has_data=has_data, is_hidden=is_hidden)


def _has_files(path: str) -> bool:
    return not os.path.isdir(path) or any(names for _, _, names in os.walk(path))


def _schema(table: Table, opener: Opener) -> pa.Schema | None:
    """Returns the columns of the newest version; None if there is none."""
    for last in (False, True):
        try:
            return opener.open(table).schema
        except TableNotFoundError:
            return None
        except TableVersionNotFoundError:
            # The version was deleted between the listing and the read, by a cleanup.
            if last:
                raise
    raise AssertionError
