"""Operations on tables: choice, execution and records, for both suites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lance_ns_async import AsyncNamespace
from tests.support.lake import stream

Name = tuple[str, ...]
"""The id of a table or a namespace."""

Rows = frozenset[int]

CREATES = frozenset({"create", "write"})
"""Operations that create a table, which must not exist, and write its first rows."""

OVERWRITES = frozenset({"overwrite", "replace"})
"""Operations that replace all rows of a table, or create it."""

APPENDS = frozenset({"append", "insert"})
"""Operations that add rows to a table, which must exist."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A request to a namespace."""

    kind: str
    name: Name
    rows: tuple[int, ...] = ()
    location: str | None = None
    to: Name | None = None
    properties: Mapping[str, str] | None = None

    def __str__(self) -> str:
        rest = [f"rows={list(self.rows)}"] if self.rows else []
        rest += [f"location={self.location}"] if self.location else []
        rest += [f"to={'.'.join(self.to)}"] if self.to else []
        rest += [f"properties={dict(self.properties)}"] if self.properties else []
        return " ".join([self.kind, ".".join(self.name), *rest])


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of an operation."""

    error: str | None = None
    """The name of the error class; None if the operation succeeded."""
    message: str = ""
    location: str | None = None
    """The location of the table as a path; None if the response does not contain it."""
    rows: tuple[int, ...] | None = None
    """The rows in order."""

    @property
    def ok(self) -> bool:
        """Returns whether the operation succeeded."""
        return self.error is None

    @property
    def is_unknown(self) -> bool:
        """Returns whether the error says that the outcome is unknown."""
        return self.error is not None and ("unknown" in self.message or "may take effect" in self.message)

    def __str__(self) -> str:
        if self.ok:
            return "ok" if self.rows is None else f"ok {list(self.rows)}"
        return f"{self.error}: {self.message}"


def path(location: str) -> str:
    """Returns a local location as a path."""
    return unquote(urlsplit(location).path) if location.startswith("file:") else location


def table(rows: tuple[int, ...]) -> pa.Table:
    """Returns rows as an Arrow table."""
    return pa.table({"id": pa.array(rows, pa.int64())})


async def perform(ns: AsyncNamespace, it: Operation) -> Answer:
    """Performs an operation; errors become outcomes."""
    try:
        return await _performed(ns, it)
    except Exception as e:  # every error is an outcome, and the checks decide which are allowed
        return Answer(type(e).__name__, " ".join([str(e), *getattr(e, "__notes__", ())]).replace("\n", " "))


class GoneWhileRead(Exception):
    """Files were missing during a scan, which is an error of pylance."""


async def read(ns: AsyncNamespace, name: Name) -> tuple[int, ...]:
    """Returns the rows of a table, in order."""
    dataset = await ns.open(name)
    try:
        return tuple(sorted(dataset.to_table(columns=["id"])["id"].to_pylist()))
    except (OSError, ValueError) as e:
        raise GoneWhileRead(str(e)) from e


async def _performed(ns: AsyncNamespace, it: Operation) -> Answer:
    id = list(it.name)
    request: dict[str, Any] = {"id": id}
    if it.properties:
        request["properties"] = dict(it.properties)
    match it.kind:
        case "create_namespace":
            await ns.create_namespace(request)
            return Answer()
        case "drop_namespace":
            await ns.drop_namespace(request)
            return Answer()
        case "declare":
            result: Any = await ns.declare_table(request)
        case "create" | "existok" | "replace":
            mode = {"replace": "overwrite"}.get(it.kind, it.kind)
            result = await ns.create_table({**request, "mode": mode}, stream(table(it.rows)))
        case "write" | "overwrite" | "append":
            mode = {"write": "create"}.get(it.kind, it.kind)
            dataset = await ns.write(id, table(it.rows), mode=mode)  # type: ignore[arg-type]  # it is one of them
            return Answer(location=path(dataset.uri))
        case "insert":
            await ns.insert_into_table(request, stream(table(it.rows)))
            return Answer()
        case "register" | "reregister":
            mode = "create" if it.kind == "register" else "overwrite"
            result = await ns.register_table({**request, "location": it.location, "mode": mode})
        case "describe":
            result = await ns.describe_table(request)
        case "drop":
            result = await ns.drop_table(request)
        case "deregister":
            result = await ns.deregister_table(request)
        case "rename":
            assert it.to is not None
            await ns.rename_table({"id": id, "new_table_name": it.to[-1], "new_namespace_id": list(it.to[:-1])})
            return Answer()
        case "read":
            return Answer(rows=await read(ns, it.name))
        case _:
            raise AssertionError(it.kind)
    return Answer(location=None if result.location is None else path(result.location))
