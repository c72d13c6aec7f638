"""Requests to a Unity Catalog server as its routes read them, and responses as they write them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..faults import Answer, Received
from .access import User
from .catalog import Json, compact
from .checks import text_of
from .errors import invalid

TABLE_TYPES = frozenset({"MANAGED", "EXTERNAL", "STREAMING_TABLE", "MATERIALIZED_VIEW", "METRIC_VIEW"})
FORMATS = frozenset({"DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"})
OPERATIONS = frozenset({"READ", "READ_WRITE"})
PATH_OPERATIONS = frozenset({"PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"})
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Call:
    """A request of an authenticated user."""

    request: Received
    params: Mapping[str, str]
    user: User

    def body(self) -> Json:
        """Returns the request's JSON object."""
        if not self.request.headers.get("Content-Type", "").startswith("application/json"):
            raise invalid("No suitable request converter found: the body must be application/json")
        try:
            body = self.request.json
        except ValueError as e:
            raise invalid(f"Unrecognized token: {e}") from None
        if not isinstance(body, dict):
            raise invalid("Cannot deserialize value from Array value")
        return {key: value if isinstance(value, dict | list) else text_of(value) for key, value in body.items()}


def json_answer(value: Any) -> Answer:
    return Answer(200, compact(value), JSON)


def split_name(full_name: str) -> list[str]:
    """Returns the parts of a full name; empty ones at its end are dropped."""
    return full_name.rstrip(".").split(".")


def three_parts(full_name: str) -> tuple[str, str, str]:
    match split_name(full_name):
        case [catalog, schema, name]:
            return catalog, schema, name
    raise invalid(f"Invalid table name: {full_name}")


def one_of(known: Collection[str], body: Json, key: str) -> str | None:
    value = body.get(key)
    if value is not None and value not in known:
        raise invalid(f"Cannot construct an instance for {key}, problem: Unexpected value '{value}'")
    return None if value is None else str(value)
