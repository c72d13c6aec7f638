"""Backends for Hive Metastores: Lance tables are external tables with `table_type=lance`, in databases.

Spec: Lance Hive namespaces, https://lance.org/format/namespace/integrations/hive, with the Thrift service of Hive
2.3.9, 3.1.3 and 4.0.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import lance_namespace.errors as err

from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.backends.hive3 import locations
from lance_ns_async.backends.hive3.checks import (
    check_declaration,
    check_findable,
    check_new_table,
    findable,
    new_catalog,
    new_database,
)
from lance_ns_async.backends.hive3.dropping import drop_catalog, drop_database
from lance_ns_async.backends.hive3.locations import is_at, is_complete, to_hive
from lance_ns_async.backends.hive3.metastore import Metastore
from lance_ns_async.backends.hive3.responses import (
    CATALOG_LOCATION,
    ERRORS,
    LOCATION,
    OWNER,
    OWNER_TYPE,
    catalog_properties,
    database_properties,
    is_made_of,
    read_error,
)
from lance_ns_async.backends.hive3.settings import Hive2Settings, HiveSettings
from lance_ns_async.backends.hive3.wire import SET_UGI, user_arguments
from lance_ns_async.backends.shared import registrations
from lance_ns_async.backends.shared.lost_responses import create_or_find, remove_or_check
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.tasks import SingleFlights
from lance_ns_async.errors import ErrorTable, error_about, failure_of
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.storage.locations import without_suffix
from lance_ns_async.transports.thrift.transport import open_thrift

if TYPE_CHECKING:
    import pyarrow as pa


_NO_FILTER = frozenset({"MetaException", "UNKNOWN_METHOD"})
"""Codes of failures of servers that cannot filter tables by parameters."""


class HiveBackend(Backend):
    """A Hive Metastore since 3.0, with catalogs above the databases.

    Cost: one call for most methods; one more if a response does not show which object is missing.
    """

    settings: ClassVar[type[HiveSettings]] = HiveSettings
    errors: ClassVar[ErrorTable] = ERRORS
    capabilities: Capabilities = Capabilities(
        min_depth=2,
        max_depth=2,
        describe_batch=100,
        batch_from=2,
        cascades=True,
        folds_case=True,
        renames=True,
        replaces=True,
        own_properties=("table_type", "managed_by", "bucketing_version"),
        own_namespace_properties=(LOCATION, OWNER, OWNER_TYPE, CATALOG_LOCATION),
    )

    def __init__(self, hive: Metastore, settings: HiveSettings) -> None:
        self._hive = hive
        self._root = settings.root
        self._storage_options = settings.storage_options()
        self.unique_locations: bool = settings.unique_locations
        self.allow_aliases: bool = settings.allow_aliases
        self.configured_options: Mapping[str, str] | None = self._storage_options
        self._at_once = settings.client_pool_size
        self._databases = SingleFlights(partial(hive.database, operation="describe_table"))

    @classmethod
    def open(cls, settings: HiveSettings, caller: Caller) -> HiveBackend:
        """Returns a backend for the metastore at `settings.uri`."""
        user = settings.user_and_groups()
        thrift = open_thrift(
            settings.route(),
            caller,
            size=settings.client_pool_size,
            keep_alive=settings.keep_alive,
            read_error=read_error,
            login=settings.login(),
            first=(SET_UGI, user_arguments(*user)) if user else None,
        )
        return cls(Metastore(thrift, settings.storage_options()), settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        operation = "list_namespaces"
        if not parent and self._has_catalogs:
            return Page(await self._hive.catalogs(operation))
        check_findable(parent)
        names = await self._hive.databases(parent, operation)
        if parent and not names:
            # The response is the same for a missing and for an empty catalog.
            await self._hive.catalog(parent, operation)
        return Page(names)

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        check_findable(id)
        if len(id) == 1 and self._has_catalogs:
            return catalog_properties(await self._hive.catalog(id, "describe_namespace"))
        return database_properties(await self._hive.database(id, "describe_namespace"))

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        operation = "create_namespace"
        if len(id) == 1 and self._has_catalogs:
            catalog = new_catalog(id, properties, locations.default_catalog_location(self._root, id))
            result = catalog_properties(catalog)
            make = partial(self._hive.create_catalog, id, catalog, operation)
            has_exact_result = True
        else:
            database = new_database(id, properties)
            result = database_properties(database)
            make = partial(self._hive.create_database, id, database, operation)
            has_exact_result = database.location is None or is_complete(database.location)

        async def create() -> Mapping[str, str]:
            await make()
            return result if has_exact_result else await self.describe_namespace(id)

        missing = False

        async def find() -> Mapping[str, str] | None:
            nonlocal missing
            try:
                current = await self.describe_namespace(id)
            except err.NamespaceNotFoundError:
                missing = True
                raise
            return current if is_made_of(current, result) else None

        try:
            return await create_or_find(id, create, find, err.NamespaceAlreadyExistsError)
        except err.ServiceUnavailableError as e:
            if missing:
                e.add_note("it does not exist; some servers hang up on a location in an unknown file system")
            raise

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        check_findable(id)
        if len(id) == 1 and self._has_catalogs:
            await drop_catalog(self._hive, id, cascade=cascade, at_once=self._at_once)
            return
        # Older servers fail with a NullPointerException if the database does not exist.
        await self._hive.database(id, "drop_namespace")
        await drop_database(self._hive, id, cascade=cascade, at_once=self._at_once)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        check_findable(parent)
        names = await self._lance_tables(parent, "list_tables")
        if not names:
            # The response is the same for a missing and for an empty database.
            await self._hive.database(parent, "list_tables")
        return Page(names)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        return await self._table(id, "describe_table")

    async def describe_tables(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        check_findable(parent)
        return await self._hive.tables(parent, [name for name in names if findable(name)], "describe_tables")

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        operation = "declare_table"
        place = await self._choose_location(id) if location is None else location
        is_unique = without_suffix(place) is not None
        self.check_declaration(id, place, properties)
        place = to_hive(place)
        parameters = {**properties, "table_type": "lance", "managed_by": "storage"}
        parameters_with_identity = registrations.add_identity(parameters)
        table = Table(
            id, place, parameters, self._storage_options, registration=registrations.identity(parameters_with_identity)
        )

        async def declare() -> Table:
            new_folders = () if is_unique else await locations.make_folder(table)
            try:
                await self._hive.create_table(id, place, parameters_with_identity, operation)
            except (err.NamespaceNotFoundError, err.InvalidInputError, err.PermissionDeniedError):
                await locations.remove_folder(table, new_folders)
                raise
            return table if is_complete(place) else await self._table(id, operation)

        async def find() -> Table | None:
            current = await self._table(id, operation)
            same = is_at(current.location, place) and current.properties == parameters
            return current if same and current.registration == table.registration else None

        return await create_or_find(id, declare, find)

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Replaces the registration in place.

        Cost: two calls, because `alter_table` replaces all fields, so the current ones are read first.
        """
        operation = "replace_table"
        place = to_hive(location)
        parameters = {"managed_by": "storage", **properties, "table_type": "lance"}
        table = Table(old.id, place, parameters, self._storage_options, registration=old.registration)

        async def alter() -> Table:
            await self._hive.replace_table(old, place, parameters, operation)
            return table if is_complete(place) else await self._table(old.id, operation)

        async def find() -> Table | None:
            current = await self._table(old.id, operation)
            same = is_at(current.location, place) and current.properties == parameters
            return current if same and current.registration == old.registration else None

        return await create_or_find(old.id, alter, find, err.ConcurrentModificationError)

    def needs_protection(self, table: Table) -> bool:
        return table.is_owned

    async def protect_table(self, table: Table) -> bool:
        """Makes a table external, so that Hive keeps its data when it drops the table.

        Cost: two calls, because `alter_table` replaces all fields, so the current ones are read first.
        """
        if table.is_owned:
            await self._hive.make_external(table, "protect_table")
        return table.is_owned

    async def layout_location(self, id: TableId) -> str:
        return locations.default_table_location(self._root, id)

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        check_declaration(id, location, properties)

    async def remove_registration(self, id: TableId) -> None:
        check_findable(id)
        operation = "deregister_table"
        await remove_or_check(partial(self._hive.drop_table, id, operation), partial(self._table, id, operation))

    async def rename_table(self, id: TableId, to: TableId) -> None:
        check_new_table(to)
        source, destination = (tuple(name.lower() for name in names) for names in (id, to))
        if source == destination:
            raise error_about(err.TableAlreadyExistsError, to, "rename_table: both ids are equal")
        if source[:-2] != destination[:-2]:
            raise err.UnsupportedOperationError(
                f"Not supported: rename_table of {id} to {to}: tables cannot leave their catalog; "
                "deregister the table and register it there"
            )
        check_findable(id)
        await self._hive.rename_table(id, to, "rename_table")

    async def aclose(self) -> None:
        await self._hive.aclose()

    @property
    def _has_catalogs(self) -> bool:
        """Whether the first level of ids is that of catalogs; otherwise it is that of databases."""
        return self.capabilities.min_depth == 2

    async def _table(self, id: TableId, operation: str) -> Table:
        check_findable(id)
        try:
            return await self._hive.table(id, operation)
        except err.TableNotFoundError:
            # The response is the same if the database is missing. Concurrent checks of a database share one call.
            await self._databases.outcome(id.parent)
            raise

    async def _lance_tables(self, parent: NamespaceId, operation: str) -> Sequence[str]:
        if self.server.traits.filters is False:
            return await self._filter_by_descriptions(parent, operation)
        try:
            return await self._hive.lance_tables(parent, operation)
        except err.LanceNamespaceError as e:
            failure = failure_of(e)
            if failure is None or not _NO_FILTER.intersection(failure.codes):
                raise
        names = await self._filter_by_descriptions(parent, operation)
        # The other calls succeeded, so the server does not support the filter.
        self.server.learn(filters=False)
        return names

    async def _filter_by_descriptions(self, parent: NamespaceId, operation: str) -> Sequence[str]:
        """Returns the names of the Lance tables; describes all tables of the database."""
        names = await self._hive.all_tables(parent, operation)
        return await self._hive.lance_tables_among(parent, names, operation, at_once=self._at_once)


class Hive2Backend(HiveBackend):
    """A Hive Metastore 2.3, or a newer one without its catalogs: ids begin with the database."""

    settings: ClassVar[type[HiveSettings]] = Hive2Settings
    capabilities: Capabilities = replace(HiveBackend.capabilities, min_depth=1, max_depth=1)
