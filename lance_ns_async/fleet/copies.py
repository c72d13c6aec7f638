"""Copies of registrations from one catalog to another: tables, their properties and columns, and their namespaces."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.fleet.copy_plan import (
    CREATED,
    DEREGISTERED,
    Conflict,
    CopyOptions,
    CopyPlan,
    CopyPlanner,
    Deregister,
    IdMapping,
    Keep,
    Mode,
    NewNamespace,
    Rename,
    Replace,
    TableChange,
    To,
    map_tables,
)
from lance_ns_async.fleet.copy_reading import read_extra_tables, read_pairs, read_target
from lance_ns_async.fleet.copy_run import Change, CopyRun
from lance_ns_async.fleet.journal import Journal, function_name, open_journal
from lance_ns_async.fleet.reading import Reading, read_tables
from lance_ns_async.fleet.run import Report, Run, failure_row, for_async, start
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.model import TableId
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.rendering import MISSING
from lance_ns_async.session import Session
from lance_ns_async.tabular import ERRORS, Row


@for_async
async def copy(
    source: AsyncNamespace,
    target: AsyncNamespace,
    what: What = "**",
    *,
    to: To = None,
    rename: Rename = None,
    mode: Mode = "create",
    delete: bool = False,
    take_over: bool = False,
    data: bool = False,
    partial: bool = False,
    dry_run: bool = False,
    journal: str | os.PathLike[str] | None = None,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Copies the registrations of tables from one catalog to another: locations, properties, columns, namespaces.

    Both catalogs are read first. If the target cannot have one of the tables, nothing is changed, unless `partial` is
    set. Then missing namespaces are created and the tables are registered concurrently, within the limits of both
    catalogs. The data stays where it is, except with `data`. A copy can be repeated at any time: it changes only what
    differs.

    Args:
        source: The catalog to read.
        target: The catalog to change.
        what: The tables: ids, namespaces and patterns, as in `LocationResolver.prefetch`.
        to: The ids of the copies; see `To`.
        rename: The names of the copies; see `Rename`.
        mode: "create" adds tables that the target does not have, and reports those that differ as conflicts. "sync"
            also changes those that differ.
        delete: With mode "sync", whether tables that the source does not have any more are deregistered, and properties
            that it does not have are removed. Data is never deleted. If a part of the source could not be read, nothing
            is deregistered.
        take_over: Whether tables whose versions the source's catalog commits (`managed_by=impl`) are copied, too. Their
            registration in the source changes to `managed_by=storage`, so that writers of both catalogs commit in the
            storage. Both sides are checked to have the same newest version.
        data: Whether the data is copied, too: the newest version of each table is cloned to the target's default
            location. In mode "sync", a clone whose source has other data is cloned again, to a new location: the
            registration changes to it, and the earlier clone stays in the storage. A table that was written by others
            is a conflict in both modes.
        partial: Whether tables are copied although the target cannot have others.
        dry_run: Whether to change nothing, and to report what would be changed.
        journal: A file that records what was done, so that a run that was stopped or killed goes on; None for none.
        progress: A callback, or whether a line is shown on a terminal.

    Returns:
        A report with a row for each table: "created", "changed", "unchanged" or "deregistered"; "conflict" if the
            target has another table of that name; "refused" if the target cannot have the table; "missing", "denied" or
            "failed" for errors; "not tried" if nothing was changed because of refused tables. Rows "not kept" say what
            the target does not keep of a table or a namespace. The id of a row is that of the source, and its field
            `target` is the id of the copy.

    Raises:
        InvalidInputError: The arguments are invalid or contradict each other, or the journal belongs to another run;
            nothing was called.
        LanceNamespaceError: The target could not be read; nothing was changed.

    Cost:
        In the source, the listings, a bulk describe, and one call for each namespace. In the target, one call and one
        listing for each namespace, a bulk describe of the tables that exist, and one declaration for each new table;
        the directory catalog declares 500 tables in one commit. A changed registration costs a describe more than a
        replacement. With `data`, each table that both catalogs have costs a describe and an open in both of them, and
        if they differ one small read more; no data is read for the comparison.
    """
    mapping, selection = IdMapping.parse(to, rename), Selection.read(what)
    options = CopyOptions(mode, delete, take_over, data)
    _check_arguments(source.session, target.session, mapping, options)
    arguments = {
        "source": source.session.catalog,
        "target": target.session.catalog,
        "what": sorted(str(item) for item in (*selection.ids, *(it.item for it in selection.patterns))),
        "to": function_name(mapping.function) or [[str(old), str(new)] for old, new in mapping.rules],
        "rename": rename if isinstance(rename, str) else function_name(rename),
        **asdict(options),
        "partial": partial,
    }
    with start("copy", source, target, progress=progress) as run:
        async with open_journal(None if dry_run else journal, "copy", arguments) as log:
            planned = await log.entries("planned")
            unfinished = [TableId(key) for key, outcome in planned.items() if outcome == CREATED]
            reading, plan = await _plan(source.session, target.session, selection, mapping, options, unfinished)
            outcomes = CopyOutcomes(run, log, await log.entries("done"), planned)
            outcomes.add_reading(reading)
            outcomes.add_plan(plan)
            if plan.refusals and not partial:
                outcomes.add_untried(plan)
            elif dry_run:
                outcomes.add_dry_run(plan)
            else:
                await outcomes.record_plan(plan)
                await CopyRun(source=source.session, target=target.session, data=data, record=outcomes.record).run(plan)
                outcomes.add_resumed()
                if not any(row.outcome in ERRORS for row in run.rows):
                    await log.finish()
        run.rows.sort(key=lambda row: str(row.id))
        return run.report(PROBLEMS, dry_run=dry_run)


