"""Requests to a Unity Catalog server, for tests that send raw requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..raw import Reply, ask
from . import API, FakeUnity

LIST = "/tables?catalog_name=c1&schema_name=s1"
JSON = {"Content-Type": "application/json"}
TABLE = {
    "name": "t1",
    "catalog_name": "c1",
    "schema_name": "s1",
    "table_type": "EXTERNAL",
    "data_source_format": "TEXT",
    "storage_location": "s3://bkt/t1.lance",
    "properties": {"table_type": "lance"},
    "columns": [],
}


def call(
    server: FakeUnity, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """Sends a request; the path is relative to the API's root."""
    return ask(server, method, API + path, body, {**(JSON if body is not None else {}), **(headers or {})})


def create(server: FakeUnity, **changes: Any) -> Reply:
    """Creates `TABLE` with some fields changed, and without those that are changed to `...`."""
    body = {key: value for key, value in {**TABLE, **changes}.items() if value is not ...}
    return call(server, "POST", "/tables", body)


def error(reply: Reply) -> tuple[int, str, str]:
    """Returns status, code and message of an error."""
    body = reply.json
    assert reply.headers["Content-Type"] == "application/json"
    assert body["details"][0]["reason"] == body["error_code"]
    return reply.status, body["error_code"], body["message"]


def page(server: FakeUnity, path: str, headers: Mapping[str, str] | None = None) -> tuple[list[str], str | None]:
    """Returns the names of a listing's page, and its token."""
    body = call(server, "GET", path, headers=headers).json
    token = body.pop("next_page_token")
    (entries,) = body.values()
    return [entry["name"] for entry in entries], token


def column(name: str = "id", **changes: Any) -> dict[str, Any]:
    """Returns a column; parts that are `...` are omitted."""
    field = {"name": name, "type": "long", "nullable": True, "metadata": {}}
    usual = {
        "name": name,
        "type_text": "bigint",
        "type_json": json.dumps(field),
        "type_name": "LONG",
        "position": 0,
        "nullable": True,
    }
    return {key: value for key, value in {**usual, **changes}.items() if value is not ...}
