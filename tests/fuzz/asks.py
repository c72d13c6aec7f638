"""Requests of the fuzz cases, and common parts of their responses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lance_ns_async import AsyncNamespace, TableId
from tests.faults.catalogs import SECRET

Ask = Callable[[AsyncNamespace], Awaitable[object]]


def asks(operation: str, *id: str, **more: Any) -> Ask:
    """Returns a call of an operation with an id."""
    return lambda ns: getattr(ns, operation)({"id": list(id), **more})


def walks(operation: str, *id: str) -> Ask:
    """Returns all items of an iteration."""

    async def walk(ns: AsyncNamespace) -> object:
        return [result async for result in getattr(ns, operation)(list(id), recursive=True)]

    return walk


def many(*namespace: str, count: int) -> Ask:
    """Returns a bulk describe of a number of tables of a namespace."""
    return lambda ns: ns.describe_tables([TableId([*namespace, f"t{i}"]) for i in range(count)])


PROPERTIES = {"k": "v", "location": "s3://lake/n"}
PLACE = "s3://lake/n/t0"
NO_TOKEN = ("auth_token",)
TOKEN = {"access_token": SECRET, "token_type": "bearer", "expires_in": 3600, "issued_token_type": "t"}
DATE = 1_700_000_000_000
VENDS = {"vend_credentials": True}
