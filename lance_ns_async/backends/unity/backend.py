"""Backend for Unity Catalog: Lance tables are external tables with `table_type=lance`, in the schemas of one catalog.

Spec: https://lance.org/format/namespace/integrations/unity, on the REST API of Unity Catalog 0.3 to 0.6. Responses of
other dialects, including Databricks', are decoded as far as they are known.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

import lance_namespace.errors as err
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.backends.shared.lost_responses import create_or_find, remove_or_check
from lance_ns_async.backends.shared.response_checks import check_empty, ignore
from lance_ns_async.backends.unity import wire
from lance_ns_async.backends.unity.columns import columns
from lance_ns_async.backends.unity.contents import check_only_tables, list_contents
from lance_ns_async.backends.unity.credentials import CredentialVendor, Operation
from lance_ns_async.backends.unity.wire import ERRORS, normalize_location, possible
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.tasks import each
from lance_ns_async.calls.waiting import turns_for
from lance_ns_async.errors import ErrorTable, Failure, error_about, error_for, failure_of, spelled
from lance_ns_async.masked import MaskedPartial
from lance_ns_async.model import Id, NamespaceId, Page, Table, TableId
from lance_ns_async.settings import LocationSettings, Seconds
from lance_ns_async.storage.locations import checked_root, default_location
from lance_ns_async.storage.options import merge_options
from lance_ns_async.transports.http.oauth2 import ACCESS_TOKEN, OAuth2Settings, TokenType, open_tokens
from lance_ns_async.transports.http.transport import HttpTransport, open_http

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


def _no_millis(value: object) -> object:
    number = str(value).strip()
    if re.fullmatch(r"[0-9]{4,}(\.[0-9]*)?", number):
        raise ValueError(f"{number} would be seconds here; write '{number}ms' for milliseconds, else '{number}s'")
    return value


def _catalog_name(value: str) -> str:
    if not possible(value):
        raise ValueError("not a valid catalog name; use 1 to 255 of the characters a-z, A-Z, 0-9, _, @ and -")
    return value


def _api_path(value: str) -> str:
    path = value.strip("/")
    if not re.fullmatch(r"[A-Za-z0-9._~%!$&'()*+,;=:@/-]*", path):
        raise ValueError("not a path; write e.g. /api/2.1/unity-catalog, odd characters percent-encoded")
    return f"/{path}" if path else ""


def _fold_case(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


PlainSeconds = Annotated[Seconds, BeforeValidator(_no_millis)]
"""Seconds; rejects bare numbers that probably mean milliseconds, the unit of other Lance clients."""


class UnitySettings(LocationSettings, OAuth2Settings):
    """Properties of one catalog of Unity Catalog; bare numbers of the time-outs are seconds."""

    backend = "unity"

    catalog: Annotated[str, AfterValidator(_catalog_name)]
    """The catalog of this namespace: the first level of all ids."""
    api_path: Annotated[str, AfterValidator(_api_path)] = "/api/2.1/unity-catalog"
    """The path of the API, appended to the endpoint unless the endpoint already ends with it."""
    connect_timeout: PlainSeconds = Field(default=10.0, gt=0)
    read_timeout: PlainSeconds = Field(default=60.0, gt=0)
    scope: str = ""
    """The requested scope; empty for none."""
    requested_token_type: TokenType | None = ACCESS_TOKEN
    credentials_operation: Annotated[Operation, BeforeValidator(_fold_case)] = "auto"
    """Permission of the requested credentials: `auto`, `read`, `read_write`, or `none` to request no credentials."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""
    root: Annotated[str, AfterValidator(partial(checked_root, also=("s3a",)))] | None = None
    """Base of default table locations, `{root}/{catalog}/{schema}/{table}`; None means the working directory."""

    @model_validator(mode="after")
    def _known_token_endpoint(self) -> Self:
        grants = self.grants()
        if grants and not self.exchanges() and self.oauth2_server_uri is None:
            raise ValueError(
                f"{grants[0]}: give oauth2_server_uri with it, because Unity Catalog itself only exchanges tokens"
            )
        return self

    def identity(self) -> str:
        """Returns endpoint, catalog and client id."""
        return "|".join(filter(None, (self.endpoint, self.catalog, self.client()[0])))


log: logging.Logger = logging.getLogger(__name__)


