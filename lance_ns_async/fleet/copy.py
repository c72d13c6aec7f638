"""Copies of registrations from one catalog to another: tables, their properties and columns, and their namespaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.concurrency import each
from lance_ns_async.fleet import copy_changes
from lance_ns_async.fleet.copy_plan import CopyPlan, MappedIds, Mode, TargetState, map_tables, plan_copy
from lance_ns_async.fleet.copy_reading import SourceReading, read_extra_tables, read_source, read_target
from lance_ns_async.fleet.id_mapping import IdMapping
from lance_ns_async.model import TableId
from lance_ns_async.namespace.client import AsyncNamespace
from lance_ns_async.spark.resolve.patterns import Selection
from lance_ns_async.storage.locations import check_location


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
        check=partial(check_table, target._backend),
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
