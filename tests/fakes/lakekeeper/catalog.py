"""A warehouse of a Lakekeeper server in memory: namespaces, generic tables, and locations that are used only once.

It follows the source of Lakekeeper after 0.13.1: names are compared without case and stored unchanged, and the
location of a table must not be equal to, above or below that of another, even of a deleted one that can be restored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ..iceberg.errors import Refusal

Json = dict[str, Any]
Levels = tuple[str, ...]

MAX_DEPTH = 5
"""The maximum number of levels of a namespace."""


@dataclass(slots=True)
class Space:
    """A namespace and its tables, by lower-case names."""

    levels: Levels
    properties: dict[str, str]
    tables: dict[str, Json] = field(default_factory=dict)
    iceberg: set[str] = field(default_factory=set)
    """Folded names of Iceberg tables, which must differ from those of generic tables."""


def fold(levels: Sequence[str]) -> Levels:
    """Returns the levels in the form in which they are compared."""
    return tuple(level.lower() for level in levels)


class LakekeeperWarehouse:
    """The content of a warehouse; invalid requests raise `Refusal`."""

    def __init__(self, base: str, *, also: Sequence[str], soft: bool) -> None:
        """Creates a warehouse; with `soft`, deleted tables keep their locations; `also` are further locations."""
        self.base = base
        self._places = (base, *also)
        self.soft = soft
        self.spaces: dict[Levels, Space] = {}
        self.deleted: list[Json] = []
        """The tables that could be restored."""

    def plant_namespace(self, levels: Sequence[str], properties: Mapping[str, str]) -> Space:
        """Creates a namespace and its parents if they are missing."""
        for depth in range(1, len(levels) + 1):
            some = tuple(levels[:depth])
            self.spaces.setdefault(fold(some), Space(some, {"location": f"{self.base}/"}))
        self.spaces[fold(levels)].properties.update(properties)
        return self.spaces[fold(levels)]

    def space(self, levels: Levels) -> Space:
        """Returns a namespace, which must exist."""
        if (space := self.spaces.get(fold(levels))) is None:
            raise no_namespace(levels)
        return space

    def children(self, parent: Levels) -> list[Levels]:
        """Returns the namespaces directly below one, oldest first; the parent is spelled as in the request."""
        if parent:
            self.space(parent)
        lower_name = fold(parent)
        below = [space.levels for key, space in self.spaces.items() if key[:-1] == lower_name]
        return [(*parent, levels[-1]) for levels in below]

    def create_namespace(self, levels: Levels, properties: Mapping[str, str]) -> Space:
        _check_levels(levels)
        if any("+" in level for level in levels):
            raise Refusal(400, "InvalidNamespace", "Namespace cannot contain '+' character.")
        for key in properties:
            if key != key.lower():
                kind = f"{key[:1].upper()}{key[1:]}NotLowercase"
                raise Refusal(400, kind, f"The property '{key}' is not all lowercase.")
        if levels[:-1]:
            self.space(levels[:-1])
        if fold(levels) in self.spaces:
            message = f"Namespace name '{'.'.join(levels)}' already exist in warehouse"
            raise Refusal(409, "AlreadyExistsException", message)
        place = properties.get("location", self.base)
        self._check_place(place)
        return self.plant_namespace(levels, {**properties, "location": f"{place.rstrip('/')}/"})

    def drop_namespace(self, levels: Levels) -> None:
        space = self.space(levels)
        if space.tables or space.iceberg or self.children(levels):
            message = f"Namespace with name '{'.'.join(levels)}' is not empty."
            raise Refusal(409, "NamespaceNotEmptyException", message)
        del self.spaces[fold(levels)]

    def table(self, levels: Levels, name: str) -> Json:
        """Returns a table, which must exist."""
        space = self.spaces.get(fold(levels))
        if space is None or name.lower() not in space.tables:
            raise no_table()
        return space.tables[name.lower()]

    def create_table(self, levels: Levels, body: Json) -> Json:
        space, name = self.space(levels), body["name"]
        identity = str(uuid4())
        place = (body.get("base-location") or f"{self.base}/{identity}").rstrip("/")
        self._check_place(place)
        self._check_location(place)
        if name.lower() in space.tables or name.lower() in space.iceberg:
            raise Refusal(409, "GenericTableAlreadyExists", "Generic table already exists")
        fields = {key: body[key] for key in ("doc", "properties", "schema", "statistics") if body.get(key)}
        table = {"name": name, "format": body["format"], "base-location": place, "protected": False, **fields}
        space.tables[name.lower()] = {**table, "id": identity}
        return space.tables[name.lower()]

    def drop_table(self, levels: Levels, name: str, *, force: bool) -> None:
        table = self.table(levels, name)
        if table["protected"] and not force:
            message = "Cannot delete protected tabular without force flag"
            raise Refusal(409, "ProtectedTabularDeletionWithoutForce", message)
        if self.soft and not force:
            self.deleted.append(table)
        del self.space(levels).tables[name.lower()]

    def rename(self, source: tuple[Levels, str], destination: tuple[Levels, str]) -> None:
        """Renames a table; another spelling of its own name counts as a change, too."""
        self.space(source[0])
        table = self.table(*source)
        target = self.space(destination[0])
        if source == destination:
            return
        lower_name = destination[1].lower()
        if target.tables.get(lower_name, table) is not table or lower_name in target.iceberg:
            message = "Tabular with the same name already exists in the namespace"
            raise Refusal(409, "AlreadyExistsException", message)
        del self.space(source[0]).tables[source[1].lower()]
        target.tables[lower_name] = table
        table["name"] = destination[1]

    def _check_place(self, place: str) -> None:
        if not any(f"{place}/".startswith(f"{root}/") for root in self._places):
            raise Refusal(400, "InvalidLocation", f"Provided location {place} is not valid for this warehouse.")

    def _check_location(self, place: str) -> None:
        locations = [table["base-location"] for space in self.spaces.values() for table in space.tables.values()]
        for other in (*locations, *(table["base-location"] for table in self.deleted)):
            if f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/"):
                raise Refusal(409, "LocationAlreadyTaken", f"Location is already taken by another tabular: '{place}'")


def no_namespace(levels: Levels) -> Refusal:
    """Returns the error for a missing namespace."""
    message = f"Namespace with name '{'.'.join(levels)}' does not exist in warehouse"
    return Refusal(404, "NoSuchNamespaceException", message)


def no_table() -> Refusal:
    """Returns the error for a missing table, or one that the principal may not see."""
    return Refusal(404, "NoSuchGenericTableException", "Error getting tabular from catalog")


def _check_levels(levels: Levels) -> None:
    if len(levels) > MAX_DEPTH:
        raise Refusal(400, "NamespaceDepthExceeded", f"Namespace exceeds maximum depth of {MAX_DEPTH}")
    if any("." in level for level in levels):
        raise Refusal(400, "NamespacePartContainsDot", "Namespace parts cannot contain '.'")
    if not levels or "" in levels:
        raise Refusal(400, "NamespacePartEmpty", "Namespace parts cannot be empty")
