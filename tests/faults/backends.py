"""The properties and the correct responses of each catalog, as far as needed to declare, list and describe tables."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from asyncio import StreamReader
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError

from lance_ns_async.model import TableId
from tests.fakes.sockets import http, read_request

SECRET = "sEcReT-4711"
"""A part of every secret in the properties."""

UNREACHABLE = {
    "storage.region": "us-east-1",
    "storage.endpoint": "http://127.0.0.1:1",
    "storage.allow_http": "true",
    "storage.client_max_retries": "0",
}
"""Storage options with which connections fail immediately; without them, Lance would send requests to the real S3."""
FINE, FAULTY = "fine", "faulty"
"""Namespaces of tables without and with faults; a request signature cannot contain these names."""

TABLE_NAMES = ("t0", "t1")


class Catalog(ABC):
    """A catalog that has all requested tables; those whose names begin with `new` only after their declaration."""

    impl: ClassVar[str]
    levels: ClassVar[tuple[str, ...]] = ("c",)
    """The levels above the namespace of a table."""
    ambiguous: ClassVar[type[LanceNamespaceError] | None] = None
    """The error of a declaration after which the client looks up whether the table exists; None means no such error."""

    def __init__(self) -> None:
        self.declarations: dict[str, Any] = {}

    def id(self, name: str, namespace: str = FINE) -> TableId:
        """Returns the id of a table."""
        return TableId([*self.levels, namespace, name])

    @abstractmethod
    def properties(self, url: str) -> Mapping[str, str]:
        """Returns the properties for a server at `url`, including secrets."""

    @abstractmethod
    async def read(self, reader: StreamReader) -> bytes:
        """Reads a request."""

    @abstractmethod
    def answer(self, request: bytes, *, acting: bool = True) -> bytes:
        """Returns the correct response; declarations take effect only if `acting`."""

    @abstractmethod
    def is_write(self, request: bytes) -> bool:
        """Returns whether a request is a change."""

    def is_aside(self, request: bytes) -> bool:
        """Returns whether a request is not about tables; such requests get no faults."""
        return False

    def is_listing(self, request: bytes) -> bool:
        """Returns whether a request is for a page of tables."""
        raise NotImplementedError

    def page(self, names: Sequence[str], token: object = None) -> bytes:
        """Returns a page of tables; `token` is the value of its page token, of any type."""
        raise NotImplementedError

    def has(self, name: str) -> bool:
        """Returns whether the table exists."""
        return not name.startswith("new") or name in self.declarations


def location(namespace: str, name: str) -> str:
    """Returns the location of a table that was not declared by the test."""
    return f"s3://lake/{namespace}/{name}"


class HttpCatalog(Catalog):
    """A catalog with JSON over HTTP."""

    def properties(self, url: str) -> Mapping[str, str]:
        return {
            "endpoint": url,
            "auth_token": f"token-{SECRET}",
            "header.X-Key": f"key-{SECRET}",
            "storage.secret_access_key": f"storage-{SECRET}",
            **UNREACHABLE,
            "proxy": "none",
        }

    async def read(self, reader: StreamReader) -> bytes:
        return await read_request(reader)

    def is_write(self, request: bytes) -> bool:
        return request.startswith(b"POST ")

    def answer(self, request: bytes, *, acting: bool = True) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        method, target = head.split(b" ", 2)[:2]
        if method == b"POST":
            request_body = json.loads(body)
            name = target.decode().rpartition("/")[2]
            name = request_body.get("name", name)
            description = self.create(name, request_body)
            if acting:
                self.declarations[name] = description
            return http(200, json.dumps(description)).data
        url = urlsplit(target.decode())
        status, answer = self.look_up(url.path, parse_qs(url.query))
        return http(status, b"" if method == b"HEAD" else json.dumps(answer)).data

    def is_listing(self, request: bytes) -> bool:
        return re.match(rb"GET \S+/(generic-)?tables(\?\S*)? ", request) is not None

    @abstractmethod
    def create(self, name: str, body: Any) -> Any:
        """Returns the description of a declared table."""

    @abstractmethod
    def look_up(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        """Returns the status and the body for a path."""


class Iceberg(HttpCatalog):
    impl = "iceberg"
    levels = ()

    def is_aside(self, request: bytes) -> bool:
        return b"/v1/config " in request

    def create(self, name: str, body: Any) -> Any:
        updates = {update["action"]: update for update in body["updates"]}
        uuid, place = updates["assign-uuid"]["uuid"], updates["set-location"]["location"]
        return _metadata(place, updates["set-properties"]["updates"], uuid)

    def look_up(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        _, _, _, *names = path.split("/")
        match names:
            case [namespace, "tables"]:
                return 200, _identifiers(TABLE_NAMES)
            case [namespace, "tables", name] if self.has(name):
                usual = _metadata(location(namespace, name), {"table_type": "lance"}, "0")
                return 200, self.declarations.get(name, usual)
            case [_, "tables", _]:
                return 404, {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}}
        return 200, {}

    def page(self, names: Sequence[str], token: object = None) -> bytes:
        return http(200, json.dumps({**_identifiers(names), "next-page-token": token})).data


class Polaris(HttpCatalog):
    impl = "polaris"

    def page(self, names: Sequence[str], token: object = None) -> bytes:
        return http(200, json.dumps({**_identifiers(names), "next-page-token": token})).data

    def create(self, name: str, body: Any) -> Any:
        return {"table": body}

    def look_up(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        namespace, _, name = path.partition("/namespaces/")[2].split("/") if path.count("/") > 8 else ("", "", "")
        if not name:
            return 200, _identifiers(TABLE_NAMES)
        if not self.has(name):
            return 404, {"error": {"message": "no such table", "type": "NoSuchTableException", "code": 404}}
        usual = {"table": {"name": name, "format": "lance", "base-location": location(namespace, name)}}
        return 200, self.declarations.get(name, usual)


class Unity(HttpCatalog):
    impl = "unity"
    ambiguous = PermissionDeniedError

    def properties(self, url: str) -> Mapping[str, str]:
        return {**super().properties(url), "catalog": "c"}

    def create(self, name: str, body: Any) -> Any:
        return {**body, "table_id": "1", "created_at": int(time() * 1000)}

    def look_up(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        if query:
            return 200, {"tables": [self._table(query["schema_name"][0], name) for name in TABLE_NAMES]}
        _, namespace, name = path.rpartition("/")[2].split(".")
        if not self.has(name):
            return 404, {"error_code": "NOT_FOUND", "message": f"Table not found: c.{namespace}.{name}"}
        return 200, self.declarations.get(name, self._table(namespace, name))

    def page(self, names: Sequence[str], token: object = None) -> bytes:
        tables = [self._table(FINE, name) for name in names]
        return http(200, json.dumps({"tables": tables, "next_page_token": token})).data

    def _table(self, namespace: str, name: str) -> Any:
        return {
            "name": name,
            "table_type": "EXTERNAL",
            "storage_location": location(namespace, name),
            "properties": {"table_type": "lance"},
        }


class Rest(HttpCatalog):
    impl = "rest"

    def is_aside(self, request: bytes) -> bool:
        return re.match(rb"POST /v1/(namespace/\S+/describe|table/\S+/create-empty)\?", request) is not None

    def is_write(self, request: bytes) -> bool:
        return re.match(rb"POST \S+/declare\?", request) is not None

    def is_listing(self, request: bytes) -> bool:
        return re.match(rb"GET \S+/table/list\?", request) is not None

    def answer(self, request: bytes, *, acting: bool = True) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        target = head.split(b" ", 2)[1]
        _, _, kind, id, *action = urlsplit(target.decode()).path.split("/")
        namespace, _, name = unquote(id).removeprefix("c$").partition("$")
        match kind, "/".join(action):
            case "table", "declare":
                response = self.create(name, {"namespace": namespace, **json.loads(body)})
                if acting:
                    self.declarations[name] = response
            case "table", "describe" if not self.has(name):
                return http(404, json.dumps({"error": "no such table", "code": 4})).data
            case "table", "describe":
                usual = {"table": name, "namespace": ["c", namespace], "location": location(namespace, name)}
                response = self.declarations.get(name, usual)
            case "namespace", "table/list":
                response = {"tables": TABLE_NAMES}
            case "namespace", "describe":
                response = {}
            case _:
                return http(404, b"").data
        return http(200, json.dumps(response)).data

    def create(self, name: str, body: Any) -> Any:
        return {"location": location(body["namespace"], name), "properties": body.get("properties") or {}}

    def look_up(self, path: str, query: Mapping[str, list[str]]) -> tuple[int, Any]:
        raise NotImplementedError

    def page(self, names: Sequence[str], token: object = None) -> bytes:
        return http(200, json.dumps({"tables": list(names), "page_token": token})).data


def _identifiers(names: Sequence[str]) -> Any:
    return {"identifiers": [{"namespace": [FINE], "name": name} for name in names]}


def _metadata(place: str, properties: Mapping[str, str], uuid: str) -> Any:
    return {"metadata": {"location": place, "table-uuid": uuid, "properties": dict(properties)}}
