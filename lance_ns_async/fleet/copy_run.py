"""Carries out the plan of a copy: namespaces first, then tables concurrently, removals last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import TypeAlias

from lance_namespace.errors import LanceNamespaceError, UnauthenticatedError

from lance_ns_async.backends.base import Declaration
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.declare import Outcome, declare_tables
from lance_ns_async.fleet.copy_changes import CopyChanges
from lance_ns_async.fleet.copy_plan import CopyPlan, Declare, Deregister, NewNamespace, Replace, TableChange
from lance_ns_async.model import NamespaceId, TableId

Change: TypeAlias = NewNamespace | TableChange

RecordChange: TypeAlias = Callable[[Change, LanceNamespaceError | None], Awaitable[None]]
"""Receives each change after it was made, or failed with the error."""


class CopyRun:
    """One run of a plan. The failure of one change does not affect changes that do not depend on it."""

    def __init__(self, changes: CopyChanges, *, data: bool, record: RecordChange) -> None:
        self._changes = changes
        self._target = changes.target
        self._data = data
        self._record = record
        self._failed_namespaces: dict[NamespaceId, LanceNamespaceError] = {}
        self._end: LanceNamespaceError | None = None

    async def run(self, plan: CopyPlan) -> None:
        """Makes all changes of the plan."""
        for _, level in groupby(plan.namespaces, key=lambda namespace: len(namespace.id)):
            await self._each(level)
        declared: list[Declare] = []
        single: list[TableChange] = []
        removals: list[TableChange] = []
        for step in plan.table_changes:
            if isinstance(step, Declare) and not (self._data or step.takes_over):
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
            except LanceNamespaceError as e:
                await self._record(step, e)
            else:
                waiting[step.id] = step

        async def record(declaration: Declaration, outcome: Outcome) -> None:
            self._target.locator.forget(declaration.id)
            await self._settle(waiting[declaration.id], outcome if isinstance(outcome, LanceNamespaceError) else None)

        declarations = [
            Declaration(step.id, step.source.location, step.properties, step.source.schema) for step in waiting.values()
        ]
        target = self._target
        with target.within(None):
            await declare_tables(target.backend, declarations, record, max_in_flight=target.workers())

    async def _each(self, changes: Iterable[Change]) -> None:
        await each(self._change, changes, max_in_flight=self._target.workers())

    async def _change(self, change: Change) -> None:
        try:
            self._check_possible(change)
            await self._make(change)
        except LanceNamespaceError as e:
            await self._settle(change, e)
        else:
            await self._settle(change, None)

    async def _settle(self, change: Change, error: LanceNamespaceError | None) -> None:
        if error is not None and isinstance(change, NewNamespace):
            self._failed_namespaces[change.id] = error
        if isinstance(error, UnauthenticatedError):
            # A 401 applies to every table.
            self._end = self._end or error
        await self._record(change, error)

    def _check_possible(self, change: Change) -> None:
        """Raises the error of an earlier change on which this one depends."""
        if self._end is not None:
            raise UnauthenticatedError(f"not tried, because another call was not authenticated: {self._end}")
        if isinstance(change, NewNamespace | Declare):
            above = (NamespaceId(change.id[:depth]) for depth in range(1, len(change.id)))
            if (failed := next((id for id in above if id in self._failed_namespaces), None)) is not None:
                error = self._failed_namespaces[failed]
                raise type(error)(f"not tried, because the namespace {failed} could not be created: {error}")

    async def _make(self, change: Change) -> None:
        match change:
            case NewNamespace():
                await self._changes.create_namespace(change)
            case Declare() if self._data:
                await self._changes.clone(change)
            case Declare():
                await self._changes.take_over(change)
            case Replace(clone_location=str(location)):
                await self._changes.clone_again(change, location)
            case Replace():
                await self._changes.replace(change, moves=not self._data)
            case Deregister():
                await self._changes.deregister(change.table)
