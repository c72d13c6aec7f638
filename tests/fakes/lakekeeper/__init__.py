"""A Lakekeeper server in memory: one warehouse, its Iceberg API for namespaces, and its API for generic tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import UUID, uuid4

from ..faults import Answer, Received
from ..http import FakeServer
from ..iceberg.errors import Refusal
from ..tokens import Tokens
from .catalog import Json, LakekeeperWarehouse, Levels, fold_name

LANCE = {"table_type": "lance"}
"""The property by which other tools recognize a Lance table."""

_VENDING = "X-Iceberg-Access-Delegation"
_LARGEST_PAGE = 1000
_LARGEST_BODY = 2 * 2**20


class FakeLakekeeper(FakeServer):
    """A Lakekeeper server; its content survives a restart."""

    def __init__(
        self,
        *,
        warehouse: str = "lake",
        base: str = "s3://bucket/lake",
        also: Sequence[str] = (),
        soft: bool = False,
        vends: Sequence[Json] | None = None,
        load_config: Mapping[str, str] | None = None,
        token: str | None = None,
        client: tuple[str, str] | None = None,
        page_size: int = 100,
    ) -> None:
        """Creates a server.

        Args:
            base: The location of the warehouse.
            also: Further locations below which tables may be.
            soft: Whether deleted tables can be restored, and keep their locations.
            vends: The `storage-credentials`, also for requests without the header; None for a storage without STS.
            load_config: The `config` of each loaded table.
            token: A bearer token that requests must have.
            client: The id and secret of a client of the token endpoint `/idp/token`, which represents another server.
            page_size: The number of names in a page if none is requested.
        """
        super().__init__()
        self.tokens = Tokens(token, client=client)
        self.warehouse = LakekeeperWarehouse(base, also=also, soft=soft)
        self._name = warehouse
        self._prefix = str(uuid4())
        self._vends = vends
        self._load_config = dict(load_config or {})
        self._page_size = page_size
        self._finished: dict[str, Answer] = {}
        """Answers to changes, by the key of the change."""

    @property
    def endpoint(self) -> str:
        """The server's root."""
        return self.url

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a connection."""
        return {"endpoint": self.endpoint, "warehouse": self._name}

    def add_namespace(self, levels: Sequence[str], properties: Mapping[str, str] | None = None) -> None:
        """Adds a namespace, with its missing parents."""
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
        place: str = table["base-location"]
        return place

    def add_iceberg_table(self, levels: Sequence[str], name: str) -> None:
        """Adds an Iceberg table, which uses the name and is not listed among generic tables."""
        with self._lock:
            self.warehouse.plant_namespace(levels, {}).iceberg.add(fold_name(name))

    def add_lance_tables(self, levels: Sequence[str], count: int, stem: str = "t") -> list[str]:
        """Adds many Lance tables and returns their names: `t0000`, `t0001` ..."""
        names = [f"{stem}{i:04}" for i in range(count)]
        for name in names:
            self.add_table(levels, name)
        return names

    def error(self, status: int) -> Answer:
        return Refusal(status, None, "on demand").answer()

    def handle(self, request: Received) -> Answer:
        try:
            return self._route(request)
        except Refusal as refusal:
            return refusal.answer()

    def _route(self, request: Received) -> Answer:
        if len(request.body) > _LARGEST_BODY:
            return Answer(413, b"Failed to buffer the request body: length limit exceeded")
        path, _, query = request.path.partition("?")
        params = dict(parse_qsl(query, keep_blank_values=True))
        if (request.method, path) == ("POST", "/idp/token"):
            return self.tokens.issue(request)
        if (status := self.tokens.refusal(request)) is not None:
            raise Refusal(status, "Unauthorized", "Unauthorized")
        match [unquote(step) for step in path.split("/")[1:]]:
            case "catalog", "v1", "config" if request.method == "GET":
                return self._config(params)
            case "catalog", "v1", prefix, *steps:
                route = self._namespaces
            case "lakekeeper", "v1", prefix, *steps:
                route = self._tables
            case _:
                return Answer(404)
        if not re.fullmatch(r"[0-9a-f-]{36}", prefix):
            raise Refusal(400, "WarehouseIdIsNotUUID", f"Provided warehouse id is not a valid UUID: {prefix}")
        if prefix != self._prefix:
            raise Refusal(404, "NoSuchWarehouseException", f"Warehouse with id '{prefix}' not found")
        if (key := request.headers.get("Idempotency-Key")) is None or request.method in ("GET", "HEAD"):
            return route(request, steps, params)
        try:
            key = f"{UUID(key)} {request}"
        except ValueError:
            raise Refusal(400, "InvalidIdempotencyKey", "Idempotency-Key must be a UUID") from None
        if key not in self._finished:
            self._finished[key] = route(request, steps, params)
        return self._finished[key]

    def _config(self, params: Mapping[str, str]) -> Answer:
        if "warehouse" not in params:
            raise Refusal(400, "GetConfigNoWarehouseProvided", "No warehouse specified.")
        if params["warehouse"].rpartition("/")[2].lower() != self._name.lower():
            raise Refusal(404, "NoSuchWarehouseException", f"Warehouse '{params['warehouse']}' not found")
        defaults = {"prefix": self._prefix, "rest-page-size": str(self._page_size)}
        overrides = {"uri": f"{self.url}/catalog", "idempotency-key-lifetime": "PT30M"}
        return Answer.of({"defaults": defaults, "overrides": overrides, "endpoints": ["GET /v1/{prefix}/namespaces"]})

    def _namespaces(self, request: Received, steps: Sequence[str], params: Mapping[str, str]) -> Answer:
        warehouse = self.warehouse
        match request.method, *steps:
            case "GET", "namespaces":
                parent = _levels(params["parent"]) if params.get("parent") else ()
                items = [list(it) for it in warehouse.children(parent)]
                return self._page("namespaces", items, params, last_is_empty=False)
            case "POST", "namespaces":
                levels = tuple(request.json["namespace"])
                space = warehouse.create_namespace(levels, request.json.get("properties") or {})
                return Answer.of({"namespace": levels, "properties": space.properties})
            case "GET", "namespaces", ns:
                return Answer.of({"namespace": _levels(ns), "properties": warehouse.space(_levels(ns)).properties})
            case "HEAD", "namespaces", ns:
                warehouse.space(_levels(ns))
                return Answer(204)
            case "DELETE", "namespaces", ns:
                recursive, force = (params.get(name) == "true" for name in ("recursive", "force"))
                warehouse.drop_namespace(_levels(ns), recursive=recursive, force=force)
                return Answer(204)
        return Answer(404)

    def _tables(self, request: Received, steps: Sequence[str], params: Mapping[str, str]) -> Answer:
        warehouse = self.warehouse
        match request.method, *steps:
            case "GET", "namespaces", ns, "generic-tables":
                tables = warehouse.space(_levels(ns)).tables.values()
                items = [
                    {"namespace": _levels(ns), "name": it["name"], "format": it["format"], "id": it["id"]}
                    for it in tables
                ]
                return self._page("identifiers", items, params)
            case "POST", "namespaces", ns, "generic-tables":
                body = request.json
                _check_new(body)
                return Answer.of({"table": _render(warehouse.create_table(_levels(ns), body))})
            case "GET", "namespaces", ns, "generic-tables", name:
                table = warehouse.table(_levels(ns), name)
                vends = (self._vends or []) if request.headers.get(_VENDING) != "client-managed" else []
                # The keys for the table are in both places.
                keys = [it["config"] for it in vends if table["base-location"].startswith(it["prefix"])]
                config = {**self._load_config, **(keys[0] if keys else {})}
                return Answer.of({"table": _render(table), "config": config, "storage-credentials": vends})
            case "GET", "namespaces", ns, "generic-tables", name, "credentials":
                warehouse.table(_levels(ns), name)
                return Answer.of({"storage-credentials": self._vends or []})
            case "DELETE", "namespaces", ns, "generic-tables", name:
                warehouse.space(_levels(ns))
                warehouse.drop_table(_levels(ns), name, force=params.get("force") == "true")
                return Answer(204)
            case "POST", "generic-tables", "rename":
                ends = [request.json[end] for end in ("source", "destination")]
                source, destination = [(tuple(end["namespace"]), end["name"]) for end in ends]
                warehouse.rename(source, destination)
                return Answer(204)
        return Answer(404)

    def _page(self, key: str, items: Sequence[Any], params: Mapping[str, str], *, last_is_empty: bool = True) -> Answer:
        """Returns a page, with a token unless the page is empty, or not full: so the last page of tables is empty."""
        size = min(int(params.get("pageSize") or self._page_size), _LARGEST_PAGE)
        start = int(params.get("pageToken") or 0)
        page = items[start : start + size]
        more = {"next-page-token": str(start + len(page))} if page and (last_is_empty or len(page) == size) else {}
        return Answer.of({key: page, **more})


def _levels(ns: str) -> Levels:
    """Returns the levels in a path or a query; a plus becomes a blank after percent-decoding."""
    return tuple(level.replace("+", " ") for level in ns.split("\x1f"))


def _check_new(body: Json) -> None:
    if not body["name"]:
        raise Refusal(400, "InvalidName", "Generic table name cannot be empty")
    if "+" in body["name"]:
        raise Refusal(400, "InvalidName", "Generic table name cannot contain '+' character.")
    if not re.fullmatch("[a-z][a-z0-9_-]{0,63}", body["format"]):
        raise Refusal(400, "InvalidFormat", "Generic table format must start with a lowercase letter.")


def _render(table: Json) -> Json:
    """Returns a table as a response has it."""
    return {key: value for key, value in table.items() if key not in ("id", "space")}
