"""Backend for Apache Polaris: Lance tables are generic tables with `format: lance`, below catalogs and namespaces.

Spec: https://lance.org/format/namespace/integrations/polaris; where servers differ from it, Polaris 1.4.1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from lance_ns_async.backends.base import Capabilities
from lance_ns_async.backends.polaris import wire
from lance_ns_async.backends.polaris.wire import ERRORS, TOKEN_ERRORS
from lance_ns_async.backends.shared.generic_tables import GenericTableBackend, declaration, lance_table
from lance_ns_async.backends.shared.iceberg_wire import namespace_names, table_names
from lance_ns_async.backends.shared.lost_responses import create_or_check_race
from lance_ns_async.backends.shared.response_checks import check_empty
from lance_ns_async.backends.shared.signing import open_signer
from lance_ns_async.calls.caller import Caller
from lance_ns_async.errors import ErrorTable, failure_of, with_failure
from lance_ns_async.masked import MaskedText
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.settings import LocationSettings
from lance_ns_async.storage.locations import Root, default_location
from lance_ns_async.transports.aws.settings import SigningSettings
from lance_ns_async.transports.http.oauth2 import OAuth2Settings, open_tokens, split_credential
from lance_ns_async.transports.http.transport import HttpTransport, open_http

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


EVERY = ("*",)
"""The value of `catalogs` that requests the list of catalogs from the server."""


def _parse_catalogs(value: object) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in str(value).split(",") if (name := part.strip())))
    if not names:
        raise ValueError("it names no catalog; write e.g. 'sales,web', or '*' to ask the server for them")
    if "*" in names and names != EVERY:
        raise ValueError("'*' asks the server for all catalogs; use it without other names")
    return names


class PolarisSettings(LocationSettings, SigningSettings, OAuth2Settings):
    """Properties of Apache Polaris; bare numbers of `connect_timeout` and `read_timeout` are milliseconds."""

    backend = "polaris"

    credential: SecretStr | None = None
    """`client_id:client_secret` for OAuth2 client credentials; the secret begins after the first colon."""
    scope: str = "PRINCIPAL_ROLE:ALL"
    realm: Annotated[str, Field(pattern=r"^[!-~]+$")] | None = None
    """Sent as `Polaris-Realm` on every call; None if the server has a single or a default realm."""
    root: Root | None = None
    """Base of default table locations, `{root}/{catalog}/{levels}/{table}`; None means the namespace's location."""
    catalogs: Annotated[tuple[str, ...], BeforeValidator(_parse_catalogs)] | None = None
    """Catalogs that the root lists, separated by commas; `*` requests them from the management API, if permitted."""
    list_style: Literal["qualified", "relative"] = "qualified"
    """Whether `list_namespaces` returns `catalog.level.name`, as in the spec for Polaris, or only `name`."""
    vend_credentials: bool = False
    """Whether to request credentials also if a request leaves this open, as pylance and lancedb do."""
    filter_tables: bool = False
    """Whether listings omit tables of other formats, at the cost of one call per table."""

    @model_validator(mode="after")
    def _whole_credential(self) -> Self:
        if self.credential is not None and not all(self.client()):
            raise ValueError("credential: it must be client_id:client_secret, with a colon between them")
        return self

    def parse_client(self, content: bytes) -> MaskedText:
        """Returns what is in `client_secret_file`; raises ValueError if it has no id and `client_id` is not set."""
        credential = super().parse_client(content)
        if self.client_id is None and not all(split_credential(credential)):
            raise ValueError("it is not client_id:client_secret; set client_id if it has only the secret")
        return credential

    @field_validator("endpoint")
    @classmethod
    def _root_alone(cls, endpoint: str) -> str:
        # Clients of the Iceberg API are configured with this longer path.
        return endpoint.rstrip("/").removesuffix("/api/catalog")

    def identity(self) -> str:
        """Returns endpoint, realm, client id, and the id of the key and the role that sign requests."""
        parts = (self.endpoint, self.realm, self.client()[0], self.rest_access_key_id, self.assume_role_arn)
        return "|".join(filter(None, parts))


_DELEGATION = {"polaris-generic-table-access-delegation": "vended-credentials"}


