"""Operations that a server performs itself: their requests and responses in the forms of the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import lance_namespace as spec
import orjson
from pydantic import BaseModel

from lance_ns_async.backends.rest import wire
from lance_ns_async.model import Id, NamespaceId, TableId
from lance_ns_async.spec import responses
from lance_ns_async.spec.routes import Route

ROWS = "application/vnd.apache.arrow.stream"
"""The media type of rows in a request."""

SERVER_ONLY = frozenset(
    {
        "alter_table_backfill_columns",
        "alter_transaction",
        "batch_commit_tables",
        "batch_create_table_versions",
        "create_materialized_view",
        "create_table_version",
        "describe_transaction",
        "refresh_materialized_view",
    }
)
"""Operations that only a server can perform."""

OF_THE_CATALOG = frozenset({"describe_table", "drop_table", "list_tables", "table_exists"})
"""Operations that all servers have. A server that ignores some fields of their requests does not say so."""

_IN_QUERY = (
    "branch",
    "check_declared",
    "descending",
    "limit",
    "load_detailed_metadata",
    "page_token",
    "with_table_uri",
)
"""Fields that the spec has as parameters of the query for some operations with a JSON body; they are sent as both."""


@dataclass(frozen=True, slots=True)
class EncodedOperation:
    """The request of an operation on the wire."""

    subject: Id
    path: str
    query: str
    body: Any
    """Sent as JSON; None if the rows are the body."""


def encode(route: Route, request: BaseModel, delimiter: str) -> EncodedOperation:
    """Returns the request of an operation in the form of the protocol."""
    # The spec's own method, which also writes nested models with the names of the protocol.
    fields: dict[str, Any] = request.to_dict()  # type: ignore[attr-defined]
    for name in ("context", "identity"):
        fields.pop(name, None)
    subject: Id = TableId(fields["id"]) if fields.get("id") else NamespaceId()
    names = {"id": wire.path_segment(subject, delimiter)}
    if "index_name" in fields:
        names["index_name"] = quote(fields["index_name"], safe="")
    if route.method == "GET" or route.body == "rows":
        body = None
        parameters = {name: value for name, value in fields.items() if name not in ("id", "index_name")}
    else:
        body = (fields.get("metadata") or {}) if route.body == "metadata" else fields
        parameters = {name: value for name, value in fields.items() if name in _IN_QUERY}
    pairs = [(name, text) for name, value in parameters.items() for text in _texts(value)]
    query = urlencode([("delimiter", delimiter), *pairs])
    return EncodedOperation(subject, route.fill(**names), query, body)


def _texts(value: Any) -> list[str]:
    """Returns a field as values of a query parameter, which is repeated for a list."""
    values = value if isinstance(value, list) else [value]
    return [it if isinstance(it, str) else orjson.dumps(it).decode() for it in values]


def decode(route: Route, body: Any) -> Any:
    """Returns the response of an operation: its model, or the text of a query plan.

    Args:
        route: The route of the operation.
        body: The JSON of the response, None if it is empty; or its bytes, if they are an Arrow file.
    """
    match route.answer:
        case "count":
            return spec.CountTableRowsResponse(count=body)
        case "text":
            return body if isinstance(body, str) else orjson.dumps(body).decode()
        case "metadata":
            return spec.UpdateTableSchemaMetadataResponse(metadata=body)
        case "file":
            return responses.QueryTableResponse(data=body)
    return _model(route.operation).from_dict(body or {})  # type: ignore[attr-defined]


def _model(operation: str) -> type[BaseModel]:
    """Returns the response model of an operation; the one that hides credentials, if it has any."""
    name = f"{''.join(part.title() for part in operation.split('_'))}Response"
    model: type[BaseModel] = getattr(responses, name, None) or getattr(spec, name)
    return model
