"""The checks of an audit: pure functions over registrations and the state of the storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lance_namespace.errors import InvalidInputError, InvalidTableStateError, PermissionDeniedError

from lance_ns_async.fleet.storage_state import StorageState
from lance_ns_async.model import NamespaceId, Table, TableId, place_of
from lance_ns_async.rendering import counted
from lance_ns_async.storage.locations import check_deletable, check_location
from lance_ns_async.tabular import Subject

if TYPE_CHECKING:
    import pyarrow as pa

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
NAMESPACE_LOCATION, UNCLAIMED = "namespace-location", "unclaimed"

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
    """Yields the findings about one table.

    Args:
        table: The registration.
        state: The storage at its location.
        needs_protection: Whether tools of the catalog may delete its files.
        uses_markers: Whether the catalog itself deregisters tables by markers.
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
