"""A server of the Lance REST Namespace protocol, in memory, according to the spec or like Apache Gravitino 1.1."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import url2pathname

from .faults import Answer, Received
from .http import FakeServer

RestDialect = Literal["spec", "gravitino-1.1"]
"""Gravitino 1.1 sends the HTTP status as the code of an error, with an exception's name, and has fewer operations."""

_LACKS: Mapping[RestDialect, Collection[str]] = {
    "spec": (),
    "gravitino-1.1": ("table", "table/declare", "table/rename"),
}

CODES = {1: 404, 2: 409, 3: 409, 4: 404, 5: 409, 13: 400, 16: 401}
"""The HTTP statuses of the spec's codes."""

_ERRORS = {403: 15, 429: 21, 503: 17}
"""The codes of injected errors, by their status."""

_TYPES = {
    1: "NoSuchSchemaException",
    2: "SchemaAlreadyExistsException",
    3: "NonEmptySchemaException",
    4: "NoSuchTableException",
    5: "TableAlreadyExistsException",
    13: "IllegalArgumentException",
    16: "UnauthorizedException",
}

Names = tuple[str, ...]


class Refusal(Exception):
    """An error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class FakeRest(FakeServer):
    """Namespaces and tables by their names.

    Args:
        dialect: The server whose responses it sends.
        lacks: Operations that it does not have, as in `table/rename`; `table` is the listing of all tables.
        credentials: Added to the storage options of a table whose credentials are requested.
        token: The bearer token that requests need; None for none.
        replaces: Whether it replaces a registration on request.
        base: The location of its tables.
        lists_nested: Whether its listing of all tables has those in namespaces; that of pylance leaves them out.
    """

    def __init__(
        self,
        *,
        dialect: RestDialect = "spec",
        lacks: Collection[str] = (),
        credentials: Mapping[str, str] | None = None,
        token: str | None = None,
        replaces: bool = True,
        base: str = "s3://lake",
        lists_nested: bool = True,
    ) -> None:
        super().__init__()
        self.namespaces: dict[Names, dict[str, str]] = {(): {}}
        self.tables: dict[Names, dict[str, Any]] = {}
        self._dialect = dialect
        self._lacks = {*lacks, *_LACKS[dialect]}
        self._credentials = credentials
        self._token = token
        self._replaces = replaces
        self._base = base
        self._lists_nested = lists_nested

    def add_table(self, *id: str, location: str | None = None, **more: Any) -> None:
        """Adds a table, with its namespaces."""
        for depth in range(1, len(id)):
            self.namespaces.setdefault(id[:depth], {})
        self.tables[id] = {"location": location or self._location(id), **more}

    def operations(self) -> list[str]:
        """Returns the requested operations in order, as in `table/describe`."""
        matches = [re.match(r"/v1/(\w+)/[^/]*/([^?]*)", request.path) for request in self.requests]
        return [f"{match[1]}/{match[2]}" for match in matches if match is not None]

    def error(self, status: int) -> Answer:
        return Answer.of({"error": "Bad day", "code": _ERRORS.get(status, 18)}, status)

    def handle(self, request: Received) -> Answer:
        path, _, query = request.path.partition("?")
        parameters = {name: values[0] for name, values in parse_qs(query).items()}
        if path == "/v1/table" and "table" not in self._lacks:
            return Answer.of(self._all_tables(parameters))
        route = re.fullmatch(r"/v1/(namespace|table)/([^/]*)/([a-z/-]+)", path)
        if route is None or f"{route[1]}/{route[3]}" in self._lacks:
            return self._no_path()
        try:
            if self._token is not None and request.headers.get("authorization") != f"Bearer {self._token}":
                raise Refusal(16, "no token, or another one")
            id = self._id(unquote(route[2]), parameters.get("delimiter", "$"))
            fields = request.json or {}
            if fields.get("id", list(id)) != list(id):
                raise Refusal(13, "the body has another id than the path")
            answer = self._perform(f"{route[1]}/{route[3]}", id, {**parameters, **fields})
        except Refusal as e:
            return self._refusal(e)
        return Answer(200) if answer is None else Answer.of(answer)

    def _id(self, text: str, delimiter: str) -> Names:
        return () if text in ("", delimiter) else tuple(text.split(delimiter))

    def _perform(self, operation: str, id: Names, fields: Mapping[str, Any]) -> Any:
        match operation:
            case "namespace/list":
                return self._page("namespaces", self._namespace(id), self.namespaces, fields)
            case "namespace/table/list":
                return self._page("tables", self._namespace(id), self.tables, fields)
            case "namespace/describe":
                return {"properties": self.namespaces[self._namespace(id)]}
            case "namespace/exists":
                self._namespace(id)
                return None
            case "namespace/create":
                return self._create(id, fields)
            case "namespace/drop":
                return self._drop(self._namespace(id), fields)
            case "table/declare" | "table/create-empty":
                return self._register(operation, id, {"location": self._location(id), **fields})
            case "table/register":
                return self._register(operation, id, fields)
            case "table/describe":
                options = self._credentials if fields.get("vend_credentials") else None
                return {**self._table(id), **({"storage_options": options} if options else {})}
            case "table/deregister" | "table/drop":
                location = self._table(id)["location"]
                if operation == "table/drop" and location.startswith("file:"):
                    shutil.rmtree(url2pathname(urlsplit(location).path), ignore_errors=True)
                return {"id": list(id), **self.tables.pop(id)}
            case "table/rename":
                target = (*fields["new_namespace_id"], fields["new_table_name"])
                if target in self.tables:
                    raise Refusal(5, f"there is a table {target}")
                self._table(id)
                self.tables[target] = self.tables.pop(id)
                return {}
        raise AssertionError(operation)

    def _create(self, id: Names, fields: Mapping[str, Any]) -> Any:
        self._namespace(id[:-1])
        mode = (fields.get("mode") or "create").lower()
        if id in self.namespaces and mode == "create":
            raise Refusal(2, f"there is a namespace {id}")
        if id not in self.namespaces or mode == "overwrite":
            self.namespaces[id] = dict(fields.get("properties") or {})
        return {"properties": self.namespaces[id]}

    def _drop(self, id: Names, fields: Mapping[str, Any]) -> Any:
        inside = [it for it in (*self.namespaces, *self.tables) if it[: len(id)] == id and it != id]
        if inside and fields.get("behavior") != "Cascade":
            raise Refusal(3, f"{'Catalog' if len(id) == 1 else 'Schema'} {id[-1]} is not empty.")
        for it in (*inside, id):
            self.namespaces.pop(it, None)
            self.tables.pop(it, None)
        return {}

    def _register(self, operation: str, id: Names, fields: Mapping[str, Any]) -> Any:
        self._namespace(id[:-1])
        if id in self.tables and not (self._replaces and fields.get("mode") == "Overwrite"):
            raise Refusal(5, f"there is a table {id}")
        location, properties = fields["location"], dict(fields.get("properties") or {})
        self.tables[id] = {"location": location, "properties": properties}
        return self.tables[id]

    def _page(self, field: str, parent: Names, objects: Collection[Names], fields: Mapping[str, Any]) -> Any:
        names: Sequence[str] = sorted(it[-1] for it in objects if it and it[:-1] == parent)
        return self._part(field, self._names(field, parent, names), fields)

    def _names(self, field: str, parent: Names, names: Sequence[str]) -> Sequence[str]:
        """Returns the names as a listing has them."""
        return ["$".join((*parent, name)) for name in names] if self._dialect != "spec" and field == "tables" else names

    def _all_tables(self, fields: Mapping[str, Any]) -> Any:
        ids = [it for it in self.tables if len(it) == 1 or self._lists_nested]
        return self._part("tables", sorted("$".join(it) for it in ids), fields)

    def _part(self, field: str, names: Sequence[str], fields: Mapping[str, Any]) -> Any:
        start = int(fields.get("page_token", 0))
        end = start + int(fields.get("limit", len(names)))
        return {field: names[start:end], "page_token": str(end) if end < len(names) else None}

    def _namespace(self, id: Names) -> Names:
        if id not in self.namespaces:
            raise Refusal(1, f"there is no namespace {id}")
        return id

    def _table(self, id: Names) -> Mapping[str, Any]:
        if id not in self.tables:
            raise Refusal(4, f"there is no table {id}")
        return self.tables[id]

    def _location(self, id: Names) -> str:
        return f"{self._base}/{'/'.join(id)}"

    def _refusal(self, error: Refusal) -> Answer:
        status = CODES[error.code]
        if self._dialect == "spec":
            return Answer.of({"error": str(error), "code": error.code}, status)
        if error.code == 3:
            status = 400
        return Answer.of({"error": str(error), "code": status, "type": _TYPES[error.code]}, status)

    def _no_path(self) -> Answer:
        if self._dialect == "spec":
            return Answer(404)
        # Its exception mapper also handles errors of its web framework.
        return Answer.of({"error": "HTTP 404 Not Found", "code": 500, "type": "NotFoundException"}, 500)
