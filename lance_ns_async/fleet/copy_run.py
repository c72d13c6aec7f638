"""Carries out the plan of a copy: namespaces first, then tables concurrently, removals last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import groupby
from typing import TypeAlias, TypeGuard

from lance_namespace.errors import LanceNamespaceError, UnauthenticatedError

from lance_ns_async.backends.base import Declaration
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.declare import Outcome, declare_tables
from lance_ns_async.fleet import copy_changes
from lance_ns_async.fleet.copy_plan import CopyPlan, Declare, Deregister, NewNamespace, Replace, Step
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.namespace.client import AsyncNamespace

Change: TypeAlias = NewNamespace | Declare | Replace | Deregister

Record: TypeAlias = Callable[[Change, LanceNamespaceError | None], Awaitable[None]]
"""Receives each change after it was made, or failed with the error."""


class CopyRun:
    """One run of a plan. The failure of one change does not affect changes that do not depend on it."""

    def __init__(self, source: AsyncNamespace, target: AsyncNamespace, *, data: bool, record: Record) -> None:
        self._source = source
        self._target = target
        self._data = data
        self._record = record
        self._failed_namespaces: dict[NamespaceId, LanceNamespaceError] = {}
        self._end: LanceNamespaceError | None = None

    async def run(self, plan: CopyPlan) -> None:
        """Makes all changes of the plan."""
        for _, level in groupby(plan.namespaces, key=lambda namespace: len(namespace.id)):
            await self._each(level)
        await self._declare(step for step in plan.steps if isinstance(step, Declare) and not self._is_single(step))
        await self._each(step for step in plan.steps if self._is_single(step))
        await self._each(step for step in plan.steps if isinstance(step, Deregister))

    def _is_single(self, step: Step) -> TypeGuard[Declare | Replace]:
        """Returns whether a step needs more than a declaration."""
        return isinstance(step, Replace) or (isinstance(step, Declare) and (self._data or step.takes_over))

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
            self._target.session.locator.forget(declaration.id)
            await self._settle(waiting[declaration.id], outcome if isinstance(outcome, LanceNamespaceError) else None)

        declarations = [
            Declaration(step.id, step.source.location, step.properties, step.source.schema) for step in waiting.values()
        ]
        session = self._target.session
        with session.within(None):
            await declare_tables(session.backend, declarations, record, max_in_flight=session.workers())

    async def _each(self, changes: Iterable[Change]) -> None:
        await each(self._change, changes, max_in_flight=self._target.session.workers())

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
        source, target = self._source, self._target
        match change:
            case NewNamespace():
                await copy_changes.create_namespace(target, change)
            case Declare() if self._data:
                await copy_changes.clone(source, target, change.source.id, change.id, change.properties, change.there)
            case Declare():
                await copy_changes.take_over(source, target, change)
            case Replace() if change.clone_location is not None:
                await copy_changes.clone_again(source, target, change)
            case Replace():
                await copy_changes.replace(source, target, change, moves=not self._data)
            case Deregister():
                await copy_changes.deregister(target, change)
