"""The plan of a copy: a pure function from the states of two catalogs to the changes of the target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar, Literal, TypeAlias

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.backends.base import Capabilities
from lance_ns_async.fleet.reading import Reading, namespaces_of
from lance_ns_async.model import NamespaceId, Table, TableId, same_place
from lance_ns_async.storage.locations import location_beside
from lance_ns_async.tabular import Subject

Mode: TypeAlias = Literal["create", "sync"]
"""`create` adds tables that the target does not have; `sync` also changes those that differ."""

CheckDeclaration: TypeAlias = Callable[[TableId, str | None, Mapping[str, str]], None]
"""Raises InvalidInputError if the target would always reject a table with this id, location and properties."""


CREATED, CHANGED, DEREGISTERED = "created", "changed", "deregistered"
"""The outcomes of the changes of tables."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """The options of a copy that decide what is changed; see `fleet.copy`."""

    mode: Mode = "create"
    delete: bool = False
    take_over: bool = False
    data: bool = False


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
    impossible: Mapping[NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    """Namespaces that the target cannot have, with the reason."""


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
    outcome: ClassVar[str] = CREATED

    @property
    def source_id(self) -> TableId:
        """The id in the source."""
        return self.source.id


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
    outcome: ClassVar[str] = CHANGED

    @property
    def id(self) -> TableId:
        """The id in the target."""
        return self.old.id

    @property
    def source_id(self) -> TableId:
        """The id in the source."""
        return self.source.id


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
    outcome: ClassVar[str] = DEREGISTERED

    @property
    def id(self) -> TableId:
        """The id in the target; in a report, it takes the place of that in the source."""
        return self.table.id

    source_id = id


TableChange: TypeAlias = Declare | Replace | Deregister

CopyStep: TypeAlias = TableChange | Keep | Conflict


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Everything that a copy would change, and what it cannot do."""

    namespaces: Sequence[NewNamespace] = ()
    """Namespaces to create, parents first."""
    steps: Sequence[CopyStep] = ()
    refusals: Sequence[Refusal] = ()
    losses: Sequence[tuple[Subject, str]] = ()
    """What the target does not keep of a namespace or a table of the source, or of any table."""

    @property
    def table_changes(self) -> Sequence[TableChange]:
        """The steps that change the target."""
        return [step for step in self.steps if isinstance(step, TableChange)]


