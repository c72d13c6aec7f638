"""A warehouse of a Lakekeeper server in memory: namespaces, generic tables, and locations that are used only once. It
answers as Lakekeeper 0.13.3 was seen to: names are stored unchanged, and compared by ICU at level 2, without case and
forms of characters. The location of a table must not be equal to, above or below that of another, even of a deleted one
that can be restored; but this is checked without a lock."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tests.fakes.http import Refusal
from tests.fakes.server import Answer, Received

Json = dict[str, Any]
Levels = tuple[str, ...]
MAX_DEPTH = 5  # The maximum number of levels of a namespace


@dataclass(slots=True)
class Space:
    """A namespace and its tables, by folded names."""

    levels: Levels
    properties: dict[str, str]
    tables: dict[str, Json] = field(default_factory=dict)
    iceberg: set[str] = field(default_factory=set)
    """Folded names of Iceberg tables, which must differ from those of generic tables."""


def fold(levels: Sequence[str]) -> Levels:
    return tuple(fold_name(level) for level in levels)


def fold_name(name: str) -> str:
    """Returns a name as ICU compares it at level 2: the long s is a letter of its own, and so is the sharp s."""
    text = unicodedata.normalize("NFKC", name.replace("\u017f", "\ue000"))
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf")).lower()


class LakekeeperWarehouse:
    """The content of a warehouse; invalid requests raise `Refusal`."""

    def __init__(self, base: str, *, also: Sequence[str], soft: bool) -> None:
        """Creates a warehouse; with `soft`, deleted tables keep their locations; `also` are further locations."""
        self.base = base
        self._places = (base, *also)
        self.soft = soft
        self.spaces: dict[Levels, Space] = {}
        self.deleted: list[Json] = []  # The tables that could be restored

    def plant_namespace(self, levels: Sequence[str], properties: Mapping[str, str]) -> Space:
        for depth in range(1, len(levels) + 1):
            some = tuple(levels[:depth])
            defaults = {"location": self.base, "namespace_id": str(uuid4())}
            self.spaces.setdefault(fold(some), Space(some, defaults))
        self.spaces[fold(levels)].properties.update(properties)
        return self.spaces[fold(levels)]

    def space(self, levels: Levels) -> Space:
        if (space := self.spaces.get(fold(levels))) is None:
            raise no_namespace(levels)
        return space

    def children(self, parent: Levels) -> list[Levels]:
        """Returns the namespaces directly below one, oldest first, as they are stored."""
        stored = self.space(parent).levels if parent else ()
        below = [space.levels for key, space in self.spaces.items() if key[:-1] == fold(parent)]
        return [(*stored, levels[-1]) for levels in below]

    def create_namespace(self, levels: Levels, properties: Mapping[str, str]) -> Space:
        _check_levels(levels)
        _check_characters(*levels, *properties.values())
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
        given = {key: value for key, value in properties.items() if key != "namespace_id"}
        if (place := given.get("location")) is not None:
            if "://" not in place:
                raise Refusal(400, "ConfigLocationParseError", f"Cannot parse the location {place}")
            self._check_place(place)
            given["location"] = f"{place.rstrip('/')}/"
        return self.plant_namespace(levels, given)

    def drop_namespace(self, levels: Levels, *, recursive: bool, force: bool) -> None:
        space, key = self.space(levels), fold(levels)
        if recursive:
            if self.soft and not force:
                message = "Cannot recursively delete a namespace of a warehouse with soft deletion without force"
                raise Refusal(400, "NamespaceDeleteNotAllowed", message)
            self.deleted = [table for table in self.deleted if table["space"][: len(key)] != key]
            self.spaces = {other: it for other, it in self.spaces.items() if other[: len(key)] != key}
            return
        deleted = [table for table in self.deleted if table["space"] == key]
        children = self.children(levels)
        if space.tables or space.iceberg or children or deleted:
            present = len(space.tables) + len(space.iceberg)
            raise NotEmpty(levels, present, len(deleted), len(children))
        del self.spaces[key]

    def table(self, levels: Levels, name: str) -> Json:
        space = self.space(levels)
        if fold_name(name) not in space.tables:
            raise no_table()
        return space.tables[fold_name(name)]

    def create_table(self, levels: Levels, body: Json) -> Json:
        space, name = self.space(levels), body["name"]
        _check_characters(name, *(body.get("properties") or {}).values())
        if (place := body.get("base-location")) is not None:
            if not place or re.search(r"//|/\.\.?(/|$)|[?#]", place.partition("://")[2]):
                raise Refusal(400, "InvalidTableLocation", f"Provided location {place} is not valid.")
            self._check_place(place.rstrip("/"), "InvalidTableLocation")
            self._check_location(place.rstrip("/"))
        if fold_name(name) in space.tables or fold_name(name) in space.iceberg:
            raise Refusal(409, "GenericTableAlreadyExists", "Generic table already exists")
        return self.plant_table(levels, body)

    def plant_table(self, levels: Levels, body: Json) -> Json:
        """Adds a table at a location that another one may have, as if both had been created at the same time."""
        identity = str(uuid4())
        place = (body.get("base-location") or f"{self.base}/{identity}").rstrip("/")
        fields = {key: body[key] for key in ("doc", "properties", "schema", "statistics") if body.get(key) is not None}
        table = {"name": body["name"], "format": body["format"], "base-location": place, "protected": False, **fields}
        tables = self.space(levels).tables
        tables[fold_name(body["name"])] = {**table, "id": identity, "space": fold(levels)}
        return tables[fold_name(body["name"])]

    def drop_table(self, levels: Levels, name: str, *, force: bool) -> None:
        table = self.table(levels, name)
        if table["protected"] and not force:
            message = "Cannot delete protected tabular without force flag"
            raise Refusal(409, "ProtectedTabularDeletionWithoutForce", message)
        if self.soft and not force:
            self.deleted.append(table)
        del self.space(levels).tables[fold_name(name)]

    def levels(self, table: Json) -> Levels:
        """Returns the namespace of a table, as it is stored."""
        return self.spaces[table["space"]].levels

    def undrop(self, ids: Sequence[str]) -> None:
        """Restores deleted tables under their names; those that are not deleted are left unchanged."""
        tables = {it["id"]: it for it in (*self.deleted, *(t for s in self.spaces.values() for t in s.tables.values()))}
        if not tables.keys() >= set(ids):
            raise no_table()
        for table in [it for it in self.deleted if it["id"] in ids]:
            space, name = self.spaces[table["space"]], fold_name(table["name"])
            if name in space.tables or name in space.iceberg:
                message = "Tabular with the same name already exists in the namespace"
                raise Refusal(409, "AlreadyExistsException", message)
            self.deleted.remove(table)
            space.tables[name] = table

    def rename(self, source: tuple[Levels, str], destination: tuple[Levels, str]) -> None:
        """Renames a table; another spelling of its own name counts as a change, too. A name that is taken, also by a
        deleted table, is reported as a missing table, and so is that of the table itself if its namespace is spelled
        otherwise."""
        self.space(source[0])
        table = self.table(*source)
        target = self.space(destination[0])
        if source == destination:
            return
        new = fold_name(destination[1])
        own = table if source[0] == destination[0] else None
        is_deleted = any((it["space"], fold_name(it["name"])) == (fold(destination[0]), new) for it in self.deleted)
        if target.tables.get(new, own) is not own or new in target.iceberg or is_deleted:
            raise no_table()
        del self.space(source[0]).tables[fold_name(source[1])]
        target.tables[new] = table
        table |= {"name": destination[1], "space": fold(destination[0])}

    def _check_place(self, place: str, kind: str = "InvalidLocation") -> None:
        if place.rstrip("/") == self.base:
            raise Refusal(400, "InvalidLocation", f"Provided location {place} is not valid for this warehouse.")
        if not any(f"{place}/".startswith(f"{root}/") for root in self._places):
            kind = "InvalidLocation" if place.startswith("s3://") else kind
            raise Refusal(400, kind, f"Provided location {place} is not valid for this warehouse.")

    def _check_location(self, place: str) -> None:
        locations = [table["base-location"] for space in self.spaces.values() for table in space.tables.values()]
        for other in (*locations, *(table["base-location"] for table in self.deleted)):
            if f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/"):
                raise Refusal(409, "LocationAlreadyTaken", f"Location is already taken by another tabular: '{place}'")


class NotEmpty(Refusal):
    """The error for a namespace with content, whose stack counts it."""

    def __init__(self, levels: Levels, tables: int, deleted: int, namespaces: int) -> None:
        super().__init__(409, "NamespaceNotEmptyException", f"Namespace with name '{'.'.join(levels)}' is not empty.")
        kind = "tables/views/generic tables"
        self._stack = f"Contains {tables} {kind}, {deleted} soft-deleted {kind}, 0 tasks and {namespaces} namespaces."

    def answer(self, *, typed: bool = True, stack: bool = False) -> Answer:
        error = {"message": str(self), "type": self.type, "code": self.status, "stack": [self._stack]}
        return Answer.of({"error": error}, self.status)


def no_namespace(levels: Levels) -> Refusal:
    message = f"Namespace with name '{'.'.join(levels)}' does not exist in warehouse"
    return Refusal(404, "NoSuchNamespaceException", message)


def no_table() -> Refusal:
    """Returns the error for a missing table, or one that the principal may not see."""
    return Refusal(404, "NoSuchGenericTableException", "Error getting tabular from catalog")


def _check_characters(*values: str) -> None:
    if any("\0" in value for value in values):
        raise Refusal(503, "CatalogBackendError", "invalid byte sequence for encoding UTF8: 0x00")


def _check_levels(levels: Levels) -> None:
    if len(levels) > MAX_DEPTH:
        raise Refusal(400, "NamespaceDepthExceeded", f"Namespace exceeds maximum depth of {MAX_DEPTH}")
    check_parts(levels)


def check_parts(levels: Levels) -> None:
    if any("." in level for level in levels):
        raise Refusal(400, "NamespacePartContainsDot", "Namespace parts cannot contain '.'")
    if not levels or "" in levels:
        raise Refusal(400, "NamespacePartEmpty", "Namespace parts cannot be empty")


B = TypeVar("B", bound=BaseModel)


class Unread(Exception):
    """A refusal by the web framework, as text without an error object."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def answer(self) -> Answer:
        return Answer(self.status, str(self).encode(), {"Content-Type": "text/plain; charset=utf-8"})


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, populate_by_name=True)


