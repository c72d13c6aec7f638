"""The backend for Iceberg REST catalogs: Lance tables as Iceberg tables with `table_type=lance`.

Versions are committed in the storage, or by the catalog for tables with `managed_by=impl`.

Spec: https://lance.org/format/namespace/integrations/iceberg, and the Iceberg REST catalog API as of Iceberg 1.11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar
from uuid import uuid4

import lance_namespace.errors as err
from pydantic import BeforeValidator, Field

from lance_ns_async.backends.base import Capabilities, Prepare, Version, Versions
from lance_ns_async.backends.iceberg import versions, wire
from lance_ns_async.backends.iceberg.wire import (
    ERRORS,
    declaration,
    is_registered_as,
    replacement,
    table,
    table_of_uuid,
)
from lance_ns_async.backends.shared.iceberg_namespaces import IcebergNamespaces
from lance_ns_async.backends.shared.iceberg_wire import identifier, read_error, table_names
from lance_ns_async.backends.shared.lost_responses import create_or_find
from lance_ns_async.backends.shared.response_checks import check_empty, ignore
from lance_ns_async.backends.shared.signing import open_signer
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.tagged_results import CacheUse, TaggedResults
from lance_ns_async.errors import ErrorTable, error_about
from lance_ns_async.masked import MaskedPartial
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.settings import LocationSettings
from lance_ns_async.storage.locations import Root, default_location
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.oauth2 import OAuth2Settings, open_tokens
from lance_ns_async.transports.http.transport import HttpTransport, open_http

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class IcebergSettings(LocationSettings, SigningSettings, OAuth2Settings):
    """Properties of an Iceberg REST catalog; `connect_timeout` and `read_timeout` without a unit are milliseconds."""

    backend = "iceberg"

    warehouse: str | None = None
    """The warehouse in the request to `/v1/config`, which returns the prefix of all paths; not a level of ids."""
    root: Root | None = None
    """Root of default locations, `{root}/{namespace}/{table}`; None means the working directory."""
    metadata_path: str | None = None
    """Root for the server's own metadata files; None means that they are inside each table's location."""
    gc_enabled: bool = False
    """Whether Iceberg's own tools may delete files of the tables; if not, tables get the property `gc.enabled=false`.

    Orphan removal in Iceberg treats the files of Lance as unused files.
    """
    managed_by: Annotated[Literal["storage", "impl"], BeforeValidator(str.lower)] = "storage"
    """Default of the property `managed_by`: Lance commits versions in the storage, or (`impl`) the catalog does."""

    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""

    rest_table_cache_max_entries: int = Field(default=0, ge=0)
    """Maximum number of described tables that are kept with their ETags, so that the server sends only changed ones.

    0 means that none is kept.
    """

    def identity(self) -> str:
        """Returns endpoint, warehouse, client id, and the id of the key and the role that sign requests."""
        parts = (self.endpoint, self.warehouse, self.client()[0], self.rest_access_key_id, self.assume_role_arn)
        return "|".join(filter(None, parts))


PROTECTION = {"gc.enabled": "false"}
"""Properties that prevent Iceberg's own tools from deleting the files of Lance, which they treat as unused."""

_MANAGERS = ("storage", "impl")


