"""A server of the Lance REST Namespace protocol, in memory, according to the spec or like Apache Gravitino 1.1."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import url2pathname

import lance_namespace as spec
from pydantic import BaseModel

from tests.fakes.http import FakeServer
from tests.fakes.server import Answer, Received

RestDialect = Literal["spec", "gravitino-1.1"]
"""Gravitino 1.1 sends the HTTP status as the code of an error, with an exception's name, and has fewer operations."""

_LACKS: Mapping[RestDialect, Collection[str]] = {
    "spec": (),
    "gravitino-1.1": ("table", "table/declare", "table/rename"),
}

CODES = {1: 404, 2: 409, 3: 409, 4: 404, 5: 409, 13: 400, 16: 401}  # The HTTP statuses of the spec's codes
_ERRORS = {403: 15, 429: 21, 503: 17}  # The codes of injected errors, by their status

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


_LISTINGS = ("namespace/list", "namespace/table/list")
_BODIES: Mapping[str, type[BaseModel]] = {
    "namespace/describe": spec.DescribeNamespaceRequest,
    "namespace/exists": spec.NamespaceExistsRequest,
    "namespace/create": spec.CreateNamespaceRequest,
    "namespace/drop": spec.DropNamespaceRequest,
    "table/describe": spec.DescribeTableRequest,
    "table/exists": spec.TableExistsRequest,
    "table/declare": spec.DeclareTableRequest,
    "table/register": spec.RegisterTableRequest,
    "table/deregister": spec.DeregisterTableRequest,
    "table/drop": spec.DropTableRequest,
    "table/alter_columns": spec.AlterTableAlterColumnsRequest,
    "table/drop_columns": spec.AlterTableDropColumnsRequest,
}
"""The operations with a body, and their fields."""

_NAME = re.compile(r"\w[\w/=-]{0,63}", re.ASCII)
_TRACE = "\n\tat org.apache.gravitino.lance.Operations.run(Operations.java:1)" * 100


class _Unread(Exception):
    """A refusal by the web framework: HTML, or text about a body."""

    def __init__(self, status: int, text: str | None = None) -> None:
        super().__init__(str(status))
        self.status = status
        self.text = text

    def answer(self) -> Answer:
        if self.text is None:
            return Answer.of(f"<html><head><title>Error {self.status}</title></head></html>", self.status)
        return Answer(self.status, self.text.encode(), {"Content-Type": "text/plain"})


