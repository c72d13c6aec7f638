"""Iceberg REST catalogs: Lance tables kept as Iceberg tables with `table_type=lance`, versions kept by the storage.

Written after the Lance Iceberg namespace spec, https://lance.org/format/namespace/integrations/iceberg, on top
of the Iceberg REST catalog API as of Iceberg 1.11.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, unquote
from uuid import uuid4

import httpx
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnauthenticatedError,
)
from pydantic import SecretStr

from lance_ns_async.backends.base import Backend, Capabilities
from lance_ns_async.backends.locations import default_location
from lance_ns_async.errors import HTTP_ERRORS, Code, ErrorTable, NotALanceTableError
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.policy import Caller, Policy
from lance_ns_async.settings import HttpSettings
from lance_ns_async.transports.auth import RenewedTokens, Token
from lance_ns_async.transports.http import HttpTransport, open_http

T = TypeVar("T")

ICEBERG_ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    "NoSuchNamespaceException": NamespaceNotFoundError,
    "NoSuchTableException": TableNotFoundError,
    "NamespaceNotEmptyException": NamespaceNotEmptyError,
    (404, "declare_table"): NamespaceNotFoundError,
    (409, "create_namespace"): NamespaceAlreadyExistsError,
    (409, "drop_namespace"): NamespaceNotEmptyError,
    (409, "declare_table"): TableAlreadyExistsError,
    (409, "rename_table"): TableAlreadyExistsError,
    # The token endpoint answers 400 `invalid_client` as OAuth2 has it, some servers 406.
    (400, "fetch_token"): UnauthenticatedError,
    (406, "fetch_token"): UnauthenticatedError,
}

_PAGE_SIZE = 1000
"""Names a page, where neither the caller nor the catalog says how many."""

_TOKEN_LIFETIME = 3600.0
"""Seconds a token is taken to live whose lifetime the server does not tell."""


class IcebergSettings(HttpSettings):
    """Properties of an Iceberg REST catalog; bare times are milliseconds."""

    backend = "iceberg"

    warehouse: str | None = None
    """Sent to `/v1/config`, which answers with the prefix of all paths; not a level of ids."""
    credential: SecretStr | None = None
    """`client_id:client_secret` for OAuth2 client credentials; without a colon the secret alone."""
    oauth2_server_uri: str | None = None
    """The token endpoint; None means `{endpoint}/v1/oauth/tokens`."""
    scope: str = "catalog"
    root: str | None = None
    """Where tables declared without a location go, as `{root}/{namespace}/{table}`; None: working directory."""
    metadata_path: str | None = None
    """Where the server is to keep its own metadata files; None means inside each table's location."""

    def identity(self) -> str:
        """Endpoint, warehouse and client id."""
        client = self.credential.get_secret_value().rpartition(":")[0] if self.credential else ""
        return "|".join(filter(None, (self.endpoint, self.warehouse, client)))


@dataclass(frozen=True, slots=True)
class Routes:
    """What a catalog's `/v1/config` says about its paths; all parts are percent-encoded."""

    prefix: str
    separator: str
    page_size: int | None

    def namespace(self, id: NamespaceId | TableId) -> str:
        """The levels of `id`, each encoded once, joined as this catalog wants them."""
        separator = unquote(self.separator)
        for level in id:
            if level in (".", "..") or (separator in level and isinstance(id, NamespaceId)):
                raise InvalidInputError(
                    f"{id.kind} id {list(id)!r}: this catalog cannot address a level named {level!r}, "
                    f"because {separator!r} separates levels and '.' and '..' are rewritten on the way"
                )
        return self.separator.join(quote(level, safe="") for level in id)

    def namespaces(self, id: NamespaceId | None = None) -> str:
        """The path of all namespaces, or of one."""
        return f"{self.prefix}/namespaces" + (f"/{self.namespace(id)}" if id else "")

    def tables(self, parent: NamespaceId) -> str:
        """The path of the tables in `parent`."""
        return f"{self.namespaces(parent)}/tables"

    def table(self, id: TableId) -> str:
        """The path of a table."""
        return f"{self.tables(id.parent)}/{_segment(id)}"

    def page(self, token: str | None, limit: int | None) -> list[str]:
        """The query parameters that ask for a page of a listing."""
        size = limit or self.page_size
        if token is None and size is None:
            return []
        # Some servers ignore a token that comes without a size, and begin anew.
        return [f"pageToken={quote(token or '', safe='')}", f"pageSize={size or _PAGE_SIZE}"]