class PolarisBackend(GenericTableBackend):
    """Apache Polaris. Ids begin with a catalog, and the namespaces below it nest.

    Cost: one call to describe an existing table.
    """

    settings: ClassVar[type[PolarisSettings]] = PolarisSettings
    errors: ClassVar[ErrorTable] = ERRORS
    # A listing contains generic tables of all formats, without the format, and the spec requires all of them.
    capabilities: Capabilities = Capabilities(
        min_depth=2,
        max_depth=None,
        paginates=False,
        lists_only_lance=True,
        vends=True,
        location_properties=("location",),
        own_properties=("table_type", "polaris.*"),
        own_namespace_properties=("location", "polaris.*"),
    )

    def __init__(self, http: HttpTransport, settings: PolarisSettings) -> None:
        self._http = http
        self._settings = settings
        self._options = settings.storage_options() or {}
        self.unique_locations: bool = settings.unique_locations
        self.allow_aliases: bool = settings.allow_aliases
        self.configured_options: Mapping[str, str] | None = self._options
        if settings.vend_credentials:
            self.capabilities = replace(self.capabilities, vends_by_default=True)
        if settings.filter_tables:
            self.capabilities = replace(self.capabilities, lists_only_lance=False)

    @classmethod
    def open(cls, settings: PolarisSettings, caller: Caller) -> PolarisBackend:
        """Returns a backend for the server at `settings.endpoint`."""
        realm = {"polaris-realm": settings.realm} if settings.realm else {}
        signer = open_signer(settings, caller)
        tokens = open_tokens(
            settings,
            caller,
            uri=f"{settings.endpoint.rstrip('/')}/api/catalog/v1/oauth/tokens",
            headers=realm,
            errors=TOKEN_ERRORS,
            explain_error=wire.read_error,
            lifetime=inf,
        )
        http = open_http(
            settings, caller, path="/api", read_error=wire.read_error, headers=realm, tokens=tokens, signer=signer
        )
        return cls(http, settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        if not parent:
            return await self._catalogs()
        query = f"parent={wire.levels(parent)}" if len(parent) > 1 else ""
        decode = partial(wire.children, parent)
        # No page size is requested, because some servers then return a single page.
        return await self._list_all(wire.namespaces(parent), query, parent, "list_namespaces", decode)

    def listed_name(self, id: NamespaceId) -> str:
        return id.name if self._settings.list_style == "relative" else ".".join(id)

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        if len(id) == 1:
            return await self._catalog(id)
        return await self._properties(id, "describe_namespace")

    def check_new_namespace(self, id: NamespaceId) -> None:
        """Checks that the namespace is inside a catalog, and can be addressed afterwards; see the base class."""
        _below_a_catalog(id, "created")
        wire.namespace(id)

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        self.check_new_namespace(id)
        create = partial(
            self._http.request,
            "POST",
            wire.namespaces(id),
            body={"namespace": list(id[1:]), "properties": dict(properties)},
            subject=id,
            operation="create_namespace",
            decode=partial(wire.namespace_properties, id),
        )
        return await create_or_check_race(
            id, partial(_with_advice, id, create), partial(self._properties, id, "create_namespace")
        )

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        _below_a_catalog(id, "dropped")
        await self._http.request(
            "DELETE", wire.namespace(id), subject=id, operation="drop_namespace", decode=check_empty
        )

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        page = await self._list_all(wire.tables(parent), "", parent, "list_tables", partial(table_names, parent[1:]))
        if self.capabilities.lists_only_lance:
            return page
        # Old servers accept names of tables that cannot be loaded afterwards, so their format is unknown.
        return Page([name for name in page.items if wire.is_addressable(name)])

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        return await self._http.request(
            "GET",
            wire.table(id),
            # Servers may reject a delegation that they do not support, so it is requested only if it is needed.
            headers=_DELEGATION if vend else None,
            subject=id,
            operation="describe_table",
            decode=partial(self._decode_table, id, vend=vend),
        )

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        self.check_declaration(id, location, properties)
        if (place := location) is None:
            place = await self._choose_location(id)
            wire.check_location(id, place)
        return await self._create_table(
            id,
            declaration(id.name, place, properties),
            collection=wire.tables(id.parent),
            path=wire.table(id),
            location=place,
            send=partial(_with_advice, id),
        )

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        # A table that could not be addressed afterwards is not created.
        wire.table(id)
        if location is not None:
            wire.check_location(id, location)
        if reserved_keys := [key for key in properties if key.startswith("polaris.")]:
            raise InvalidInputError(
                f"table {id}: property {reserved_keys[0]!r}: names that begin with polaris. are reserved for the server"
            )

    async def remove_registration(self, id: TableId) -> None:
        await self._delete_table(id, wire.table(id))

    async def rename_table(self, id: TableId, to: TableId) -> None:
        raise UnsupportedOperationError(
            f"Not supported: rename_table of {id} (Polaris cannot rename generic tables; deregister it, and "
            f"register {to} at the returned location)"
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _catalogs(self) -> Page[str]:
        catalogs = self._settings.catalogs
        if catalogs is None:
            raise InvalidInputError(
                "namespace id []: Polaris lists its catalogs only to administrators; list below a catalog, or set "
                "catalogs to their names, or to * to ask the server"
            )
        if catalogs != EVERY:
            return Page(catalogs)
        names = await self._http.request(
            "GET", wire.CATALOGS, subject=NamespaceId(), operation="list_catalogs", decode=wire.catalog_names
        )
        return Page(names)

    async def _catalog(self, id: NamespaceId) -> Mapping[str, str]:
        """Checks that a catalog exists; returns no properties, because only administrators can read them."""
        await self._http.request(
            "GET",
            wire.namespaces(id),
            query="pageSize=1",
            subject=id,
            operation="describe_namespace",
            decode=namespace_names,
        )
        return {}

    async def _properties(self, id: NamespaceId, operation: str) -> Mapping[str, str]:
        return await self._http.request(
            "GET", wire.namespace(id), subject=id, operation=operation, decode=partial(wire.namespace_properties, id)
        )

    def _decode_table(self, id: TableId, body: Any, *, vend: bool = False) -> Table:
        return lance_table(id, self._options, body, vend=wire.vended_options if vend else None)

    async def layout_location(self, id: TableId) -> str:
        if self._settings.root is not None:
            return default_location(self._settings.root, id)
        return wire.location_inside(id, await self._properties(id.parent, "declare_table"))


async def _with_advice(id: NamespaceId | TableId, create: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `create`; if the server rejects the request, its error explains a name that may be why."""
    try:
        return await create()
    except InvalidInputError as e:
        failure, advice = failure_of(e), wire.name_advice(id.name)
        if failure is None or 400 not in failure.codes or advice is None:
            raise
        raise with_failure(InvalidInputError(f"{e}; {advice}"), failure) from e.__cause__


def _below_a_catalog(id: NamespaceId, action: str) -> None:
    if len(id) == 1:
        raise InvalidInputError(
            f"namespace id {list(id)!r}: a catalog is {action} by an administrator, with its storage, in Polaris's "
            "management API; give a namespace inside one"
        )
