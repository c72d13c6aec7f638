"""The states of the two catalogs before a copy, read with as few calls as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_ns_async.backends import derived
from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.describe import Advance, OnTable, describe_tables
from lance_ns_async.fleet.copy_plan import SourceState, TargetState, namespaces_of
from lance_ns_async.fleet.id_mapping import IdMapping
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.patterns import Pattern, Selection
from lance_ns_async.namespace.search import search


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What was read from the source."""

    state: SourceState
    missing: Sequence[TableId] = ()
    """Requested tables that do not exist."""
    errors: Sequence[tuple[NamespaceId | TableId, LanceNamespaceError]] = ()
    """Tables and namespaces that could not be read."""
    unread_properties: Mapping[NamespaceId, LanceNamespaceError] = field(default_factory=dict)
    """Namespaces whose properties could not be read."""

    @property
    def tables(self) -> set[TableId]:
        """All tables that exist, also those that could not be described."""
        return {*self.state.tables, *(id for id, _ in self.errors if isinstance(id, TableId))}

    @property
    def is_complete(self) -> bool:
        """Whether no table of the source is unknown, so that others of the target are known to be extra."""
        return not self.errors


async def read_source(
    source: AsyncNamespace,
    selection: Selection,
    *,
    with_columns: bool,
    progress: Advance | None = None,
    on_table: OnTable | None = None,
) -> SourceReading:
    """Returns the selected tables of the source, described, and the properties of their namespaces.

    Args:
        source: The catalog.
        selection: The requested tables.
        with_columns: Whether the columns that the catalog stores are read, too.
        progress: Receives the number of tables that were described.
        on_table: Receives each table as soon as it is described, also of a namespace whose listing fails later.

    Raises:
        InvalidInputError: The catalog cannot have a requested id.

    Cost:
        The listings of the matching namespaces, a bulk describe, and one call for each namespace.
    """
    backend = source.session.backend
    workers = source.session.workers()
    requested_ids = [source.session.table(id) for id in selection.ids]
    reads_again = with_columns and backend.capabilities.stores_columns
    result = await search(source, selection.patterns, max_in_flight=workers, on_table=None if reads_again else on_table)
    errors: list[tuple[NamespaceId | TableId, LanceNamespaceError]] = [*result.errors.items(), *result.doubtful.items()]
    known = {} if reads_again else result.descriptions
    ids = dict.fromkeys([*result.tables, *result.guesses, *requested_ids])
    with source.session.within(None):
        described = await describe_tables(
            backend,
            [id for id in ids if id not in known],
            max_in_flight=workers,
            progress=progress,
            with_columns=with_columns,
            on_table=on_table,
        )
    missing: list[TableId] = []
    for id, error in described.errors.items():
        if not isinstance(error, TableNotFoundError | NamespaceNotFoundError):
            errors.append((id, error))
        elif id in requested_ids:
            missing.append(id)
    tables = {id: table for id in ids if (table := known.get(id) or described.tables.get(id)) is not None}
    namespaces, unread = await _describe_namespaces(source, namespaces_of(tables, result.namespaces))
    # A namespace can contain readable tables, although its own properties are not readable.
    state = SourceState(tables, {**{id: {} for id in unread}, **namespaces}, backend.capabilities)
    return SourceReading(state, missing, errors, unread)


