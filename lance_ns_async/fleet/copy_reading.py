"""What the target of a copy has, and the stored data of its tables, read with as few calls as possible."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.calls.tasks import each
from lance_ns_async.fleet.copy_plan import DataPair, IdMapping, StoredData, TargetState
from lance_ns_async.fleet.reading import Reading, describe, describe_namespaces, list_names
from lance_ns_async.lifecycle import commits
from lance_ns_async.many import search
from lance_ns_async.many.patterns import Pattern, Selection
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.session import Session
from lance_ns_async.storage import datasets
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.threads import in_thread

if TYPE_CHECKING:
    from lance import LanceDataset


async def read_target(
    session: Session, ids: Collection[TableId], namespaces: Iterable[NamespaceId], *, with_columns: bool
) -> TargetState:
    """Returns what the target has at the ids of the copies, and of `namespaces`, which the copy needs, too.

    Cost: one call and a listing for each namespace, and a bulk describe of the tables that exist.
    """
    backend = session.backend
    present: dict[NamespaceId, Mapping[str, str]] = {}
    level = dict.fromkeys(id for id in [*(id.parent for id in ids), *namespaces] if id)
    requested: set[NamespaceId] = set()
    impossible: dict[NamespaceId, LanceNamespaceError] = {}
    while level:
        requested.update(level)
        described, errors = await describe_namespaces(session, level)
        for id, error in errors.items():
            if not isinstance(error, InvalidInputError):
                raise error
            impossible[id] = error
        present.update(described)
        for id in level:
            if id not in present and id not in impossible:
                try:
                    backend.check_new_namespace(id)
                except InvalidInputError as e:
                    impossible[id] = e
        # The parent of an existing namespace exists, too.
        level = dict.fromkeys(
            id.parent for id in level if id not in described and id.parent and id.parent not in requested
        )
    parents = {id.parent for id in ids}
    names = await list_names(session, [id for id in parents if not id or id in present])
    existing = [id for id in ids if id.name in names.get(id.parent, ())]
    result = await describe(session, existing, with_columns=with_columns)
    errors_by_id = {
        id: error
        for id, error in result.errors.items()
        if not isinstance(error, TableNotFoundError | NamespaceNotFoundError)
    }
    return TargetState(result.tables, errors_by_id, present, backend.capabilities, impossible=impossible)


async def read_extra_tables(
    session: Session, selection: Selection, mapping: IdMapping, copies: Collection[TableId], source: Reading
) -> Sequence[Table]:
    """Returns the tables of the target that would be copies of selected tables, but that the source does not have.

    `source` is what was read from the source, completely; `copies` are the ids of all copies.

    Cost: the listings of the target's namespaces, and a bulk describe.
    """
    patterns = [_fold(pattern) for pattern in selection.patterns] if mapping.rename else selection.patterns
    starts = dict.fromkeys(image for pattern in selection.patterns for image in mapping.images(pattern.start))
    areas = [Pattern(start, (*start, ..., *Pattern.parse("*").levels)) for start in starts]
    result = await search.search(session, areas, max_in_flight=session.workers())
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
    described = await search.describe_tables(session, extra)
    return [*described.tables.values()]


async def read_pairs(source: Session, target: Session, copies: Mapping[TableId, TableId]) -> Mapping[TableId, DataPair]:
    """Returns what is stored of tables that both catalogs have, by the id in the source.

    Cost: for each table a describe and an open in both catalogs, no data is read; if they differ, a read of the record
    of the target's newest transaction.
    """
    pairs: dict[TableId, DataPair] = {}

    async def read(id: TableId) -> None:
        original = await read_data(source, id)
        with target.operation():
            table, dataset = await open_newest(target, copies[id])
            if dataset is None:
                pairs[id] = DataPair(original, None)
                return
            data = await in_thread(table, partial(_read, dataset))
            differs = data != original
            pairs[id] = DataPair(original, data, differs and await in_thread(table, partial(_is_clone, dataset)))

    await each(read, copies, max_in_flight=min(source.workers(), target.workers()))
    return pairs


async def read_data(session: Session, id: TableId) -> StoredData | None:
    """Returns what is stored of a table; None if nothing was written to it."""
    with session.operation():
        table, dataset = await open_newest(session, id)
        return None if dataset is None else await in_thread(table, partial(_read, dataset))


async def open_newest(session: Session, id: TableId) -> tuple[Table, LanceDataset | None]:
    """Opens the newest version by its location alone, as clones need it; None if nothing was written to the table."""
    table = await session.locator.locate(id)
    version = None
    if table.managed_versioning:
        newest = await commits.latest(session.backend, id)
        if newest is None:
            return table, None
        version = newest.number
    elif await datasets.is_only_declared(table):
        return table, None

    return table, await in_thread(table, lambda: datasets.open_snapshot(table, Snapshot(version)))


def _is_clone(dataset: LanceDataset) -> bool:
    """Returns whether the newest version of a dataset is a clone, so that nobody has written to it since."""
    from lance import LanceOperation

    record = dataset.read_transaction(dataset.version)
    return record is not None and isinstance(record.operation, LanceOperation.Clone)


def _read(dataset: LanceDataset) -> StoredData:
    names = [
        (
            fragment.fragment_id,
            [file.path for file in fragment.metadata.files],
            deletion and (deletion.read_version, deletion.id),
            [str(overlay) for overlay in fragment.metadata.overlays],
        )
        for fragment in dataset.get_fragments()
        for deletion in (fragment.metadata.deletion_file,)
    ]
    schema = dataset.schema.serialize().to_pybytes()
    return StoredData(dataset.version, hashlib.sha256(repr(names).encode() + schema).hexdigest())


def _fold(pattern: Pattern) -> Pattern:
    if isinstance(pattern.item, str):
        return Pattern.parse(pattern.item.lower())
    return Pattern.inside(NamespaceId(name.lower() for name in pattern.item))
