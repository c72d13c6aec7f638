"""Dropping catalogs and databases of a Hive Metastore.

A server that drops a catalog deletes all files under its location. With its own cascade, it also removes tables of all
formats and functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from uuid import uuid4

import lance_namespace.errors as err

from lance_ns_async.backends.hive3.metastore import Metastore
from lance_ns_async.backends.hive3.wire import HiveCatalog, HiveDatabase
from lance_ns_async.backends.shared.lost_responses import remove_or_check
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.calls.tasks import each
from lance_ns_async.errors import error_about, failure_of, shortened, spelled
from lance_ns_async.masked import mask
from lance_ns_async.model import NamespaceId, TableId

_DEFAULT = "default"
_OPERATION = "drop_namespace"
_LIST_LIMIT = 5
_MAX_MESSAGE_LENGTH = 100


async def drop_catalog(hive: Metastore, id: NamespaceId, *, cascade: bool, at_once: int) -> None:
    """Drops a catalog. With `cascade`, also drops its databases; otherwise it must be empty.

    An empty database `default` is ignored, because servers create it with every catalog. If the drop fails or is
    cancelled, the catalog is restored, without the tables and databases that were already dropped.

    Args:
        at_once: Maximum number of concurrent calls.

    Cost: seven calls. With `cascade`, also one for each database, and the cost of `drop_database` for its tables.
    """
    if id.name.lower() == "hive":
        raise err.InvalidInputError(f"namespace {id}: a metastore requires this catalog; drop the databases in it")
    catalog = await hive.catalog(id, _OPERATION)
    names = await hive.databases(id, _OPERATION)
    others = [id.child(name) for name in names if name != _DEFAULT]
    if others and not cascade:
        some = ", ".join(other.name for other in others[:3])
        raise error_about(err.NamespaceNotEmptyError, id, f"{_OPERATION}: it has {len(others)}, such as {some}")
    tables = await _empty(hive, [id.child(name) for name in names], at_once=at_once) if cascade else []
    with _note_deregistrations(id, tables):
        await each(partial(_drop_empty, hive), others, max_in_flight=at_once)
        await _drop_without_others(hive, id, catalog, _DEFAULT in names)


async def _drop_without_others(hive: Metastore, id: NamespaceId, catalog: HiveCatalog, has_default: bool) -> None:
    default = await hive.database(id.child(_DEFAULT), _OPERATION) if has_default else None
    before: HiveCatalog | None = None
    is_dropped = False

    async def undo(error: BaseException) -> None:
        nonlocal is_dropped
        is_dropped = await _put_back(hive, id, before, default, error)

    try:
        async with rollback(undo):
            if default is not None:
                await _drop_empty(hive, id.child(_DEFAULT))
            before = catalog
            await _move_away(hive, id, catalog)
            await hive.drop_catalog(id, _OPERATION)
    except err.LanceNamespaceError:
        if not is_dropped:
            raise


@contextmanager
def _note_deregistrations(id: NamespaceId, tables: Sequence[TableId]) -> Iterator[None]:
    """Adds a note about the tables that were deregistered to errors of the block."""
    try:
        yield
    except err.LanceNamespaceError as e:
        if tables:
            e.add_note(f"and {len(tables)} tables of {spelled(id)} are no longer registered; their data is untouched")
        raise


async def _move_away(hive: Metastore, id: NamespaceId, catalog: HiveCatalog) -> None:
    """Sets the catalog's location to an unused path, because the server deletes all files under the location."""
    await hive.alter_catalog(id, replace(catalog, location=_nowhere(catalog.location)), _OPERATION)
    # If there are several servers behind one address, another one may have the old location in its cache.
    if (await hive.catalog(id, _OPERATION)).location == catalog.location:
        raise error_about(
            err.ServiceUnavailableError,
            id,
            f"{_OPERATION}: the metastore still has it at {catalog.location}, and would "
            "delete everything there; try again later",
        )