async def read_target(
    target: AsyncNamespace,
    ids: Collection[TableId],
    namespaces: Iterable[NamespaceId],
    *,
    with_columns: bool,
    progress: Advance | None = None,
) -> TargetState:
    """Returns what the target has at the ids of the copies.

    Args:
        target: The catalog.
        ids: The ids of the copies.
        namespaces: Further namespaces that the copy needs.
        with_columns: Whether the columns that the catalog stores are read, too.
        progress: Receives the number of tables that were described.

    Raises:
        LanceNamespaceError: A namespace could not be described or listed, so that the copy cannot be planned.

    Cost:
        One call and a listing for each namespace, and a bulk describe of the tables that exist.
    """
    backend = target.session.backend
    workers = target.session.workers()
    present: dict[NamespaceId, Mapping[str, str]] = {}
    level = dict.fromkeys(id for id in [*(id.parent for id in ids), *namespaces] if id)
    requested: set[NamespaceId] = set()
    while level:
        requested.update(level)
        described, errors = await _describe_namespaces(target, level)
        for error in errors.values():
            raise error
        present.update(described)
        # The parent of an existing namespace exists, too.
        level = dict.fromkeys(
            id.parent for id in level if id not in described and id.parent and id.parent not in requested
        )
    parents = {id.parent for id in ids}
    names: dict[NamespaceId, set[str]] = {}

    async def list_names(parent: NamespaceId) -> None:
        found: set[str] = set()
        with target.session.operation():
            pages = walk(lambda token: backend.list_tables(parent, token, None))
            async with aclosing(pages) as listing:
                async for _, page in listing:
                    found.update(page.items)
        names[parent] = found

    listable = [id for id in parents if not id or id in present]
    await each(list_names, listable, max_in_flight=workers)
    existing = [id for id in ids if id.name in names.get(id.parent, ())]
    with target.session.within(None):
        result = await describe_tables(
            backend, existing, max_in_flight=workers, progress=progress, with_columns=with_columns
        )
    errors_by_id = {
        id: error
        for id, error in result.errors.items()
        if not isinstance(error, TableNotFoundError | NamespaceNotFoundError)
    }
    return TargetState(result.tables, errors_by_id, present, backend.capabilities)


async def read_extra_tables(
    target: AsyncNamespace, selection: Selection, mapping: IdMapping, copies: Collection[TableId], source: SourceReading
) -> Sequence[Table]:
    """Returns the tables of the target that would be copies of selected tables, but that the source does not have.

    Args:
        target: The catalog.
        selection: The requested tables of the source.
        mapping: The rules from ids of the source to ids of the target, which are invertible.
        copies: The ids of all copies.
        source: What was read from the source, completely.

    Raises:
        LanceNamespaceError: A namespace of the target could not be listed.

    Cost:
        The listings of the target's namespaces, and a bulk describe.
    """
    patterns = [_fold(pattern) for pattern in selection.patterns] if mapping.rename else selection.patterns
    starts = dict.fromkeys(image for pattern in selection.patterns for image in mapping.images(pattern.start))
    areas = [Pattern(start, (*start, ..., *Pattern.parse("*").levels)) for start in starts]
    result = await search(target, areas, max_in_flight=target.session.workers())
    for at, error in [*result.errors.items(), *result.doubtful.items()]:
        if not isinstance(error, NamespaceNotFoundError | TableNotFoundError):
            error.add_note(f"tables to deregister are unknown, because {at} could not be read")
            raise error
    extra = [
        id
        for id in result.tables
        if id not in copies and any(pattern.matches(origin) for origin in mapping.sources(id) for pattern in patterns)
    ]
    extra += [id for id in map(mapping.table, source.missing) if id not in copies]
    described = await target.describe_tables(extra)
    return [*described.tables.values()]


def _fold(pattern: Pattern) -> Pattern:
    if isinstance(pattern.item, str):
        return Pattern.parse(pattern.item.lower())
    return Pattern.inside(NamespaceId(name.lower() for name in pattern.item))


async def _describe_namespaces(
    ns: AsyncNamespace, ids: Iterable[NamespaceId]
) -> tuple[Mapping[NamespaceId, Mapping[str, str]], Mapping[NamespaceId, LanceNamespaceError]]:
    """Returns the properties of the namespaces that exist, and the errors of those that could not be described."""
    present: dict[NamespaceId, Mapping[str, str]] = {}
    errors: dict[NamespaceId, LanceNamespaceError] = {}

    async def describe(id: NamespaceId) -> None:
        try:
            with ns.session.operation():
                present[id] = await derived.describe_namespace(ns.session.backend, id)
        except NamespaceNotFoundError:
            return
        except LanceNamespaceError as e:
            errors[id] = e

    await each(describe, ids, max_in_flight=ns.session.workers())
    return present, errors
