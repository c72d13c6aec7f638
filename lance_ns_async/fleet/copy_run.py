"""Carries out the plan of a copy: the run, and a method for each kind of change of the two catalogs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import lance_namespace.errors as err

from lance_ns_async.backends import operations
from lance_ns_async.backends.base import Backend, Declaration
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.declare import Outcome, declare_tables
from lance_ns_async.engine.locate import locate
from lance_ns_async.errors import error_about
from lance_ns_async.fleet.copy_plan import CopyPlan, Declare, Deregister, NewNamespace, Replace, TableChange
from lance_ns_async.fleet.copy_reading import open_newest, read_data
from lance_ns_async.lifecycle import commits, creating, manifests, replacing
from lance_ns_async.model import NamespaceId, Table, TableId, is_same, same_place
from lance_ns_async.session import Session
from lance_ns_async.storage import datasets, files
from lance_ns_async.storage.threads import in_thread

if TYPE_CHECKING:
    from lance import LanceDataset

Change: TypeAlias = NewNamespace | TableChange

RecordChange: TypeAlias = Callable[[Change, err.LanceNamespaceError | None], Awaitable[None]]
"""Receives each change after it was made, or failed with the error."""


@dataclass(slots=True, kw_only=True)
class CopyRun:
    """One run of a plan: namespaces first, then tables concurrently, removals last.

    The failure of one change does not affect changes that do not depend on it. A change fails with a
    ConcurrentModificationError if another client has changed the target since the plan.
    """

    source: Session
    target: Session
    data: bool
    """Whether the data is copied, too."""
    record: RecordChange
    failed_namespaces: dict[NamespaceId, err.LanceNamespaceError] = field(default_factory=dict)
    end: err.LanceNamespaceError | None = None
    """The error after which nothing more is tried."""

    async def run(self, plan: CopyPlan) -> None:
        """Makes all changes of the plan."""
        for _, level in groupby(plan.namespaces, key=lambda namespace: len(namespace.id)):
            await self._each(level)
        declared: list[Declare] = []
        single: list[TableChange] = []
        removals: list[TableChange] = []
        for step in plan.table_changes:
            if isinstance(step, Declare) and not (self.data or step.takes_over):
                declared.append(step)
            else:
                (removals if isinstance(step, Deregister) else single).append(step)
        await self._declare(declared)
        await self._each(single)
        await self._each(removals)

    async def _declare(self, steps: Iterable[Declare]) -> None:
        """Registers tables, in batches if the target has them."""
        waiting: dict[TableId, Declare] = {}
        for step in steps:
            try:
                self._check_possible(step)
            except err.LanceNamespaceError as e:
                await self.record(step, e)
            else:
                waiting[step.id] = step

        async def record(declaration: Declaration, outcome: Outcome) -> None:
            self.target.locator.forget(declaration.id)
            await self._settle(
                waiting[declaration.id], outcome if isinstance(outcome, err.LanceNamespaceError) else None
            )

        declarations = [
            Declaration(step.id, step.source.location, step.properties, step.source.schema) for step in waiting.values()
        ]
        target = self.target
        with target.within(None):
            await declare_tables(target.backend, declarations, record, max_in_flight=target.workers())

    async def _each(self, changes: Iterable[Change]) -> None:
        await each(self._change, changes, max_in_flight=self.target.workers())

    async def _change(self, change: Change) -> None:
        try:
            self._check_possible(change)
            await self._make(change)
        except err.LanceNamespaceError as e:
            await self._settle(change, e)
        else:
            await self._settle(change, None)

    async def _settle(self, change: Change, error: err.LanceNamespaceError | None) -> None:
        if error is not None and isinstance(change, NewNamespace):
            self.failed_namespaces[change.id] = error
        if isinstance(error, err.UnauthenticatedError):
            # A 401 applies to every table.
            self.end = self.end or error
        await self.record(change, error)

    def _check_possible(self, change: Change) -> None:
        """Raises the error of an earlier change on which this one depends."""
        if self.end is not None:
            raise err.UnauthenticatedError(f"not tried, because another call was not authenticated: {self.end}")
        if isinstance(change, NewNamespace | Declare):
            above = (NamespaceId(change.id[:depth]) for depth in range(1, len(change.id)))
            if (failed := next((id for id in above if id in self.failed_namespaces), None)) is not None:
                error = self.failed_namespaces[failed]
                raise type(error)(f"not tried, because the namespace {failed} could not be created: {error}")

    async def _make(self, change: Change) -> None:
        match change:
            case NewNamespace():
                # One that another client has created meanwhile stays as it is.
                with self.target.operation():
                    await operations.keep_or_create_namespace(self.target.backend, change.id, change.properties)
            case Declare() if self.data:
                await self._clone(change)
            case Declare():
                await self._take_over(change)
            case Replace(clone_location=str(location)):
                await self._clone_again(change, location)
            case Replace():
                await self._replace(change)
            case Deregister():
                await self._deregister(change.table)

    async def _take_over(self, step: Declare) -> None:
        """Registers a table whose versions the source's catalog commits, and hands these commits over to the storage.

        Cost: a declaration, and the calls of `_release_versions` and `_check_versions`.
        """
        backend, table = self.target.backend, step.source
        await self._release_versions(table.id)
        with self.target.changing(step.id):
            new = await backend.register_table(step.id, table.location, step.properties, table.schema)
            async with rollback(partial(self._deregister_again, new)):
                await self._check_versions(table.id, step.id)

    async def _replace(self, step: Replace) -> None:
        """Changes a registration to the location and the properties of its source.

        If the catalog cannot change a registration, it is removed and made again, and the name is missing in between. A
        process that is killed then leaves a name that the next copy declares. A registration with data of its own keeps
        its location.
        """
        table, old, backend = step.source, step.old, self.target.backend
        if step.takes_over:
            await self._release_versions(table.id)
        with self.target.changing(old.id):
            current = await backend.describe_table(old.id)
            if not is_same(old, current):
                raise _changed_meanwhile(old.id)
            moves = not self.data and "location" in step.changes
            location = table.location if moves else current.location
            await replacing.replace(backend, current, location, step.properties, table.schema)
            if step.takes_over:
                await self._check_versions(table.id, old.id)

    async def _deregister(self, table: Table) -> None:
        """Removes a registration, if it is still the one of the plan; its data stays."""
        with self.target.changing(table.id):
            try:
                if not is_same(table, await self.target.backend.describe_table(table.id)):
                    raise _changed_meanwhile(table.id)
                await self.target.backend.deregister_table(table.id, table)
            except err.TableNotFoundError:
                return

    async def _deregister_again(self, table: Table, error: BaseException) -> None:
        try:
            await self._deregister(table)
        except err.LanceNamespaceError as e:
            error.add_note(f"and table {table.id} stays registered at {table.location} ({e})")

    async def _release_versions(self, id: TableId) -> None:
        """Hands the commits of a table's versions over from the source's catalog to the storage.

        The newest version of the catalog must be the newest one in the storage. Then the registration changes to
        `managed_by=storage`, in one call, so that no two parties ever commit at the same time: until the call the
        catalog alone does, afterwards the storage alone. A version that is committed just before the call is not lost,
        because its writer, or the next reader, has its manifest in the storage.

        Cost: four calls and two look-ups in the storage.
        """
        backend = self.source.backend
        with self.source.changing(id):
            newest = await commits.latest(backend, id)
            table = await locate(backend, id)
            if not table.managed_versioning:
                return
            number = None if newest is None else newest.number
            if table.version != number:
                reason = f"version {table.version} was committed during the hand-over; run the copy again"
                raise error_about(err.ConcurrentModificationError, id, reason)
            stored = max(await manifests.list_stored(table), default=None)
            if stored != number:
                raise error_about(
                    err.InvalidTableStateError,
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
                raise error_about(err.InvalidTableStateError, name, "its catalog still commits its versions")
            newest.append(max(await manifests.list_stored(table), default=0))
        if newest[1] < newest[0]:
            problem = f"the target finds {f'version {newest[1]}' if newest[1] else 'no version'} at its location"
            advice = f"but the source version {newest[0]}; let the storage options of both lead to the same store"
            raise error_about(err.InvalidTableStateError, copy, f"{problem}, {advice}")

    async def _clone(self, step: Declare) -> None:
        """Copies the newest version of a table to a new table at the target's default location.

        If an interrupted clone has left a registration (`step.there`), that gets the data. A failure removes the new
        table with the files that were copied so far.

        Cost: the calls of `create_table`, and reads and writes of all files of the version.
        """
        _, dataset = await open_newest(self.source, step.source.id)
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
                async with rollback(partial(creating.undo_declaration, backend, place, clear=True)):
                    await _fill(backend, dataset, place)
            finally:
                self.target.locator.forget(copy)

    async def _clone_again(self, step: Replace, location: str) -> None:
        """Clones the newest version of a table to a new location, and changes the registration of its copy to it.

        The earlier clone stays in the storage, and must be unchanged since the plan. A failure removes the files of the
        new one.

        Cost: a describe and an open of the source, three describes, an open and a replacement in the target, and reads
        and writes of all files of the version.
        """
        old, backend = step.old, self.target.backend
        _, dataset = await open_newest(self.source, step.source.id)
        if dataset is None:
            raise _changed_meanwhile(step.source.id)
        with self.target.within(None):
            try:
                place = replace(await locate(backend, old.id), location=location)
                async with rollback(partial(_remove_clone, backend, place)):
                    await in_thread(place, partial(_clone, dataset, place), changes=True)
                    self.target.locator.forget(old.id)
                    data = await read_data(self.target, old.id)
                    current = await backend.describe_table(old.id)
                    if data != step.cloned or not is_same(old, current):
                        raise _changed_meanwhile(old.id)
                    await replacing.replace(backend, current, location, step.properties, step.source.schema)
            finally:
                self.target.locator.forget(old.id)


async def _fill(backend: Backend, dataset: LanceDataset, place: Table) -> None:
    await in_thread(place, partial(_clone, dataset, place), changes=True)
    if not is_same(place, await backend.describe_table(place.id)):
        raise _changed_meanwhile(place.id)


def _clone(dataset: LanceDataset, place: Table) -> None:
    dataset.deep_clone(place.location, dataset.version, storage_options=datasets.options(place) or {})


async def _remove_clone(backend: Backend, place: Table, error: BaseException) -> None:
    """Removes the files of a clone that no registration leads to."""

    def work() -> None:
        session = files.open_files(place.location, there.storage_options)
        for path in session.list():
            files.delete(session, path)

    try:
        # The response of a replacement may be lost, and the credentials may have expired since.
        there = await locate(backend, place.id)
        if not same_place(there.location, place.location):
            await in_thread(place, work, changes=True)
    except err.LanceNamespaceError as e:
        error.add_note(f"and files of a clone of table {place.id} may be left at {place.location} ({e})")


def _changed_meanwhile(id: TableId) -> err.ConcurrentModificationError:
    reason = "another client has changed it meanwhile; run the copy again"
    return error_about(err.ConcurrentModificationError, id, reason)
