"""The namespaces and tables of an Iceberg REST catalog in memory, and the differences between such catalogs. A
namespace is identified by its key: its levels joined by the decoded separator. So with the separator `.`, the level
`a.b` cannot be distinguished from the levels `a`, `b`, as on the Iceberg project's test server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote
from uuid import uuid4

from tests.fakes.http import Refusal

from .metadata import Json, Loaded, commit, lax


@dataclass(frozen=True, slots=True)
class Quirks:
    """Differences between Iceberg REST servers; the defaults are those of the Iceberg project's test server."""

    separator: str | None = "%2E"
    """The namespace separator in the configuration; None for no separator there, which means `%1F`."""
    jetty: bool = True  # Whether names with `/`, `%` or control characters are refused by Jetty's error pages
    orphans: bool = True  # Whether a namespace can be created below a missing one
    lists_missing: bool = False  # Whether the listings of a missing namespace are empty instead of 404
    paging: Literal["offset", "opaque", "ignored", "stuck"] = "offset"
    """The kind of page tokens: an offset, hex, none (one page with all items), or always the same one."""
    typed_conflicts: bool = True  # Whether a 409 has a type instead of the empty string
    stacks: bool = True  # Whether errors contain a Java stack
    etags: bool = True
    gzip: bool = True  # Whether responses are compressed for clients that accept it; an ETag then ends in `--gzip`
    filters_snapshots: bool = True  # Whether `snapshots=refs` has an effect
    needs_uuid: bool = False  # Whether a table cannot be created without `assign-uuid`
    moves_tables: bool = False  # Whether a new table gets another location than the requested one
    lax_snapshots: bool = False
    """Whether the assertion that there is no snapshot is not enforced, nor that ids and sequence numbers are new;
    only the current snapshot is then stored, and none can be removed."""
    transactions: bool = True  # Whether several tables can be committed at once
    names_hold_references: bool = False  # Whether a table's name ends before `@` or `#`, and loses backticks around it


NESSIE = Quirks(
    separator=None,
    jetty=False,
    orphans=False,
    lists_missing=True,
    paging="opaque",
    typed_conflicts=False,
    stacks=False,
    names_hold_references=True,
    etags=False,
    gzip=False,
    filters_snapshots=False,
    needs_uuid=True,
    lax_snapshots=True,
)
"""The behaviour of Project Nessie."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that a client dropped."""

    namespace: tuple[str, ...]
    name: str
    purge: str | None  # The value of `purgeRequested`; None if it was not sent