class UnityBackend(Backend):
    """One catalog of a Unity Catalog server.

    Cost: one call to describe an existing table, and one or two more with credentials.
    """

    settings: ClassVar[type[UnitySettings]] = UnitySettings
    errors: ClassVar[ErrorTable] = ERRORS
    capabilities: Capabilities = Capabilities(
        min_depth=2,
        max_depth=2,
        paginates=True,
        listing_has_locations=True,
        page_worth=32,
        cascades=True,
        vends=True,
        stores_columns=True,
        own_properties=("table_type",),
        location_schemes=("s3a",),
    )

    def __init__(self, http: HttpTransport, settings: UnitySettings) -> None:
        self._http = http
        self._root = settings.root
        self._catalog = NamespaceId([settings.catalog])
        self._storage_options = settings.storage_options()
        self.unique_locations: bool = settings.unique_locations
        self.allow_aliases: bool = settings.allow_aliases
        self.configured_options: Mapping[str, str] | None = self._storage_options
        self._at_once = settings.max_in_flight
        self._creates = CreateQueue(settings.endpoint, settings.api_path)
        self._credentials = CredentialVendor(http, settings.credentials_operation)
        self.capabilities = replace(
            self.capabilities,
            vends=settings.credentials_operation != "none",
            vends_by_default=settings.vend_credentials and settings.credentials_operation != "none",
        )

    @classmethod
    def open(cls, settings: UnitySettings, caller: Caller) -> UnityBackend:
        """Returns a backend for the catalog `settings.catalog` of the server at `settings.endpoint`."""
        path = settings.api_path
        root = settings.endpoint.rstrip("/")
        if root.endswith(path):
            root, path = root.removesuffix(path), ""
        tokens = open_tokens(settings, caller, uri=f"{root}{wire.TOKENS}", explain_error=wire.explain_token_error)
        return cls(open_http(settings, caller, path=path, read_error=wire.read_error, tokens=tokens), settings)

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
            decode=partial(wire.schema_names, parent),
        )

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        self._check(id, "describe_namespace", "SCHEMA_NOT_FOUND")
        return await self._http.request(
            "GET",
            wire.schema_path(id),
            subject=id,
            operation="describe_namespace",
            decode=partial(wire.namespace_properties, id),
        )

    def check_new_namespace(self, id: NamespaceId) -> None:
        """Checks that the namespace is a schema of this catalog with a possible name; see the base class."""
        if id[:1] != self._catalog:
            raise err.InvalidInputError(f"namespace {id}: {self._serves()}")
        self._must_be_schema(id)
        wire.check_name(id)

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        self.check_new_namespace(id)
        wire.check_properties(id, properties)
        return await self._create(
            id,
            wire.schema_body(id, properties),
            "/schemas",
            wire.schema_path(id),
            operation="create_namespace",
            conflict=err.NamespaceAlreadyExistsError,
            decode=partial(wire.namespace_properties, id),
        )

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        self._check(id, "drop_namespace", "SCHEMA_NOT_FOUND")
        self._must_be_schema(id)
        left = await self._remove_registrations(id) if cascade else []
        try:
            # The `force` option is not used: it would also delete objects that were not listed or are newer.
            await self._delete(wire.schema_path(id), id, "drop_namespace")
        except err.LanceNamespaceError as e:
            if left:
                e.add_note(f"and {len(left)} tables of {spelled(id)} are no longer registered; their data is untouched")
            raise

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._page(parent, token, "list_tables", partial(wire.table_names, parent))

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        decode = MaskedPartial(wire.tables, parent, self._storage_options)
        return await self._page(parent, token, "scan_tables", decode)

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        try:
            return await self._describe(id, vend=vend)
        except err.TableNotFoundError as e:
            if failure_of(e) is None or not vend:
                raise
        # It may have been registered again between the request for its id and that for its credentials.
        return await self._describe(id, vend=vend)

    async def _describe(self, id: TableId, *, vend: bool) -> Table:
        self._check(id, "describe_table", "TABLE_NOT_FOUND")
        table = await self._http.request(
            "GET",
            wire.table_path(id),
            subject=id,
            operation="describe_table",
            decode=MaskedPartial(wire.unity_table, id, self._storage_options),
        )
        if not (vend and table.uuid):
            return table.table
        credentials = await self._credentials.vend(id, table.uuid)
        return replace(table.table, storage_options=merge_options(self._storage_options, credentials) or None)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        column_list = [] if schema is None else columns(id, schema)
        table = await self._create(
            id,
            wire.table_body(id, await self._location(id, location), properties, column_list),
            "/tables",
            wire.table_path(id),
            operation="declare_table",
            conflict=err.TableAlreadyExistsError,
            decode=MaskedPartial(wire.unity_table, id, self._storage_options),
        )
        return table.table

    async def layout_location(self, id: TableId) -> str:
        return normalize_location(id, default_location(self._root, id))

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        self._check(id.parent, "declare_table", "SCHEMA_NOT_FOUND")
        wire.check_name(id)
        wire.check_properties(id, properties)
        if (kind := properties.get("table_type", "lance")).lower() != "lance":
            raise err.InvalidInputError(f"table {id}: property table_type={kind!r}: it marks Lance tables; omit it")
        normalize_location(id, default_location(self._root, id) if location is None else location)

    async def remove_registration(self, id: TableId) -> None:
        self._check(id, "deregister_table", "TABLE_NOT_FOUND")
        await self._delete(wire.table_path(id), id, "deregister_table")

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise err.UnsupportedOperationError(
            f"Not supported: rename_table of {id} (Unity Catalog has no call for it; "
            "deregister it, and register its location under the new name)"
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _page(self, parent: NamespaceId, token: str | None, operation: str, decode: Callable[[Any], T]) -> T:
        self._check(parent, operation, "SCHEMA_NOT_FOUND")
        return await self._http.request(
            "GET", "/tables", query=wire.tables_query(parent, token), subject=parent, operation=operation, decode=decode
        )

    async def _create(
        self,
        id: NamespaceId | TableId,
        body: Mapping[str, Any],
        path: str,
        own_path: str,
        *,
        operation: str,
        conflict: type[err.LanceNamespaceError],
        decode: Callable[[Any], T],
    ) -> T:
        """Creates an object and returns its decoded description.

        If the response is lost, the object is read back, to find out whether it was created.

        Args:
            body: The body of the POST request.
            path: The path of the POST request.
            own_path: The path of the created object.
            conflict: The error if the name exists.

        Cost: two calls; the second finds out whether another process created the same name at the same time, or
        after a 403 for a table, whether the table exists.
        """
        began = time() * 1000

        was_read = False

        def decode_if_ours(description: Any) -> tuple[T, str] | None:
            nonlocal was_read
            was_read = True
            return decode_with_id(description) if wire.made_by(body, began, description) else None

        def decode_with_id(description: Any) -> tuple[T, str]:
            return decode(description), wire.own_id(description)

        async def post() -> tuple[T, str]:
            try:
                return await self._http.request(
                    "POST", path, body=body, subject=id, operation=operation, decode=decode_with_id
                )
            except err.PermissionDeniedError as e:
                # The server checks a location before the name, and denies access to one that is taken.
                if id.kind == "table" and await self._exists(own_path, id, operation):
                    raise error_about(conflict, id, f"{operation}: the server denied its location") from e
                raise

        async def find() -> tuple[T, str] | None:
            return await self._http.request("GET", own_path, subject=id, operation=operation, decode=decode_if_ours)

        result, uuid = await self._creates.in_turn(id, lambda: create_or_find(id, post, find, conflict), conflict)
        if not was_read:
            await self._must_be_alone(id, uuid, own_path, operation, conflict)
        return result

    async def _exists(self, own_path: str, id: Id, operation: str) -> bool:
        """Returns whether an object can be read."""
        try:
            await self._http.request("GET", own_path, subject=id, operation=operation, decode=ignore)
        except err.LanceNamespaceError:
            return False
        return True

    async def _must_be_alone(
        self,
        id: NamespaceId | TableId,
        uuid: str,
        own_path: str,
        operation: str,
        conflict: type[err.LanceNamespaceError],
    ) -> None:
        """Checks that no other process created the same name at the same time, because the server then has it twice.

        Such a table cannot be used. Of two such schemas, the server returns only one, so the other call fails.
        """
        try:
            current_id = await self._http.request("GET", own_path, subject=id, operation=operation, decode=wire.own_id)
        except err.LanceNamespaceError as e:
            if (failure := failure_of(e)) is not None and wire.DUPLICATE in failure.codes:
                raise
            # The object was created. A later removal, or a busy server, is no reason to report a failure.
            log.debug("%s was created, but could not be read afterwards: %s", spelled(id), e)
            return
        if id.kind == "namespace" and current_id != uuid:
            raise error_about(
                conflict,
                id,
                f"{operation}: another process created it at the same time, and the server "
                "has both; use it as it is, or drop it twice to remove both",
            )

    async def _delete(self, path: str, id: NamespaceId | TableId, operation: str) -> None:
        request = partial(self._http.request, path=path, subject=id, operation=operation)
        await remove_or_check(partial(request, "DELETE", decode=check_empty), partial(request, "GET", decode=ignore))

    async def _remove_registrations(self, id: NamespaceId) -> Sequence[TableId]:
        """Removes the registrations of all tables in a schema; returns the ids of the tables."""
        contents = await list_contents(self._http, id)
        check_only_tables(id, contents.others)
        removals: list[TableId] = []

        async def remove(table: TableId) -> None:
            # Another client may have removed it meanwhile.
            with suppress(err.TableNotFoundError):
                await self._delete(wire.table_path(table), table, "deregister_table")
            removals.append(table)

        try:
            await each(remove, dict.fromkeys(contents.tables), max_in_flight=self._at_once)
        except err.LanceNamespaceError as e:
            e.add_note(
                f"and {len(removals)} of the {len(contents.tables)} tables of {spelled(id)} are no longer registered; "
                "their data is untouched, and the schema is there"
            )
            raise
        return removals

    async def _location(self, id: TableId, location: str | None) -> str:
        return await self._choose_location(id) if location is None else normalize_location(id, location)

    def _check(self, id: NamespaceId | TableId, operation: str, missing: str) -> None:
        """Raises the error that the server would return for an id that cannot exist.

        Args:
            missing: The error code for the id itself.

        Cost: no call.
        """
        if id[:1] != self._catalog:
            raise _error(missing, id, operation, self._serves())
        for level in (id.parent, id):
            if level and not wire.possible(level[-1]):
                code = missing if level == id else "SCHEMA_NOT_FOUND"
                raise _error(code, id, operation, f"Unity Catalog does not allow the name {level[-1]!r}")

    def _must_be_schema(self, id: NamespaceId) -> None:
        if id == self._catalog:
            raise err.InvalidInputError(
                f"namespace {id}: it is the catalog itself, which is created and dropped with Unity's own tools; "
                "give a schema in it"
            )

    def _serves(self) -> str:
        return f"this namespace has only the catalog {self._catalog}; for another connect with that `catalog`"


def _error(code: str, id: Id, operation: str, why: str) -> err.LanceNamespaceError:
    return error_for(Failure(code, message=why, delivered=False), id, operation, ERRORS)


_PORTS = {"http": 80, "https": 443}


class CreateQueue:
    """Creates tables and schemas of one server; calls with the same id run one after another in this process.

    The server may create a name twice for two concurrent calls. All namespaces with the same endpoint share the order,
    whatever their credentials. Calls of other processes can only be detected afterwards.
    """

    def __init__(self, endpoint: str, api_path: str) -> None:
        self._turns = turns_for(("unity", server_key(endpoint, api_path)))

    async def in_turn(self, id: Id, create: Callable[[], Awaitable[T]], conflict: type[LanceNamespaceError]) -> T:
        """Returns the result of `create`."""
        has_begun = False

        async def work(exists_already: bool) -> T:
            nonlocal has_begun
            has_begun = True
            if exists_already:
                raise error_about(conflict, id, "created by another call while this one waited")
            return await create()

        try:
            return await self._turns.run((id.kind, id), work, timeout=remaining())
        except TimeoutError:
            if has_begun:
                raise
            message = "the operation timed out while another call was creating it"
            raise error_about(ServiceUnavailableError, id, message) from None


def server_key(endpoint: str, api_path: str) -> str:
    """Returns the same key for URLs of one server that differ in letter case, default port or trailing slashes."""
    parts = urlsplit(endpoint)
    path = parts.path.rstrip("/").removesuffix(api_path)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}{path}{api_path}"
