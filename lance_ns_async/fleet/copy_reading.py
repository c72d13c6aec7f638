"""What the target of a copy has, read with as few calls as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing

from lance_namespace.errors import NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.calls.paging import walk
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.describe import describe_tables
from lance_ns_async.fleet.copy_plan import TargetState
from lance_ns_async.fleet.id_mapping import IdMapping
from lance_ns_async.fleet.reading import Reading, describe_namespaces
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.namespace.operations import bulk
from lance_ns_async.namespace.patterns import Pattern, Selection
from lance_ns_async.namespace.search import search
from lance_ns_async.namespace.session import Session


async def read_target(
    session: Session, ids: Collection[TableId], namespaces: Iterable[NamespaceId], *, with_columns: bool
) -> TargetState:
    """Returns what the target has at the ids of the copies.

    Args:
        session: The session with the target.
        ids: The ids of the copies.
        namespaces: Further namespaces that the copy needs.
        with_columns: Whether the columns that the catalog stores are read, too.

    Raises:
        LanceNamespaceError: A namespace could not be described or listed, so that the copy cannot be planned.

    Cost:
        One call and a listing for each namespace, and a bulk describe of the tables that exist.
    """
    backend, workers = session.backend, session.workers()
    present: dict[NamespaceId, Mapping[str, str]] = {}
    level = dict.fromkeys(id for id in [*(id.parent for id in ids), *namespaces] if id)
    requested: set[NamespaceId] = set()
    while level:
        requested.update(level)
        described, errors = await describe_namespaces(session, level)
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
        names[parent] = set()
        with session.operation():
            pages = walk(lambda token: backend.list_tables(parent, token, None))
            async with aclosing(pages) as listing:
                async for _, page in listing:
                    names[parent].update(page.items)

    listable = [id for id in parents if not id or id in present]
    await each(list_names, listable, max_in_flight=workers)
    existing = [id for id in ids if id.name in names.get(id.parent, ())]
    with session.within(None):
        result = await describe_tables(backend, existing, max_in_flight=workers, with_columns=with_columns)
    errors_by_id = {
        id: error
        for id, error in result.errors.items()
        if not isinstance(error, TableNotFoundError | NamespaceNotFoundError)
    }
    return TargetState(result.tables, errors_by_id, present, backend.capabilities)


async def read_extra_tables(
    session: Session, selection: Selection, mapping: IdMapping, copies: Collection[TableId], source: Reading
) -> Sequence[Table]:
    """Returns the tables of the target that would be copies of selected tables, but that the source does not have.

    Args:
        session: The session with the target.
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
    result = await search(session, areas, max_in_flight=session.workers())
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
    described = await bulk.describe_tables(session, extra)
    return [*described.tables.values()]


def _fold(pattern: Pattern) -> Pattern:
    if isinstance(pattern.item, str):
        return Pattern.parse(pattern.item.lower())
    return Pattern.inside(NamespaceId(name.lower() for name in pattern.item))
