"""The HTTP responses of a catalog full of Lance tables, rendered to bytes: Iceberg REST, and Lance's own protocol."""

import json
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

LAKE = "s3://bench-lake/warehouse"

PAGE = 1000
"""Names per page, if the client sets no limit."""

REASONS = {200: "OK", 304: "Not Modified", 404: "Not Found", 429: "Too Many Requests", 503: "Service Unavailable"}

TAG = "5f1c0d6e"
"""The ETag of each loaded table."""


def location(namespace: str, table: str) -> str:
    """Returns the location of a table in the stub catalog."""
    return f"{LAKE}/{namespace}/{table}.lance"


def render(status: int, body: Any, *headers: str) -> bytes:
    """Returns a complete HTTP/1.1 response with a JSON body; a string body is already JSON."""
    text = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))
    content = text.encode()
    lines = (
        f"HTTP/1.1 {status} {REASONS[status]}",
        "Server: stub",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def answer(target: str, more_columns: int = 0) -> bytes:
    """Returns the response to a request: the configuration, a table by one of the two protocols, or 404.

    Args:
        target: Path and query of the request.
        more_columns: Number of additional columns in a loaded table; each needs 62 bytes.
    """
    path, _, query = target.partition("?")
    match [unquote(part) for part in path.split("/")]:
        case ["", "v1", "config"]:
            return render(200, config(parse_qs(query).get("warehouse", [])))
        case ["", "v1", "namespaces", namespace, "tables", table]:
            return render(200, loaded_table(namespace, table, more_columns), f'ETag: "{TAG}"')
        case ["", "v1", _, "namespaces", namespace, "tables", table]:
            return render(200, loaded_table(namespace, table, more_columns), f'ETag: "{TAG}"')
        case ["", "v1", "table", id, "describe"]:
            namespace, table = id.split("$")
            return render(200, described_table(namespace, table))
        case ["", "v1", "namespace", id, "table", "list"]:
            return render(200, page(parse_qs(query), "tables", table_count(id)))
        case ["", "v1", "namespace", id, "list"]:
            return render(200, page(parse_qs(query), "namespaces", namespace_count(id)))
    return refusal(404)


def table_count(id: str) -> int:
    """Returns the number of tables in a namespace: `tables-N` has N, and each child of `namespaces-N` has ten."""
    kind, _, count = id.partition("-")
    return int(count) if kind == "tables" else 10 if "$" in id else 0


def namespace_count(id: str) -> int:
    """Returns the number of namespaces in a namespace: `namespaces-N` has N."""
    kind, _, count = id.partition("-")
    return int(count) if kind == "namespaces" and "$" not in id else 0


def page(query: dict[str, list[str]], kind: str, count: int) -> dict[str, Any]:
    """Returns a page of a listing; its token is the number of the first name on the next page."""
    first = int(query.get("page_token", ["0"])[0])
    end = min(count, first + int(query.get("limit", [PAGE])[0]))
    return {
        kind: [f"{kind}_{number:07}" for number in range(first, end)],
        "page_token": str(end) if end < count else None,
    }


def refusal(status: int, retry_after: str | None = None) -> bytes:
    """Returns an error in Iceberg's format."""
    error = {"message": REASONS[status], "type": "", "code": status}
    return render(status, {"error": error}, *([f"Retry-After: {retry_after}"] if retry_after else []))


def config(warehouse: list[str]) -> dict[str, Any]:
    """Returns the catalog's configuration; a requested warehouse is also the prefix of its paths."""
    defaults = {"prefix": warehouse[0]} if warehouse else {}
    return {"defaults": defaults, "overrides": {}}


def loaded_table(namespace: str, table: str, more_columns: int = 0) -> str:
    """Returns the JSON text of a LoadTableResponse, from a template that does not slow the first describes."""
    return (
        _template(more_columns)
        .replace("$namespace", json.dumps(namespace)[1:-1])
        .replace("$table", json.dumps(table)[1:-1])
    )


def described_table(namespace: str, table: str) -> dict[str, Any]:
    """Returns the response of the Lance REST Namespace protocol to a describe."""
    return {
        "table": table,
        "namespace": [namespace],
        "location": location(namespace, table),
        "properties": {"owner": "bench", "comment": "embeddings of one day of documents"},
        "managed_versioning": False,
    }


def load_table(namespace: str, table: str) -> dict[str, Any]:
    """Returns a LoadTableResponse of about 1.7 KB: a Lance table of six columns with one snapshot."""
    root = location(namespace, table)
    columns = (("id", "long"), ("text", "string"), ("score", "double"), ("seen", "timestamptz"), ("day", "date"))
    fields: list[dict[str, Any]] = [
        {"id": number, "name": name, "required": False, "type": kind} for number, (name, kind) in enumerate(columns, 1)
    ]
    vector = {"type": "list", "element-id": 7, "element": "float", "element-required": False}
    fields.append({"id": 6, "name": "vector", "required": False, "type": vector})
    return {
        "metadata-location": f"{root}/metadata/00001-7a3de6d4-2c58-4d0a-9a6a-9a1f6e0f8f11.metadata.json",
        "metadata": {
            "format-version": 2,
            "table-uuid": "0f9f2c3e-6a63-4f0b-8f6d-3a7f7d0f5c21",
            "location": root,
            "last-sequence-number": 1,
            "last-updated-ms": 1767225600000,
            "last-column-id": 7,
            "current-schema-id": 1,
            "schemas": [
                {"type": "struct", "schema-id": 0, "fields": []},
                {"type": "struct", "schema-id": 1, "fields": fields},
            ],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {
                "table_type": "lance",
                "managed_by": "storage",
                "owner": "bench",
                "comment": "embeddings of one day of documents",
                "write.metadata.path": f"{LAKE}/_irc/{namespace}/{table}",
            },
            "current-snapshot-id": 7,
            "refs": {"main": {"snapshot-id": 7, "type": "branch"}},
            "snapshots": [
                {
                    "snapshot-id": 7,
                    "sequence-number": 1,
                    "timestamp-ms": 1767225600000,
                    "schema-id": 1,
                    "manifest-list": f"{root}/_versions/7.manifest",
                    "summary": {"operation": "append"},
                }
            ],
            "snapshot-log": [{"timestamp-ms": 1767225600000, "snapshot-id": 7}],
            "statistics": [],
            "partition-statistics": [],
            "metadata-log": [],
        },
        "config": {},
    }


@cache
def _template(more_columns: int) -> str:
    loaded = load_table("$namespace", "$table")
    fields = loaded["metadata"]["schemas"][1]["fields"]
    for id in range(8, 8 + more_columns):
        fields.append({"id": id, "name": f"column_{id:04}", "required": False, "type": "double"})
    return json.dumps(loaded, separators=(",", ":"))
