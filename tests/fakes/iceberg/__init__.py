"""An Iceberg REST catalog in memory: the Iceberg project's own test server, or others by options."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, unquote_plus
from uuid import UUID

from tests.fakes.http import FakeServer, JettyError, Refusal, check_jetty_path, jetty_page
from tests.fakes.server import Answer, Received

from ..sigv4 import Signatures
from ..tokens import Tokens
from .catalog import NESSIE, Dropped, IcebergCatalog, Quirks
from .metadata import Json, Loaded, creation

LANCE = {"table_type": "lance", "managed_by": "storage"}
"""The properties of a Lance table whose versions the storage commits."""

MANAGED = {"table_type": "lance", "managed_by": "impl"}
"""The properties of a Lance table whose versions the catalog commits."""


VENDING = "X-Iceberg-Access-Delegation"  # The header by which a client requests credentials
_CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"


class FakeIceberg(FakeServer):
    """An Iceberg REST catalog; its content and its recorded requests survive a restart."""

    def __init__(
        self,
        quirks: Quirks | None = None,
        *,
        base: str = "",
        prefix: str | None = None,
        prefix_in: Literal["overrides", "defaults"] = "overrides",
        warehouse: str | None = None,
        page_size: int | None = None,
        load_config: Mapping[str, str] | None = None,
        vends: Sequence[Json] | None = None,
        vends_config: Mapping[str, str] | None = None,
        renews: Sequence[Json] | None = None,
        refuses_delegation: int | None = None,
        signatures: Signatures | None = None,
        key_lifetime: str | None = None,
        token: str | None = None,
        client: tuple[str, str] | None = None,
        expires_in: int | None = None,
        expired_status: int = 401,
        subjects: Collection[str] = (),
        refreshes: bool = False,
    ) -> None:
        """Creates a server.

        `base` is a path before `/v1`, `prefix` is used in paths unchanged, `page_size` is announced. Other
        warehouses than `warehouse` get 500. `load_config` is in the response for each loaded table. `vends` are the
        `storage-credentials`, and `vends_config` further `config`, for requests with the header; `renews` are those
        of the credentials endpoint, which is announced only with them. Requests with the header get the status
        `refuses_delegation`, if it is set. With `signatures`, requests must be signed. With a `key_lifetime`,
        changes are recognized by their `Idempotency-Key` and not repeated. With a `token`, or a `client` of id and
        secret, requests need a fixed or issued token. `subjects` are tokens for an exchange; with `refreshes`,
        issued tokens come with refresh tokens.
        """
        super().__init__()
        self.quirks = quirks or Quirks()
        self.tokens = Tokens(
            token,
            client=client,
            expires_in=expires_in,
            expired_status=expired_status,
            subjects=subjects,
            refreshes=refreshes,
        )
        self.warehouses: list[str | None] = []
        """The warehouse in each request for the configuration; None for requests without one."""
        self._catalog = IcebergCatalog(self.quirks)
        self._base = base
        self._prefix = prefix
        self._prefix_in = prefix_in
        self._warehouse = warehouse
        self._page_size = page_size
        self._load_config = dict(load_config or {})
        self.vends = vends
        self.renews = renews
        self._vends_config = dict(vends_config or {})
        self._refuses_delegation = refuses_delegation
        self.signatures = signatures
        self._key_lifetime = key_lifetime
        self._finished: dict[tuple[str, str], Answer] = {}
        self._token_path = f"{base}/v1/oauth/tokens"
        self._separator = self.quirks.separator or "%1F"

    @classmethod
    def nessie(cls) -> FakeIceberg:
        return cls(
            NESSIE,
            base="/iceberg",
            prefix="main%7Cwarehouse",
            prefix_in="defaults",
            warehouse="warehouse",
            page_size=200,
        )

    @property
    def endpoint(self) -> str:
        """The URL before `/v1`."""
        return self.url + self._base

    @property
    def dropped(self) -> list[Dropped]:
        return self._catalog.dropped

    def expire_tokens(self) -> None:
        with self._lock:
            self.tokens.expire()

    def add_namespace(self, levels: Sequence[str], properties: Mapping[str, str] | None = None) -> None:
        with self._lock:
            self._catalog.plant_namespace(levels, properties or {})

    def add_table(
        self,
        levels: Sequence[str],
        name: str,
        *,
        properties: Mapping[str, str] = LANCE,
        location: str | None = None,
        snapshots: int = 0,
        format_version: int = 2,
    ) -> str:
        """Adds a table and its namespace; returns its location. Snapshots are numbered from 1 to the current one."""
        location = location or "/".join(("s3://bucket", *levels, f"{name}.lance"))
        with self._lock:
            self._catalog.plant_table(levels, name, creation(location, properties, snapshots, format_version))
        return location

    def commit(self, levels: Sequence[str], name: str, requirements: Sequence[Json], updates: Sequence[Json]) -> None:
        """Changes a table as another client would."""
        with self._lock:
            self._catalog.commit(self._catalog.key(levels), name, requirements, updates)

    def metadata(self, levels: Sequence[str], name: str) -> Json | None:
        with self._lock:
            table = self._catalog.find(self._catalog.key(levels), name)
        return None if table is None else table["metadata"]

    def error(self, status: int) -> Answer:
        return self._refused(Refusal(status, None, "on demand"))

    def handle(self, request: Received) -> Answer:
        token_path = f"POST {self._token_path}"
        if self.signatures is not None and str(request) != token_path:
            if (refused := self.signatures.refusal(request)) is not None:
                return refused
        try:
            return self._zipped(request, self._answered(request))
        except Refusal as refusal:
            return self._refused(refusal)
        except JettyError as error:
            return jetty_page(error, request)

    def _answered(self, request: Received) -> Answer:
        path, _, query = request.path.partition("?")
        if self.quirks.jetty:
            check_jetty_path(path, self._separator)
        if (request.method, path) == ("POST", self._token_path):
            return self.tokens.issue(request)
        if (status := self.tokens.refusal(request)) is not None:
            raise Refusal(status, None, "Not authorized to make this request")
        params = dict(parse_qsl(query, keep_blank_values=True))
        if (request.method, path) == ("GET", f"{self._base}/v1/config"):
            return self._config(params)
        start = f"{self._base}/v1/{self._prefix}/" if self._prefix else f"{self._base}/v1/"
        if not path.startswith(start):
            raise _no_route(request)
        key = request.headers.get("Idempotency-Key")
        if key is None or self._key_lifetime is None or request.method in ("GET", "HEAD"):
            return self._routed(request, path.removeprefix(start).split("/"), params)
        return self._once(key, request, path.removeprefix(start).split("/"), params)

    def _once(self, key: str, request: Received, steps: Sequence[str], params: Mapping[str, str]) -> Answer:
        """Performs a change, or repeats its final response if it was performed before; 5xx is not final."""
        if UUID(key).version != 7:
            raise Refusal(400, "BadRequestException", f"Invalid idempotency key: {key}")
        change = (key, str(request))
        if change not in self._finished:
            try:
                self._finished[change] = self._routed(request, steps, params)
            except Refusal as refusal:
                if refusal.status >= 500:
                    raise
                self._finished[change] = self._refused(refusal)
        return self._finished[change]

    def _routed(self, request: Received, steps: Sequence[str], params: Mapping[str, str]) -> Answer:
        catalog = self._catalog
        match request.method, *steps:
            case "GET", "namespaces":
                return self._page("namespaces", catalog.children(self._parent(params)), params)
            case "POST", "namespaces":
                body = _body(request)
                return Answer.of(catalog.create_namespace(body["namespace"], body.get("properties", {})))
            case "GET", "namespaces", ns:
                return Answer.of(catalog.namespace(self._levels(ns)))
            case "HEAD", "namespaces", ns:
                catalog.namespace(self._levels(ns))
                return Answer(204)
            case "DELETE", "namespaces", ns:
                catalog.drop_namespace(self._key(ns))
                return Answer(204)
            case "POST", "namespaces", ns, "properties":
                body = _body(request)
                updates, removals = body.get("updates", {}), body.get("removals", [])
                return Answer.of(catalog.change_properties(self._key(ns), updates, removals))
            case "GET", "namespaces", ns, "tables":
                return self._page("identifiers", catalog.tables(self._key(ns)), params)
            case "GET", "namespaces", ns, "tables", table:
                return self._load(request, self._key(ns), self._decoded(table), params)
            case "GET", "namespaces", ns, "tables", table, "credentials" if self.renews is not None:
                catalog.load(self._key(ns), self._decoded(table))
                return Answer.of({"storage-credentials": self.renews})
            case "HEAD", "namespaces", ns, "tables", table:
                catalog.load(self._key(ns), self._decoded(table))
                return Answer(204)
            case "POST", "namespaces", ns, "tables", table:
                body = _body(request)
                requirements, updates = body.get("requirements", []), body.get("updates", [])
                after = catalog.commit(self._key(ns), self._decoded(table), requirements, updates)
                return Answer.of(after).with_headers(self._etag(request, after))
            case "DELETE", "namespaces", ns, "tables", table:
                catalog.drop_table(self._key(ns), self._decoded(table), params.get("purgeRequested"))
                return Answer(204)
            case "POST", "transactions", "commit" if self.quirks.transactions:
                catalog.commit_all(_body(request)["table-changes"])
                return Answer(204)
            case "POST", "tables", "rename":
                catalog.rename(*self._ends(_body(request)))
                return Answer(204)
        raise _no_route(request)

    def _config(self, params: Mapping[str, str]) -> Answer:
        warehouse = params.get("warehouse")
        self.warehouses.append(warehouse)
        if self._warehouse is not None and warehouse not in (None, self._warehouse):
            raise Refusal(500, "IllegalArgumentException", f"Unknown warehouse '{warehouse}'")
        config: dict[str, dict[str, str]] = {"defaults": {}, "overrides": {}}
        if self._prefix is not None:
            config[self._prefix_in]["prefix"] = self._prefix
        if self._page_size is not None:
            config["defaults"]["rest-page-size"] = str(self._page_size)
        if self.quirks.separator is not None:
            config["overrides"]["namespace-separator"] = self.quirks.separator
        if self.quirks.names_hold_references:
            config["overrides"]["nessie.is-nessie-catalog"] = "true"
        endpoints = ["GET /v1/{prefix}/namespaces", "POST /v1/{prefix}/tables/rename"]
        if self.quirks.transactions:
            endpoints.append("POST /v1/{prefix}/transactions/commit")
        if self.renews is not None:
            endpoints.append(_CREDENTIALS)
        keys = {"idempotency-key-lifetime": self._key_lifetime} if self._key_lifetime else {}
        return Answer.of({**config, **keys, "endpoints": endpoints})

    def _page(self, field: str, items: Sequence[Any], params: Mapping[str, str]) -> Answer:
        """Returns all items if the client requests no page size, otherwise one page from the token on."""
        token: str | None = None
        size = params.get("pageSize")
        match self.quirks.paging:
            case "stuck":
                token = "stuck"
            case "offset" | "opaque" as kind if size is not None:
                text = params.get("pageToken") or "0"
                start = _number(text) if kind == "offset" else int(text, 16)
                end = start + _number(size)
                if end < start:
                    message = f"fromIndex({start}) > toIndex({end})"
                    raise Refusal(400, "IllegalArgumentException", message)
                if end < len(items):
                    token = str(end) if kind == "offset" else f"{end:016x}"
                items = items[start:end]
        return Answer.of({field: items, "next-page-token": token})

    def _load(self, request: Received, key: str, name: str, params: Mapping[str, str]) -> Answer:
        table, snapshots = self._catalog.load(key, name), params.get("snapshots", "all")
        if snapshots.lower() not in ("all", "refs"):
            kind = "org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode"
            message = f"No enum constant {kind}.{snapshots.upper()}"
            raise Refusal(400, "IllegalArgumentException", message)
        tag = self._etag(request, table)
        if tag and request.headers.get("If-None-Match") == tag["ETag"]:
            return Answer(304)
        if snapshots.lower() == "refs" and self.quirks.filters_snapshots:
            metadata = table["metadata"]
            kept = {ref["snapshot-id"] for ref in metadata["refs"].values()}
            referenced = [s for s in metadata["snapshots"] if s["snapshot-id"] in kept]
            table = {**table, "metadata": {**metadata, "snapshots": referenced}}
        return Answer.of({**table, **self._access(request)}).with_headers(tag)

    def _access(self, request: Received) -> Json:
        vending = "vended-credentials" in request.headers.get(VENDING, "")
        if vending and self._refuses_delegation is not None:
            raise Refusal(self._refuses_delegation, None, "Credential vending is not enabled for this catalog")
        config = {**self._load_config, **(self._vends_config if vending else {})}
        access: Json = {"config": config} if config else {}
        return {**access, "storage-credentials": self.vends} if vending and self.vends is not None else access

    def _ends(self, body: Json) -> list[tuple[str, str]]:
        return [(self._catalog.key(end["namespace"]), end["name"]) for end in (body["source"], body["destination"])]

    def _parent(self, params: Mapping[str, str]) -> str | None:
        parent = params.get("parent")
        return None if parent is None else parent.replace("\x1f", self._catalog.joint)

    def _key(self, raw: str) -> str:
        return self._catalog.key(self._levels(raw))

    def _levels(self, raw: str) -> list[str]:
        # `.` and `%2e` are not separators where `%2E` is one: they are part of a level.
        if self.quirks.jetty:
            return [self._decoded(level) for level in raw.split(self._separator)]
        return self._decoded(raw).split(self._catalog.joint)

    def _decoded(self, raw: str) -> str:
        return unquote_plus(raw) if self.quirks.jetty else unquote(raw)

    def _etag(self, request: Received, table: Loaded) -> dict[str, str]:
        if not self.quirks.etags:
            return {}
        # The tag depends on method and query, and has no quotes.
        text = f"{request} {table['metadata-location']}"
        return {"ETag": f"{zlib.crc32(text.encode()):08x}"}

    def _zipped(self, request: Received, answer: Answer) -> Answer:
        takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        if not (self.quirks.gzip and takes_gzip and answer.status == 200):
            return answer
        headers = {**answer.headers, "Content-Encoding": "gzip"}
        if "ETag" in headers:
            headers["ETag"] += "--gzip"
        return replace(answer, body=gzip.compress(answer.body, 1, mtime=0), headers=headers)

    def _refused(self, refusal: Refusal) -> Answer:
        typed = refusal.status != 409 or self.quirks.typed_conflicts
        return refusal.answer(typed=typed, stack=self.quirks.stacks)


def _body(request: Received) -> Json:
    try:
        body = request.json
    except ValueError as e:
        raise JettyError(500, f"com.fasterxml.jackson.core.JsonParseException: {e}") from None
    if not isinstance(body, dict):
        raise JettyError(500, "com.fasterxml.jackson.databind.exc.MismatchedInputException: no object")
    return body


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refusal(500, "NumberFormatException", f'For input string: "{text}"') from None


def _no_route(request: Received) -> Refusal:
    path = request.path.partition("?")[0].lstrip("/")
    return Refusal(400, "BadRequestException", f"No route for request: {request.method} {path}")
