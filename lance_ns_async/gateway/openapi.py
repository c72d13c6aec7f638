"""The OpenAPI document of a gateway, made from the routes and the models of their requests and responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import lance_namespace as spec
from pydantic import BaseModel

from lance_ns_async.errors import HTTP_STATUSES
from lance_ns_async.gateway.parsing import query_types
from lance_ns_async.gateway.responses import ARROW_FILE
from lance_ns_async.spec.extensions import DescribeTablesResponse
from lance_ns_async.spec.routes import BY_OPERATION, Route

_REFERENCE = "#/components/schemas/{model}"
_ARROW_STREAM = "application/vnd.apache.arrow.stream"

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

_EVENTS = (
    "Server-sent events: one for each change, named after its kind, with a line of JSON; `token` after the changes of "
    "a look, with the value for `since`; and `error` before the end after a failure, with an Error. Comments come "
    "while nothing happens."
)

_RESPONSES: Mapping[str, type[BaseModel]] = {  # The responses whose class is not named by the operation.
    "describe_tables": DescribeTablesResponse,
    "list_all_tables": spec.ListTablesResponse,
}

_ERROR: Mapping[str, Any] = {
    "type": "object",
    "required": ["error", "code"],
    "properties": {
        "error": {"type": "string"},
        "code": {"type": "integer", "description": "The error code of the spec."},
        "instance": {"type": "string", "description": "The id of an internal error in the gateway's log."},
    },
}


def document(operations: Iterable[str]) -> dict[str, Any]:
    """Returns the document for the operations that a namespace has."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for operation in operations:
        route = BY_OPERATION[operation]
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lance REST Namespace, by lance-ns", "version": version("lance-ns-async")},
        "security": [{"token": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "x-lance-token"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    reference = {"$ref": _REFERENCE.format(model="Error")}
    error = {"description": "An error, with the code of the spec.", "content": _json(reference)}
    statuses = sorted({*HTTP_STATUSES.values(), 405, 413, 415})
    is_tagged = not route.changes and route.answer == "fields"
    unchanged = {"304": {"description": "The client has this version: its ETag is in If-None-Match."}}
    return {
        "operationId": route.operation,
        "parameters": [*_parameters(route)],
        **_request_body(route, schemas),
        "responses": {
            "200": _response(route, schemas),
            **(unchanged if is_tagged else {}),
            **{str(status): error for status in statuses},
        },
    }


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    for part in route.path.split("/"):
        if part.startswith("{"):
            name = part.strip("{}")
            about = (
                "The names, joined by the delimiter; the delimiter alone is the root." if name == "id" else "A name."
            )
            yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "description": about}
    yield {"name": "delimiter", "in": "query", "schema": {"type": "string", "default": "$"}}
    if route.method == "POST" and route.body == "json":
        return
    for name, kind in query_types(route.request).items():
        # Objects in a query are JSON as text.
        schema: dict[str, Any] = {"type": "string" if kind == "object" else kind}
        if kind == "array":
            schema["items"] = {"type": "string"}
        yield {
            "name": name,
            "in": "query",
            "required": route.request.model_fields[name].is_required(),
            "schema": schema,
        }


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _request_body(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    if route.method != "POST":
        return {}
    content: dict[str, Any]
    match route.body:
        case "rows":
            content = {_ARROW_STREAM: _BINARY}
        case "metadata":
            content = _json(_TEXTS)
        case "json":
            content = _json(_reference(route.request, schemas, is_closed=True))
    return {"requestBody": {"required": True, "content": content}}


def _response(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any]
    match route.answer:
        case "file":
            return {"description": "The rows.", "content": {ARROW_FILE: _BINARY}}
        case "events":
            return {"description": _EVENTS, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
        case "count":
            schema = {"type": "integer"}
        case "text":
            schema = {"type": "string"}
        case "metadata":
            schema = _TEXTS
        case "fields":
            schema = _reference(_response_model(route.operation), schemas)
    return {"description": "The result.", "content": _json(schema)}


def _response_model(operation: str) -> type[BaseModel]:
    named = "".join(part.title() for part in operation.split("_"))
    model: type[BaseModel] = _RESPONSES.get(operation) or getattr(spec, f"{named}Response")
    return model


def _reference(model: type[BaseModel], schemas: dict[str, Any], *, is_closed: bool = False) -> dict[str, Any]:
    """Returns a reference to a model, which is added to the schemas with its parts; a closed one has no more fields."""
    if model.__name__ not in schemas:
        schema = model.model_json_schema(ref_template=_REFERENCE)
        added = {**schema.pop("$defs", {}), model.__name__: schema}
        for name, part in added.items():
            if is_closed and "properties" in part:
                part["additionalProperties"] = False
            schemas.setdefault(name, part)
    return {"$ref": _REFERENCE.format(model=model.__name__)}
