"""The plan of a copy: a pure function from the states of two catalogs to the changes of the target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal, TypeAlias

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.backends import ids
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.fleet.id_mapping import IdMapping
from lance_ns_async.model import NamespaceId, Table, TableId, same_place
from lance_ns_async.storage.locations import location_beside

Mode: TypeAlias = Literal["create", "sync"]
"""`create` adds tables that the target does not have; `sync` also changes those that differ."""

Check: TypeAlias = Callable[[TableId, str | None, Mapping[str, str]], None]
"""Raises InvalidInputError if the target would always reject a table with this id, location and properties."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """The tables to copy, and the properties of namespaces, as the source describes them."""

    tables: Mapping[TableId, Table]
    namespaces: Mapping[NamespaceId, Mapping[str, str]]
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class TargetState:
    """What the target has at the ids of the copies."""

    tables: Mapping[TableId, Table]
    errors: Mapping[TableId, LanceNamespaceError]
    """Names that are in use, and whose tables could not be described."""
    namespaces: Mapping[NamespaceId, Mapping[str, str]]
    """The properties of the namespaces that exist; the root is not among them."""
    capabilities: Capabilities
    extra_tables: Sequence[Table] = ()
    """Tables in the area of the copy that have no table in the source."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A table that the target cannot have, or must not have."""

    source: TableId
    target: TableId | None
    """None if the mapping has no id for it."""
    reason: str


@dataclass(frozen=True, slots=True)
class MappedIds:
    """The ids of the copies."""

    targets: Mapping[TableId, TableId]
    """The id in the target by the id in the source; no two are equal."""
    refusals: Sequence[Refusal] = ()


@dataclass(frozen=True, slots=True)
class StoredData:
    """The newest version of a dataset."""

    version: int
    digest: str
    """A digest of its columns and of the names of its data files and deletion files, which are random.

    Two versions with the same digest have the same rows. A clone has the digest of its source.
    """


@dataclass(frozen=True, slots=True)
class DataPair:
    """The data of a table in the source and in the target; None if nothing was written there."""

    source: StoredData | None
    target: StoredData | None
    is_clone: bool = False
    """Whether the data of the target is a clone of another dataset, and nobody has written to it since."""


@dataclass(frozen=True, slots=True)
class NewNamespace:
    """A namespace to create."""

    id: NamespaceId
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Declare:
    """A table to register."""

    source: Table
    id: TableId
    properties: Mapping[str, str]
    takes_over: bool = False
    """Whether the source's catalog hands the commits of versions over to the storage."""
    there: Table | None = None
    """The registration that an interrupted clone has left, which gets the data."""


@dataclass(frozen=True, slots=True)
class Replace:
    """A registration to change."""

    source: Table
    old: Table
    properties: Mapping[str, str]
    """All properties that the registration has afterwards."""
    changes: Sequence[str]
    """The changed parts, for the report."""
    takes_over: bool = False
    clone_location: str | None = None
    """The location for a new clone of the data; None if the data stays."""
    cloned: StoredData | None = None
    """The data of the earlier clone, which has to be unchanged."""


@dataclass(frozen=True, slots=True)
class Keep:
    """A table that the target has already, as it should be."""

    source: TableId
    id: TableId


@dataclass(frozen=True, slots=True)
class Conflict:
    """A table that the target has already, but not as it should be, and that stays as it is."""

    source: TableId
    id: TableId
    reason: str


@dataclass(frozen=True, slots=True)
class Deregister:
    """A registration to remove."""

    table: Table


