"""The state of the storage at a table's location, and what it contradicts in the registration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from lance_ns_async.model import NamespaceId, Table, TableId, local_path, place_of
from lance_ns_async.rendering import counted
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.dir_markers import HIDDEN_MARK, is_marker
from lance_ns_async.storage.lance_layout import VERSIONS
from lance_ns_async.storage.locations import check_deletable, check_location
from lance_ns_async.storage.opening import Opener
from lance_ns_async.tabular import Subject

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

    With `deep`, the files of the newest version are looked for, and the ends of some of them are read.

    Cost: one open, and in an object store a listing if there is no version. With `deep` two listings, and at most 100
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
    try:
        try:
            return opener.open(table)
        except TableVersionNotFoundError:
            # The version was deleted between the listing and the read, by a cleanup.
            return opener.open(table)
    except TableNotFoundError:
        return None


Severity: TypeAlias = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding."""

    severity: Severity
    meaning: str
    fix: str | None = None
    """What a fix does; None if only the user can decide."""


METADATA_MISSING = "metadata-missing"
LOCATION_MISSING, PARENT_MISSING = "location-missing", "parent-missing"
DECLARED_ONLY, MANIFEST_MISSING = "declared-only", "manifest-missing"
DATA_MISSING, DATA_DAMAGED = "data-missing", "data-damaged"
UNREADABLE, UNSAFE_LOCATION = "unreadable", "unsafe-location"
SHARED_LOCATION, NESTED_LOCATION = "shared-location", "nested-location"
COLUMNS_DIFFER, UNPROTECTED, NOT_EXTERNAL = "columns-differ", "unprotected", "not-external"
HIDDEN_MARKER = "hidden-marker"
NAMESPACE_LOCATION, UNCLAIMED, DROPPED = "namespace-location", "unclaimed", "dropped"

_NAMED = 3  # Maximum number of files in a description.