class IcebergBackend(Backend):
    """An Iceberg REST catalog. Describing costs one load; the first call of all asks `/v1/config` once more."""

    settings = IcebergSettings
    errors = ICEBERG_ERRORS
    capabilities = Capabilities(min_depth=1, max_depth=None, paginates=True, lists_only_lance=False)

    def __init__(self, http: HttpTransport, settings: IcebergSettings) -> None:
        self._http = http
        self._settings = settings
        self._storage_options = settings.storage_options()
        self._routes: Routes | None = None
        self._routes_lock = asyncio.Lock()

    @classmethod
    def open(cls, settings: IcebergSettings, caller: Caller) -> IcebergBackend:
        """A backend for the catalog at `settings.endpoint`."""
        if settings.credential is None:
            http = open_http(settings, caller, path="/v1", explain=explain)
        else:
            tokens = partial(_tokens, settings, caller.policy)
            http = open_http(settings, caller, path="/v1", explain=explain, tokens=tokens)
        return cls(http, settings)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        routes = self._routes or await self._config()
        query = routes.page(token, limit)
        if parent:
            query.append(f"parent={routes.namespace(parent)}")
        page = await self._http.request(
            "GET",
            routes.namespaces(),
            query="&".join(query),
            subject=parent,
            operation="list_namespaces",
            decode=namespace_names,
        )
        return await self._checked(page, parent, "list_namespaces")

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        routes = self._routes or await self._config()
        return await self._http.request(
            "GET", routes.namespaces(id), subject=id, operation="describe_namespace", decode=properties_kept
        )

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        routes = self._routes or await self._config()
        if id.parent:
            # Some servers create the child of a parent that does not exist.
            await self._must_exist(id.parent, "create_namespace")
        routes.namespace(id)
        return await self._http.request(
            "POST",
            routes.namespaces(),
            body={"namespace": list(id), "properties": dict(properties)},
            subject=id,
            operation="create_namespace",
            decode=properties_kept,
        )

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        routes = self._routes or await self._config()
        await self._http.request(
            "DELETE", routes.namespaces(id), subject=id, operation="drop_namespace", decode=nothing
        )

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        routes = self._routes or await self._config()
        page = await self._http.request(
            "GET",
            routes.tables(parent),
            query="&".join(routes.page(token, limit)),
            subject=parent,
            operation="list_tables",
            decode=table_names,
        )
        return await self._checked(page, parent, "list_tables")

    async def describe_table(self, id: TableId) -> Table:
        return await self._load(id, "describe_table", partial(table, id, self._storage_options))

    async def declare_table(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> Table:
        routes = self._routes or await self._config()
        wanted = (location or default_location(self._settings.root, id)).rstrip("/")
        uuid = str(uuid4())
        try:
            declared = await self._http.request(
                "POST",
                routes.table(id),
                body=declaration(id, uuid, wanted, self._declared_properties(id, properties)),
                subject=id,
                operation="declare_table",
                decode=partial(table, id, self._storage_options),
            )
        except (ServiceUnavailableError, InternalError) as e:
            declared = await self._settled(id, uuid, e)
        if declared.location.rstrip("/") != wanted:
            await self.deregister_table(id)
            raise InvalidInputError(
                f"table {id}: the catalog would keep it at {declared.location}, not at {wanted}; "
                "give a location that it accepts"
            )
        return declared

    async def deregister_table(self, id: TableId) -> None:
        routes = self._routes or await self._config()
        await self._http.request(
            "DELETE",
            routes.table(id),
            # A purge would delete the files of the table.
            query="purgeRequested=false",
            subject=id,
            operation="deregister_table",
            decode=nothing,
        )

    async def rename_table(self, id: TableId, to: TableId) -> None:
        routes = self._routes or await self._config()
        routes.table(to)
        await self._http.request(
            "POST",
            f"{routes.prefix}/tables/rename",
            body={"source": _identifier(id), "destination": _identifier(to)},
            subject=id,
            operation="rename_table",
            decode=nothing,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _config(self) -> Routes:
        async with self._routes_lock:
            if self._routes is None:
                warehouse = self._settings.warehouse
                self._routes = await self._http.request(
                    "GET",
                    "/config",
                    query=f"warehouse={quote(warehouse, safe='')}" if warehouse else "",
                    subject=NamespaceId(),
                    operation="get_config",
                    decode=routes,
                )
        return self._routes

    async def _load(self, id: TableId, operation: str, decode: Callable[[Any], T]) -> T:
        routes = self._routes or await self._config()
        return await self._http.request(
            "GET", routes.table(id), query="snapshots=refs", subject=id, operation=operation, decode=decode
        )

    async def _checked(self, page: Page[str], parent: NamespaceId, operation: str) -> Page[str]:
        # Some servers list a missing namespace as an empty one.
        if parent and not page.items:
            await self._must_exist(parent, operation)
        return page

    async def _must_exist(self, id: NamespaceId, operation: str) -> None:
        routes = self._routes or await self._config()
        await self._http.request("HEAD", routes.namespaces(id), subject=id, operation=operation, decode=nothing)

    async def _settled(self, id: TableId, uuid: str, error: ServiceUnavailableError | InternalError) -> Table:
        """The table, if the commit whose answer was lost made it; otherwise the error that fits what is there."""
        try:
            found = await self._load(id, "declare_table", table_uuid)
        except (TableNotFoundError, NamespaceNotFoundError):
            raise error from None
        if found != uuid:
            raise TableAlreadyExistsError(f"Table already exists: {id} (declare_table: made by another)") from error
        return await self.describe_table(id)

    def _declared_properties(self, id: TableId, given: Mapping[str, str]) -> dict[str, str]:
        if (managed_by := given.get("managed_by", "storage").lower()) != "storage":
            raise InvalidInputError(
                f"table {id}: managed_by={managed_by!r} is not served; only 'storage' is, where Lance itself "
                "commits versions"
            )
        kept = {**given, "table_type": "lance", "managed_by": "storage"}
        if self._settings.metadata_path is not None:
            kept["write.metadata.path"] = default_location(self._settings.metadata_path, id)
        return kept


def explain(body: Any) -> tuple[tuple[Code, ...], str]:
    """The exception's type, where the server names one, and its message without the stack."""
    if "error" not in body:
        # What stands before the catalog answers in its own form.
        return (), body["message"]
    error = body["error"]
    kind = error.get("type") or ""
    message = error["message"]
    return ((kind,), f"{kind}: {message}") if kind else ((), message)


def routes(body: Any) -> Routes:
    """What the configuration says about paths, `overrides` before `defaults`."""
    config = {**(body.get("defaults") or {}), **(body.get("overrides") or {})}
    prefix = config.get("prefix")
    page_size = config.get("rest-page-size")
    return Routes(
        prefix=f"/{prefix}" if prefix else "",
        separator=config.get("namespace-separator") or "%1F",
        page_size=int(page_size) if page_size else None,
    )


def namespace_names(body: Any) -> Page[str]:
    """The last level of each namespace listed."""
    return Page([levels[-1] for levels in body["namespaces"]], body.get("next-page-token") or None)


def table_names(body: Any) -> Page[str]:
    """The names of the tables listed, of whatever format."""
    return Page([found["name"] for found in body["identifiers"]], body.get("next-page-token") or None)


def properties_kept(body: Any) -> Mapping[str, str]:
    """The properties of a namespace."""
    return dict(body.get("properties") or {})


def table(id: TableId, storage_options: Mapping[str, str] | None, body: Any) -> Table:
    """The Lance table of a load's answer."""
    metadata = body["metadata"]
    kept = metadata.get("properties") or {}
    if (kind := kept.get("table_type", "iceberg")).lower() != "lance":
        raise NotALanceTableError(f"Invalid input: {id} is no Lance table, its table_type is {kind!r}")
    return Table(id, metadata["location"], kept, storage_options)


def table_uuid(body: Any) -> str:
    """What tells this table from another of the same name."""
    return str(body["metadata"]["table-uuid"])


def nothing(body: Any) -> None:
    """An answer that says no more than that the call succeeded."""


def token(body: Any) -> Token:
    """The token of an OAuth2 answer."""
    return Token(body["access_token"], float(body.get("expires_in") or _TOKEN_LIFETIME))


def declaration(id: TableId, uuid: str, location: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """The one commit that makes a table which must not exist yet; every part is demanded by some server."""
    return {
        "identifier": _identifier(id),
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": uuid},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "set-location", "location": location},
            {
                "action": "add-schema",
                "schema": {"type": "struct", "schema-id": 0, "fields": []},
                "last-column-id": 0,
            },
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-properties", "updates": dict(properties)},
        ],
    }


def _identifier(id: TableId) -> dict[str, Any]:
    return {"namespace": list(id.parent), "name": id.name}


def _segment(id: TableId) -> str:
    if id.name in (".", ".."):
        raise InvalidInputError(
            f"table id {list(id)!r}: the name {id.name!r} would be rewritten on the way; choose another"
        )
    return quote(id.name, safe="")


def _tokens(settings: IcebergSettings, policy: Policy, wire: httpx.AsyncBaseTransport) -> RenewedTokens:
    uri = settings.oauth2_server_uri or f"{settings.endpoint.rstrip('/')}/v1/oauth/tokens"
    client, _, secret = (settings.credential or SecretStr("")).get_secret_value().rpartition(":")
    form = {"grant_type": "client_credentials", "client_secret": secret, "scope": settings.scope}
    # Of its own: calls that wait for a token hold no slot that fetching it would need.
    caller = Caller(policy, ICEBERG_ERRORS)
    http = HttpTransport(wire, caller, base=uri, headers={"accept": "application/json"}, explain=explain_oauth)

    async def fetch() -> Token:
        return await http.request(
            "POST",
            "",
            form={**form, "client_id": client} if client else form,
            subject=NamespaceId(),
            operation="fetch_token",
            decode=token,
            safe=True,
        )

    return RenewedTokens(fetch)


def explain_oauth(body: Any) -> tuple[tuple[Code, ...], str]:
    """The error of the token endpoint, as OAuth2 spells it or as Iceberg does."""
    error = body["error"]
    if isinstance(error, str):
        return (), f"{error}: {body.get('error_description') or 'no description'}"
    return explain(body)