async def drop_database(hive: Metastore, id: NamespaceId, *, cascade: bool, at_once: int) -> None:
    """Drops a database, which must exist. With `cascade`, also deregisters its Lance tables. No data is deleted.

    Args:
        at_once: Maximum number of concurrent calls.

    Cost: one call; one more if the response was lost. With `cascade`, also two calls, one for every 300 tables, and
    one for each table.
    """
    tables = await _empty(hive, [id], at_once=at_once) if cascade else []
    with _note_deregistrations(id, tables):
        await _drop_empty(hive, id)


async def _drop_empty(hive: Metastore, id: NamespaceId) -> None:
    """Drops a database, without the server's own cascade, which would also remove tables created meanwhile."""
    await remove_or_check(partial(hive.drop_database, id, _OPERATION), partial(hive.database, id, _OPERATION))


async def _empty(hive: Metastore, ids: Sequence[NamespaceId], *, at_once: int) -> Sequence[TableId]:
    """Deregisters all tables in databases that contain only Lance tables; returns their ids."""
    contents: dict[NamespaceId, Sequence[TableId]] = {}

    async def look(id: NamespaceId) -> None:
        contents[id] = await _only_tables(hive, id, at_once=at_once)

    await each(look, ids, max_in_flight=at_once)
    tables = [table for id in ids for table in contents[id]]
    removals: list[TableId] = []

    async def remove(table: TableId) -> None:
        operation = "deregister_table"
        # Another client may have removed it meanwhile.
        with suppress(err.TableNotFoundError):
            await remove_or_check(partial(hive.drop_table, table, operation), partial(hive.table, table, operation))
        removals.append(table)

    try:
        await each(remove, tables, max_in_flight=at_once)
    except err.LanceNamespaceError as e:
        e.add_note(
            f"and {len(removals)} of the {len(tables)} tables of {', '.join(map(spelled, ids[:_LIST_LIMIT]))} are "
            "no longer registered; their data is untouched, and the databases are there"
        )
        raise
    return removals


async def _only_tables(hive: Metastore, id: NamespaceId, *, at_once: int) -> Sequence[TableId]:
    """Returns the tables of a database; raises InvalidInputError if it contains other objects than Lance tables."""
    names = await hive.all_tables(id, _OPERATION)
    lance = set(await hive.lance_tables_among(id, names, _OPERATION, at_once=at_once))
    others = [f"the table {shortened(name, _MAX_MESSAGE_LENGTH)}" for name in sorted(names) if name not in lance]
    others += [f"the function {shortened(name, _MAX_MESSAGE_LENGTH)}" for name in sorted(await _functions(hive, id))]
    if others:
        more = f" and {len(others) - _LIST_LIMIT} more" if len(others) > _LIST_LIMIT else ""
        raise err.InvalidInputError(
            f"namespace {spelled(id)}: a cascade drops only Lance tables, and it also contains "
            f"{', '.join(others[:_LIST_LIMIT])}{more}; remove them with Hive's own tools first"
        )
    return [id.table(name) for name in names]


async def _functions(hive: Metastore, id: NamespaceId) -> Sequence[str]:
    try:
        return await hive.functions(id, _OPERATION)
    except err.UnsupportedOperationError as e:
        # A server without functions does not know the method.
        if (failure := failure_of(e)) is None or "UNKNOWN_METHOD" not in failure.codes:
            raise
        return []


async def _put_back(
    hive: Metastore, id: NamespaceId, before: HiveCatalog | None, default: HiveDatabase | None, error: BaseException
) -> bool:
    """Restores the catalog if it was changed; returns whether it was dropped in spite of the error.

    Args:
        before: The catalog before the change; None if it was not changed.
        default: The dropped database `default`; None if there was none.
    """
    try:
        if before is not None:
            await hive.catalog(id, _OPERATION)
            await hive.alter_catalog(id, before, _OPERATION)
        if default is not None:
            with suppress(err.NamespaceAlreadyExistsError):
                await hive.create_database(id.child(_DEFAULT), default, _OPERATION)
    except err.NamespaceNotFoundError:
        return before is not None
    except err.LanceNamespaceError as e:
        database = default and replace(default, parameters=mask(default.parameters))
        error.add_note(f"and the catalog could not be restored ({e}): {before}, its database default {database}")
    return False


def _nowhere(location: str) -> str:
    return f"{location.rstrip('/')}/.dropped-{uuid4().hex}"
