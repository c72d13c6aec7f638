"""Backend for Lakekeeper: Lance tables are generic tables with `format: lance` in the namespaces of a warehouse.

Namespaces and the configuration are those of its Iceberg REST API. Spec: docs/docs/api/generic-table-open-api.yaml in
https://github.com/lakekeeper/lakekeeper, and the source of the server after version 0.13.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pydantic import Field, field_validator, model_validator

from lance_ns_async.backends.base import Capabilities
from lance_ns_async.backends.lakekeeper import wire
from lance_ns_async.backends.lakekeeper.wire import ERRORS, LOCATION_TAKEN
from lance_ns_async.backends.shared.generic_tables import GenericTableBackend, OtherSpellingError, declaration
from lance_ns_async.backends.shared.iceberg_namespaces import IcebergNamespaces
from lance_ns_async.backends.shared.iceberg_wire import PAGE_SIZE, Routes, identifier, namespace_names
from lance_ns_async.backends.shared.response_checks import ignore
from lance_ns_async.calls.caller import Caller
from lance_ns_async.errors import ErrorTable, NotALanceTableError, error_about, failure_of
from lance_ns_async.model import NamespaceId, Page, Table, TableId, is_same, same_place
from lance_ns_async.settings import LocationSettings
from lance_ns_async.storage.locations import Root, default_location
from lance_ns_async.transports.http.oauth2 import OAuth2Settings, open_tokens
from lance_ns_async.transports.http.transport import HttpTransport, open_http

if TYPE_CHECKING:
    import pyarrow as pa


class LakekeeperSettings(LocationSettings, OAuth2Settings):
    """Properties of Lakekeeper; bare numbers of `connect_timeout` and `read_timeout` are milliseconds."""

    backend = "lakekeeper"

    warehouse: Annotated[str, Field(min_length=1)]
    """The name of the warehouse, or `project-id/name`; not a level of ids."""
    scope: str = ""
    """The requested scope; empty for none."""
    root: Root | None = None
    """Base of default table locations, `{root}/{levels}/{table}`; None means that the server chooses them."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""

    @model_validator(mode="after")
    def _token_endpoint(self) -> Self:
        if self.oauth2_server_uri is None and self.grants():
            raise ValueError("oauth2_server_uri: give the token endpoint of the identity provider; Lakekeeper has none")
        return self

    @field_validator("endpoint")
    @classmethod
    def _root_alone(cls, endpoint: str) -> str:
        # Clients of the Iceberg API are configured with this longer path.
        return endpoint.rstrip("/").removesuffix("/catalog")

    def identity(self) -> str:
        """Returns endpoint, warehouse and client id."""
        return "|".join(filter(None, (self.endpoint, self.warehouse, self.client()[0])))


_VENDED = {"x-iceberg-access-delegation": "vended-credentials"}
_NOT_VENDED = {"x-iceberg-access-delegation": "client-managed"}
"""Without the header, the server asks STS for credentials with each describe."""

_DECLARATIONS = 3  # Number of declarations at a location that is taken although no table has the name.

_SERVER_MADE = re.compile(r"/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/?$")
"""The end of a location that the server chose: the id of the table, which no other client knows before."""

_PAGE = f"pageSize={PAGE_SIZE}"
"""The largest page that a server returns by default; it returns 100 names if none is requested."""


