"""Unity Catalog: Lance tables kept as external tables with `table_type=lance`, in the schemas of one catalog.

Written after the Lance Unity namespace spec, https://lance.org/format/namespace/integrations/unity, on top of the
REST API of Unity Catalog 0.3 to 0.6. The other dialects, Databricks' included, are read as far as they are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async.backends import unity_wire as wire
from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.backends.locations import default_location
from lance_ns_async.backends.settling import removed, settled
from lance_ns_async.backends.unity_columns import columns
from lance_ns_async.backends.unity_creates import Creates
from lance_ns_async.backends.unity_credentials import Credentials
from lance_ns_async.backends.unity_locations import checked_location
from lance_ns_async.backends.unity_settings import UnitySettings
from lance_ns_async.backends.values import nothing
from lance_ns_async.backends.vended import over
from lance_ns_async.errors import COMMON_ERRORS, ErrorTable, Failure, error_for
from lance_ns_async.model import Id, NamespaceId, Page, Table, TableId
from lance_ns_async.paging import walk
from lance_ns_async.policy import Caller
from lance_ns_async.transports.http import HttpTransport, open_http

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

UNITY_ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "CATALOG_NOT_FOUND": NamespaceNotFoundError,
    "SCHEMA_NOT_FOUND": NamespaceNotFoundError,
    ("TABLE_NOT_FOUND", "table"): TableNotFoundError,
    "SCHEMA_ALREADY_EXISTS": NamespaceAlreadyExistsError,
    "TABLE_ALREADY_EXISTS": TableAlreadyExistsError,
    ("ALREADY_EXISTS", "create_namespace"): NamespaceAlreadyExistsError,
    ("ALREADY_EXISTS", "declare_table"): TableAlreadyExistsError,
    ("FAILED_PRECONDITION", "drop_namespace"): NamespaceNotEmptyError,
    "INVALID_ARGUMENT": InvalidInputError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": ThrottlingError,
    "REQUEST_LIMIT_EXCEEDED": ThrottlingError,
    "NOT_UNIQUE": InternalError,
    ("DELTA_ONLY", "declare_table"): UnsupportedOperationError,
    # No 404: one that names nothing comes of a wrong path, not of a missing table.
    400: InvalidInputError,
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    # A proxy wants credentials.
    407: UnauthenticatedError,
    408: ServiceUnavailableError,
    429: ThrottlingError,
    501: UnsupportedOperationError,
    502: ServiceUnavailableError,
    503: ServiceUnavailableError,
    504: ServiceUnavailableError,
}


class UnityBackend(Backend):
    """One catalog of a Unity Catalog server. Describing costs one call, and with credentials one or two more."""

    settings = UnitySettings
    errors = UNITY_ERRORS
    capabilities = Capabilities(
        min_depth=2, max_depth=2, paginates=True, listing_has_locations=True, page_worth=32, cascades=True, vends=True
    )

    def __init__(self, http: HttpTransport, settings: UnitySettings) -> None:
        self._http = http
        self._root = settings.root
        self._catalog = NamespaceId([settings.catalog])
        self._storage_options = settings.storage_options()
        self._creates = Creates()
        self._credentials = Credentials(http, settings.credentials_operation)
        self.capabilities = replace(
            self.capabilities,
            vends=settings.credentials_operation != "none",
            vends_unasked=settings.vend_credentials and settings.credentials_operation != "none",
        )

    @classmethod
    def open(cls, settings: UnitySettings, caller: Caller) -> UnityBackend:
        """A backend for the catalog `settings.catalog` of the server at `settings.endpoint`."""
        path = settings.api_path
        if settings.endpoint.rstrip("/").endswith(path):
            path = ""
        return cls(open_http(settings, caller, path=path, explain=wire.explain), settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        if not parent:
            return Page([self._catalog.name])
        self._check(parent, "list_namespaces", "SCHEMA_NOT_FOUND")
        return await self._http.request(
            "GET",
            "/schemas",
            query=wire.schemas_query(parent, token),
            subject=parent,
            operation="list_namespaces",
            decode=wire.schema_names,
        )

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        self._check(id, "describe_namespace", "SCHEMA_NOT_FOUND")
        return await self._http.request(
            "GET",
            wire.schema_path(id),
            subject=id,
            operation="describe_namespace",
            decode=wire.properties_kept,
        )

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        if id[:1] != self._catalog:
            raise InvalidInputError(f"namespace {id}: {self._serves()}")
        self._must_be_schema(id)
        wire.check_name(id)
        wire.check_properties(id, properties)
        return await self._create(
            id,
            wire.schema_body(id, properties),
            "/schemas",
            wire.schema_path(id),
            operation="create_namespace",
            taken=NamespaceAlreadyExistsError,
            decode=wire.properties_kept,
        )

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        self._check(id, "drop_namespace", "SCHEMA_NOT_FOUND")
        self._must_be_schema(id)
        if cascade:
            await self._must_keep_no_data(id)
        query = "force=true" if cascade else ""
        await self._delete(wire.schema_path(id), query, id, "drop_namespace")

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._page(parent, token, "list_tables", wire.table_names)

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        decode = partial(wire.tables, parent, self._storage_options)
        return await self._page(parent, token, "scan_tables", decode)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        self._check(id, "describe_table", "TABLE_NOT_FOUND")
        found = await self._http.request(
            "GET",
            wire.table_path(id),
            subject=id,
            operation="describe_table",
            decode=partial(wire.found, id, self._storage_options),
        )
        if not (vend and found.uuid):
            return found.table
        vended = await self._credentials.given(id, found.uuid)
        return replace(found.table, storage_options=over(self._storage_options or {}, vended) or None)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        kept = [] if schema is None else columns(id, schema)
        declared = await self._create(
            id,
            wire.table_body(id, self._location(id, location), properties, kept),
            "/tables",
            wire.table_path(id),
            operation="declare_table",
            taken=TableAlreadyExistsError,
            decode=partial(wire.found, id, self._storage_options),
        )
        return declared.table

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        self._check(id.parent, "declare_table", "SCHEMA_NOT_FOUND")
        wire.check_name(id)
        wire.check_properties(id, properties)
        if (kind := properties.get("table_type", "lance")).lower() != "lance":
            raise InvalidInputError(
                f"table {id}: property table_type={kind!r}: it is what marks Lance tables; leave it out"
            )
        self._location(id, location)

    async def deregister_table(self, id: TableId) -> None:
        self._check(id, "deregister_table", "TABLE_NOT_FOUND")
        await self._delete(wire.table_path(id), "", id, "deregister_table")

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise UnsupportedOperationError(
            f"Not supported: rename_table of {id} (Unity Catalog has no call for it; "
            "register its location under the new name and deregister the old one)"
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _page(self, parent: NamespaceId, token: str | None, operation: str, decode: Callable[[Any], T]) -> T:
        self._check(parent, operation, "SCHEMA_NOT_FOUND")
        return await self._http.request(
            "GET",
            "/tables",
            query=wire.tables_query(parent, token),
            subject=parent,
            operation=operation,
            decode=decode,
        )

    async def _create(
        self,
        id: NamespaceId | TableId,
        body: Mapping[str, Any],
        path: str,
        own_path: str,
        *,
        operation: str,
        taken: type[LanceNamespaceError],
        decode: Callable[[Any], T],
    ) -> T:
        """What a POST to `path` makes and `own_path` then has; where its answer is lost, it is looked for there."""
        began = time() * 1000

        def ours(found: Any) -> T | None:
            return decode(found) if wire.made_by(body, began, found) else None

        async def post() -> T:
            return await self._http.request("POST", path, body=body, subject=id, operation=operation, decode=decode)

        async def find() -> T | None:
            return await self._http.request("GET", own_path, subject=id, operation=operation, decode=ours)

        return await self._creates.in_turn(id, lambda: settled(id, post, find, taken), taken)

    async def _delete(self, path: str, query: str, id: NamespaceId | TableId, operation: str) -> None:
        request = partial(self._http.request, path=path, subject=id, operation=operation, decode=nothing)
        await removed(partial(request, "DELETE", query=query), partial(request, "GET"))

    async def _must_keep_no_data(self, id: NamespaceId) -> None:
        """Raises where the data of a table would go with it; costs a call a page of tables."""
        fetch = partial(self._page, id, operation="drop_namespace", decode=wire.tables_with_data)
        async with aclosing(walk(fetch)) as pages:
            async for _, page in pages:
                if page.items:
                    raise InvalidInputError(
                        f"namespace {id}: {page.items[0]} in it is a table whose data the server keeps, and would "
                        "delete with it; drop such tables first"
                    )

    def _location(self, id: TableId, given: str | None) -> str:
        return checked_location(id, default_location(self._root, id) if given is None else given)

    def _check(self, id: NamespaceId | TableId, operation: str, missing: str) -> None:
        """Raises what the server would answer about an id that it cannot have; costs no call."""
        if id[:1] != self._catalog:
            raise _failed(missing, id, operation, self._serves())
        for level in (id.parent, id):
            if level and not wire.possible(level[-1]):
                code = missing if level == id else "SCHEMA_NOT_FOUND"
                raise _failed(code, id, operation, f"Unity Catalog can have no {level[-1]!r}")

    def _must_be_schema(self, id: NamespaceId) -> None:
        if id == self._catalog:
            raise InvalidInputError(
                f"namespace {id}: it is the catalog itself, which is made and dropped with Unity's own tools; "
                "give a schema in it"
            )

    def _serves(self) -> str:
        return f"only the catalog {self._catalog} is served here; for another connect with that `catalog`"


def _failed(code: str, id: Id, operation: str, why: str) -> LanceNamespaceError:
    return error_for(Failure(code, message=why, delivered=False), id, operation, UNITY_ERRORS)