def map_tables(tables: Iterable[TableId], mapping: IdMapping, can: Capabilities) -> MappedIds:
    """Returns the ids of the copies; refuses ids that the target cannot have, and several tables with one id."""
    refusals: list[Refusal] = []
    by_target: dict[TableId, list[TableId]] = {}
    for id in tables:
        target = None
        try:
            target = mapping.table(id)
            can.check_table(target)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlanner:
    """Plans the changes that bring the target to the state of the source."""

    source: Reading
    target: TargetState
    mapped: MappedIds
    mapping: IdMapping
    """The rules behind `mapped`, for the namespaces."""
    options: CopyOptions
    check: CheckDeclaration
    pairs: Mapping[TableId, DataPair] = field(default_factory=dict)
    """With `data`, the data of the tables that both catalogs have, by the id in the source."""
    unfinished: Collection[TableId] = ()
    """With `data`, the ids in the target at which an earlier run began a clone."""

    def plan(self) -> CopyPlan:
        """Returns all changes, and what cannot be done."""
        steps: list[CopyStep] = []
        refusals = [*self.mapped.refusals]
        losses: list[tuple[Subject, str]] = []
        source, target = self.source.capabilities, self.target.capabilities
        for id, table in self.source.tables.items():
            if (target_id := self.mapped.targets.get(id)) is None:
                continue
            properties, excluded = self._split(table.properties)
            if missing_keys := sorted(key for key in excluded if not matches(key, source.own_properties)):
                losses.append((id, f"properties that the target sets itself: {', '.join(missing_keys)}"))
            if target.commits_versions:
                # A table with data, but without versions in the catalog, would count as empty.
                properties["managed_by"] = "storage"
            if (impossible := self._impossible(target_id.parent)) is not None:
                refusals.append(Refusal(id, target_id, str(impossible)))
                continue
            if (error := self.target.errors.get(target_id)) is not None:
                steps.append(Conflict(id, target_id, str(error)))
                continue
            try:
                steps.append(self._table_step(table, target_id, properties))
            except InvalidInputError as e:
                refusals.append(Refusal(id, target_id, str(e)))
        if self.options.delete:
            steps += map(_removal, self.target.extra_tables)
        needed_tables = [step.id for step in steps if isinstance(step, Declare)]
        namespaces, namespace_losses = self._plan_namespaces(needed_tables)
        losses += namespace_losses.items()
        if source.stores_columns and not target.stores_columns and needed_tables:
            losses.append(("columns", "the target stores no columns; the datasets have them"))
        return CopyPlan(namespaces, steps, refusals, losses)

    def _table_step(self, table: Table, id: TableId, properties: Mapping[str, str]) -> CopyStep:
        """Returns the step for a table with the properties of its copy; raises InvalidInputError if there is none."""
        options, there = self.options, self.target.tables.get(id)
        if table.managed_versioning and not (options.take_over or options.data):
            raise InvalidInputError(
                f"table {table.id}: its catalog commits its versions (managed_by=impl), so the target would not see "
                "later versions; use take_over=True to hand the commits over to the storage, or data=True to clone it"
            )
        try:
            self.check(id, None if options.data else table.location, properties)
        except InvalidInputError as e:
            if options.data:
                raise
            self.check(id, None, properties)  # A clone is a remedy only if the target can have it.
            raise InvalidInputError(f"{e}; use data=True to clone the data") from e
        takes_over = table.managed_versioning and not options.data
        if there is None:
            return Declare(table, id, properties, takes_over)
        kept = {} if options.delete else self._split(there.properties)[0]
        all_properties = {**kept, **properties}
        if options.data and (pair := self.pairs[table.id]).source != pair.target:
            return self._data_step(table, there, pair, properties, all_properties)
        if there.managed_versioning:
            return Conflict(table.id, id, f"table {table.id}: {_COMMITS_VERSIONS}")
        changes = self._differences(table, there, properties)
        if not changes and not takes_over:
            return Keep(table.id, id)
        if options.mode == "create":
            reason = (
                f"exists with another {', '.join(changes)}" if changes else "exists, and the source commits versions"
            )
            return Conflict(table.id, id, f"table {table.id}: {reason}; use mode='sync' to change it")
        return Replace(table, there, all_properties, changes, takes_over)

    def _data_step(
        self,
        table: Table,
        there: Table,
        pair: DataPair,
        new_properties: Mapping[str, str],
        all_properties: Mapping[str, str],
    ) -> CopyStep:
        """Returns the step for a table whose data in the target is not that of the source.

        Data is never overwritten: a clone gets a new location, and the registration changes to it.
        """
        id, is_sync = there.id, self.options.mode == "sync"
        if pair.target is None and (is_sync or id in self.unfinished):
            return Declare(table, id, new_properties, there=there)
        if pair.target is None:
            reason = "it exists without data; use mode='sync' to clone the data into it"
        elif pair.source is None:
            reason = f"its data has version {pair.target.version}, and nothing was written to the source; deregister it"
        elif not pair.is_clone:
            reason = f"{_difference(pair.source, pair.target)}, and it was not cloned; deregister it to clone the data"
        elif not is_sync:
            reason = f"{_difference(pair.source, pair.target)}; use mode='sync' to clone the data again"
        elif there.managed_versioning:
            reason = _COMMITS_VERSIONS
        else:
            location = location_beside(there.location)
            try:
                self.check(id, location, all_properties)
            except InvalidInputError as e:
                reason = f"{_difference(pair.source, pair.target)}; drop it to clone the data again ({e})"
            else:
                return Replace(table, there, all_properties, ["data"], clone_location=location, cloned=pair.target)
        return Conflict(table.id, id, f"table {table.id}: {reason}")

    def _differences(self, source: Table, target: Table, properties: Mapping[str, str]) -> Sequence[str]:
        """Returns the parts in which a registration differs from that of the source with these properties."""
        changes: list[str] = []
        if not self.options.data and not same_place(source.location, target.location):
            changes.append("location")
        current, goal = self._split(target.properties)[0], self._split(properties)[0]
        is_incomplete = any(current.get(key) != value for key, value in goal.items())
        if is_incomplete or (self.options.delete and current.keys() - goal):
            changes.append("properties")
        columns, copies = source.schema, target.schema
        if self.target.capabilities.stores_columns and columns is not None and copies is not None:
            changes += [] if columns.equals(copies) else ["columns"]
        return changes

    def _split(self, properties: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the properties of a table that can be copied, and those that belong to one of the catalogs."""
        return _split(
            properties or {}, (*self.source.capabilities.own_properties, *self.target.capabilities.own_properties)
        )

    def _impossible(self, id: NamespaceId) -> LanceNamespaceError | None:
        """Returns why the target cannot have a namespace, or one above it; None if it can."""
        errors = (self.target.impossible.get(it) for it in namespaces_of((), [id]))
        return next((error for error in errors if error is not None), None)

    def _plan_namespaces(self, tables: Iterable[TableId]) -> tuple[Sequence[NewNamespace], Mapping[NamespaceId, str]]:
        """Returns the namespaces to create, parents first, and what the target does not keep of them."""
        source, target = self.source.capabilities, self.target.capabilities
        origins: dict[NamespaceId, NamespaceId] = {}
        for id in self.source.namespaces:
            if image := self.mapping.namespace(id):
                origins.setdefault(image, id)
        needed = namespaces_of(tables, origins)
        parents = {id.parent for id in needed}
        own = (*source.own_namespace_properties, *target.own_namespace_properties)
        # The parent of an existing namespace exists, too; it was not described.
        parents_of_existing = {*namespaces_of((), [id.parent for id in self.target.namespaces])}
        new_namespaces: list[NewNamespace] = []
        losses: dict[NamespaceId, str] = {}
        for id in needed:
            origin = origins.get(id)
            if (impossible := self._impossible(id)) is not None:
                if origin is not None:
                    losses[origin] = str(impossible)
                continue
            properties, excluded = _split({} if origin is None else self.source.namespaces[origin], own)
            if (current := self.target.namespaces.get(id)) is not None:
                if origin is not None and any(current.get(key) != value for key, value in properties.items()):
                    losses[origin] = f"the properties of {id} differ; catalogs have no call to change them"
                continue
            if id in parents_of_existing:
                continue
            if origin is not None and excluded:
                losses[origin] = f"properties of the source's catalog: {', '.join(sorted(excluded))}"
            if id in parents:
                properties.update(target.parent_properties)
            new_namespaces.append(NewNamespace(id, properties))
        return new_namespaces, losses


_COMMITS_VERSIONS = "the target's catalog commits its versions (managed_by=impl); deregister it there first"


def _removal(extra: Table) -> CopyStep:
    if not extra.managed_versioning:
        return Deregister(extra)
    reason = f"table {extra.id}: its catalog commits its versions, and would lose them; deregister it there"
    return Conflict(extra.id, extra.id, reason)


def _difference(source: StoredData, target: StoredData) -> str:
    if source.version != target.version:
        return f"its data has version {target.version}, that of the source {source.version}"
    return f"its data has version {target.version} as the source has, but other files"


def _split(properties: Mapping[str, str], own: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the properties that can be copied, and those whose names match one of the patterns."""
    portable = {key: value for key, value in properties.items() if not matches(key, own)}
    return portable, {key: value for key, value in properties.items() if key not in portable}


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Returns whether the name of a property matches one of the patterns, whatever its case."""
    return any(fnmatchcase(key.lower(), pattern) for pattern in patterns)


NamespaceText: TypeAlias = str | Iterable[str]
"""A namespace id, or the text that `NamespaceId` reads; the empty string is the root."""

To: TypeAlias = NamespaceText | Mapping[str, str] | Callable[[TableId], Iterable[str]] | None
"""Where the copies go.

None keeps all ids. A namespace becomes the parent of all ids. A mapping replaces namespaces at the beginning of ids,
the longest one that matches: `{"hive": "lake"}` turns `hive.sales.orders` into `lake.sales.orders`, `{"hive": ""}`
drops a level and `{"": "lake"}` adds one. A function returns the names of the target's table id.
"""

Rename: TypeAlias = Literal["lower"] | Callable[[str], str] | None
"""How names change: `lower` for catalogs that store lower case, or a function of one name. None keeps names."""


@dataclass(frozen=True, slots=True)
class IdMapping:
    """The parsed rules from ids of the source to ids of the target."""

    rules: Sequence[tuple[NamespaceId, NamespaceId]] = ((NamespaceId(), NamespaceId()),)
    """Pairs of a namespace of the source and its replacement, the deepest first."""
    function: Callable[[TableId], Iterable[str]] | None = None
    """Replaces the rules."""
    rename: Rename = None
    """Applied to each name that comes from the source, not to the replacements of the rules."""

    @classmethod
    def parse(cls, to: To, rename: Rename = None) -> IdMapping:
        """Returns the mapping for the arguments of a copy, whose namespaces must be valid and differ."""
        if rename is not None and rename != "lower" and not callable(rename):
            raise InvalidInputError(f"rename {rename!r}: must be 'lower' or a function of a name")
        if to is None:
            return cls(rename=rename)
        if isinstance(to, Mapping):
            rules: dict[NamespaceId, NamespaceId] = {}
            for source, target in to.items():
                if (source_id := _parse(source)) in rules:
                    raise InvalidInputError(f"to: the namespace {source!r} appears twice")
                rules[source_id] = _parse(target)
            return cls(sorted(rules.items(), key=lambda rule: -len(rule[0])), rename=rename)
        if callable(to):
            return cls(function=to, rename=rename)
        return cls([(NamespaceId(), _parse(to))], rename=rename)

    @property
    def is_invertible(self) -> bool:
        """Whether `sources` can determine the source ids that are mapped to an id of the target."""
        return self.function is None and not callable(self.rename)

    def table(self, id: TableId) -> TableId:
        """Returns the id in the target; raises InvalidInputError if there is no rule, or the id is not valid."""
        if self.function is not None:
            return TableId(self._new_name(name) for name in self.function(id))
        rule = self._rule(id.parent)
        if rule is None:
            namespaces = ", ".join(str(source) for source, _ in self.rules)
            raise InvalidInputError(f"table {id}: no rule of `to` applies to it; the rules are for {namespaces}")
        return TableId(self._map(id, rule))

    def namespace(self, id: NamespaceId) -> NamespaceId | None:
        """Returns the id of a namespace in the target; None if no rule applies, or a function maps the tables."""
        rule = None if self.function is not None else self._rule(id)
        return None if rule is None else NamespaceId(self._map(id, rule))

    def sources(self, id: TableId) -> Iterator[TableId]:
        """Yields the source ids that are mapped to `id`, with the target's spelling of names; needs `is_invertible`."""
        for source, target in self.rules:
            if id.parent[: len(target)] == target:
                candidate = NamespaceId((*source, *id.parent[len(target) :]))
                rule = self._rule(candidate)
                if rule is not None and rule[0] == source:
                    yield candidate.table(id.name)

    def images(self, start: NamespaceId) -> Sequence[NamespaceId]:
        """Returns the namespaces that contain all copies of tables below `start`; requires `is_invertible`."""
        starts: dict[NamespaceId, None] = {}
        inner = self.namespace(start)
        if inner is not None:
            starts[inner] = None
        for source, target in self.rules:
            if len(source) > len(start) and source[: len(start)] == start:
                starts[target] = None
        return list(starts)

    def _rule(self, id: NamespaceId) -> tuple[NamespaceId, NamespaceId] | None:
        return next((rule for rule in self.rules if id[: len(rule[0])] == rule[0]), None)

    def _map(self, id: Sequence[str], rule: tuple[NamespaceId, NamespaceId]) -> tuple[str, ...]:
        source, target = rule
        return (*target, *(self._new_name(name) for name in id[len(source) :]))

    def _new_name(self, name: str) -> str:
        if self.rename is None:
            return name
        return name.lower() if self.rename == "lower" else self.rename(name)


def _parse(names: NamespaceText) -> NamespaceId:
    return names if isinstance(names, NamespaceId) else NamespaceId(names)