class LakekeeperBackend(IcebergNamespaces, GenericTableBackend):
    """A warehouse of a Lakekeeper server.

    Cost: one call to describe an existing table; the first operation needs one more call, to `/catalog/v1/config`.
    """

    settings: ClassVar[type[LakekeeperSettings]] = LakekeeperSettings
    errors: ClassVar[ErrorTable] = ERRORS
    iceberg_path = wire.ICEBERG_API
    recognizes_changes = True
    capabilities: Capabilities = Capabilities(
        min_depth=1,
        max_depth=5,
        paginates=False,
        lists_only_lance=True,
        folds_case=True,
        keeps_case=True,
        vends=True,
        renames=True,
        location_properties=("location",),
        own_properties=("table_type",),
        own_namespace_properties=("location", "namespace_id"),
    )

    def __init__(self, http: HttpTransport, settings: LakekeeperSettings, caller: Caller) -> None:
        super().__init__(http, settings.warehouse, caller)
        self._settings = settings
        self._options = settings.storage_options() or {}
        self.unique_locations: bool = settings.unique_locations
        self.allow_aliases: bool = settings.allow_aliases
        self.has_layout: bool = settings.root is not None
        self.configured_options: Mapping[str, str] | None = self._options
        if settings.vend_credentials:
            self.capabilities = replace(self.capabilities, vends_by_default=True)

    @classmethod
    def open(cls, settings: LakekeeperSettings, caller: Caller) -> LakekeeperBackend:
        """Returns a backend for the server at `settings.endpoint`."""
        # The settings require a token endpoint, because the server has none.
        tokens = open_tokens(settings, caller, uri=settings.oauth2_server_uri or settings.endpoint)
        return cls(open_http(settings, caller, path="", read_error=wire.read_error, tokens=tokens), settings, caller)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        wire.check_names(parent)
        routes = self._routes or await self._config()
        query = f"{_PAGE}&parent={routes.namespace(parent)}" if parent else _PAGE
        path = f"{self.iceberg_path}{routes.namespaces()}"
        return await self._list_all(path, query, parent, "list_namespaces", namespace_names)

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        wire.check_names(id)
        return await super().describe_namespace(id)

    def check_new_namespace(self, id: NamespaceId) -> None:
        """Checks the names; see the base class."""
        wire.check_names(id)

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        self.check_new_namespace(id)
        wire.check_values(id, properties)
        return await super().create_namespace(id, properties)

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        wire.check_names(id)
        await super().drop_namespace(id, cascade=cascade)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        routes = self._routes or await self._config()
        path, decode = wire.tables(routes, parent), partial(wire.lance_names, parent)
        return await self._list_all(path, _PAGE, parent, "list_tables", decode)

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        wire.check_names(id)
        wire.check_values(id, properties)

    async def rename_table(self, id: TableId, to: TableId) -> None:
        routes = self._routes or await self._config()
        wire.table(routes, to)
        if self.capabilities.key(to.parent) == self.capabilities.key(id.parent):
            # The server takes another spelling of the namespace for another one, in which the table is in the way.
            to = id.parent.table(to.name)
        source: Table | None = None
        while True:
            error = await self._try_to_rename(routes, id, to)
            if error is None:
                return
            # The server says this of a destination that exists, too.
            try:
                await self.describe_table(to)
            except (NotALanceTableError, OtherSpellingError):
                break
            except TableNotFoundError:
                last, source = source, await self.describe_table(id)
                # The source may have been missing then, and have been created again since.
                if last is None or not is_same(last, source):
                    continue
                raise error_about(
                    TableAlreadyExistsError,
                    to,
                    "rename_table: the name is taken by an Iceberg table or view, or by a deleted table that can still "
                    "be restored; choose another name",
                ) from error
            break
        raise error_about(TableAlreadyExistsError, to, "rename_table") from error

    async def _try_to_rename(self, routes: Routes, id: TableId, to: TableId) -> TableNotFoundError | None:
        """Renames a table; returns the error of a server that does not find it, or that has the new name."""
        try:
            await self._http.request(
                "POST",
                wire.rename(routes),
                body={"source": identifier(id), "destination": identifier(to)},
                # The caller has just described the source, so errors refer to the destination.
                subject=to,
                operation="rename_table",
                key=self._key(routes),
                decode=ignore,
            )
        except TableNotFoundError as e:
            return e
        return None

    async def layout_location(self, id: TableId) -> str | None:
        return None if self._settings.root is None else default_location(self._settings.root, id)

    def makes_new_locations(self, parent: NamespaceId) -> bool:
        # The server's own locations contain the unique id of the table.
        return self.unique_locations or self._settings.root is None

    def made_location(self, location: str) -> bool:
        return _SERVER_MADE.search(location) is not None

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        routes = self._routes or await self._config()
        return await self._http.request(
            "GET",
            wire.table(routes, id),
            headers=_VENDED if vend else _NOT_VENDED,
            subject=id,
            operation="describe_table",
            decode=partial(self._decode_table, id, vend=vend),
        )

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        routes = self._routes or await self._config()
        place = location
        if place is None and self._settings.root is not None:
            place = await self._choose_location(id)
        if place is not None:
            place = place.rstrip("/")
        for _ in range(_DECLARATIONS):
            try:
                return await self._create_table(
                    id,
                    declaration(id.name, place, properties),
                    collection=wire.tables(routes, id.parent),
                    path=wire.table(routes, id),
                    location=place,
                    key=self._key(routes),
                    lookup_headers=_NOT_VENDED,
                )
            except InvalidInputError as e:
                failure = failure_of(e)
                if failure is None or LOCATION_TAKEN not in failure.codes:
                    raise
                error = e
            # The server checks the location before the name.
            try:
                await self.describe_table(id)
            except (NotALanceTableError, OtherSpellingError):
                pass
            except TableNotFoundError:
                # This very registration may have had the location, and may just have been removed by another client.
                continue
            raise error_about(TableAlreadyExistsError, id, "declare_table") from error
        raise InvalidInputError(
            f"{error}; Lakekeeper accepts no location that is equal to, above or below that of another table of "
            "the warehouse, nor that of a deleted table that can still be restored"
        ) from error

    async def remove_registration(self, id: TableId) -> None:
        routes = self._routes or await self._config()
        # The server's default is to delete the files.
        await self._delete_table(id, wire.table(routes, id), "purgeRequested=false", key=self._key(routes))

    async def restore_table(
        self,
        id: TableId,
        location: str,
        properties: Mapping[str, str],
        schema: pa.Schema | None = None,
        *,
        former_id: TableId,
    ) -> Table:
        """Registers a table again; if the server keeps it as a deleted table, restores that one. See the base class.

        Of several restorations at the same time, all succeed on the server. Therefore no restoration is taken back: it
        could be that of another client.

        Cost: one call; ten if the server keeps the table, and three more if it gets another id.
        """
        try:
            return await self.declare_table(id, location, properties, schema)
        except InvalidInputError as e:
            if (failure := failure_of(e.__cause__ or e)) is None or LOCATION_TAKEN not in failure.codes:
                raise
            error = e
        routes = self._routes or await self._config()
        path, decode = wire.deleted_tables(routes), partial(wire.ids_of_deleted, former_id)
        try:
            deleted = await self._list_all(path, _PAGE, former_id.parent, "restore_table", decode)
            # A location that the server chose ends with the id of the table.
            uuids = [uuid for uuid in deleted.items if location.rstrip("/").endswith(uuid)] or deleted.items
            if not uuids:
                raise error
            if len(uuids) > 1:
                reason = (
                    f"{len(uuids)} deleted tables had this name, and Lakekeeper does not tell which one is at "
                    f"{location}; restore the right one in Lakekeeper"
                )
                raise error_about(InvalidTableStateError, former_id, reason)
            await self._undrop(path, uuids[0], former_id)
        except PermissionDeniedError as e:
            raise PermissionDeniedError(
                f"{e}; the server may keep the table as a deleted one, so undrop needs its management API, with the "
                "rights to list the deleted tables of the warehouse, and to undrop them"
            ) from e
        table = await self.describe_table(former_id)
        if not same_place(table.location, location):
            reason = f"Lakekeeper had another deleted table of this name, and has restored it, at {table.location}"
            raise error_about(InvalidTableStateError, former_id, reason) from error
        if id != former_id:
            await self.rename_table(former_id, id)
        return replace(table, id=id)

    async def _undrop(self, path: str, uuid: str, id: TableId) -> None:
        """Restores a deleted table, which gets the id that it had."""
        try:
            await self._http.request(
                "POST",
                f"{path}/undrop",
                body={"targets": [{"id": uuid, "type": "generic-table"}]},
                subject=id,
                operation="restore_table",
                safe=True,
                decode=ignore,
            )
        except TableAlreadyExistsError as e:
            reason = (
                "Lakekeeper restores a deleted table under its former name, which is taken; rename that table first"
            )
            raise error_about(TableAlreadyExistsError, id, reason) from e

    def _decode_config(self, body: Any) -> Routes:
        return wire.decode_config(body)

    def _decode_table(self, id: TableId, body: Any, *, vend: bool = False) -> Table:
        return wire.decode_table(id, self._options, vend, body)
