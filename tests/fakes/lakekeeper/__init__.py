"""A Lakekeeper server in memory: one warehouse, its Iceberg API for namespaces, and its API for generic tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import UUID, uuid4

from tests.fakes.http import FakeServer, Refusal
from tests.fakes.lakekeeper import catalog
from tests.fakes.server import Answer, Received

from ..tokens import Tokens

LANCE = {"table_type": "lance"}  # The property by which other tools recognize a Lance table
_VENDING = "X-Iceberg-Access-Delegation"
_WAREHOUSE = "lake"
_USUAL_PAGE, _LARGEST_PAGE = 100, 1000
_LARGEST_BODY = 2 * 2**20
_PROJECT = str(UUID(int=0))
_WITHOUT_STS = {"s3.region": "us-east-1", "s3.endpoint": "http://127.0.0.1:9000/"}
_NAMESPACE = "/v1/{prefix}/namespaces/{namespace}"
_ENDPOINTS = (
    "GET /v1/config",
    *(f"{method} /v1/{{prefix}}/namespaces" for method in ("GET", "POST")),
    *(f"{method} {_NAMESPACE}" for method in ("GET", "HEAD", "DELETE")),
    f"POST {_NAMESPACE}/properties",
)

Handler = Callable[[], Answer]


class FakeLakekeeper(FakeServer):
    """A Lakekeeper server; its content survives a restart."""

    def __init__(
        self,
        *,
        base: str = "s3://bucket/lake",
        also: Sequence[str] = (),
        soft: bool = False,
        vends: Sequence[catalog.Json] | None = None,
        client: tuple[str, str] | None = None,
    ) -> None:
        """Creates a server.

        Args:
            base: The location of the warehouse.
            also: Further locations below which tables may be.
            soft: Whether deleted tables can be restored, and keep their locations.
            vends: The `storage-credentials`, also for requests without the header; None for a storage without STS.
            client: The id and secret of a client of the token endpoint `/idp/token`, which represents another server.
        """
        super().__init__()
        self.tokens = Tokens(client=client)
        self.warehouse = catalog.LakekeeperWarehouse(base, also=also, soft=soft)
        self._prefix = str(uuid4())
        self._vends = vends
        self._finished: dict[str, Answer] = {}  # Answers to changes, by the key of the change
        self._removed: dict[tuple[catalog.Levels, str], int] = {}  # The times of deletions by requests, by folded names

    @property
    def properties(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "warehouse": _WAREHOUSE}

    def add_namespace(self, levels: Sequence[str], properties: Mapping[str, str] | None = None) -> None:
        with self._lock:
            self.warehouse.plant_namespace(levels, properties or {})

    def add_table(
        self,
        levels: Sequence[str],
        name: str,
        *,
        format: str = "lance",
        location: str | None = None,
        properties: Mapping[str, str] = LANCE,
        protected: bool = False,
    ) -> str:
        """Adds a generic table and its namespace; returns its location, which another table may have."""
        with self._lock:
            self.warehouse.plant_namespace(levels, {})
            body = {"name": name, "format": format, "base-location": location, "properties": dict(properties)}
            table = self.warehouse.plant_table(tuple(levels), body)
            table["protected"] = protected
        return str(table["base-location"])

    def add_iceberg_table(self, levels: Sequence[str], name: str) -> None:
        """Adds an Iceberg table, which uses the name and is not listed among generic tables."""
        with self._lock:
            self.warehouse.plant_namespace(levels, {}).iceberg.add(catalog.fold_name(name))

    def error(self, status: int) -> Answer:
        return Refusal(status, None, "on demand").answer()

    def handle(self, request: Received) -> Answer:
        try:
            return self._route(request)
        except (Refusal, catalog.Unread) as refusal:
            return refusal.answer()

    def _route(self, request: Received) -> Answer:
        if len(request.body) > _LARGEST_BODY:
            raise catalog.Unread(413, "Failed to buffer the request body: length limit exceeded")
        path, _, query = request.path.partition("?")
        params = dict(parse_qsl(query, keep_blank_values=True))
        if (request.method, path) == ("POST", "/idp/token"):
            return self.tokens.issue(request)
        if (status := self.tokens.refusal(request)) is not None:
            raise Refusal(status, "Unauthorized", "Unauthorized")
        match [unquote(step) for step in path.split("/")[1:]]:
            case "catalog", "v1", "config":
                return _choose({"GET": lambda: self._config(params)}, request)()
            case "catalog", "v1", prefix, *steps:
                handlers = self._namespaces(request, steps, params)
            case "lakekeeper", "v1", prefix, *steps:
                handlers = self._tables(request, steps, params)
            case "management", "v1", "warehouse", prefix, *steps:
                handlers = self._management(request, steps, params)
            case _:
                return Answer(404)
        handler = _choose(handlers, request)
        if not re.fullmatch(r"[0-9a-f-]{36}", prefix):
            raise Refusal(400, "WarehouseIdIsNotUUID", f"Provided warehouse id is not a valid UUID: {prefix}")
        if prefix != self._prefix:
            raise Refusal(404, "NoSuchWarehouseException", f"Warehouse with id '{prefix}' not found")
        if (key := request.headers.get("Idempotency-Key")) is None or request.method in ("GET", "HEAD"):
            return handler()
        try:
            key = f"{UUID(key)} {request}"
        except ValueError:
            raise Refusal(400, "InvalidIdempotencyKey", "Idempotency-Key must be a UUID") from None
        if key not in self._finished:
            self._finished[key] = handler()
        return self._finished[key]

    def _config(self, params: Mapping[str, str]) -> Answer:
        if "warehouse" not in params:
            raise Refusal(400, "GetConfigNoWarehouseProvided", "No warehouse specified.")
        project, _, name = params["warehouse"].rpartition("/")
        if project not in ("", _PROJECT) or name.lower() != _WAREHOUSE:
            raise Refusal(404, "NoSuchWarehouseException", f"Warehouse '{params['warehouse']}' not found")
        defaults = {"prefix": self._prefix, "rest-page-size": str(_USUAL_PAGE)}
        overrides = {"uri": f"{self.url}/catalog", "idempotency-key-lifetime": "PT30M"}
        return Answer.of({"defaults": defaults, "overrides": overrides, "endpoints": _ENDPOINTS})

    def _namespaces(self, request: Received, steps: Sequence[str], params: Mapping[str, str]) -> Mapping[str, Handler]:
        """Returns the handlers of a path by their methods; no path has an empty segment."""
        match steps:
            case ["namespaces"]:
                return {"GET": lambda: self._children(params), "POST": lambda: self._create_namespace(request)}
            case ["namespaces", ns] if ns:
                return {
                    "GET": lambda: self._describe_namespace(ns),
                    "HEAD": lambda: self._find_namespace(ns),
                    "DELETE": lambda: self._drop_namespace(ns, params),
                }
            case ["namespaces", ns, "properties"] if ns:
                return {"POST": lambda: self._change_properties(ns, request)}
        return {}

    def _tables(self, request: Received, steps: Sequence[str], params: Mapping[str, str]) -> Mapping[str, Handler]:
        """Returns the handlers of a path by their methods; no path has an empty segment."""
        match steps:
            case ["namespaces", ns, "generic-tables"] if ns:
                return {"GET": lambda: self._table_names(ns, params), "POST": lambda: self._create_table(ns, request)}
            case ["namespaces", ns, "generic-tables", name] if ns and name:
                return {
                    "GET": lambda: self._describe_table(ns, name, request),
                    "DELETE": lambda: self._drop_table(ns, name, params, request),
                }
            case ["namespaces", ns, "generic-tables", name, "credentials"] if ns and name:
                return {"GET": lambda: self._credentials(ns, name)}
            case ["generic-tables", "rename"]:
                return {"POST": lambda: self._rename(request)}
        return {}

    def _management(self, request: Received, steps: Sequence[str], params: Mapping[str, str]) -> Mapping[str, Handler]:
        match steps:
            case []:
                profile = {"type": "soft", "expiration-seconds": 604800} if self.warehouse.soft else {"type": "hard"}
                return {"GET": lambda: Answer.of({"warehouse-id": self._prefix, "delete-profile": profile})}
            case ["deleted-tabulars"]:
                return {"GET": lambda: self._deleted(params)}
            case ["deleted-tabulars", "undrop"]:
                return {"POST": lambda: self._undrop(request)}
        return {}

    def _deleted(self, params: Mapping[str, str]) -> Answer:
        items = [
            {"id": it["id"], "name": it["name"], "namespace": self.warehouse.levels(it), "typ": "generic-table"}
            for it in self.warehouse.deleted
        ]
        return self._page("tabulars", items, params)

    def _undrop(self, request: Received) -> Answer:
        targets = catalog.read(catalog.Undrop, request).targets
        self.warehouse.undrop([str(it.id) for it in targets])
        return Answer(204)

    def _children(self, params: Mapping[str, str]) -> Answer:
        parent = _levels(params["parent"]) if "parent" in params else ()
        items = [list(it) for it in self.warehouse.children(parent)]
        return self._page("namespaces", items, params, last_is_empty=False)

    def _create_namespace(self, request: Received) -> Answer:
        body = catalog.read(catalog.NewNamespace, request)
        if not body.namespace:
            return Answer(500, b"Service panicked", {"Content-Type": "text/plain; charset=utf-8"})
        space = self.warehouse.create_namespace(tuple(body.namespace), body.properties or {})
        return Answer.of({"namespace": body.namespace, "properties": space.properties})

    def _describe_namespace(self, ns: str) -> Answer:
        return Answer.of({"namespace": _levels(ns), "properties": self.warehouse.space(_levels(ns)).properties})

    def _find_namespace(self, ns: str) -> Answer:
        self.warehouse.space(_levels(ns))
        return Answer(204)

    def _drop_namespace(self, ns: str, params: Mapping[str, str]) -> Answer:
        recursive, force = catalog.flag(params, "recursive"), catalog.flag(params, "force")
        self.warehouse.drop_namespace(_levels(ns), recursive=recursive, force=force)
        return Answer(204)

    def _change_properties(self, ns: str, request: Received) -> Answer:
        body, properties = catalog.read(catalog.Change, request), self.warehouse.space(_levels(ns)).properties
        removed = [key for key in body.removals if properties.pop(key, None) is not None]
        properties.update(body.updates)
        missing = [key for key in body.removals if key not in removed]
        return Answer.of({"updated": list(body.updates), "removed": removed, "missing": missing})

    def _table_names(self, ns: str, params: Mapping[str, str]) -> Answer:
        tables = self.warehouse.space(_levels(ns)).tables.values()
        fields = ("name", "format", "id")
        items = [{"namespace": _levels(ns), **{field: it[field] for field in fields}} for it in tables]
        return self._page("identifiers", items, params)

    def _create_table(self, ns: str, request: Received) -> Answer:
        body = catalog.read(catalog.NewTable, request).model_dump(by_alias=True)
        _check_new(body)
        return Answer.of({"table": _render(self.warehouse.create_table(_levels(ns), body))})

    def _describe_table(self, ns: str, name: str, request: Received) -> Answer:
        table = self.warehouse.table(_levels(ns), name)
        vends = self._vended() if request.headers.get(_VENDING) != "client-managed" else []
        # The keys for the table are in both places.
        keys = [it["config"] for it in vends if table["base-location"].startswith(it["prefix"])]
        config = keys[0] if keys else {}
        return Answer.of({"table": _render(table), "config": config, "storage-credentials": vends})

    def _credentials(self, ns: str, name: str) -> Answer:
        self.warehouse.table(_levels(ns), name)
        return Answer.of({"storage-credentials": self._vended()})

    def _vended(self) -> Sequence[catalog.Json]:
        if self._vends is None and self.warehouse.base.startswith("s3:"):
            return [{"prefix": f"{self.warehouse.base}/", "config": _WITHOUT_STS}]
        return self._vends or []

    def _drop_table(self, ns: str, name: str, params: Mapping[str, str], request: Received) -> Answer:
        force, _ = catalog.flag(params, "force"), catalog.flag(params, "purgeRequested")
        self.warehouse.space(_levels(ns))
        key = (catalog.fold(_levels(ns)), catalog.fold_name(name))
        if self.warehouse.soft and not force and self._removed.get(key, -1) >= request.arrived:
            # With soft deletion, concurrent deletions of a table all succeed.
            return Answer(204)
        self.warehouse.drop_table(_levels(ns), name, force=force)
        self._removed[key] = self._carried_out
        return Answer(204)

    def _rename(self, request: Received) -> Answer:
        body = catalog.read(catalog.Rename, request)
        if not body.source.namespace:
            raise Refusal(400, "InvalidSourceIdent", "The namespace of the source is empty")
        if not body.destination.name:
            raise Refusal(400, "IdentifierNameEmpty", "The name of the destination is empty")
        source, destination = [(tuple(end.namespace), end.name) for end in (body.source, body.destination)]
        self.warehouse.rename(source, destination)
        return Answer(204)

    def _page(self, key: str, items: Sequence[Any], params: Mapping[str, str], *, last_is_empty: bool = True) -> Answer:
        """Returns a page, with a token unless the page is empty, or not full: so the last page of tables is empty."""
        size = min(catalog.page_size(params, _USUAL_PAGE), _LARGEST_PAGE)
        token = params.get("pageToken", "0")
        if not token.isdecimal() and (token or last_is_empty):
            if last_is_empty:
                raise Refusal(503, "CatalogBackendError", "Error decoding the page token")
            raise Refusal(400, "InvalidPaginationToken", f"Invalid pagination token: {token}")
        start = int(token or 0)
        page = items[start : start + size]
        more = {"next-page-token": str(start + len(page))} if page and (last_is_empty or len(page) == size) else {}
        return Answer.of({key: page, **more})


def _choose(handlers: Mapping[str, Handler], request: Received) -> Handler:
    """Returns the handler of a request, which is for HEAD usually that of GET; a path without handlers is unknown."""
    if not handlers:
        return lambda: Answer(404)
    method = request.method if request.method in handlers or request.method != "HEAD" else "GET"
    return handlers.get(method, lambda: Answer(405, b"", {"Allow": ",".join(handlers)}))


def _levels(ns: str) -> catalog.Levels:
    """Returns the levels in a path or a query; a plus becomes a blank after percent-decoding."""
    levels = tuple(level.replace("+", " ") for level in ns.split("\x1f"))
    catalog.check_parts(levels)
    return levels


def _check_new(body: catalog.Json) -> None:
    if not body["name"]:
        raise Refusal(400, "InvalidName", "Generic table name cannot be empty")
    if "+" in body["name"]:
        raise Refusal(400, "InvalidName", "Generic table name cannot contain '+' character.")
    if not re.fullmatch("[a-z][a-z0-9_-]{0,63}", body["format"]):
        raise Refusal(400, "InvalidFormat", "Generic table format must start with a lowercase letter.")


def _render(table: catalog.Json) -> catalog.Json:
    return {key: value for key, value in table.items() if key not in ("id", "space")}