KINDS: Mapping[str, FindingKind] = {
    METADATA_MISSING: FindingKind(
        "error", "the catalog lists the table, but does not find it: remove it with a tool of the catalog"
    ),
    LOCATION_MISSING: FindingKind(
        "error", "nothing is at the location: the data was removed, or was never written", "deregister the table"
    ),
    PARENT_MISSING: FindingKind(
        "error", "the folder above the location does not exist either: is the storage mounted?"
    ),
    DECLARED_ONLY: FindingKind("info", "the table is declared, and nothing was written", "deregister the table"),
    MANIFEST_MISSING: FindingKind("error", "there are files, and no version"),
    DATA_MISSING: FindingKind("error", "files of the newest version do not exist; restore them, or an older version"),
    DATA_DAMAGED: FindingKind("error", "files of the newest version are cut off, or are no Lance files"),
    UNREADABLE: FindingKind("error", "the dataset cannot be opened"),
    UNSAFE_LOCATION: FindingKind("warning", "the location is ambiguous, so drop_table rejects it"),
    SHARED_LOCATION: FindingKind("error", "another table has the same location"),
    NESTED_LOCATION: FindingKind("error", "the location is inside that of another table"),
    COLUMNS_DIFFER: FindingKind(
        "warning",
        "the columns in the catalog differ from those of the dataset",
        "register the table again with the dataset's columns; its name is missing in between",
    ),
    UNPROTECTED: FindingKind("error", "tools of the catalog may delete the table's files", "set gc.enabled=false"),
    NOT_EXTERNAL: FindingKind(
        "error", "the catalog owns the data: Hive deletes it with the table", "set EXTERNAL=TRUE"
    ),
    HIDDEN_MARKER: FindingKind("warning", "a directory catalog has deregistered the table"),
    NAMESPACE_LOCATION: FindingKind("warning", "the namespace has a location that is not usable"),
    UNCLAIMED: FindingKind(
        "info", "there is data of a table that the catalog does not have; discover registers complete ones"
    ),
    DROPPED: FindingKind("info", "the table was dropped; `undrop` brings it back, and `purge` deletes it in time"),
}
"""All kinds of findings by name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between the catalog and the storage."""

    kind: str
    id: Subject
    seen: str
    """A description for users."""
    location: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of its row."""


def check_table(table: Table, state: StorageState, *, needs_protection: bool, uses_markers: bool) -> Iterator[Finding]:
    """Yields the findings about one table; `needs_protection` if tools of the catalog may delete its files.

    `uses_markers` if the catalog itself deregisters tables by markers.
    """
    for kind, seen in _check_storage(table, state):
        yield Finding(kind, table.id, seen, table.location)
    if needs_protection and table.is_owned:
        yield Finding(NOT_EXTERNAL, table.id, "the parameter EXTERNAL=TRUE is missing", table.location)
    elif needs_protection:
        yield Finding(UNPROTECTED, table.id, "the property gc.enabled=false is missing", table.location)
    if state.is_hidden and not uses_markers:
        yield Finding(HIDDEN_MARKER, table.id, ".lance-deregistered is at the location", table.location)


def _check_storage(table: Table, state: StorageState) -> Iterator[tuple[str, str]]:
    """Yields the kind and the description of each finding about the location and what is stored there."""
    if not state.has_parent:
        # Deregistering is not offered here, because it would remove all tables of a storage that is not mounted.
        yield PARENT_MISSING, "neither the location nor the folder above it exists"
    if state.error is not None:
        prefix = "access is denied: " if isinstance(state.error, PermissionDeniedError) else ""
        yield UNREADABLE, f"{prefix}{state.error}"
    elif not state.exists and state.has_parent:
        yield LOCATION_MISSING, "nothing is at the location: nothing was written, or the data was removed"
    elif state.has_data and not state.has_manifest:
        yield MANIFEST_MISSING, "the location has files, and _versions has no manifest"
    elif state.exists and not state.has_manifest:
        yield DECLARED_ONLY, "the location has no data"
    for kind, paths in ((DATA_MISSING, state.missing), (DATA_DAMAGED, state.damaged)):
        if paths:
            yield kind, f"{counted(len(paths), 'files')} of the newest version: {', '.join(paths[:_NAMED])}"
    try:
        check_deletable(table)
    except InvalidTableStateError as e:
        yield UNSAFE_LOCATION, str(e)
    if table.schema is not None and state.schema is not None:
        registered, stored = _types(table.schema), _types(state.schema)
        types = {name: (registered.get(name), stored.get(name)) for name in {**registered, **stored}}
        differences = [
            f"{name}: {before or 'no column'} in the catalog, {now or 'no column'} in the dataset"
            for name, (before, now) in types.items()
            if before != now
        ]
        if differences:
            yield COLUMNS_DIFFER, "; ".join(differences[:5])


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def check_places(tables: Mapping[TableId, Table]) -> Iterator[Finding]:
    """Yields the tables that share a location with another one, or are inside another one."""
    by_place: dict[str, list[Table]] = {}
    for table in tables.values():
        by_place.setdefault(_place(table.location), []).append(table)
    parents: list[str] = []
    for place in sorted(by_place):
        while parents and not place.startswith(parents[-1]):
            parents.pop()
        group = by_place[place]
        for table in group:
            if parents:
                outer = by_place[parents[-1]][0]
                yield Finding(NESTED_LOCATION, table.id, f"it is inside {outer.id} at {outer.location}", table.location)
            if len(group) > 1:
                yield Finding(SHARED_LOCATION, table.id, f"shared with {_others(table, group)}", table.location)
        parents.append(place)


def _others(table: Table, group: Sequence[Table]) -> str:
    names = [str(other.id) for other in group if other.id != table.id]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _place(location: str) -> str:
    """Returns one spelling of a location, which ends with a slash."""
    return f"{place_of(location).rstrip('/')}/"


def check_namespaces(namespaces: Mapping[NamespaceId, Mapping[str, str]], keys: Sequence[str]) -> Iterator[Finding]:
    """Yields the namespaces with a location for tables that is not usable; `keys` are the properties that hold it."""
    for id, properties in namespaces.items():
        for key in keys:
            if not (value := properties.get(key)):
                continue
            try:
                check_location(f"namespace {id}", value, folder=True)
            except InvalidInputError as e:
                yield Finding(NAMESPACE_LOCATION, id, f"property {key!r}: {e}", value)