class IcebergBackend(IcebergNamespaces):
    """An Iceberg REST catalog.

    Cost: one call to describe a table; the first operation needs one more call, to `/v1/config`. With credentials, one
    more call if the server vends them only at an endpoint of their own.
    """

    settings: ClassVar[type[IcebergSettings]] = IcebergSettings
    errors: ClassVar[ErrorTable] = ERRORS
    capabilities: Capabilities = Capabilities(
        min_depth=1,
        max_depth=None,
        paginates=True,
        lists_only_lance=False,
        commits_versions=True,
        vends=True,
        renames=True,
        replaces=True,
        location_properties=("location",),
        own_properties=(
            *("table_type", "managed_by", "gc.enabled", "write.metadata.path"),
            # Added by servers: Iceberg's reference implementation, and Nessie.
            *("write.parquet.compression-codec", "created-at", "nessie.*"),
        ),
        own_namespace_properties=("location", "namespace_id", "exists", "nessie.*"),
    )

    def __init__(self, http: HttpTransport, settings: IcebergSettings, caller: Caller) -> None:
        """Creates the backend.

        Args:
            caller: Repeats the attempts of a version commit.
        """
        super().__init__(http, settings.warehouse, caller)
        self._settings = settings
        self._storage_options = settings.storage_options()
        if settings.vend_credentials:
            self.capabilities = replace(self.capabilities, vends_by_default=True)
        size = settings.rest_table_cache_max_entries
        # Decoded tables are smaller than responses, and have no credentials of a response.
        self._table_cache: TaggedResults[Table] | None = TaggedResults(size) if size else None
        self._protection = {} if settings.gc_enabled else PROTECTION
        self.unique_locations: bool = settings.unique_locations
        self.allow_aliases: bool = settings.allow_aliases
        self.configured_options: Mapping[str, str] | None = self._storage_options

    @classmethod
    def open(cls, settings: IcebergSettings, caller: Caller) -> IcebergBackend:
        """Returns a backend for the catalog at `settings.endpoint`."""
        signer = open_signer(settings, caller)
        tokens = open_tokens(settings, caller, uri=f"{settings.endpoint.rstrip('/')}/v1/oauth/tokens")
        http = open_http(settings, caller, path="/v1", read_error=read_error, tokens=tokens, signer=signer)
        return cls(http, settings, caller)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        page = await super().list_namespaces(parent, token, limit)
        return await self._check_listing(page, parent, "list_namespaces")

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        routes = self._routes or await self._config()
        page = await self._http.request(
            "GET",
            routes.tables(parent),
            query="&".join(routes.page(token, limit)),
            subject=parent,
            operation="list_tables",
            decode=partial(table_names, parent),
        )
        return await self._check_listing(page, parent, "list_tables")

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        if not vend:
            plain = MaskedPartial(table, id, self._storage_options)
            return await self._load(id, "describe_table", plain, cache=self._table_cache)
        try:
            decode = MaskedPartial(wire.loaded_table, id, self._storage_options)
            load_result = await self._load(id, "describe_table", decode, vend=True)
        except err.PermissionDeniedError:
            # A principal may have the right to load a table, but no right to its credentials.
            if self._storage_options is None:
                raise
            return await self.describe_table(id)
        routes = self._routes or await self._config()
        renew = partial(self._renew, load_result) if routes.vends_separately else None
        return await wire.with_credentials(load_result, renew)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        routes = self._routes or await self._config()
        place = (await self._choose_location(id) if location is None else location).rstrip("/")
        uuid = str(uuid4())
        body = declaration(id, uuid, place, self._stored_properties(id, properties))
        result = await create_or_find(
            id,
            partial(
                self._http.request,
                "POST",
                routes.table(id),
                body=body,
                subject=id,
                operation="declare_table",
                key=self._key(routes),
                decode=MaskedPartial(table, id, self._storage_options),
            ),
            partial(self._load, id, "declare_table", MaskedPartial(table_of_uuid, id, self._storage_options, uuid)),
        )
        if result.location.rstrip("/") != place:
            await self.deregister_table(id, result)
            raise err.InvalidInputError(
                f"table {id}: the catalog would register it at {result.location}, not at {place}; "
                "give a location that it accepts"
            )
        return result

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        if (managed_by := properties.get("managed_by", "storage").lower()) not in _MANAGERS:
            raise err.InvalidInputError(
                f"table {id}: managed_by={managed_by!r}: it must be 'storage', where Lance itself commits versions, or "
                "'impl', where the catalog does"
            )

    async def remove_registration(self, id: TableId) -> None:
        routes = self._routes or await self._config()
        self._forget(routes.table(id))
        await self._http.request(
            "DELETE",
            routes.table(id),
            # A purge would delete the files of the table.
            query="purgeRequested=false",
            subject=id,
            operation="deregister_table",
            decode=check_empty,
        )

    async def rename_table(self, id: TableId, to: TableId) -> None:
        routes = self._routes or await self._config()
        self._forget(routes.table(id), routes.table(to))
        await self._http.request(
            "POST",
            f"{routes.prefix}/tables/rename",
            body={"source": identifier(id), "destination": identifier(to)},
            # The caller has just described the source. So errors about existing or missing objects refer to the
            # destination.
            subject=to,
            operation="rename_table",
            decode=ignore,
        )

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(old.id, location, properties)
        routes = self._routes or await self._config()
        place = location.rstrip("/")
        parameters = self._stored_properties(old.id, properties)
        body = replacement(old, place, parameters)
        if body is None:
            return old
        if place != old.location and not routes.changes_locations:
            raise error_about(
                err.UnsupportedOperationError,
                old.id,
                f"this catalog cannot change the location of a registered table, "
                f"{old.location}; deregister it and register it at {place}",
            )

        self._forget(routes.table(old.id))

        async def find() -> Table:
            current = await self.describe_table(old.id)
            if current.registration == old.registration and is_registered_as(current, place, parameters):
                return current
            raise error_about(err.ConcurrentModificationError, old.id, "another client has changed it")

        return await create_or_find(
            old.id,
            partial(
                self._http.request,
                "POST",
                routes.table(old.id),
                body=body,
                subject=old.id,
                operation="replace_table",
                key=self._key(routes),
                decode=MaskedPartial(table, old.id, self._storage_options),
            ),
            find,
        )

    def needs_protection(self, table: Table) -> bool:
        return not self._protection.keys() <= (table.properties or {}).keys()

    async def protect_table(self, table: Table) -> bool:
        properties = table.properties or {}
        if PROTECTION.keys() <= properties.keys():
            return False
        await self.replace_table(table, table.location, {**properties, **PROTECTION})
        return True

    def table_cache(self) -> CacheUse:
        return super().table_cache() if self._table_cache is None else self._table_cache.use()

    async def layout_location(self, id: TableId) -> str:
        return default_location(self._settings.root, id)

    async def table_versions(self, id: TableId, *, all: bool) -> Versions:
        state = await self._load_state(id, all, operation="list_table_versions")
        return Versions(state.table, state.versions)

    async def commit_versions(
        self, new_versions: Mapping[TableId, Version], prepare: Prepare
    ) -> Mapping[TableId, Versions]:
        routes = self._routes or await self._config()
        together = len(new_versions) > 1
        if together and not routes.commits_together:
            raise err.UnsupportedOperationError(
                "Not supported: this catalog does not commit several tables at once; commit them one by one"
            )
        operation = "batch_create_table_versions" if together else "create_table_version"

        async def send(changes: Sequence[Any]) -> None:
            id = next(iter(new_versions))
            path = f"{routes.prefix}/transactions/commit" if together else routes.table(id)
            await self._http.request(
                "POST",
                path,
                body={"table-changes": changes} if together else changes[0],
                subject=NamespaceId() if together else id,
                operation=operation,
                decode=ignore,
            )

        return await versions.commit(
            new_versions,
            load=partial(self._load_state, operation=operation),
            send=send,
            prepare=prepare,
            caller=self._caller,
            properties=self._protection,
        )

    async def forget_versions(self, id: TableId, numbers: Sequence[int]) -> None:
        operation = "batch_delete_table_versions"
        state = await self._load_state(id, True, operation=operation)
        if body := versions.snapshot_removal(state, numbers):
            routes = self._routes or await self._config()
            # This call may be repeated, because removing a snapshot again is harmless.
            await self._http.request(
                "POST", routes.table(id), body=body, subject=id, operation=operation, decode=ignore, safe=True
            )

    async def _load_state(self, id: TableId, all: bool, *, operation: str) -> versions.TableState:
        # A commit reads manifests, for which it may need credentials.
        vend = self._settings.vend_credentials
        decode = wire.table_with_credentials if vend else table
        options = self._storage_options
        return await self._load(
            id, operation, partial(versions.table_state, MaskedPartial(decode, id, options)), all, vend
        )

    async def _load(
        self,
        id: TableId,
        operation: str,
        decode: Callable[[Any], T],
        all: bool = False,
        vend: bool = False,
        cache: TaggedResults[T] | None = None,
    ) -> T:
        """Loads a table.

        Args:
            all: Whether all snapshots are loaded, or only those that branches and tags refer to.
            vend: Whether credentials are requested.
            cache: Results of the same decoder, without credentials; None to load the table completely.
        """
        routes = self._routes or await self._config()
        return await self._http.request(
            "GET",
            routes.table(id),
            query="" if all else "snapshots=refs",
            headers=wire.DELEGATION if vend else None,
            subject=id,
            operation=operation,
            decode=decode,
            cache=cache,
        )

    async def _renew(self, load_result: wire.LoadedTable) -> Table:
        """Returns a loaded table with credentials from the endpoint for them."""
        id = load_result.plain.id
        routes = self._routes or await self._config()
        return await self._http.request(
            "GET",
            f"{routes.table(id)}/credentials",
            headers=wire.DELEGATION,
            subject=id,
            operation="vend_credentials",
            decode=MaskedPartial(wire.renewed_table, load_result),
        )

    def _forget(self, *paths: str) -> None:
        if self._table_cache is not None:
            for path in paths:
                self._table_cache.forget(path)

    async def _check_listing(self, page: Page[str], parent: NamespaceId, operation: str) -> Page[str]:
        # Some servers return an empty listing for a missing namespace.
        if parent and not page.items:
            await self._must_exist(parent, operation)
        return page

    def _stored_properties(self, id: TableId, properties: Mapping[str, str]) -> dict[str, str]:
        managed_by = properties.get("managed_by", self._settings.managed_by).lower()
        result = {**self._protection, **properties, "table_type": "lance", "managed_by": managed_by}
        if self._settings.metadata_path is not None:
            result["write.metadata.path"] = default_location(self._settings.metadata_path, id)
        return result
