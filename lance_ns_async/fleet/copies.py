"""Copies of registrations from one catalog to another: tables, their properties and columns, and their namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.concurrency import each
from lance_ns_async.fleet import copy_changes
from lance_ns_async.fleet.copy_plan import (
    Conflict,
    CopyPlan,
    Declare,
    Deregister,
    Keep,
    MappedIds,
    Mode,
    NewNamespace,
    Replace,
    Step,
    TargetState,
    map_tables,
    plan_copy,
)
from lance_ns_async.fleet.copy_reading import SourceReading, read_extra_tables, read_source, read_target
from lance_ns_async.fleet.copy_run import CopyRun
from lance_ns_async.fleet.id_mapping import IdMapping, Rename, To
from lance_ns_async.model import Id, TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.patterns import Selection, What
from lance_ns_async.storage.locations import check_location


@dataclass
class Report:  # TEMPORARY until the fleet core is merged
    lines: list[tuple[str, Id | None, Id | None, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def problems(self):
        return [it for it in self.lines if it[0] in ("failed", "missing", "refused", "conflict")]

    @property
    def counts(self):
        c = {}
        for it in self.lines:
            c[it[0]] = c.get(it[0], 0) + 1
        return c


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
            location.
        partial: Whether tables are copied although the target cannot have others.
        dry_run: Whether to change nothing, and to report what would be changed.

    Returns:
        A report with an outcome for each table.

    Raises:
        InvalidInputError: The arguments are invalid or contradict each other; nothing was called.
        LanceNamespaceError: The target could not be read; nothing was changed.

    Cost:
        In the source, the listings, a bulk describe, and one call for each namespace. In the target, one call and one
        listing for each namespace, a bulk describe of the tables that exist, and one declaration for each new table.
        A changed registration costs a describe more than a replacement.
    """
    started = monotonic()
    mapping = IdMapping.parse(to, rename)
    check_arguments(mapping, mode=mode, delete=delete, take_over=take_over, data=data)
    report = Report()
    reading, plan = await make_plan(
        source,
        target,
        Selection.read(what),
        mapping,
        mode=mode,
        delete=delete,
        take_over=take_over,
        data=data,
    )
    for id, error in reading.errors:
        report.lines.append(("failed", id, None, str(error)))
    for id in reading.missing:
        report.lines.append(("missing", id, None, "the source does not have it"))
    for refusal in plan.refusals:
        report.lines.append(("refused", refusal.source, refusal.target, refusal.reason))
    report.notes += plan.notes
    for step in plan.steps:
        match step:
            case Keep():
                report.lines.append(("unchanged", step.source, step.id, ""))
            case Conflict():
                report.lines.append(("conflict", step.source, step.id, step.reason))
    if plan.refusals and not partial:
        report.notes.append("nothing was changed, because the target cannot have all tables; set partial to copy the others")
    elif dry_run:
        for change in (*plan.namespaces, *plan.steps):
            if not isinstance(change, Keep | Conflict):
                report.lines.append(_line(change, None))
    else:
        run = CopyRun(
            source,
            target,
            data=data,
            begin=lambda change: None,
            record=lambda change, error: report.lines.append(_line(change, error)),
        )
        await run.run(plan)
    report.seconds = monotonic() - started
    return report


def _line(change: NewNamespace | Step, error: LanceNamespaceError | None) -> tuple[str, Id | None, Id | None, str]:
    origin: TableId | None = None
    match change:
        case NewNamespace(id):
            outcome = "namespace"
        case Declare():
            outcome, origin, id = "created", change.source.id, change.id
        case Replace():
            outcome, origin, id = "changed", change.source.id, change.old.id
        case Deregister():
            outcome, id = "deregistered", change.table.id
        case _:
            raise AssertionError(change)
    if error is not None:
        return ("failed", origin or id, id, str(error))
    return (outcome, origin or id, id, "")


def check_arguments(mapping: IdMapping, *, mode: Mode, delete: bool, take_over: bool, data: bool) -> None:
    """Raises InvalidInputError for arguments that contradict each other."""
    if mode not in ("create", "sync"):
        raise InvalidInputError(f"mode {mode!r}: must be 'create' or 'sync'")
    if delete and mode != "sync":
        raise InvalidInputError("delete: needs mode 'sync'; a copy in mode 'create' removes nothing")
    if delete and not mapping.is_invertible:
        raise InvalidInputError(
            "delete: needs `to` as a namespace or a mapping of namespaces, and no function for names, because the "
            "ids of tables that are gone cannot be traced back otherwise"
        )
    if take_over and data:
        raise InvalidInputError(
            "take_over: a clone has versions of its own; omit one of take_over and data"
        )


def check_table(backend: Backend, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
    """Raises InvalidInputError if the catalog would always reject a table. Cost: no call."""
    if location is not None:
        check_location(f"table {id}", location, relative=backend.capabilities.relative_locations)
    backend.check_declaration(id, location, properties)


async def make_plan(
    source: AsyncNamespace,
    target: AsyncNamespace,
    selection: Selection,
    mapping: IdMapping,
    *,
    mode: Mode,
    delete: bool,
    take_over: bool,
    data: bool,
    unfinished: Sequence[TableId] = (),
) -> tuple[SourceReading, CopyPlan]:
    """Reads both catalogs, and returns what was read from the source and the plan. Changes nothing."""
    keeps_columns = target._backend.capabilities.stores_columns
    reading = await read_source(source, selection, with_columns=keeps_columns)
    mapped = map_tables(reading.tables, mapping, target._backend.capabilities)
    images = [image for id in reading.state.namespaces if (image := mapping.namespace(id))]
    state = await read_target(
        target,
        [mapped.targets[id] for id in reading.state.tables if id in mapped.targets],
        images,
        with_columns=keeps_columns and source._backend.capabilities.stores_columns,
    )
    if delete and reading.is_complete:
        copies = {*mapped.targets.values(), *(it.target for it in mapped.refusals if it.target)}
        extra = await read_extra_tables(target, selection, mapping, copies, reading)
        state = TargetState(state.tables, state.errors, state.namespaces, state.capabilities, extra)
    versions = await _read_versions(source, target, mapped, state) if data else {}
    plan = plan_copy(
        reading.state,
        state,
        mapped,
        mapping,
        mode=mode,
        check=lambda id, location, properties: check_table(target._backend, id, location, properties),
        delete=delete,
        take_over=take_over,
        data=data,
        versions=versions,
        unfinished=unfinished,
    )
    return reading, plan


async def _read_versions(
    source: AsyncNamespace, target: AsyncNamespace, mapped: MappedIds, state: TargetState
) -> Mapping[TableId, tuple[int | None, int | None]]:
    """Returns the newest versions of the tables that both catalogs have, in the source and in the target."""
    versions: dict[TableId, tuple[int | None, int | None]] = {}

    async def read(id: TableId) -> None:
        copy = mapped.targets[id]
        versions[id] = (
            await copy_changes.newest_version(source, id),
            await copy_changes.newest_version(target, copy),
        )

    both = [id for id, copy in mapped.targets.items() if copy in state.tables]
    await each(read, both, max_in_flight=min(source._workers(None), target._workers(None)))
    return versions