def _check_arguments(source: Session, target: Session, mapping: IdMapping, options: CopyOptions) -> None:
    """Raises InvalidInputError for arguments that contradict each other, or would give a location a second name."""
    if options.mode not in ("create", "sync"):
        raise InvalidInputError(f"mode {options.mode!r}: must be 'create' or 'sync'")
    if options.delete and options.mode != "sync":
        raise InvalidInputError("delete: needs mode 'sync'; a copy in mode 'create' removes nothing")
    if options.delete and not mapping.is_invertible:
        raise InvalidInputError(
            "delete: needs `to` as a namespace or a mapping of namespaces, and no function for names, because the "
            "ids of tables that are gone cannot be traced back otherwise"
        )
    if options.take_over and options.data:
        raise InvalidInputError("take_over: a clone has versions of its own; omit one of take_over and data")
    if not options.data and source.catalog == target.catalog:
        raise InvalidInputError(
            f"copy: source and target are the same catalog, {source.catalog}. Each table would have two names for "
            "one location, and a drop of one of them would delete the data of both; use data=True to clone the data"
        )


async def _plan(
    source: Session,
    target: Session,
    selection: Selection,
    mapping: IdMapping,
    options: CopyOptions,
    unfinished: Sequence[TableId],
) -> tuple[Reading, CopyPlan]:
    """Reads both catalogs, and returns what was read from the source and the plan. Changes nothing."""
    backend = target.backend
    keeps_columns = backend.capabilities.stores_columns
    reading = await read_tables(source, selection, with_columns=keeps_columns)
    mapped = map_tables(reading.ids, mapping, backend.capabilities)
    state = await read_target(
        target,
        [mapped.targets[id] for id in reading.tables if id in mapped.targets],
        [image for id in reading.namespaces if (image := mapping.namespace(id))],
        with_columns=keeps_columns and source.backend.capabilities.stores_columns,
    )
    if options.delete and not reading.errors:
        copies = {*mapped.targets.values(), *(it.target for it in mapped.refusals if it.target)}
        extra = await read_extra_tables(target, selection, mapping, copies, reading)
        state = replace(state, extra_tables=extra)
    both = {id: copy for id, copy in mapped.targets.items() if options.data and copy in state.tables}

    def check(id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        if location is not None:
            backend.check_location(id, location)
        backend.check_declaration(id, location, properties)

    planner = CopyPlanner(
        source=reading,
        target=state,
        mapped=mapped,
        mapping=mapping,
        options=options,
        check=check,
        pairs=await read_pairs(source, target, both),
        unfinished=unfinished,
    )
    return reading, planner.plan()


UNCHANGED, CONFLICT, REFUSED = "unchanged", "conflict", "refused"
NOT_KEPT, NOT_TRIED = "not kept", "not tried"

PROBLEMS = frozenset({CONFLICT, REFUSED})
"""The outcomes that need attention, besides errors."""

_NAMESPACES = "namespaces created"


@dataclass(slots=True)
class CopyOutcomes:
    """Collects the outcomes of one run.

    The journal has the planned outcome of each table before the first change, and the row of each table after its
    change. A table that is as it should be, and whose change was planned, was changed by a run that was stopped before
    it could record that.
    """

    run: Run
    journal: Journal
    done: dict[str, Any]
    planned: dict[str, str]

    def add_reading(self, reading: Reading) -> None:
        """Adds what the source does not have, and what could not be read."""
        for id, error in reading.errors:
            self.run.add(failure_row(id, error))
        for id in reading.missing:
            self.run.add(Row(id, MISSING, "the source does not have it"))
        for id, error in reading.unread_properties.items():
            self.run.add(Row(id, NOT_KEPT, f"its properties could not be read: {error}"))

    def add_plan(self, plan: CopyPlan) -> None:
        """Adds everything that needs no change, or for which no change is possible."""
        for refusal in plan.refusals:
            self.run.add(_outcome_row(refusal.source, REFUSED, refusal.target, refusal.reason))
        for id, reason in plan.losses:
            self.run.add(Row(id, NOT_KEPT, reason))
        for step in plan.steps:
            match step:
                case Conflict():
                    self.done.pop(str(step.id), None)
                    self.run.add(_outcome_row(step.source, CONFLICT, step.id, step.reason))
                case Keep() if str(step.id) not in self.done:
                    outcome = self.planned.get(str(step.id))
                    self.run.add(_outcome_row(step.source, outcome or UNCHANGED, step.id), resumed=outcome is not None)

    def add_untried(self, plan: CopyPlan) -> None:
        """Adds the changes that are not made because of refused tables."""
        reason = "the target cannot have all tables; use partial=True to copy the others"
        for change in plan.table_changes:
            self.run.add(_outcome_row(change.source_id, NOT_TRIED, change.id, reason))

    def add_dry_run(self, plan: CopyPlan) -> None:
        """Adds the changes that a run would make."""
        self.run.counters[_NAMESPACES] += len(plan.namespaces)
        for change in plan.table_changes:
            self.run.add(_change_row(change))

    async def record_plan(self, plan: CopyPlan) -> None:
        """Records the planned changes in the journal, before the first one is made."""
        changes = plan.table_changes
        self.run.expect(len(plan.namespaces) + len(changes))
        await self.journal.put(*(("planned", str(change.id), change.outcome) for change in changes))
        await self.journal.flush()

    async def record(self, change: Change, error: LanceNamespaceError | None) -> None:
        """Adds the outcome of a change."""
        self.run.advance()
        if isinstance(change, NewNamespace):
            if error is None:
                self.run.counters[_NAMESPACES] += 1
            else:
                self.run.add(failure_row(change.id, error))
            return
        key = str(change.id)
        self.done.pop(key, None)
        self.planned.pop(key, None)
        if error is not None:
            self.run.add(failure_row(change.source_id, error, target=key))
        else:
            row = self.run.add(_change_row(change))
            await self.journal.put(("done", key, row.to_dict()))

    def add_resumed(self) -> None:
        """Adds the rows of changes that an earlier run has made."""
        for values in self.done.values():
            self.run.add(Row.from_dict(values), resumed=True)
        for key, outcome in self.planned.items():
            if outcome == DEREGISTERED and key not in self.done:
                self.run.add(Row(TableId(key), DEREGISTERED, fields={"target": key}), resumed=True)


def _outcome_row(source: TableId, outcome: str, target: TableId | None, reason: str = "") -> Row:
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
