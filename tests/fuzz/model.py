"""Model of a catalog of namespaces and tables, as a dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lance_ns_async.model import Id, NamespaceId, TableId

Kept = tuple[str, Mapping[str, str]]
"""The location of a table, and its properties."""


@dataclass
class Model:
    """Namespaces with their properties, and tables with their locations; the root is created like the others."""

    folds: bool
    """Whether names are stored and compared in lower case."""
    _namespaces: dict[NamespaceId, Mapping[str, str]] = field(default_factory=dict)
    _tables: dict[TableId, Kept] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)

    def key(self, id: Id) -> Id:
        """Returns the id as it is stored."""
        return type(id)(name.lower() for name in id) if self.folds else id

    def __contains__(self, id: Id) -> bool:
        return self.key(id) in (self._tables if isinstance(id, TableId) else self._namespaces)

    def make(self, id: NamespaceId, properties: Mapping[str, str]) -> None:
        self._namespaces[NamespaceId(self.key(id))] = properties

    def properties(self, id: NamespaceId) -> Mapping[str, str]:
        return self._namespaces[NamespaceId(self.key(id))]

    def drop(self, id: NamespaceId) -> None:
        """Drops a namespace with its content."""
        kept = self.key(id)
        self._namespaces = {it: held for it, held in self._namespaces.items() if it[: len(kept)] != kept}
        self._tables = {it: held for it, held in self._tables.items() if it[: len(kept)] != kept}

    def is_empty(self, id: NamespaceId) -> bool:
        kept = self.key(id)
        inside = [it for it in (*self._namespaces, *self._tables) if it[: len(kept)] == kept]
        return inside == [kept]

    def children(self, id: NamespaceId) -> list[str]:
        return sorted(it.name for it in self._namespaces if it.parent == self.key(id) and it != self.key(id))

    def below_root(self) -> list[NamespaceId]:
        """Returns all namespaces but the first one, oldest first."""
        return list(self._namespaces)[1:]

    def deepest_first(self) -> list[NamespaceId]:
        return sorted(self._namespaces, key=len, reverse=True)

    def add(self, id: TableId, location: str, properties: Mapping[str, str]) -> None:
        self._tables[TableId(self.key(id))] = (location, properties)

    def table(self, id: TableId) -> Kept:
        return self._tables[TableId(self.key(id))]

    def remove(self, id: TableId) -> None:
        del self._tables[TableId(self.key(id))]

    def rename(self, id: TableId, to: TableId) -> None:
        kept = self._tables.pop(TableId(self.key(id)))
        self._tables[TableId(self.key(to))] = kept
        self._moved.add(kept[0])

    def tables_in(self, id: NamespaceId) -> list[str]:
        return sorted(it.name for it in self._tables if it.parent == self.key(id))

    def below(self, id: NamespaceId) -> list[TableId]:
        kept = self.key(id)
        return [it for it in self._tables if it[: len(kept)] == kept]

    def all_tables(self) -> list[TableId]:
        return list(self._tables)

    def shared_places(self) -> list[str]:
        """Returns the locations of several tables that were not registered there.

        A table that was renamed before it had data leaves its location to the next one with its old name.
        """
        placed = (location for location, _ in self._tables.values() if "/registered-" not in location)
        places = [place for place in placed if place not in self._moved]
        return sorted({place for place in places if places.count(place) > 1})