class FakeGravitino(FakeRest):
    """A Gravitino server; a namespace with one name is a catalog, and with two a schema."""

    def __init__(self, *, base: str = "s3://lake") -> None:
        super().__init__(base=base)

    def handle(self, request: Received) -> Answer:
        path = request.path.partition("?")[0]
        try:
            answer = self._route(request)
        except _Unread as e:
            return e.answer()
        except Refusal as e:
            # A non-empty namespace is an invalid input.
            code, status = (13, 400) if e.code == 3 else (e.code, CODES.get(e.code, 500))
            trace = f"{e}{_TRACE}"
            return Answer.of({"error": trace, "code": code, "detail": f"trace{_TRACE}", "instance": path}, status)
        return Answer(200) if answer is None else Answer.of(answer)

    def _route(self, request: Received) -> Any:
        path, _, query = request.path.partition("?")
        route = re.fullmatch(r"/v1/(namespace|table)/([^/]*)/([a-z/_-]+)", path)
        operation = f"{route[1]}/{route[3]}" if route else ""
        if route is None or operation not in (*_LISTINGS, *_BODIES):
            raise _Unread(404)
        if request.method != ("GET" if operation in _LISTINGS else "POST"):
            raise _Unread(405)
        parameters = {name: values[0] for name, values in parse_qs(query).items()}
        fields = parameters if operation in _LISTINGS else self._fields(operation, request)
        id = self._id(unquote(route[2]), parameters.get("delimiter", "$"))
        _check_id(operation, id)
        return self._perform(operation, id, fields)

    def _fields(self, operation: str, request: Received) -> Mapping[str, Any]:
        """Returns the body without the id, which the server ignores, and without fields that are null."""
        if not request.headers.get("Content-Type", "").startswith("application/json"):
            raise _Unread(415)
        if not request.body:
            raise Refusal(18, 'Cannot invoke a method because "request" is null')
        try:
            body = request.json
        except ValueError:
            raise _Unread(400, "Unexpected end-of-input: expected close marker for Object") from None
        if not isinstance(body, dict):
            raise _Unread(400, "Cannot deserialize value from Array value (token `JsonToken.START_ARRAY`)")
        known = {field.alias or name for name, field in _BODIES[operation].model_fields.items()}
        for name in body:
            if name not in known:
                raise _Unread(400, f'Unrecognized field "{name}" (class {operation}), not marked as ignorable')
        for key, value in (body.get("properties") or {}).items():
            if value is None:
                raise Refusal(18, f"null value in entry: {key}=null")
        return {name: value for name, value in body.items() if name != "id" and value is not None}

    def _perform(self, operation: str, id: Names, fields: Mapping[str, Any]) -> Any:
        match operation:
            case "namespace/list" if len(id) == 2:
                return {"namespaces": []}
            case "namespace/create" if (mode := fields.get("mode", "create")).lower() not in (
                "create",
                "exist_ok",
                "overwrite",
            ):
                raise Refusal(13, f"Unknown create namespace mode: {mode}")
            case "namespace/drop" if fields.get("mode", "").lower() == "skip" and id not in self.namespaces:
                return {"properties": {}, "transaction_id": []}
            case "table/describe":
                self._catalog(id)
                return {**self._table(id), "metadata": {}, "namespace": [], "managed_versioning": False}
            case "table/exists":
                self._catalog(id)
                self._table(id)
                return None
            case "table/alter_columns" | "table/drop_columns":
                self._table(id)
                raise Refusal(13, f"Columns to {operation[6:].partition('_')[0]} cannot be empty.")
        return super()._perform(operation, id, fields)

    def _create(self, id: Names, fields: Mapping[str, Any]) -> Any:
        own = {"in-use": "true"} if len(id) == 1 else {}
        return super()._create(id, {**fields, "properties": {**fields.get("properties", {}), **own}})

    def _drop(self, id: Names, fields: Mapping[str, Any]) -> Any:
        if self.namespaces[id].get("in-use") == "true" and fields.get("behavior") != "Cascade":
            raise Refusal(13, f"Catalog {id[0]} is in use")
        return super()._drop(id, fields)

    def _register(self, operation: str, id: Names, fields: Mapping[str, Any]) -> Any:
        mode = fields.get("mode", "create")
        if mode.lower() not in ("create", "overwrite"):
            raise Refusal(13, f"Unknown register table mode: {mode}")
        self._namespace(id[:-1])
        if id in self.tables and mode.lower() != "overwrite":
            raise Refusal(5, f"Table already exists: {'$'.join(id)}")
        location = f"{fields['location'].rstrip('/')}/"
        own = {"external": "true", "format": "lance", "location": location, "lance.creation-mode": mode.upper()}
        kind = "lance.register" if operation == "table/register" else "lance.declared"
        properties = {**fields.get("properties", {}), **own, kind: "true"}
        self.tables[id] = {"location": location, "properties": properties}
        return {**self.tables[id], **({"managed_versioning": False} if operation == "table/declare" else {})}

    def _names(self, field: str, parent: Names, names: Sequence[str]) -> Sequence[str]:
        return ["$".join((*parent, name)) for name in names] if field == "tables" else names

    def _part(self, field: str, names: Sequence[str], fields: Mapping[str, Any]) -> Any:
        limit, token = fields.get("limit", str(len(names) or 1)), fields.get("page_token", "0")
        if re.fullmatch(r"-?\d+", limit) is None:
            raise _Unread(404)
        if int(limit) < 1:
            raise Refusal(13, "Page size limit must be positive")
        if not token.isdecimal():
            raise Refusal(13, f"Invalid page token: {token}")
        start, end = int(token), int(token) + int(limit)
        return {field: names[start:end], **({"page_token": str(end)} if end < len(names) else {})}

    def _namespace(self, id: Names) -> Names:
        if id in self.namespaces:
            return id
        self._catalog(id)
        reason = f"Schema ml.{'.'.join(id)} does not exist"
        where = f"schema(s) [{id[-1]}] operation [LOAD] under catalog [{id[0]}]"
        raise Refusal(1, f"Failed to operate {where}, reason [{reason}]\n{reason}")

    def _catalog(self, id: Names) -> None:
        if id[:1] not in self.namespaces:
            raise Refusal(1, f"Catalog not found: {id[0]}")

    def _table(self, id: Names) -> Mapping[str, Any]:
        if id not in self.tables:
            raise Refusal(4, f"Table not found: {'$'.join(id)}")
        return self.tables[id]


def _check_id(operation: str, id: Names) -> None:
    """Refuses an id of a wrong length, or with a name that is not accepted."""
    most = 3 if operation.startswith("table/") else 2
    least = {"namespace/list": 0, "namespace/table/list": 2}.get(operation, 3 if most == 3 else 1)
    if not least <= len(id) <= most:
        message = f"Expected at most {most}-level and at least {least}-level namespace but got: {'$'.join(id) or '$'}"
        raise Refusal(13, message)
    for kind, name in zip(("CATALOG", "SCHEMA", "TABLE"), id, strict=False):
        if _NAME.fullmatch(name) is None:
            raise Refusal(13, f"The {kind} name '{name}' is illegal. Illegal name: {name}")