class NewNamespace(_Body):
    namespace: list[str]
    properties: dict[str, str] | None = None


class NewTable(_Body):
    name: str
    format: Annotated[str, Field(min_length=1)]
    base_location: Annotated[str | None, Field(alias="base-location")] = None
    doc: str | None = None
    properties: dict[str, str] = {}
    schema_: Annotated[Any, Field(alias="schema")] = None
    statistics: Any = None


class Change(_Body):
    updates: dict[str, str] = {}
    removals: list[str] = []


class Ident(_Body):
    namespace: list[str]
    name: str


class Target(_Body):
    id: Annotated[UUID, Field(strict=False)]
    type: Literal["generic-table"]


class Undrop(_Body):
    targets: list[Target]


class Rename(_Body):
    source: Ident
    destination: Ident


def read(kind: type[B], request: Received) -> B:
    if not request.headers.get("Content-Type", "").startswith("application/json"):
        raise Unread(415, "Expected request with `Content-Type: application/json`")
    try:
        value = request.json
    except ValueError:
        raise Unread(400, "Failed to parse the request body as JSON") from None
    if not request.body:
        raise Unread(400, "Failed to parse the request body as JSON: EOF while parsing a value")
    try:
        return kind.model_validate(value)
    except ValidationError as e:
        message = f"Failed to deserialize the JSON body into the target type: {e.errors()[0]['msg']}"
        raise Unread(422, message) from None


def flag(params: Mapping[str, str], name: str) -> bool:
    if (text := params.get(name, "false")) not in ("true", "false"):
        raise Unread(400, f"Failed to deserialize query string: {name}: provided string was not `true` or `false`")
    return text == "true"


def page_size(params: Mapping[str, str], default: int) -> int:
    try:
        return max(1, int(params.get("pageSize") or default))
    except ValueError:
        raise Unread(400, "Failed to deserialize query string: pageSize: invalid digit found in string") from None
