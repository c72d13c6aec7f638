"""The changes of a copy: one function for each kind of step, on the two catalogs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableNotFoundError,
)

from lance_ns_async.backends import derived
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import PHRASES
from lance_ns_async.fleet.copy_plan import DataPair, Declare, Deregister, NewNamespace, Replace, StoredData
from lance_ns_async.model import Table, TableId, is_same, same_place
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.threads import in_thread
from lance_ns_async.tables.lifecycle import commits, creating, manifests, replacing

if TYPE_CHECKING:
    from lance import LanceDataset


async def create_namespace(target: AsyncNamespace, namespace: NewNamespace) -> None:
    """Creates a namespace; one that another client has created meanwhile stays as it is."""
    with target.session.operation():
        await derived.keep_or_create_namespace(target.session.backend, namespace.id, namespace.properties)


async def take_over(source: AsyncNamespace, target: AsyncNamespace, step: Declare) -> None:
    """Registers a table whose versions the source's catalog commits, and hands these commits over to the storage.

    Cost: a declaration, and the calls of `release_versions` and `check_versions`.
    """
    backend, table = target.session.backend, step.source
    await release_versions(source, table.id)
    with target.session.changing(step.id):
        new = await backend.register_table(step.id, table.location, step.properties, table.schema)
        async with rollback(partial(_deregister_again, target, new)):
            await check_versions(source, target, table.id, step.id)


async def replace(source: AsyncNamespace, target: AsyncNamespace, step: Replace, *, moves: bool = True) -> None:
    """Changes a registration to the location and the properties of its source.

    If the catalog cannot change a registration, it is removed and made again, and the name is missing in between. A
    process that is killed then leaves a name that the next copy declares.

    Args:
        source: The catalog of the source.
        target: The catalog of the registration.
        step: The change.
        moves: Whether the location changes, too; it does not if the registration has data of its own.

    Raises:
        ConcurrentModificationError: Another client has changed the registration since the plan.
    """
    table, old = step.source, step.old
    if step.takes_over:
        await release_versions(source, table.id)
    with target.session.changing(old.id):
        current = await target.session.backend.describe_table(old.id)
        if not is_same(old, current):
            raise _changed_meanwhile(old.id)
        location = table.location if moves and "location" in step.changes else current.location
        await replacing.replace(target.session.backend, current, location, step.properties, table.schema)
        if step.takes_over:
            await check_versions(source, target, table.id, old.id)


async def deregister(target: AsyncNamespace, step: Deregister) -> None:
    """Removes a registration, if it is still the one of the plan; its data stays.

    Raises:
        ConcurrentModificationError: Another client has changed the registration since the plan.
    """
    id = step.table.id
    with target.session.changing(id):
        try:
            if not is_same(step.table, await target.session.backend.describe_table(id)):
                raise _changed_meanwhile(id)
            await target.session.backend.deregister_table(id)
        except TableNotFoundError:
            return


async def release_versions(source: AsyncNamespace, id: TableId) -> None:
    """Hands the commits of a table's versions over from its catalog to the storage.

    The newest version of the catalog must be the newest one in the storage. Then the registration changes to
    `managed_by=storage`, in one call, so that no two parties ever commit at the same time: until the call the catalog
    alone does, afterwards the storage alone. A version that is committed just before the call is not lost, because its
    writer, or the next reader, has its manifest in the storage.

    Raises:
        InvalidTableStateError: The catalog and the storage have different newest versions.
        ConcurrentModificationError: A writer committed a version meanwhile.

    Cost:
        Four calls and two look-ups in the storage.
    """
    backend = source.session.backend
    with source.session.changing(id):
        newest = await commits.latest(backend, id)
        table = await locate(backend, id)
        if not table.managed_versioning:
            return
        number = None if newest is None else newest.number
        if table.version != number:
            raise ConcurrentModificationError(
                f"{PHRASES[ConcurrentModificationError]}: {id} (version {table.version} was committed during the "
                "hand-over; run the copy again)"
            )
        stored = max(await manifests.list_stored(table), default=None)
        if stored != number:
            raise InvalidTableStateError(
                f"{PHRASES[InvalidTableStateError]}: {id} (its catalog committed version {number}, and the newest "
                f"manifest at {table.location} is {stored}; repair the table before a hand-over)"
            )
        current = await backend.describe_table(id)
        await backend.replace_table(current, current.location, {**(current.properties or {}), "managed_by": "storage"})


async def check_versions(source: AsyncNamespace, target: AsyncNamespace, id: TableId, copy: TableId) -> None:
    """Checks that both registrations of a table lead to the same newest version.

    Raises:
        InvalidTableStateError: They do not.
    """
    newest: list[int | None] = []
    # The target comes last, so that a version committed meanwhile is no error.
    for ns, name in ((source, id), (target, copy)):
        table = await locate(ns.session.backend, name)
        if table.managed_versioning:
            raise InvalidTableStateError(
                f"{PHRASES[InvalidTableStateError]}: {name} (its catalog still commits its versions)"
            )
        newest.append(max(await manifests.list_stored(table), default=None))
    if (newest[1] or 0) < (newest[0] or 0):
        raise InvalidTableStateError(
            f"{PHRASES[InvalidTableStateError]}: {copy} (it has version {newest[1]}, but {id} has version {newest[0]})"
        )


async def read_data(ns: AsyncNamespace, id: TableId) -> StoredData | None:
    """Returns what is stored of a table; None if nothing was written to it.

    Cost: a describe and an open; no data is read.
    """
    with ns.session.operation():
        table, dataset = await _open(ns, id)
        return None if dataset is None else await in_thread(table, partial(_read, table, dataset))


async def read_pair(source: AsyncNamespace, target: AsyncNamespace, id: TableId, copy: TableId) -> DataPair:
    """Returns what is stored of a table in two catalogs.

    Cost: that of `read_data` for each of them; if they differ, a read of the record of the target's newest transaction.
    """
    original = await read_data(source, id)
    with target.session.operation():
        table, dataset = await _open(target, copy)
        if dataset is None:
            return DataPair(original, None)
        data = await in_thread(table, partial(_read, table, dataset))
        differs = data != original
        return DataPair(original, data, differs and await in_thread(table, partial(_is_clone, table, dataset)))


def _is_clone(table: Table, dataset: LanceDataset) -> bool:
    """Returns whether the newest version of a dataset is a clone, so that nobody has written to it since."""
    from lance import LanceOperation

    with translate_errors(table):
        record = dataset.read_transaction(dataset.version)
    return record is not None and isinstance(record.operation, LanceOperation.Clone)


def _read(table: Table, dataset: LanceDataset) -> StoredData:
    with translate_errors(table):
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


async def clone(
    source: AsyncNamespace,
    target: AsyncNamespace,
    id: TableId,
    copy: TableId,
    properties: Mapping[str, str],
    there: Table | None = None,
) -> None:
    """Copies the newest version of a table to a new table at the target's default location.

    A failure removes the new table with the files that were copied so far.

    Args:
        source: The catalog of the table.
        target: The catalog of the new table.
        id: The table.
        copy: The id of the new table.
        properties: The properties of the new table.
        there: The registration that an interrupted clone has left; None if there is none.

    Cost:
        The calls of `create_table`, and reads and writes of all files of the version.
    """
    _, dataset = await _open(source, id)
    backend = target.session.backend
    with target.session.within(None):
        try:
            if dataset is None:
                if there is None:
                    await backend.declare_table(copy, None, properties)
                return
            if there is not None:
                await _fill(backend, dataset, await locate(backend, copy))
                return
            content = creating.Content(dataset.schema.empty_table(), properties)
            place = await creating.declare(backend, copy, content)
            async with rollback(partial(creating.take_back, backend, place, clear=True)):
                await _fill(backend, dataset, place)
        finally:
            target.session.locator.forget(copy)


async def clone_again(source: AsyncNamespace, target: AsyncNamespace, step: Replace) -> None:
    """Clones the newest version of a table to a new location, and changes the registration of its copy to it.

    The earlier clone stays in the storage. A failure removes the files of the new one.

    Args:
        source: The catalog of the table.
        target: The catalog of the copy.
        step: The change, with the new location.

    Raises:
        ConcurrentModificationError: Another client has changed the registration, or written to the earlier clone, since
            the plan.

    Cost:
        A describe and an open of the source, three describes, an open and a replacement in the target, and reads and
        writes of all files of the version.
    """
    assert step.clone_location is not None
    old, backend = step.old, target.session.backend
    _, dataset = await _open(source, step.source.id)
    if dataset is None:
        raise _changed_meanwhile(step.source.id)
    with target.session.within(None):
        try:
            place = dataclasses.replace(await locate(backend, old.id), location=step.clone_location)
            async with rollback(partial(_remove_clone, backend, place)):
                await in_thread(place, partial(_clone, dataset, place), changes=True)
                target.session.locator.forget(old.id)
                data = await read_data(target, old.id)
                current = await backend.describe_table(old.id)
                if data != step.cloned or not is_same(old, current):
                    raise _changed_meanwhile(old.id)
                await replacing.replace(backend, current, step.clone_location, step.properties, step.source.schema)
        finally:
            target.session.locator.forget(old.id)


async def _remove_clone(backend: Backend, place: Table, error: BaseException) -> None:
    """Removes the files of a clone that no registration leads to."""

    def work() -> None:
        session = files.open_session(place.location, place.storage_options)
        for path in session.list():
            files.delete(session, path)

    try:
        # The response of a replacement may be lost.
        if not same_place((await backend.describe_table(place.id)).location, place.location):
            await in_thread(place, work, changes=True)
    except LanceNamespaceError as e:
        error.add_note(f"and files of a clone of table {place.id} may be left at {place.location} ({e})")


async def _open(ns: AsyncNamespace, id: TableId) -> tuple[Table, LanceDataset | None]:
    """Opens the newest version of a table by its location alone; None if nothing was written to it.

    Lance clones no dataset that has a catalog.
    """
    table = await ns.session.locator.locate(id)
    version = None
    if table.managed_versioning:
        newest = await commits.latest(ns.session.backend, id)
        if newest is None:
            return table, None
        version = newest.number
    elif await datasets.is_only_declared(table):
        return table, None

    def work() -> LanceDataset:
        with translate_errors(table):
            return datasets.open_snapshot(table, Snapshot(version))

    return table, await in_thread(table, work)


async def _fill(backend: Backend, dataset: LanceDataset, place: Table) -> None:
    await in_thread(place, partial(_clone, dataset, place), changes=True)
    if not is_same(place, await backend.describe_table(place.id)):
        raise _changed_meanwhile(place.id)


def _clone(dataset: LanceDataset, place: Table) -> None:
    with translate_errors(place):
        dataset.deep_clone(place.location, dataset.version, storage_options=datasets.options(place) or {})


async def _deregister_again(target: AsyncNamespace, table: Table, error: BaseException) -> None:
    try:
        await deregister(target, Deregister(table))
    except LanceNamespaceError as e:
        error.add_note(f"and table {table.id} stays registered at {table.location} ({e})")


def _changed_meanwhile(id: TableId) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"{PHRASES[ConcurrentModificationError]}: {id} (another client has changed it meanwhile; run the copy again)"
    )
