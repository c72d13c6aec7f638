"""The changes of a copy: one method for each kind of step, on the two catalogs."""

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

from lance_ns_async.backends import operations
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import PHRASES
from lance_ns_async.fleet.copy_plan import DataPair, Declare, NewNamespace, Replace, StoredData
from lance_ns_async.model import Table, TableId, is_same, same_place
from lance_ns_async.namespace.session import Session
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.pylance_errors import translate_errors
from lance_ns_async.storage.threads import in_thread
from lance_ns_async.tables.lifecycle import commits, creating, manifests, replacing

if TYPE_CHECKING:
    from lance import LanceDataset


class CopyChanges:
    """The changes of a copy between two catalogs.

    All changes raise ConcurrentModificationError if another client has changed the target since the plan.
    """

    def __init__(self, source: Session, target: Session) -> None:
        self.source = source
        self.target = target

    async def create_namespace(self, namespace: NewNamespace) -> None:
        """Creates a namespace; one that another client has created meanwhile stays as it is."""
        with self.target.operation():
            await operations.keep_or_create_namespace(self.target.backend, namespace.id, namespace.properties)

    async def take_over(self, step: Declare) -> None:
        """Registers a table whose versions the source's catalog commits, and hands these commits over to the storage.

        Cost: a declaration, and the calls of `_release_versions` and `_check_versions`.
        """
        backend, table = self.target.backend, step.source
        await self._release_versions(table.id)
        with self.target.changing(step.id):
            new = await backend.register_table(step.id, table.location, step.properties, table.schema)
            async with rollback(partial(self._deregister_again, new)):
                await self._check_versions(table.id, step.id)

    async def replace(self, step: Replace, *, moves: bool = True) -> None:
        """Changes a registration to the location and the properties of its source.

        If the catalog cannot change a registration, it is removed and made again, and the name is missing in between. A
        process that is killed then leaves a name that the next copy declares.

        Args:
            step: The change.
            moves: Whether the location changes, too; it does not if the registration has data of its own.
        """
        table, old, backend = step.source, step.old, self.target.backend
        if step.takes_over:
            await self._release_versions(table.id)
        with self.target.changing(old.id):
            current = await backend.describe_table(old.id)
            if not is_same(old, current):
                raise _changed_meanwhile(old.id)
            location = table.location if moves and "location" in step.changes else current.location
            await replacing.replace(backend, current, location, step.properties, table.schema)
            if step.takes_over:
                await self._check_versions(table.id, old.id)

    async def deregister(self, table: Table) -> None:
        """Removes a registration, if it is still the one of the plan; its data stays."""
        with self.target.changing(table.id):
            try:
                if not is_same(table, await self.target.backend.describe_table(table.id)):
                    raise _changed_meanwhile(table.id)
                await self.target.backend.deregister_table(table.id)
            except TableNotFoundError:
                return

    async def _deregister_again(self, table: Table, error: BaseException) -> None:
        try:
            await self.deregister(table)
        except LanceNamespaceError as e:
            error.add_note(f"and table {table.id} stays registered at {table.location} ({e})")

    async def _release_versions(self, id: TableId) -> None:
        """Hands the commits of a table's versions over from the source's catalog to the storage.

        The newest version of the catalog must be the newest one in the storage. Then the registration changes to
        `managed_by=storage`, in one call, so that no two parties ever commit at the same time: until the call the
        catalog alone does, afterwards the storage alone. A version that is committed just before the call is not lost,
        because its writer, or the next reader, has its manifest in the storage.

        Raises:
            InvalidTableStateError: The catalog and the storage have different newest versions.
            ConcurrentModificationError: A writer committed a version meanwhile.

        Cost:
            Four calls and two look-ups in the storage.
        """
        backend = self.source.backend
        with self.source.changing(id):
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
                raise _invalid_state(
                    id,
                    f"its catalog committed version {number}, and the newest manifest at {table.location} is {stored}; "
                    "repair the table before a hand-over",
                )
            current = await backend.describe_table(id)
            properties = {**(current.properties or {}), "managed_by": "storage"}
            await backend.replace_table(current, current.location, properties)

    async def _check_versions(self, id: TableId, copy: TableId) -> None:
        """Raises InvalidTableStateError unless both registrations of a table lead to the same newest version."""
        newest: list[int] = []
        # The target comes last, so that a version committed meanwhile is no error.
        for session, name in ((self.source, id), (self.target, copy)):
            table = await locate(session.backend, name)
            if table.managed_versioning:
                raise _invalid_state(name, "its catalog still commits its versions")
            newest.append(max(await manifests.list_stored(table), default=0))
        if newest[1] < newest[0]:
            versions = [version or None for version in newest]
            raise _invalid_state(copy, f"it has version {versions[1]}, but {id} has version {versions[0]}")

    async def read_pairs(self, copies: Mapping[TableId, TableId]) -> Mapping[TableId, DataPair]:
        """Returns what is stored of tables that both catalogs have, by the id in the source.

        Cost: for each table a describe and an open in both catalogs, no data is read; if they differ, a read of the
        record of the target's newest transaction.
        """
        pairs: dict[TableId, DataPair] = {}

        async def read(id: TableId) -> None:
            pairs[id] = await self._read_pair(id, copies[id])

        await each(read, copies, max_in_flight=min(self.source.workers(), self.target.workers()))
        return pairs

    async def _read_pair(self, id: TableId, copy: TableId) -> DataPair:
        original = await _read_data(self.source, id)
        with self.target.operation():
            table, dataset = await _open(self.target, copy)
            if dataset is None:
                return DataPair(original, None)
            data = await in_thread(table, partial(_read, table, dataset))
            differs = data != original
            return DataPair(original, data, differs and await in_thread(table, partial(_is_clone, table, dataset)))

    async def clone(self, step: Declare) -> None:
        """Copies the newest version of a table to a new table at the target's default location.

        If an interrupted clone has left a registration (`step.there`), that gets the data. A failure removes the new
        table with the files that were copied so far.

        Cost: the calls of `create_table`, and reads and writes of all files of the version.
        """
        _, dataset = await _open(self.source, step.source.id)
        backend, copy = self.target.backend, step.id
        with self.target.within(None):
            try:
                if dataset is None:
                    if step.there is None:
                        await backend.declare_table(copy, None, step.properties)
                    return
                if step.there is not None:
                    await _fill(backend, dataset, await locate(backend, copy))
                    return
                content = creating.Content(dataset.schema.empty_table(), step.properties)
                place = await creating.declare(backend, copy, content)
                async with rollback(partial(creating.take_back, backend, place, clear=True)):
                    await _fill(backend, dataset, place)
            finally:
                self.target.locator.forget(copy)

    async def clone_again(self, step: Replace, location: str) -> None:
        """Clones the newest version of a table to a new location, and changes the registration of its copy to it.

        The earlier clone stays in the storage, and must be unchanged since the plan. A failure removes the files of the
        new one.

        Cost: a describe and an open of the source, three describes, an open and a replacement in the target, and reads
        and writes of all files of the version.
        """
        old, backend = step.old, self.target.backend
        _, dataset = await _open(self.source, step.source.id)
        if dataset is None:
            raise _changed_meanwhile(step.source.id)
        with self.target.within(None):
            try:
                place = dataclasses.replace(await locate(backend, old.id), location=location)
                async with rollback(partial(_remove_clone, backend, place)):
                    await in_thread(place, partial(_clone, dataset, place), changes=True)
                    self.target.locator.forget(old.id)
                    data = await _read_data(self.target, old.id)
                    current = await backend.describe_table(old.id)
                    if data != step.cloned or not is_same(old, current):
                        raise _changed_meanwhile(old.id)
                    await replacing.replace(backend, current, location, step.properties, step.source.schema)
            finally:
                self.target.locator.forget(old.id)


