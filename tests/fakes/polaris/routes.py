"""The routes of a Polaris server, for requests whose principal is known; and its parsing of raw paths and queries."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from tests.fakes.http import Refusal
from tests.fakes.polaris.catalog import (
    ERROR_TYPES,
    Bare,
    Json,
    Levels,
    PolarisCatalogs,
    Space,
    change_properties,
    compact,
    exists,
    no_namespace,
    no_route,
    refused,
    violated,
)
from tests.fakes.server import Received

_DOTS = re.compile(r"/(\.|%2e){1,2}(?=/|$)", re.IGNORECASE)
_TOKEN = struct.Struct(">4sQQ")
_MAGIC = b"page"


def segments(path: str) -> list[str]:
    """Returns the raw segments, without dot segments and a trailing slash."""
    result = path[1:].split("/")
    kept = _without_dots(result) if _DOTS.search(path) else result
    if kept and not kept[-1]:
        kept.pop()
    return kept


def levels(text: str) -> tuple[str, ...]:
    """Returns the levels of a decoded namespace segment; an additional separator makes an empty level."""
    return tuple(text.split("\x1f"))


def decoded(segment: str) -> str:
    """Returns a path segment, decoded once: a plus stays a plus."""
    return unquote(segment)


def parameters(query: str) -> dict[str, str]:
    """Returns the form-decoded query: a plus is a blank."""
    return dict(parse_qsl(query, keep_blank_values=True))


def page_size(params: dict[str, str]) -> int | None:
    text = params.get("pageSize")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise no_route("HTTP 404 Not Found") from None


def page_token(last: int, size: int) -> str:
    """Returns an opaque token for the page after the item of this number, with a page size."""
    return base64.urlsafe_b64encode(_scrambled(_TOKEN.pack(_MAGIC, last, size))).decode()


def page_start(token: str) -> tuple[int, int]:
    try:
        magic, last, size = _TOKEN.unpack(_scrambled(base64.urlsafe_b64decode(token)))
    except (ValueError, struct.error):
        magic, last, size = b"", 0, 0
    if magic != _MAGIC:
        raise Refusal(500, "RuntimeException", f"Invalid page token: {token}")
    return last, size


def _without_dots(segments: list[str]) -> list[str]:
    kept: list[str] = []
    for segment in segments:
        match re.sub("%2e", ".", segment, flags=re.IGNORECASE):
            case ".":
                pass
            case "..":
                del kept[-1:]
            case _:
                kept.append(segment)
    return kept


def _scrambled(raw: bytes) -> bytes:
    # So that a token is opaque, and contains characters that must be quoted.
    return bytes(byte ^ (0x8B + 29 * i) % 256 for i, byte in enumerate(raw))


VENDING = "Polaris-Generic-Table-Access-Delegation"  # The header by which a client requests credentials

_ENDPOINTS = [
    *(f"{method} /v1/{{prefix}}/namespaces" for method in ("GET", "POST")),
    *(f"{method} /v1/{{prefix}}/namespaces/{{namespace}}" for method in ("GET", "HEAD", "DELETE")),
    *(f"{method} /polaris/v1/{{prefix}}/namespaces/{{namespace}}/generic-tables" for method in ("GET", "POST")),
    *(
        f"{method} /polaris/v1/{{prefix}}/namespaces/{{namespace}}/generic-tables/{{generic-table}}"
        for method in ("GET", "DELETE")
    ),
]


@dataclass(frozen=True, slots=True)
class Call:
    """An authorized request, whose path is split into raw segments."""

    request: Received
    params: dict[str, str]
    stranger: str | None  # The principal, if it has no grants

    def body(self) -> Json:
        if not self.request.headers.get("Content-Type", "application/json").startswith("application/json"):
            raise Refusal(415, ERROR_TYPES[415], "HTTP 415 Unsupported Media Type")
        if not self.request.body:
            raise Refusal(500, "NullPointerException", "Cannot read the request because it is null")
        try:
            body = self.request.json
        except ValueError:
            raise Refusal(400, "WebApplicationException", "HTTP 400 Bad Request") from None
        if not isinstance(body, dict):
            raise Bare(400)
        return body

    def need_grants(self, operation: str) -> None:
        if self.stranger is not None:
            raise Refusal(
                403,
                "ForbiddenException",
                f"Principal '{self.stranger}' with activated PrincipalRoles '[]' and activated grants via '[]' "
                f"is not authorized for op {operation}",
            )


@dataclass(frozen=True, slots=True)
class Done:
    """A successful response; without a body, it has no content type either."""

    status: int
    body: bytes = b""


def _done(value: Any, status: int = 200) -> Done:
    return Done(status, compact(value))


class PolarisRoutes:
    """The three APIs of some catalogs; each gets the raw path segments below its root."""

    def __init__(
        self, catalogs: PolarisCatalogs, *, paging: bool, table_page: int | None, vends: Sequence[Json] | None
    ) -> None:
        self._vends = compact(vends or [])
        self._catalogs = catalogs
        self._paging = paging
        self._table_page = table_page
        self.now = 0  # The number of requests that were performed before the current one

    def management(self, call: Call, steps: Sequence[str]) -> Done:
        match call.request.method, *steps:
            case "GET", "catalogs":
                call.need_grants("LIST_CATALOGS")
                return _done({"catalogs": [c.entity for c in self._catalogs.catalogs.values()]})
            case "POST", "catalogs":
                call.need_grants("CREATE_CATALOG")
                body = call.body()
                if "catalog" not in body:
                    raise Bare(400)
                return _done(self._catalogs.create(body["catalog"]), 201)
            case "GET", "catalogs", name:
                call.need_grants("GET_CATALOG")
                if (catalog := self._catalogs.catalogs.get(decoded(name))) is None:
                    raise Refusal(404, "NotFoundException", f"TopLevelEntity of type CATALOG does not exist: {name}")
                return _done(catalog.entity)
        raise no_route()

    def catalog(self, call: Call, steps: Sequence[str]) -> Done:
        match call.request.method, *steps:
            case "GET", "config":
                return self._config(call)
            case (("GET" | "HEAD"), catalog, "namespaces"):
                return self._children(call, decoded(catalog))
            case "POST", catalog, "namespaces":
                return self._create_namespace(call, decoded(catalog))
            case _, _, "namespaces":
                raise Refusal(405, ERROR_TYPES[405], "HTTP 405 Method Not Allowed")
            case (("GET" | "HEAD"), _, "namespaces", ns) if "\0" in decoded(ns):
                raise refused(f"Invalid namespace: {decoded(ns)}")
            case "GET", catalog, "namespaces", ns:
                space = self._catalogs.space(decoded(catalog), levels(decoded(ns)))
                call.need_grants("LOAD_NAMESPACE_METADATA")
                return _done(_described(space))
            case "HEAD", catalog, "namespaces", ns:
                self._catalogs.space(decoded(catalog), levels(decoded(ns)))
                call.need_grants("NAMESPACE_EXISTS")
                return Done(204)
            case "DELETE", catalog, "namespaces", ns:
                space = self._catalogs.space(decoded(catalog), levels(decoded(ns)))
                call.need_grants("DROP_NAMESPACE")
                self._catalogs.drop_namespace(decoded(catalog), space)
                return Done(204)
            case "POST", catalog, "namespaces", ns, "properties":
                space = self._catalogs.space(decoded(catalog), levels(decoded(ns)))
                call.need_grants("UPDATE_NAMESPACE_PROPERTIES")
                return _done(change_properties(space, call.body(), arrived=call.request.arrived, now=self.now))
            case "POST", catalog, "namespaces", ns, "tables":
                space = self._catalogs.space(decoded(catalog), levels(decoded(ns)))
                self._catalogs.check_table_location(space, call.body())
                self._catalogs.check_contents(space)
        raise no_route()

    def tables(self, call: Call, steps: Sequence[str]) -> Done:
        match call.request.method, *steps:
            case (("GET" | "HEAD"), catalog, "namespaces", ns, "generic-tables", name):
                table = self._catalogs.table(decoded(catalog), levels(decoded(ns)), decoded(name))
                call.need_grants("LOAD_TABLE")
                return self._loaded(call, table)
            case "DELETE", catalog, "namespaces", ns, "generic-tables", name:
                call.need_grants("DROP_TABLE_WITHOUT_PURGE")
                self._catalogs.drop_table(decoded(catalog), levels(decoded(ns)), decoded(name))
                return Done(204)
            case (("GET" | "HEAD"), catalog, "namespaces", ns, "generic-tables"):
                return self._table_names(call, decoded(catalog), levels(decoded(ns)))
            case "POST", catalog, "namespaces", ns, "generic-tables":
                return self._create_table(call, decoded(catalog), levels(decoded(ns)))
        raise no_route()

    def _config(self, call: Call) -> Done:
        name = call.params.get("warehouse")
        if not name:
            raise Refusal(400, "BadRequestException", "Please specify a warehouse")
        catalog = self._catalogs.catalogs.get(name)
        if catalog is None:
            raise no_route(f"Unable to find warehouse {name}")
        return _done({"defaults": catalog.properties, "overrides": {"prefix": name}, "endpoints": _ENDPOINTS})

    def _children(self, call: Call, catalog: str) -> Done:
        size, parent = page_size(call.params), call.params.get("parent")
        space = self._catalogs.space(catalog, levels(parent) if parent else ())
        call.need_grants("LIST_NAMESPACES")
        result, token = list(space.children.values()), None
        if self._paging:
            result, token = _page(result, size, call.params.get("pageToken"))
        return _done({"namespaces": [child.levels for child in result], "next-page-token": token})

    def _create_namespace(self, call: Call, catalog: str) -> Done:
        body = call.body()
        levels = body.get("namespace")
        if levels is None:
            raise Refusal(500, "NullPointerException", "Cannot read the namespace because it is null")
        if not isinstance(levels, list):
            raise Refusal(400, "WebApplicationException", "HTTP 400 Bad Request")
        levels = ["null" if level is None else str(level) for level in levels]
        if not levels:
            raise exists("Cannot create root namespace, as it already exists implicitly.")
        parent = self._catalogs.find(catalog, tuple(levels[:-1]))
        if parent is None:
            raise no_namespace(tuple(levels[:-1]))
        call.need_grants("CREATE_NAMESPACE")
        return _done(_described(self._catalogs.create_namespace(parent, levels[-1], body.get("properties") or {})))

    def _table_names(self, call: Call, catalog: str, ns: Levels) -> Done:
        size = page_size(call.params)
        if size is not None and size < 1:
            raise violated("Invalid value: listGenericTables.pageSize: must be greater than or equal to 1")
        space = self._catalogs.space(catalog, ns)
        call.need_grants("LIST_TABLES")
        names, token = list(space.tables), None
        if self._table_page is not None:
            start = int(call.params.get("pageToken") or 0)
            end = start + self._table_page
            token = str(end) if end < len(names) else None
            names = names[start:end]
        identifiers = [{"namespace": space.levels, "name": name} for name in names]
        return _done({"next-page-token": token, "identifiers": identifiers})

    def _create_table(self, call: Call, catalog: str, ns: Levels) -> Done:
        body = call.body()
        if "name" not in body or "format" not in body:
            raise Bare(400)
        for key in ("name", "format"):
            if body[key] is None:
                raise violated(f"createGenericTable.createGenericTableRequest.{key}: must not be null")
        body = {**body, "name": str(body["name"])}
        space = self._catalogs.space(catalog, ns)
        call.need_grants("CREATE_TABLE_DIRECT")
        return self._loaded(call, self._catalogs.create_table(space, body))

    def _loaded(self, call: Call, table: bytes) -> Done:
        vending = call.request.headers.get(VENDING) == "vended-credentials"
        credentials = self._vends if vending else b"[]"
        return Done(200, b'{"table":%b,"storage-access-configs":%b}' % (table, credentials))


def _described(space: Space) -> Json:
    return {"namespace": space.levels, "properties": space.properties}


def _page(spaces: list[Space], size: int | None, token: str | None) -> tuple[list[Space], str | None]:
    """Returns a page of namespaces, with a token if more follow; a token contains the page size of its request."""
    last = 0
    if token:
        last, before = page_start(token)
        size = before if size is None else size
    if size is None:
        return spaces, None
    if size < 0:
        raise refused(f"Invalid page size: {size}")
    rest = [space for space in spaces if space.number > last]
    page = rest[:size]
    more = page and len(rest) > size
    return page, page_token(page[-1].number, size) if more else None
