"""The Lance REST server of Apache Gravitino 1.3.0 in memory: ids are a catalog, a schema and a table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote

from lance_namespace import (
    AlterTableAlterColumnsRequest,
    AlterTableDropColumnsRequest,
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    NamespaceExistsRequest,
    RegisterTableRequest,
    TableExistsRequest,
)
from pydantic import BaseModel

from .faults import Answer, Received
from .rest import CODES, FakeRest, Names, Refusal

_LISTINGS = ("namespace/list", "namespace/table/list")
_BODIES: Mapping[str, type[BaseModel]] = {
    "namespace/describe": DescribeNamespaceRequest,
    "namespace/exists": NamespaceExistsRequest,
    "namespace/create": CreateNamespaceRequest,
    "namespace/drop": DropNamespaceRequest,
    "table/describe": DescribeTableRequest,
    "table/exists": TableExistsRequest,
    "table/declare": DeclareTableRequest,
    "table/register": RegisterTableRequest,
    "table/deregister": DeregisterTableRequest,
    "table/drop": DropTableRequest,
    "table/alter_columns": AlterTableAlterColumnsRequest,
    "table/drop_columns": AlterTableDropColumnsRequest,
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
                more = {"metadata": {}, "namespace": [], "managed_versioning": False}
                return {**self._table(id), **more}
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
