"""Calls of a Hive Metastore, as coroutines. Only `drop_catalog` makes the server delete data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from lance_namespace.errors import ConcurrentModificationError, InternalError, LanceNamespaceError

from lance_ns_async.backends.hive3 import responses, wire
from lance_ns_async.backends.hive3.wire import HiveCatalog, HiveDatabase
from lance_ns_async.backends.shared import response_checks
from lance_ns_async.calls.tasks import each
from lance_ns_async.errors import error_about, failure_of
from lance_ns_async.masked import MaskedPartial
from lance_ns_async.model import Id, NamespaceId, Table, TableId
from lance_ns_async.transports.thrift.transport import Method, ThriftTransport

T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)

_FILTER_BATCH = 300
"""Number of tables described by one call if the server cannot filter Lance tables; servers split larger requests."""


class Metastore:
    """A Hive Metastore.

    The argument `operation` is the name of the backend's method that makes the call.
    """

    def __init__(self, thrift: ThriftTransport, storage_options: Mapping[str, str] | None) -> None:
        self._thrift = thrift
        self._storage_options = storage_options

    async def catalogs(self, operation: str) -> Sequence[str]:
        """Returns the names of all catalogs."""
        return await self._read(wire.GET_CATALOGS, b"", NamespaceId(), operation, responses.catalogs)

    async def catalog(self, id: NamespaceId, operation: str) -> HiveCatalog:
        """Returns a catalog."""
        return await self._read(wire.GET_CATALOG, wire.named_catalog(id.name), id, operation, responses.catalog)

    async def create_catalog(self, id: NamespaceId, catalog: HiveCatalog, operation: str) -> None:
        """Creates a catalog with a database `default`."""
        await self._write(wire.CREATE_CATALOG, wire.new_catalog(catalog), id, operation)

    async def alter_catalog(self, id: NamespaceId, catalog: HiveCatalog, operation: str) -> None:
        """Replaces all fields of a catalog."""
        await self._write(wire.ALTER_CATALOG, wire.altered_catalog(catalog), id, operation)

    async def drop_catalog(self, id: NamespaceId, operation: str) -> None:
        """Drops a catalog that contains at most the database `default`. DELETES ALL FILES under its location."""
        await self._write(wire.DROP_CATALOG, wire.named_catalog(id.name), id, operation)

    async def databases(self, parent: NamespaceId, operation: str) -> Sequence[str]:
        """Returns the names of the databases in a catalog, or in a metastore without catalogs.

        There are none if the catalog does not exist.
        """
        return await self._read(wire.GET_DATABASES, wire.databases_in(parent), parent, operation, responses.names)

    async def database(self, id: NamespaceId, operation: str) -> HiveDatabase:
        """Returns a database."""
        return await self._read(wire.GET_DATABASE, wire.named_database(id), id, operation, responses.database)

    async def create_database(self, id: NamespaceId, database: HiveDatabase, operation: str) -> None:
        """Creates a database."""
        await self._write(wire.CREATE_DATABASE, wire.new_database(id, database), id, operation)

    async def drop_database(self, id: NamespaceId, operation: str) -> None:
        """Drops a database, which must exist and be empty. No data is deleted."""
        await self._write(wire.DROP_DATABASE, wire.dropped_database(id), id, operation)

    async def lance_tables(self, database: NamespaceId, operation: str) -> Sequence[str]:
        """Returns the names of the Lance tables in a database; empty if the database does not exist."""
        return await self._read(wire.FILTER_TABLES, wire.lance_tables(database), database, operation, responses.names)

    async def all_tables(self, database: NamespaceId, operation: str) -> Sequence[str]:
        """Returns the names of all tables in a database; empty if the database does not exist."""
        return await self._read(
            wire.GET_ALL_TABLES, wire.named_database(database), database, operation, responses.names
        )

    async def functions(self, database: NamespaceId, operation: str) -> Sequence[str]:
        """Returns the names of all functions in a database; empty if the database does not exist."""
        arguments = wire.all_functions(database)
        return await self._read(wire.GET_FUNCTIONS, arguments, database, operation, responses.names)

    async def lance_tables_among(
        self, database: NamespaceId, names: Sequence[str], operation: str, *, at_once: int
    ) -> Sequence[str]:
        """Returns the names of the Lance tables among `names`; describes each table.

        Cost: one call for every 300 tables.
        """
        tables: list[str] = []

        async def filter_batch(batch: Sequence[str]) -> None:
            arguments = wire.named_tables(database, batch)
            tables.extend(
                await self._read(wire.GET_TABLE_FORMATS, arguments, database, operation, responses.lance_names)
            )

        slices = (names[i : i + _FILTER_BATCH] for i in range(0, len(names), _FILTER_BATCH))
        await each(filter_batch, slices, max_in_flight=at_once)
        return tables

    async def tables(self, database: NamespaceId, names: Sequence[str], operation: str) -> dict[str, Table]:
        """Returns the Lance tables with these names; omits missing tables and tables of other formats."""
        arguments = wire.named_tables(database, names)
        decode = MaskedPartial(responses.tables, database, names, self._storage_options)
        return await self._read(wire.GET_TABLES, arguments, database, operation, decode)

    async def table(self, id: TableId, operation: str) -> Table:
        """Returns a Lance table. The error for a missing table is the same if its database is missing."""
        decode = MaskedPartial(responses.table, id, self._storage_options)
        return await self._read(wire.GET_TABLE, wire.named_table(id), id, operation, decode)

    async def create_table(self, id: TableId, location: str, parameters: Mapping[str, str], operation: str) -> None:
        """Creates an external table."""
        await self._write(wire.CREATE_TABLE, wire.new_table(id, location, parameters), id, operation)

    async def rename_table(self, id: TableId, to: TableId, operation: str) -> None:
        """Renames an external table; the new name may be in another database of its catalog. Cost: three calls."""
        # The source exists, so an error about an existing table or a missing database is about the destination.
        await self._alter(id, to, operation, partial(responses.renaming, id, to))

    async def replace_table(self, old: Table, location: str, parameters: Mapping[str, str], operation: str) -> None:
        """Replaces the location and parameters of an external table. No data is deleted. Cost: three calls."""
        change = partial(responses.replacement, old, location, parameters)
        await self._alter(old.id, old.id, operation, change)

    async def make_external(self, old: Table, operation: str) -> None:
        """Makes a table an external one, whose data other tools keep. Cost: three calls."""
        await self._alter(old.id, old.id, operation, partial(responses.as_external, old))

    async def _alter(
        self, id: TableId, subject: TableId, operation: str, decode: Callable[[bytes], wire.AlterTable]
    ) -> None:
        """Changes a table if it is still the one that was read.

        Before Hive 4, the metastore does not compare, so that the result is compared afterwards; creations within one
        second look alike.
        """
        change = await self._read(wire.GET_WHOLE_TABLE, wire.named_table(id), id, operation, decode)
        try:
            await self._write(wire.ALTER_TABLE, wire.altered_table(id, change), subject, operation)
        except InternalError as e:
            if (failure := failure_of(e)) is None or responses.INCOMPARABLE not in failure.codes:
                raise
            # Hive 4 with its embedded database cannot compare parameters, and has changed nothing.
            change = replace(change, expected=None)
            await self._write(wire.ALTER_TABLE, wire.altered_table(id, change), subject, operation)
        try:
            there = await self._read(wire.GET_TABLE, wire.named_table(subject), subject, operation, responses.creation)
        except LanceNamespaceError as e:
            # The change was made. A later removal, or a busy server, is no reason to report a failure.
            log.debug("%s was altered, but could not be read afterwards: %s", subject, e)
            return
        if there != change.creation:
            raise error_about(
                ConcurrentModificationError,
                subject,
                f"{operation}: another client replaced {id} at the same time; it is unknown which change was "
                "first, and the new table may now be registered at the location of the former one; discover finds its "
                "data",
            )

    async def drop_table(self, id: TableId, operation: str) -> None:
        """Drops a table. No data is deleted."""
        await self._write(wire.DROP_TABLE, wire.dropped_table(id), id, operation)

    async def aclose(self) -> None:
        """Closes all connections; may be called twice."""
        await self._thrift.aclose()

    async def _read(
        self, method: Method, arguments: bytes, subject: Id, operation: str, decode: Callable[[Any], T]
    ) -> T:
        return await self._thrift.call(method, arguments, subject=subject, operation=operation, decode=decode)

    async def _write(self, method: Method, arguments: bytes, subject: Id, operation: str) -> None:
        await self._thrift.call(
            method, arguments, subject=subject, operation=operation, decode=response_checks.ignore, safe=False
        )
