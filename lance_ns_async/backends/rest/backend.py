"""The backend for servers of the Lance REST Namespace protocol: each operation is one call of the protocol.

Spec: https://lance.org/format/namespace/rest, and the OpenAPI document of lance-namespace 0.13. Where servers differ
from it, pylance's `RestAdapter` 14.0 and Apache Gravitino 1.1 and 1.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar
from urllib.parse import quote, urlencode

import lance_namespace.errors as err
from pydantic import Field, model_validator

from lance_ns_async.backends.base import Backend, Capabilities, OperationMissingError
from lance_ns_async.backends.rest import operations, wire
from lance_ns_async.backends.rest.wire import ERRORS
from lance_ns_async.backends.shared import registrations
from lance_ns_async.backends.shared.lost_responses import create_or_check_race, create_or_find
from lance_ns_async.backends.shared.response_checks import ignore
from lance_ns_async.backends.shared.signing import open_signer
from lance_ns_async.calls import request_headers
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.rollback import rollback
from lance_ns_async.errors import ErrorTable, error_about, spelled
from lance_ns_async.masked import MaskedPartial
from lance_ns_async.model import DELIMITER, Id, NamespaceId, Page, Table, TableId
from lance_ns_async.spec.routes import BY_OPERATION
from lance_ns_async.storage.locations import check_default, is_relative
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.oauth2 import OAuth2Settings, open_tokens
from lance_ns_async.transports.http.transport import HttpTransport, open_http
from lance_ns_async.transports.http.wire import StreamedBody

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import BaseModel

T = TypeVar("T")


class RestSettings(SigningSettings, OAuth2Settings):
    """Properties of a Lance REST Namespace server; those of pylance's `RestNamespace` have the same names here.

    `connect_timeout` and `read_timeout` without a unit are milliseconds.
    """

    backend = "rest"
    aliases: ClassVar[Mapping[str, str]] = {
        "uri": "endpoint",
        "tls_cert_file": "client_cert",
        "tls_key_file": "client_key",
        "tls_ssl_ca_cert": "ca_bundle",
    }

    delimiter: Annotated[str, Field(min_length=1, pattern=r"^[!-~]+$")] = DELIMITER
    """Joins the names of an id in paths; sent with every call. No name can contain it."""
    min_depth: int = Field(default=0, ge=0)
    """Minimum number of namespaces above a table; namespaces with fewer are not asked for tables."""
    max_depth: int | None = Field(default=None, ge=0)
    """Maximum number of namespaces above a table; None if namespaces nest to any depth."""
    data_operations: Literal["local", "remote", "auto"] = "local"
    """Who reads and writes rows: this process, in the storage; (`remote`) the server; (`auto`) the server if it can."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""
    tls_assert_hostname: bool = True
    """Whether the server's certificate must name the host of the endpoint; False needs `ca_bundle`."""

    @model_validator(mode="after")
    def _depths(self) -> Self:
        if self.max_depth is not None and self.max_depth < self.min_depth:
            raise ValueError(f"max_depth: {self.max_depth} is less than min_depth, which is {self.min_depth}")
        return self

    @model_validator(mode="after")
    def _token_endpoint(self) -> Self:
        grants = self.grants()
        if grants and self.oauth2_server_uri is None:
            raise ValueError(f"{grants[0]}: give the address of the token endpoint with it, as oauth2_server_uri")
        if not grants and self.oauth2_server_uri is not None:
            raise ValueError("oauth2_server_uri: give credential or subject_token with it")
        return self

    @model_validator(mode="after")
    def _trusted_authority(self) -> Self:
        if not self.tls_assert_hostname and self.ca_bundle is None:
            raise ValueError(
                "tls.assert_hostname=false: give the authority to trust with it, as ca_bundle or tls.ssl_ca_cert"
            )
        return self

    def checks_hostname(self) -> bool:
        """Returns `tls_assert_hostname`."""
        return self.tls_assert_hostname

    def identity(self) -> str:
        """Returns endpoint, client id, and the id of the key and the role that sign requests."""
        parts = (self.endpoint, self.client()[0], self.rest_access_key_id, self.assume_role_arn)
        return "|".join(filter(None, parts))


