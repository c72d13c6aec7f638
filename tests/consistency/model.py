"""Model of a catalog after sequential operations, the last of which may be interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lance_ns_async import AsyncNamespace
from tests.support.lake import stream

Name = tuple[str, ...]  # The id of a table or a namespace
Rows = frozenset[int]
CREATES = frozenset({"create", "write"})
"""Operations that create a table, which must not exist, and write its first rows."""

OVERWRITES = frozenset({"overwrite", "replace"})  # Operations that replace all rows of a table, or create it
APPENDS = frozenset({"append", "insert"})  # Operations that add rows to a table, which must exist


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

    error: str | None = None  # The name of the error class; None if the operation succeeded
    message: str = ""
    location: str | None = None  # The location of the table as a path; None if the response does not contain it
    rows: tuple[int, ...] | None = None  # The rows in order

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def is_unknown(self) -> bool:
        return self.error is not None and ("unknown" in self.message or "may take effect" in self.message)

    def __str__(self) -> str:
        if self.ok:
            return "ok" if self.rows is None else f"ok {list(self.rows)}"
        return f"{self.error}: {self.message}"


def path(location: str) -> str:
    return unquote(urlsplit(location).path) if location.startswith("file:") else location


def table(rows: tuple[int, ...]) -> pa.Table:
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


@dataclass(frozen=True)
class Terms:
    """The capabilities of a round's catalog, and the names in the round."""

    names: tuple[Name, ...]
    side: Name  # A namespace without tables that is created and dropped
    renames: bool
    shares: bool  # Whether a drop must find all other registrations of the same location
    replaces: bool = True  # Whether a registration can be replaced by one with other properties or another location
    bare: frozenset[Name] = frozenset()
    """Names with a fixed location and without properties, so that data at that location prevents a new table."""


@dataclass
class Model:
    """Tables by name, and data by location."""

    terms: Terms
    tables: dict[Name, str] = field(default_factory=dict)
    """The location of each table; a location that no response contained is named by the operation."""
    data: dict[str, Rows] = field(default_factory=dict)
    """The rows at each location, whether a table is registered there or not."""
    homes: dict[Name, str] = field(default_factory=dict)  # The location that the catalog chose for a table of that name
    left: set[str] = field(default_factory=set)
    """Locations of tables that were deregistered before anything was written; a mark may stay there."""
    side: bool = False  # Whether the namespace that is created and dropped exists

    def copy(self) -> Model:
        return Model(self.terms, dict(self.tables), dict(self.data), dict(self.homes), set(self.left), self.side)

    def rows(self, name: Name) -> Rows | None:
        return self.data.get(self.tables[name])

    def others_at(self, name: Name) -> list[Name]:
        """Returns the other tables at the location of this one."""
        return [other for other, place in self.tables.items() if other != name and place == self.tables.get(name)]

    def kept(self) -> Mapping[str, Rows]:
        """Returns the data at locations without a registered table."""
        used = set(self.tables.values())
        return {place: rows for place, rows in self.data.items() if place not in used}

    def is_blocked(self, name: Name) -> bool:
        """Returns whether there is data at the location of a new table of that name."""
        return self.homes.get(name) in self.data

    def may_succeed(self, it: Operation) -> bool | None:
        """Returns whether the operation must succeed; None if success and failure are both correct."""
        there = it.name in self.tables
        match it.kind:
            case "create_namespace":
                return not self.side
            case "drop_namespace":
                return self.side
            case "declare" | "create" | "write":
                return not there and not self.is_blocked(it.name)
            case "existok" | "overwrite" | "replace":
                return there or not self.is_blocked(it.name)
            case "register":
                return not there
            case "reregister":
                return True
            case "rename":
                return there and it.to not in self.tables
            case "drop":
                # Only some catalogs can find the other tables at a location; the others must refuse the drop.
                return there and not self.others_at(it.name)
            case _:
                return there

    def apply(self, it: Operation, location: str | None) -> None:
        name, there = it.name, it.name in self.tables
        match it.kind:
            case "create_namespace":
                self.side = True
            case "drop_namespace":
                self.side = False
            case "register" | "reregister":
                assert it.location is not None
                self._leave(name)
                self.tables[name] = it.location
            case "rename":
                assert it.to is not None
                self.tables[it.to] = self.tables.pop(name)
            case "drop":
                self.data.pop(self.tables.pop(name), None)
            case "deregister":
                self._leave(name)
                self.tables.pop(name)
            case _:
                if not there:
                    self.tables[name] = location or f"the new place of {'.'.join(name)}"
                    if name in self.terms.bare:
                        self.homes[name] = self.tables[name]
                elif it.kind == "existok":
                    return
                if it.kind in APPENDS and (old := self.rows(name)) is not None:
                    self.data[self.tables[name]] = old | frozenset(it.rows)
                elif it.kind != "declare":
                    self.data[self.tables[name]] = frozenset(it.rows)

    def _leave(self, name: Name) -> None:
        if name in self.tables and self.rows(name) is None:
            self.left.add(self.tables[name])

    def after_a_kill(self, it: Operation | None) -> list[Model]:
        """Returns all possible states after the process was killed during this operation."""
        states = [self]
        if it is None or self.may_succeed(it) is False:
            return states
        if it.kind in CREATES | OVERWRITES | {"existok"} and it.name not in self.tables:
            declared = self.copy()
            declared.apply(Operation("declare", it.name), None)
            states.append(declared)
        done = self.copy()
        done.apply(it, None)
        return [*states, done]


def operations(random: Random, model: Model) -> Iterator[Operation]:
    """Yields endless operations, chosen by the current model; a few of them must be refused."""
    terms, number = model.terms, 0
    while True:
        number += 1
        name = random.choice(terms.names)
        there = name in model.tables
        rows = (10 * number, 10 * number + 1)
        if random.random() < 0.04:
            yield Operation("drop_namespace" if model.side else "create_namespace", terms.side)
            continue
        if there != (random.random() < 0.05):
            kinds = ["append", "insert", "overwrite", "overwrite", "drop", "drop", "deregister"]
            kinds += ["replace", "reregister"] * terms.replaces + ["rename"] * 2 * terms.renames
        else:
            kinds = ["declare", "create", "write", "write", "overwrite", "existok", "register"]
            kinds += ["replace"] * terms.replaces
        kind = random.choice(kinds)
        properties = None if name in terms.bare else {"number": str(number)}
        if kind in ("register", "reregister"):
            places = sorted(model.kept().keys() - {model.homes.get(it) for it in terms.bare})
            if kind == "reregister" and there and random.random() < 0.3:
                places = [model.tables[name]]
            if terms.shares and random.random() < 0.1:
                places = sorted({model.tables[it] for it in model.tables if it not in terms.bare})
            if name in terms.bare or not places:
                continue
            yield Operation(kind, name, location=random.choice(places), properties=properties)
        elif kind == "rename":
            yield Operation(kind, name, to=random.choice([it for it in terms.names if it != name]))
        elif kind == "drop" and not terms.shares and there and model.others_at(name):
            # The catalog does not know the other tables at the location.
            continue
        elif kind in ("replace", "create", "declare"):
            yield Operation(kind, name, () if kind == "declare" else rows, properties=properties)
        elif kind in ("drop", "deregister"):
            yield Operation(kind, name)
        else:
            yield Operation(kind, name, rows)