Step: TypeAlias = Declare | Replace | Keep | Conflict | Deregister


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Everything that a copy would change, and what it cannot do."""

    namespaces: Sequence[NewNamespace] = ()
    """Namespaces to create, parents first."""
    steps: Sequence[Step] = ()
    refusals: Sequence[Refusal] = ()
    losses: Sequence[tuple[NamespaceId | TableId, str]] = ()
    """What the target does not keep of a namespace or a table of the source."""
    notes: Sequence[tuple[str, str]] = ()
    """What the target does not keep of any table: the part, and the reason."""


def map_tables(tables: Iterable[TableId], mapping: IdMapping, can: Capabilities) -> MappedIds:
    """Returns the ids of the copies; refuses ids that the target cannot have, and several tables with one id.

    Args:
        tables: The ids in the source.
        mapping: The rules.
        can: The capabilities of the target.
    """
    refusals: list[Refusal] = []
    by_target: dict[TableId, list[TableId]] = {}
    for id in tables:
        target = None
        try:
            target = mapping.table(id)
            ids.check_depth(target, can)
            if can.folds_case and (upper := next((name for name in target if name != name.lower()), None)):
                raise InvalidInputError(
                    f"table {target}: the target stores names in lower case, and {upper!r} has upper case; "
                    "rename the names, for example with rename='lower'"
                )
        except InvalidInputError as e:
            refusals.append(Refusal(id, target, str(e)))
            continue
        by_target.setdefault(target, []).append(id)
    targets: dict[TableId, TableId] = {}
    for target, sources in by_target.items():
        if len(sources) == 1:
            targets[sources[0]] = target
            continue
        for id in sources:
            others = ", ".join(str(other) for other in sources if other != id)
            refusals.append(Refusal(id, target, f"table {id}: it would become {target}, as would {others}"))
    return MappedIds(targets, refusals)


def namespaces_of(tables: Iterable[TableId], namespaces: Iterable[NamespaceId] = ()) -> Sequence[NamespaceId]:
    """Returns all namespaces that tables and other namespaces need, without the root, parents first."""
    needed: dict[NamespaceId, None] = {}
    for id in dict.fromkeys([*(id.parent for id in tables), *namespaces]):
        for depth in range(1, len(id) + 1):
            needed[NamespaceId(id[:depth])] = None
    return sorted(needed, key=len)


def plan_copy(
    source: SourceState,
    target: TargetState,
    mapped: MappedIds,
    mapping: IdMapping,
    *,
    mode: Mode,
    check: Check,
    delete: bool = False,
    take_over: bool = False,
    data: bool = False,
    pairs: Mapping[TableId, DataPair] = MappingProxyType({}),
    unfinished: Collection[TableId] = (),
) -> CopyPlan:
    """Returns the changes that bring the target to the state of the source.

    Args:
        source: The tables to copy.
        target: What the target has.
        mapped: The ids of the copies.
        mapping: The rules behind `mapped`, for the namespaces.
        mode: Whether tables that differ are changed.
        check: The target's check of a declaration.
        delete: Whether properties that only the target has are removed, and `target.extra_tables` are deregistered.
        take_over: Whether tables whose versions the source commits are handed over to the storage.
        data: Whether the data is cloned, so that locations differ.
        pairs: With `data`, the data of the tables that both catalogs have, by the id in the source.
        unfinished: With `data`, the ids in the target at which an earlier run began a clone.
    """
    steps: list[Step] = []
    refusals = [*mapped.refusals]
    losses: list[tuple[NamespaceId | TableId, str]] = []
    own = (*source.capabilities.own_properties, *target.capabilities.own_properties)
    for id, table in source.tables.items():
        if (target_id := mapped.targets.get(id)) is None:
            continue
        properties, excluded = split_properties(table.properties or {}, own)
        if missing_keys := sorted(key for key in excluded if not matches(key, source.capabilities.own_properties)):
            losses.append((id, f"properties that the target sets itself: {', '.join(missing_keys)}"))
        if target.capabilities.commits_versions:
            # A table with data, but without versions in the catalog, would count as empty.
            properties["managed_by"] = "storage"
        if (error := target.errors.get(target_id)) is not None:
            steps.append(Conflict(id, target_id, str(error)))
            continue
        try:
            _check_versions(table, take_over=take_over, data=data)
            check(target_id, None if data else table.location, properties)
            there = target.tables.get(target_id)
            if data and there is not None and pairs[id].source != pairs[id].target:
                kept = {} if delete else split_properties(there.properties or {}, own)[0]
                steps.append(
                    _data_step(
                        table,
                        there,
                        pairs[id],
                        properties,
                        {**kept, **properties},
                        check,
                        is_sync=mode == "sync",
                        is_unfinished=target_id in unfinished,
                    )
                )
                continue
            steps.append(
                _table_step(
                    table,
                    target_id,
                    there,
                    properties,
                    own,
                    mode=mode,
                    exact=delete,
                    data=data,
                    columns=target.capabilities.stores_columns,
                )
            )
        except InvalidInputError as e:
            refusals.append(Refusal(id, target_id, str(e)))
    if delete:
        for extra in target.extra_tables:
            if extra.managed_versioning:
                reason = f"table {extra.id}: its catalog commits its versions, and would lose them; deregister it there"
                steps.append(Conflict(extra.id, extra.id, reason))
            else:
                steps.append(Deregister(extra))
    needed_tables = [step.id for step in steps if isinstance(step, Declare)]
    namespaces, namespace_losses = _plan_namespaces(source, target, needed_tables, mapping)
    losses += namespace_losses.items()
    notes = []
    if source.capabilities.stores_columns and not target.capabilities.stores_columns and needed_tables:
        notes.append(("columns", "the target stores no columns; the datasets have them"))
    return CopyPlan(namespaces, steps, refusals, losses, notes)


def _data_step(
    table: Table,
    there: Table,
    pair: DataPair,
    new_properties: Mapping[str, str],
    all_properties: Mapping[str, str],
    check: Check,
    *,
    is_sync: bool,
    is_unfinished: bool,
) -> Step:
    """Returns the step for a table whose data in the target is not that of the source.

    Data is never overwritten: a clone gets a new location, and the registration changes to it.
    """
    id = there.id
    if pair.target is None and (is_sync or is_unfinished):
        return Declare(table, id, new_properties, there=there)
    if pair.target is None:
        reason = "it exists without data; use mode 'sync' to clone the data into it"
    elif pair.source is None:
        reason = f"its data has version {pair.target.version}, and nothing was written to the source; deregister it"
    elif not pair.is_clone:
        reason = f"{_difference(pair.source, pair.target)}, and it was not cloned; deregister it to clone the data"
    elif not is_sync:
        reason = f"{_difference(pair.source, pair.target)}; use mode 'sync' to clone the data again"
    elif there.managed_versioning:
        reason = "the target's catalog commits its versions (managed_by=impl); deregister it there first"
    else:
        location = location_beside(there.location)
        try:
            check(id, location, all_properties)
        except InvalidInputError as e:
            reason = f"{_difference(pair.source, pair.target)}; drop it to clone the data again ({e})"
        else:
            return Replace(table, there, all_properties, ["data"], clone_location=location, cloned=pair.target)
    return Conflict(table.id, id, f"table {id}: {reason}")


def _difference(source: StoredData, target: StoredData) -> str:
    if source.version != target.version:
        return f"its data has version {target.version}, that of the source {source.version}"
    return f"its data has version {target.version} as the source has, but other files"


def _check_versions(table: Table, *, take_over: bool, data: bool) -> None:
    if table.managed_versioning and not (take_over or data):
        raise InvalidInputError(
            f"table {table.id}: its catalog commits its versions (managed_by=impl), so the target would not see later "
            "versions; use take_over to hand the commits over to the storage, or data to clone it"
        )


def _table_step(
    table: Table,
    id: TableId,
    there: Table | None,
    properties: Mapping[str, str],
    own: Collection[str],
    *,
    mode: Mode,
    exact: bool,
    data: bool,
    columns: bool,
) -> Step:
    takes_over = table.managed_versioning and not data
    if there is None:
        return Declare(table, id, properties, takes_over)
    if there.managed_versioning:
        reason = "the target's catalog commits its versions (managed_by=impl); deregister it there first"
        return Conflict(table.id, id, f"table {id}: {reason}")
    changes = differences(table, there, properties, own, exact=exact, data=data, columns=columns)
    if not changes and not takes_over:
        return Keep(table.id, id)
    if mode == "create":
        reason = f"exists with another {', '.join(changes)}" if changes else "exists, and the source commits versions"
        return Conflict(table.id, id, f"table {id}: {reason}; use mode 'sync' to change it")
    kept = {} if exact else split_properties(there.properties or {}, own)[0]
    return Replace(table, there, {**kept, **properties}, changes, takes_over)


def differences(
    source: Table,
    target: Table,
    properties: Mapping[str, str],
    own: Collection[str],
    *,
    exact: bool,
    data: bool = False,
    columns: bool = True,
) -> Sequence[str]:
    """Returns the parts in which a registration differs from the one it should be.

    Args:
        source: The table in the source.
        target: The table in the target.
        properties: The properties that the target should have.
        own: Patterns of the names of properties that are ignored.
        exact: Whether further properties of the target count, too.
        data: Whether the data is cloned, so that locations differ.
        columns: Whether the target stores columns.
    """
    changes: list[str] = []
    if not data and not same_place(source.location, target.location):
        changes.append("location")
    current = split_properties(target.properties or {}, own)[0]
    goal = split_properties(properties, own)[0]
    if any(current.get(key) != value for key, value in goal.items()) or (exact and current.keys() - goal):
        changes.append("properties")
    if columns and source.schema is not None and target.schema is not None and not source.schema.equals(target.schema):
        changes.append("columns")
    return changes


def split_properties(properties: Mapping[str, str], own: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the properties that can be copied, and those that describe one catalog's registration only."""
    portable = {key: value for key, value in properties.items() if not matches(key, own)}
    return portable, {key: value for key, value in properties.items() if key not in portable}


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Returns whether the name of a property matches one of the patterns, whatever its case."""
    return any(fnmatchcase(key.lower(), pattern) for pattern in patterns)


def _plan_namespaces(
    source: SourceState, target: TargetState, tables: Iterable[TableId], mapping: IdMapping
) -> tuple[Sequence[NewNamespace], Mapping[NamespaceId, str]]:
    """Returns the namespaces to create, parents first, and what the target does not keep of them."""
    origins: dict[NamespaceId, NamespaceId] = {}
    for id in source.namespaces:
        if image := mapping.namespace(id):
            origins.setdefault(image, id)
    needed = namespaces_of(tables, origins)
    parents = {id.parent for id in needed}
    own = (*source.capabilities.own_namespace_properties, *target.capabilities.own_namespace_properties)
    # The parent of an existing namespace exists, too; it was not described.
    parents_of_existing = {*namespaces_of((), [id.parent for id in target.namespaces])}
    new_namespaces: list[NewNamespace] = []
    losses: dict[NamespaceId, str] = {}
    for id in needed:
        origin = origins.get(id)
        properties, excluded = split_properties({} if origin is None else source.namespaces[origin], own)
        if (current := target.namespaces.get(id)) is not None:
            if origin is not None and any(current.get(key) != value for key, value in properties.items()):
                losses[origin] = f"the properties of {id} differ; catalogs have no call to change them"
            continue
        if id in parents_of_existing:
            continue
        if origin is not None and excluded:
            losses[origin] = f"properties of the source's catalog: {', '.join(sorted(excluded))}"
        if id in parents:
            properties.update(target.capabilities.parent_properties)
        new_namespaces.append(NewNamespace(id, properties))
    return new_namespaces, losses