_OWN_PROPERTIES = (
    *("table_type", "managed_by", "gc.enabled", "write.metadata.path", "write.parquet.compression-codec"),
    *("created-at", "nessie.*", "polaris.*", "bucketing_version", "classification", "empty_table", "external"),
    *("numfiles", "numrows", "rawdatasize", "totalsize", "transient_lastddltime"),
    *("format", "location", "lance.creation-mode", "lance.declared", "lance.register"),
)
"""The properties that the catalogs behind a server may set themselves: the protocol does not name the catalog."""

_OWN_NAMESPACE_PROPERTIES = (  # The same for namespaces.
    *("location", "namespace_id", "exists", "in-use", "nessie.*", "polaris.*", "glue.kind"),
    *("database.location-uri", "database.owner", "database.owner-type", "catalog.location.uri"),
)

_PAGE_SIZE = 1000
"""Number of tables in a page of the listing of all tables, which a server may have to walk for within a time-out."""


class RestBackend(Backend):
    """A server of the Lance REST Namespace protocol.

    Cost: one call to describe a table, or 20 to 500 tables of a namespace of this package's gateway; two to declare or
    register one, because some servers accept tables of missing namespaces; one more for an empty listing, because some
    servers return one for a missing namespace.
    """

    settings: ClassVar[type[RestSettings]] = RestSettings
    errors: ClassVar[ErrorTable] = ERRORS
    takes_request_headers = True
    capabilities: Capabilities = Capabilities(
        min_depth=0,
        max_depth=None,
        describe_batch=500,
        # Concurrent describes of a few tables are as fast, and most servers do not have the batch.
        batch_from=20,
        paginates=True,
        cascades=True,
        vends=True,
        renames=True,
        replaces=True,
        relative_locations=True,
        drops=True,
        own_properties=_OWN_PROPERTIES,
        own_namespace_properties=_OWN_NAMESPACE_PROPERTIES,
    )

    def __init__(self, http: HttpTransport, settings: RestSettings) -> None:
        self._http = http
        self._delimiter = settings.delimiter
        self._delimiter_query = f"delimiter={quote(settings.delimiter, safe='')}"
        self._data_operations = settings.data_operations
        self._lists_all = (settings.delimiter, settings.min_depth, settings.max_depth) == (DELIMITER, 0, None)
        self._signs = settings.rest_sigv4_enabled
        self._first_batch = asyncio.Lock()
        self._storage_options = settings.storage_options()
        self.configured_options: Mapping[str, str] | None = self._storage_options
        self.capabilities = replace(
            self.capabilities,
            min_depth=settings.min_depth,
            max_depth=settings.max_depth,
            vends_by_default=settings.vend_credentials,
        )

    @classmethod
    def open(cls, settings: RestSettings, caller: Caller) -> RestBackend:
        """Returns a backend for the server at `settings.endpoint`."""
        signer = open_signer(settings, caller)
        # The protocol has no token endpoint; the settings require oauth2_server_uri where one is needed.
        tokens = open_tokens(settings, caller, uri=settings.endpoint)
        http = open_http(settings, caller, path="", read_error=wire.read_error, tokens=tokens, signer=signer)
        return cls(http, settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._list("list_namespaces", "namespaces", parent, token, limit)

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        return await self._ask("describe_namespace", id, wire.namespace_properties)

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        # Without a mode: not all servers accept the same spellings, and the default of all is to create.
        fields = {"properties": dict(properties)}
        return await create_or_check_race(
            id,
            partial(self._ask, "create_namespace", id, wire.namespace_properties, fields),
            partial(self._ask, "describe_namespace", id, ignore, name="create_namespace"),
        )

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        behavior = {"behavior": "Cascade"} if cascade else None
        try:
            await self._ask("drop_namespace", id, partial(wire.check_removed, id), behavior)
        except err.NamespaceNotEmptyError as e:
            if not cascade:
                raise
            raise err.InvalidInputError(
                f"behavior 'Cascade': the server drops empty namespaces only; drop what is in {spelled(id)} first ({e})"
            ) from e

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._list("list_tables", "tables", parent, token, limit)

    async def list_all_tables(self, token: str | None, limit: int | None) -> Page[str]:
        operation = "list_all_tables"
        if self._lists_all and not self.server.lacks(operation):
            page = None
            with suppress(err.UnsupportedOperationError):
                page = await self._list(operation, "tables", NamespaceId(), token, limit or _PAGE_SIZE)
            if page and (token is not None or self.server.has(operation) or await self._has_nested(page.items)):
                self.server.learn(present=frozenset({operation}))
                return page
            if page is None or page.token is None:
                self.server.learn(missing=frozenset({operation}))
        return await super().list_all_tables(token, limit)

    async def _has_nested(self, names: Sequence[str]) -> bool:
        """Returns whether a listing of all tables has one in a namespace; that of pylance leaves these out."""
        parents = [name.split(DELIMITER)[:-1] for name in names if DELIMITER in name]
        if not parents:
            return False
        try:
            # Without this, it could be a table at the root, named with another delimiter.
            await self._ask("describe_namespace", NamespaceId(parents[0]), ignore, name="list_all_tables")
        except err.LanceNamespaceError:
            return False
        return True

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        # Not sent as False, because servers of earlier protocol versions do not know the field.
        return await self._ask("describe_table", id, self._decoder(id), {"vend_credentials": True} if vend else None)

    async def describe_tables(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        # Only this package's own gateway has this extension of the protocol, so the others wait for the first call.
        is_first = self.server.traits.batches is None and not self._first_batch.locked()
        async with self._first_batch:
            if is_first:
                return await self._describe_batch(parent, names)
        if self.server.traits.batches is False:
            raise err.UnsupportedOperationError("describe_tables: the server has refused another batch")
        return await self._describe_batch(parent, names)

    async def _describe_batch(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        try:
            decode = MaskedPartial(wire.tables, parent, self._storage_options)
            tables = await self._ask("describe_tables", parent, decode, {"names": list(names)})
        except err.UnsupportedOperationError:
            self.server.learn(batches=False)
            raise
        self.server.learn(batches=True)
        return tables

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        table = await self._declare(id, location, properties)
        if location is None and is_relative(table.location):
            async with rollback(lambda error: self.remove_registration(id)):
                table = await self.describe_table(id)
                check_default(table, "the server")
        return table

    async def _declare(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> Table:
        await self._must_exist(id.parent, "declare_table")
        fields = {"location": location, "properties": _with_identity(id, properties)}
        if self.server.lacks("declare_table"):
            return await self._create(id, "create_empty_table", fields)
        try:
            return await self._create(id, "declare_table", fields)
        except err.UnsupportedOperationError as e:
            error = e
        try:
            # Servers of the first protocol versions have the same operation under its former name.
            table = await self._create(id, "create_empty_table", fields)
        except err.UnsupportedOperationError:
            raise error from None
        self.server.learn(missing=frozenset({"declare_table"}))
        return table

    async def register_table(
        self, id: TableId, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        await self._must_exist(id.parent, "register_table")
        fields = {"location": location, "properties": _with_identity(id, properties)}
        return await self._with_location(await self._create(id, "register_table", fields))

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        wire.path_segment(id, self._delimiter)

    async def remove_registration(self, id: TableId) -> None:
        await self._ask("deregister_table", id, partial(wire.check_removed, id))

    async def drop_table(self, table: Table) -> None:
        await self._ask("drop_table", table.id, partial(wire.check_removed, table.id))

    async def rename_table(self, id: TableId, to: TableId) -> None:
        wire.path_segment(to, self._delimiter)
        if self.server.lacks("rename_table"):
            reason = "rename_table: the server has refused another one as not supported"
            raise error_about(err.UnsupportedOperationError, id, reason)
        fields: dict[str, Any] = {"new_table_name": to.name, "new_namespace_id": list(to.parent)}
        try:
            await self._ask("rename_table", id, partial(wire.check_removed, id), fields)
        except err.UnsupportedOperationError:
            self.server.learn(missing=frozenset({"rename_table"}))
            raise

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        """Registers a table anew, with the mode Overwrite of the protocol, which compares no registrations."""
        if (location, dict(properties)) == (old.location, dict(old.properties or {})):
            return old
        all_properties = dict(properties)
        if old.registration is not None:
            all_properties[registrations.REST_KEY] = old.registration
        fields = {"location": location, "properties": all_properties, "mode": "Overwrite"}
        try:
            return await self._with_location(await self._ask("register_table", old.id, self._decoder(old.id), fields))
        except err.TableAlreadyExistsError as e:
            raise error_about(
                err.UnsupportedOperationError,
                old.id,
                f"the server replaces no registration; deregister it and register it at {location}",
            ) from e

    def passes_on(self, operation: str, *, streamed: bool = False) -> bool:
        if self._data_operations != "auto" or operation in operations.SERVER_ONLY:
            return self._data_operations == "remote" or operation in operations.SERVER_ONLY
        if operation in operations.OF_THE_CATALOG or self.server.lacks(operation):
            return False
        return not streamed or (self.server.has(operation) and not self._signs)

    async def pass_on(self, operation: str, request: BaseModel, data: bytes | Iterator[bytes] | None = None) -> Any:
        route = BY_OPERATION[operation]
        content = StreamedBody(data) if isinstance(data, Iterator) else data
        encoded = operations.encode(route, request, self._delimiter)
        try:
            response = await self._http.request(
                route.method,
                encoded.path,
                query=encoded.query,
                body=encoded.body,
                content=None if content is None else (content, operations.ROWS),
                subject=encoded.subject,
                operation=operation,
                decode=partial(operations.decode, route),
                headers=self._request_headers(),
                raw=route.answer == "file",
                safe=not route.changes,
            )
        except err.UnsupportedOperationError as e:
            is_optional = self._data_operations == "auto" and operation not in operations.SERVER_ONLY
            if not (is_optional and wire.shows_missing_operation(e)):
                raise
            self.server.learn(missing=frozenset({operation}))
            raise OperationMissingError(str(e)) from e
        self.server.learn(present=frozenset({operation}))
        return response

    async def aclose(self) -> None:
        await self._http.aclose()

    def _decoder(self, id: TableId) -> Callable[[Any], Table]:
        return MaskedPartial(wire.table, id, self._storage_options)

    async def _create(self, id: TableId, operation: str, fields: Mapping[str, Any]) -> Table:
        """Makes a registration and returns the table; if the response is lost, the table is looked up."""
        identity = registrations.identity(fields["properties"], key=registrations.REST_KEY)
        return await create_or_find(
            id,
            partial(self._ask, operation, id, self._decoder(id), fields),
            partial(
                self._ask,
                "describe_table",
                id,
                MaskedPartial(wire.own_table, id, self._storage_options, identity),
                name=operation,
            ),
        )

    async def _with_location(self, table: Table) -> Table:
        """Returns a table with its whole location, because some servers repeat a relative one as it was sent."""
        if "://" in table.location or table.location.startswith("/"):
            return table
        return await self.describe_table(table.id)

    async def _list(
        self, operation: str, field: str, parent: NamespaceId, token: str | None, limit: int | None
    ) -> Page[str]:
        query = {"page_token": token, "limit": limit}
        decode = partial(wire.names, field, parent, self._delimiter)
        page = await self._ask(
            operation, parent, decode, query={key: value for key, value in query.items() if value is not None}
        )
        if not page.items and token is None:
            await self._must_exist(parent, operation)
        return page

    async def _must_exist(self, id: NamespaceId, operation: str) -> None:
        """Raises NamespaceNotFoundError for a missing namespace, which some servers treat as an empty one."""
        if not id:
            return
        try:
            await self._ask("describe_namespace", id, ignore, name=operation)
        except (err.PermissionDeniedError, err.UnsupportedOperationError):
            return

    async def _ask(
        self,
        operation: str,
        id: Id,
        decode: Callable[[Any], T],
        fields: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str | int] | None = None,
        name: str | None = None,
    ) -> T:
        """Makes the call of an operation of the protocol and returns its decoded response.

        Args:
            operation: The operation.
            id: The object of the operation.
            decode: Converts the JSON of the response.
            fields: Fields of the request; values of None are left out.
            query: Parameters of the query.
            name: The name of the operation in messages; None for its own name.
        """
        route = BY_OPERATION[operation]
        body = None
        if route.method == "POST":
            body = {"id": list(id), **{key: value for key, value in (fields or {}).items() if value is not None}}
        return await self._http.request(
            route.method,
            route.fill(id=wire.path_segment(id, self._delimiter)),
            query=f"{self._delimiter_query}&{urlencode(query)}" if query else self._delimiter_query,
            body=body,
            subject=id,
            operation=name or operation,
            decode=decode,
            headers=self._request_headers(),
            safe=not route.changes,
        )

    def _request_headers(self) -> Mapping[str, str]:
        """Returns the headers of the current request of the spec."""
        headers = request_headers.current()
        if self._signs and "authorization" in headers:
            raise err.InvalidInputError(
                "identity.auth_token: rest_sigv4_enabled signs calls in the same header; unset one"
            )
        return headers


def _with_identity(id: TableId, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a new registration, with its identity.

    A table at the root has none: directory catalogs store no properties for it.
    """
    return registrations.add_identity(properties, key=registrations.REST_KEY) if id.parent else dict(properties)
