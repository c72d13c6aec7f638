"""Copies of registrations from one catalog to another: tables, their properties and columns, and their namespaces."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.tasks import each
from lance_ns_async.fleet import copy_changes
from lance_ns_async.fleet.copy_outcomes import CREATED, PROBLEMS, CopyOutcomes
from lance_ns_async.fleet.copy_plan import CopyPlan, DataPair, MappedIds, Mode, TargetState, map_tables, plan_copy
from lance_ns_async.fleet.copy_reading import SourceReading, read_extra_tables, read_source, read_target
from lance_ns_async.fleet.copy_run import CopyRun
from lance_ns_async.fleet.id_mapping import IdMapping, Rename, To
from lance_ns_async.fleet.journal import catalog_of, function_name, open_journal
from lance_ns_async.fleet.report import ERRORS, Report
from lance_ns_async.fleet.run import start
from lance_ns_async.model import TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.namespace.patterns import Selection, What
from lance_ns_async.progress import ProgressCallback


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
    mapping = IdMapping.parse(to, rename)
    check_arguments(mapping, mode=mode, delete=delete, take_over=take_over, data=data)
    check_catalogs(source, target, data=data)
    selection = Selection.read(what)
    options = {"mode": mode, "delete": delete, "take_over": take_over, "data": data, "partial": partial}
    arguments = {
        "source": catalog_of(source),
        "target": catalog_of(target),
        "what": sorted(str(item) for item in (*selection.ids, *(it.item for it in selection.patterns))),
        "to": function_name(mapping.function) or [[str(old), str(new)] for old, new in mapping.rules],
        "rename": rename if isinstance(rename, str) else function_name(rename),
        **options,
    }
    with start("copy", source, target, progress=progress) as run:
        async with open_journal(None if dry_run else journal, "copy", arguments) as log:
            planned = await log.entries("planned")
            reading, plan = await make_plan(
                source,
                target,
                selection,
                mapping,
                mode=mode,
                delete=delete,
                take_over=take_over,
                data=data,
                unfinished=[TableId.parse(key) for key, outcome in planned.items() if outcome == CREATED],
            )
            outcomes = CopyOutcomes(run, log, await log.entries("done"), planned)
            outcomes.add_reading(reading)
            outcomes.add_plan(plan)
            if plan.refusals and not partial:
                outcomes.add_untried(plan)
            elif dry_run:
                outcomes.add_dry_run(plan)
            else:
                await outcomes.record_plan(plan)
                await CopyRun(source, target, data=data, record=outcomes.record).run(plan)
                outcomes.add_resumed()
                if not any(row.outcome in ERRORS for row in run.rows):
                    await log.finish()
        return run.report(PROBLEMS, dry_run=dry_run)


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
        raise InvalidInputError("take_over: a clone has versions of its own; omit one of take_over and data")


def check_catalogs(source: AsyncNamespace, target: AsyncNamespace, *, data: bool) -> None:
    """Raises InvalidInputError for a copy within one catalog that would give a location a second name."""
    if not data and catalog_of(source) == catalog_of(target):
        raise InvalidInputError(
            f"copy: source and target are the same catalog, {catalog_of(source)}. Each table would have two names for "
            "one location, and a drop of one of them would delete the data of both; use data to clone the data"
        )


def check_table(backend: Backend, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
    """Raises InvalidInputError if the catalog would always reject a table. Cost: no call."""
    if location is not None:
        backend.check_location(id, location)
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
    keeps_columns = target.session.backend.capabilities.stores_columns
    reading = await read_source(source, selection, with_columns=keeps_columns)
    mapped = map_tables(reading.tables, mapping, target.session.backend.capabilities)
    images = [image for id in reading.state.namespaces if (image := mapping.namespace(id))]
    state = await read_target(
        target,
        [mapped.targets[id] for id in reading.state.tables if id in mapped.targets],
        images,
        with_columns=keeps_columns and source.session.backend.capabilities.stores_columns,
    )
    if delete and reading.is_complete:
        copies = {*mapped.targets.values(), *(it.target for it in mapped.refusals if it.target)}
        extra = await read_extra_tables(target, selection, mapping, copies, reading)
        state = TargetState(state.tables, state.errors, state.namespaces, state.capabilities, extra)
    pairs = await _read_data(source, target, mapped, state) if data else {}
    plan = plan_copy(
        reading.state,
        state,
        mapped,
        mapping,
        mode=mode,
        check=lambda id, location, properties: check_table(target.session.backend, id, location, properties),
        delete=delete,
        take_over=take_over,
        data=data,
        pairs=pairs,
        unfinished=unfinished,
    )
    return reading, plan


async def _read_data(
    source: AsyncNamespace, target: AsyncNamespace, mapped: MappedIds, state: TargetState
) -> Mapping[TableId, DataPair]:
    """Returns what is stored of the tables that both catalogs have."""
    pairs: dict[TableId, DataPair] = {}

    async def read(id: TableId) -> None:
        pairs[id] = await copy_changes.read_pair(source, target, id, mapped.targets[id])

    both = [id for id, copy in mapped.targets.items() if copy in state.tables]
    await each(read, both, max_in_flight=min(source.session.workers(), target.session.workers()))
    return pairs
