"""The outcomes of a copy: rows of its report, and entries of its journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.fleet.copy_plan import (
    DEREGISTERED,
    Conflict,
    CopyPlan,
    Deregister,
    Keep,
    NewNamespace,
    Replace,
    TableChange,
)
from lance_ns_async.fleet.copy_run import Change
from lance_ns_async.fleet.journal import Journal
from lance_ns_async.fleet.reading import Reading
from lance_ns_async.fleet.run import Run, failure_row
from lance_ns_async.model import TableId
from lance_ns_async.rendering import MISSING
from lance_ns_async.tabular import Row

UNCHANGED, CONFLICT, REFUSED = "unchanged", "conflict", "refused"
NOT_KEPT, NOT_TRIED = "not kept", "not tried"

PROBLEMS = frozenset({CONFLICT, REFUSED})
"""The outcomes that need attention, besides errors."""

_NAMESPACES = "namespaces created"


class CopyOutcomes:
    """Collects the outcomes of one run.

    The journal has the planned outcome of each table before the first change, and the row of each table after its
    change. A table that is as it should be, and whose change was planned, was changed by a run that was stopped before
    it could record that.
    """

    def __init__(self, run: Run, journal: Journal, done: Mapping[str, Any], planned: Mapping[str, str]) -> None:
        self._run = run
        self._journal = journal
        self._done = dict(done)
        self._planned = dict(planned)

    def add_reading(self, reading: Reading) -> None:
        """Adds what the source does not have, and what could not be read."""
        for id, error in reading.errors:
            self._run.add(failure_row(id, error))
        for id in reading.missing:
            self._run.add(Row(id, MISSING, "the source does not have it"))
        for id, error in reading.unread_properties.items():
            self._run.add(Row(id, NOT_KEPT, f"its properties could not be read: {error}"))

    def add_plan(self, plan: CopyPlan) -> None:
        """Adds everything that needs no change, or for which no change is possible."""
        for refusal in plan.refusals:
            self._run.add(_row(refusal.source, REFUSED, refusal.target, refusal.reason))
        for id, reason in plan.losses:
            self._run.add(Row(id, NOT_KEPT, reason))
        for step in plan.steps:
            match step:
                case Conflict():
                    self._done.pop(str(step.id), None)
                    self._run.add(_row(step.source, CONFLICT, step.id, step.reason))
                case Keep() if str(step.id) not in self._done:
                    outcome = self._planned.get(str(step.id))
                    self._run.add(_row(step.source, outcome or UNCHANGED, step.id), resumed=outcome is not None)

    def add_untried(self, plan: CopyPlan) -> None:
        """Adds the changes that are not made because of refused tables."""
        reason = "the target cannot have all tables; use partial=True to copy the others"
        for change in plan.table_changes:
            self._run.add(_row(change.source_id, NOT_TRIED, change.id, reason))

    def add_dry_run(self, plan: CopyPlan) -> None:
        """Adds the changes that a run would make."""
        self._run.counters[_NAMESPACES] += len(plan.namespaces)
        for change in plan.table_changes:
            self._run.add(_change_row(change))

    async def record_plan(self, plan: CopyPlan) -> None:
        """Records the planned changes in the journal, before the first one is made."""
        changes = plan.table_changes
        self._run.expect(len(plan.namespaces) + len(changes))
        await self._journal.put(*(("planned", str(change.id), change.outcome) for change in changes))
        await self._journal.flush()

    async def record(self, change: Change, error: LanceNamespaceError | None) -> None:
        """Adds the outcome of a change."""
        self._run.advance()
        if isinstance(change, NewNamespace):
            if error is None:
                self._run.counters[_NAMESPACES] += 1
            else:
                self._run.add(failure_row(change.id, error))
            return
        key = str(change.id)
        self._done.pop(key, None)
        self._planned.pop(key, None)
        if error is not None:
            self._run.add(failure_row(change.source_id, error, target=key))
        else:
            row = self._run.add(_change_row(change))
            await self._journal.put(("done", key, row.to_dict()))

    def add_resumed(self) -> None:
        """Adds the rows of changes that an earlier run has made."""
        for values in self._done.values():
            self._run.add(Row.from_dict(values), resumed=True)
        for key, outcome in self._planned.items():
            if outcome == DEREGISTERED and key not in self._done:
                self._run.add(Row(TableId(key), DEREGISTERED, fields={"target": key}), resumed=True)


def _row(source: TableId, outcome: str, target: TableId | None, reason: str = "") -> Row:
    return Row(source, outcome, reason, fields={"target": None if target is None else str(target)})


def _change_row(change: TableChange) -> Row:
    fields: dict[str, Any] = {"target": str(change.id)}
    reason, location = "", change.table.location if isinstance(change, Deregister) else change.source.location
    if isinstance(change, Replace):
        fields["changes"] = [*change.changes]
        if change.clone_location is not None:
            location = change.clone_location
            reason = f"cloned again to {location}; the earlier clone stays at {change.old.location}"
    return Row(change.source_id, change.outcome, reason, location, fields=fields)