class IcebergCatalog:
    """Namespaces and tables; invalid requests raise `Refusal`."""

    def __init__(self, quirks: Quirks) -> None:
        self.quirks = quirks
        self.dropped: list[Dropped] = []
        self.joint = unquote(quirks.separator or "%1F")
        self._namespaces: dict[str, dict[str, str]] = {}
        self._tables: dict[str, dict[str, Loaded]] = {}

    def key(self, levels: Sequence[str]) -> str:
        return self.joint.join(levels)

    def plant_namespace(self, levels: Sequence[str], properties: Mapping[str, str]) -> None:
        for depth in range(1, len(levels) + 1):
            self._namespaces.setdefault(self.key(levels[:depth]), {})
        self._namespaces[self.key(levels)].update(properties)

    def plant_table(self, levels: Sequence[str], name: str, updates: Sequence[Json]) -> None:
        """Creates or replaces a table, and creates its namespace if it is missing."""
        self.plant_namespace(levels, {})
        self._tables.setdefault(self.key(levels), {})[name] = commit(None, [], updates)

    def children(self, parent: str | None) -> list[list[str]]:
        """Returns the namespaces directly below one, or below the root, oldest first."""
        if parent is None:
            start, depth = "", 1
        else:
            if not self._is_listable(parent):
                return []
            start, depth = parent + self.joint, len(parent.split(self.joint)) + 1
        result = (key.split(self.joint)[:depth] for key in self._namespaces if key.startswith(start))
        return [list(levels) for levels in dict.fromkeys(map(tuple, result))]

    def create_namespace(self, levels: Sequence[str], properties: Mapping[str, str]) -> Json:
        key = self.key(levels)
        if self._exists(key):
            raise Refusal(409, "AlreadyExistsException", f"Namespace already exists: {self._shown(key)}")
        parent = self.key(levels[:-1])
        if not self.quirks.orphans and levels[:-1] and not self._exists(parent):
            raise self._no_namespace(parent)
        self._namespaces[key] = dict(properties)
        return self.namespace(levels)

    def namespace(self, levels: Sequence[str]) -> Json:
        key = self.key(levels)
        self._check(key)
        location = "/".join(("file:///warehouse", *levels))
        return {"namespace": list(levels), "properties": {"location": location, **self._namespaces.get(key, {})}}

    def drop_namespace(self, key: str) -> None:
        self._check(key)
        name = f"Namespace {self._shown(key)} is not empty."
        if children := len(self.children(key)):
            raise Refusal(409, "NamespaceNotEmptyException", f"{name} Contains {children} child namespace(s).")
        if tables := len(self._tables.get(key, {})):
            raise Refusal(409, "NamespaceNotEmptyException", f"{name} Contains {tables} table(s).")
        del self._namespaces[key]

    def change_properties(self, key: str, updates: Mapping[str, str], removals: Sequence[str]) -> Json:
        self._check(key)
        if both := [name for name in removals if name in updates]:
            what = "Invalid namespace update, cannot simultaneously set and remove keys"
            raise Refusal(422, "UnprocessableEntityException", f"{what}: [{', '.join(both)}]")
        properties = self._namespaces.setdefault(key, {})
        removed = [name for name in removals if properties.pop(name, None) is not None]
        properties.update(updates)
        missing = [name for name in removals if name not in removed]
        return {"removed": removed, "updated": list(updates), "missing": missing}

    def tables(self, key: str) -> list[Json]:
        if not self._is_listable(key):
            return []
        namespace = key.split(self.joint)
        return [{"namespace": namespace, "name": name} for name in self._tables.get(key, {})]

    def find(self, key: str, name: str) -> Loaded | None:
        return self._tables.get(key, {}).get(name)

    def load(self, key: str, name: str) -> Loaded:
        table = self.find(key, name)
        if table is None:
            raise Refusal(404, "NoSuchTableException", f"Table does not exist: {self._shown(key, name)}")
        return table

    def commit(self, key: str, name: str, requirements: Sequence[Json], updates: Sequence[Json]) -> Loaded:
        """Creates a table if `assert-create` is among the requirements, and otherwise changes one."""
        after = self._committed(key, name, requirements, updates)
        self._tables.setdefault(key, {})[name] = after
        return after

    def commit_all(self, changes: Sequence[Json]) -> None:
        """Changes several tables, all or none."""
        names = [(self.key(it["identifier"]["namespace"]), it["identifier"]["name"]) for it in changes]
        after = [
            self._committed(*name, it["requirements"], it["updates"]) for name, it in zip(names, changes, strict=True)
        ]
        for (key, name), table in zip(names, after, strict=True):
            self._tables[key][name] = table

    def _committed(self, key: str, name: str, requirements: Sequence[Json], updates: Sequence[Json]) -> Loaded:
        creates = any(requirement["type"] == "assert-create" for requirement in requirements)
        table = self.find(key, name) if creates else self.load(key, name)
        if creates and self.quirks.needs_uuid and all(u["action"] != "assign-uuid" for u in updates):
            raise Refusal(400, "IllegalArgumentException", "Table UUID is missing")
        if self.quirks.lax_snapshots and table is not None:
            table, requirements, updates = lax(table, requirements, updates)
        after = commit(table, requirements, updates)
        if not self._exists(key):
            what = f"Cannot create table {self._shown(key, name)} in catalog rest_backend."
            message = f"{what} Namespace {self._shown(key)} does not exist"
            raise Refusal(404, "NoSuchNamespaceException", message)
        if creates and self.quirks.moves_tables:
            after["metadata"]["location"] += f"_{uuid4()}"
        return after

    def drop_table(self, key: str, name: str, purge: str | None) -> None:
        self.load(key, name)
        del self._tables[key][name]
        self.dropped.append(Dropped(tuple(key.split(self.joint)), name, purge))

    def rename(self, source: tuple[str, str], destination: tuple[str, str]) -> None:
        """Moves a table between pairs of namespace key and name; a move to itself never has an effect."""
        if source == destination:
            return
        table = self.load(*source)
        self._check(destination[0])
        if self.find(*destination) is not None:
            raise Refusal(409, "AlreadyExistsException", f"Table already exists: {self._shown(*destination)}")
        del self._tables[source[0]][source[1]]
        self._tables.setdefault(destination[0], {})[destination[1]] = table

    def _exists(self, key: str) -> bool:
        # A parent that was never created exists as long as it has children.
        return key in self._namespaces or any(k.startswith(key + self.joint) for k in self._namespaces)

    def _is_listable(self, key: str) -> bool:
        if not self.quirks.lists_missing:
            self._check(key)
        return self._exists(key)

    def _check(self, key: str) -> None:
        if not self._exists(key):
            raise self._no_namespace(key)

    def _no_namespace(self, key: str) -> Refusal:
        return Refusal(404, "NoSuchNamespaceException", f"Namespace does not exist: {self._shown(key)}")

    def _shown(self, key: str, *name: str) -> str:
        return ".".join((*key.split(self.joint), *name))