async def _read_data(session: Session, id: TableId) -> StoredData | None:
    """Returns what is stored of a table; None if nothing was written to it."""
    with session.operation():
        table, dataset = await _open(session, id)
        return None if dataset is None else await in_thread(table, partial(_read, table, dataset))


async def _open(session: Session, id: TableId) -> tuple[Table, LanceDataset | None]:
    """Opens the newest version of a table by its location alone; None if nothing was written to it.

    Lance clones no dataset that has a catalog.
    """
    table = await session.locator.locate(id)
    version = None
    if table.managed_versioning:
        newest = await commits.latest(session.backend, id)
        if newest is None:
            return table, None
        version = newest.number
    elif await datasets.is_only_declared(table):
        return table, None

    def work() -> LanceDataset:
        with translate_errors(table):
            return datasets.open_snapshot(table, Snapshot(version))

    return table, await in_thread(table, work)


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


async def _fill(backend: Backend, dataset: LanceDataset, place: Table) -> None:
    await in_thread(place, partial(_clone, dataset, place), changes=True)
    if not is_same(place, await backend.describe_table(place.id)):
        raise _changed_meanwhile(place.id)


def _clone(dataset: LanceDataset, place: Table) -> None:
    with translate_errors(place):
        dataset.deep_clone(place.location, dataset.version, storage_options=datasets.options(place) or {})


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


def _changed_meanwhile(id: TableId) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"{PHRASES[ConcurrentModificationError]}: {id} (another client has changed it meanwhile; run the copy again)"
    )


def _invalid_state(id: TableId, reason: str) -> InvalidTableStateError:
    return InvalidTableStateError(f"{PHRASES[InvalidTableStateError]}: {id} ({reason})")
