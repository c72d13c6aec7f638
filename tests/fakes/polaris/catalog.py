"""The catalogs of a Polaris server in memory: namespaces, generic tables, names of Iceberg tables; and its errors."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from tests.fakes.http import Refusal
from tests.fakes.server import Answer

ERROR_TYPES = {
    400: "IllegalArgumentException",
    403: "ForbiddenException",
    404: "NotFoundException",
    405: "NotAllowedException",
    406: "NotAcceptableException",
    409: "AlreadyExistsException",
    415: "NotSupportedException",
    419: "AuthenticationTimeoutException",
    500: "RuntimeException",
}
_CHALLENGES = {401: {"WWW-Authenticate": "Bearer"}}


class Bare(Exception):
    """An error that Polaris sends as a status without a body."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status

    def answer(self) -> Answer:
        return Answer(self.status, b"", {"Content-Encoding": "identity", **_CHALLENGES.get(self.status, {})})


def no_namespace(levels: tuple[str, ...]) -> Refusal:
    """Returns the error for a missing namespace or catalog; dots within and between levels are not distinguished."""
    shown = ".".join(levels) or "''"
    return Refusal(404, "NoSuchNamespaceException", f"Namespace does not exist: {shown}")


def no_table(levels: tuple[str, ...], name: str) -> Refusal:
    """Returns the error for a missing table, or a missing object above it."""
    message = f"Generic table does not exist: {'.'.join((*levels, name))}"
    return Refusal(404, "NoSuchTableException", message)


def refused(message: str) -> Refusal:
    return Refusal(400, "IllegalArgumentException", message)


def exists(message: str) -> Refusal:
    return Refusal(409, "AlreadyExistsException", message)


def no_route(message: str = "Unable to find matching target resource method") -> Refusal:
    return Refusal(404, "NotFoundException", message)


def violated(constraint: str) -> Refusal:
    """Returns the error for a parameter or body that violates a declared constraint."""
    return Refusal(400, "ResteasyReactiveViolationException", constraint)


Strictness = Literal["1.5", "1.6"]  # The first version with these checks
_OUT_OF_URIS = re.compile(r'[\x00-\x20\x7f-\xa0"<>\[\\\]^`{|}]|%(?![0-9a-fA-F]{2})')
_OUT_OF_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|#+`]')


def check_name(name: str, strictness: Strictness | None) -> None:
    """Raises an error for a name that newer servers refuse at creation; the server of 1.4.1 accepts all."""
    if strictness is None:
        return
    strange = "/" in name or name != name.strip() or not name
    if strictness == "1.6":
        strange = strange or name in (".", "..") or _OUT_OF_NAMES.search(name) is not None
    if strange:
        raise refused(f"Invalid identifier name: '{name}'")


def check_uri(location: str, start: int = 0) -> None:
    """Raises an error if a location is not a URI, as far as it is parsed from `start` on."""
    blanks = (i for i, c in enumerate(location) if i >= start and unicodedata.category(c) in ("Zs", "Zl", "Zp"))
    blank = next(blanks, len(location))
    bad = _OUT_OF_URIS.search(location, start, blank)
    if bad or blank < len(location):
        kind = "Malformed escape pair" if bad and bad[0] == "%" else "Illegal character in path"
        raise refused(f"{kind} at index {bad.start() if bad else blank}: {location}")


Levels = tuple[str, ...]
Json = dict[str, Any]


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(slots=True)
class Space:
    """A namespace, or a catalog, which is the namespace without levels."""

    number: int  # Namespaces are numbered in the order of their creation
    levels: Levels
    location: str
    properties: dict[str, str | None]
    children: dict[str, Space] = field(default_factory=dict)
    tables: dict[str, bytes] = field(default_factory=dict)  # The generic tables as the JSON text of responses
    iceberg: set[str] = field(default_factory=set)
    changed: int = -1  # The time at which a request changed the properties


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog as in the management API, and its namespaces."""

    entity: Json
    root: Space

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self.entity["properties"])


class PolarisCatalogs:
    """Catalogs by name; invalid requests raise `Refusal`."""

    def __init__(self, strictness: Strictness | None) -> None:
        self.catalogs: dict[str, Catalog] = {}
        self._strictness = strictness
        self._numbers = count(1)

    def create(self, body: Json) -> Json:
        name = body["name"]
        check_name(name, self._strictness)
        if name in self.catalogs:
            raise exists(f"Cannot create Catalog {name}. Catalog already exists or resolution failed")
        base = body["properties"]["default-base-location"].rstrip("/")
        entity = {
            "type": body.get("type", "INTERNAL"),
            "name": name,
            "properties": body["properties"],
            "createTimestamp": int(time.time() * 1000),
            "lastUpdateTimestamp": 0,
            "entityVersion": 1,
            "storageConfigInfo": body["storageConfigInfo"],
        }
        self.catalogs[name] = Catalog(entity, Space(0, (), f"{base}/", {}))
        return entity

    def find(self, catalog: str, levels: Levels) -> Space | None:
        owner = self.catalogs.get(catalog)
        space = owner.root if owner else None
        for level in levels:
            if space is None:
                return None
            space = space.children.get(level)
        return space

    def space(self, catalog: str, levels: Levels) -> Space:
        space = self.find(catalog, levels)
        if space is None:
            raise no_namespace(levels)
        return space

    def create_namespace(self, parent: Space, level: str, requested: Mapping[str, Any]) -> Space:
        """Returns a new namespace below another, after all checks of the server."""
        shown = ".".join((*parent.levels, level))
        check_name(level, self._strictness)
        if level in parent.children:
            raise exists(f"Cannot create namespace {shown}. Namespace already exists")
        properties = kept(requested)
        if None in properties.values():
            raise refused("Invalid value for property: null")
        location = f"{parent.location}{level}/"
        custom = properties.get("location")
        check_uri(location, len(parent.location))
        self.check_contents(parent)
        for sibling in parent.children.values():
            check_apart(location if custom is None else custom, sibling.location)
        if custom is not None and custom.rstrip("/") != location.rstrip("/"):
            raise refused(
                f"Namespace {shown} has a custom location, which is not enabled. "
                f"Expected a location in: [{location}]. Got location: {custom.rstrip('/')}/]"
            )
        return self.plant_namespace(parent, level, properties)

    def check_contents(self, space: Space) -> None:
        """Raises an error if a table has a local location without a URI: then no new location beside it is possible."""
        for table in space.tables.values():
            place = json.loads(table)["base-location"]
            if place is not None and place.startswith(("file:", "/")):
                check_uri(place)

    def check_table_location(self, space: Space, body: Json) -> None:
        """Raises an error if a new Iceberg table would be at the location of a generic table beside it."""
        location = body.get("location") or f"{space.location}{body.get('name')}"
        for table in space.tables.values():
            if (taken := json.loads(table)["base-location"]) is not None:
                check_apart(location, taken)

    def plant_namespace(self, parent: Space, level: str, properties: Mapping[str, str | None]) -> Space:
        """Creates a namespace if it is missing, whatever its name, and adds these properties."""
        space = parent.children.get(level)
        if space is None:
            location = f"{parent.location}{level}/"
            space = Space(next(self._numbers), (*parent.levels, level), location, {})
            parent.children[level] = space
        space.properties.update({**properties, "location": space.location})
        return space

    def drop_namespace(self, catalog: str, space: Space) -> None:
        if space.children or space.tables or space.iceberg:
            message = f"Namespace {'.'.join(space.levels)} is not empty"
            raise Refusal(409, "NamespaceNotEmptyException", message)
        del self.space(catalog, space.levels[:-1]).children[space.levels[-1]]

    def create_table(self, space: Space, body: Json) -> bytes:
        """Returns the new generic table's JSON; its location is stored unchanged."""
        name = body["name"]
        if not name:
            raise refused("Invalid table name: null or empty")
        check_name(name, self._strictness)
        properties = kept(body.get("properties") or {})
        shown = ".".join((*space.levels, name))
        if name in space.iceberg:
            raise exists(f"Table already exists: {shown}")
        if name in space.tables:
            raise exists(f"Generic table already exists: {shown}")
        return self.plant_table(space, name, {**body, "properties": properties})

    def plant_table(self, space: Space, name: str, fields: Json) -> bytes:
        body = {
            "name": name,
            "format": fields["format"],
            "base-location": fields.get("base-location"),
            "doc": fields.get("doc"),
            "properties": fields["properties"],
        }
        space.tables[name] = compact(body)
        return space.tables[name]

    def table(self, catalog: str, levels: Levels, name: str) -> bytes:
        """Returns a generic table's JSON; the error is that of a missing table, whatever is missing."""
        space = self.find(catalog, levels)
        if space is None or name not in space.tables:
            raise no_table(levels, name)
        return space.tables[name]

    def drop_table(self, catalog: str, levels: Levels, name: str) -> None:
        tables = self.space(catalog, levels).tables
        if name not in tables:
            raise no_table(levels, name)
        del tables[name]


def kept(properties: Mapping[str, Any]) -> dict[str, str | None]:
    """Returns properties as they are stored: scalars become strings, null stays null."""
    for key in properties:
        if key.startswith("polaris."):
            raise refused(f"Property '{key}' matches reserved prefix 'polaris.'")
    return {key: _text(value) for key, value in properties.items()}


def change_properties(space: Space, body: Json, *, arrived: int, now: int) -> Json:
    """Changes the properties of a namespace, unless another request did so since this one arrived."""
    updates, removals = body.get("updates") or {}, body.get("removals") or []
    if both := sorted(set(updates) & set(removals)):
        message = f"Invalid namespace update: cannot simultaneously set and remove keys: {both}"
        raise Refusal(422, "UnprocessableEntityException", message)
    if space.changed >= arrived:
        message = f"Concurrent modification of namespace: {'.'.join(space.levels)}"
        raise Refusal(409, "CommitConflictException", message)
    present = {key: key in space.properties for key in removals}
    for key in removals:
        space.properties.pop(key, None)
    space.properties.update(kept(updates))
    space.changed = now
    return {
        "updated": list(updates),
        "removed": [key for key, is_there in present.items() if is_there],
        "missing": [key for key, is_there in present.items() if not is_there],
    }


def check_apart(location: str, taken: str) -> None:
    """Raises an error if one location is inside the other; repeated slashes count as one."""
    one, other = (_single_slashes(path) for path in (location, taken))
    if not location or one.startswith(other) or other.startswith(one):
        raise Refusal(
            403,
            "ForbiddenException",
            f"Unable to create table at location '{location}' because it conflicts with existing table "
            f"or namespace at location '{taken}'",
        )


def _single_slashes(location: str) -> str:
    scheme, _, path = location.partition("://")
    while "//" in path:
        path = path.replace("//", "/")
    return f"{scheme}://{path.rstrip('/')}/"


def _text(value: Any) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case dict() | list():
            raise Bare(400)
        case _:
            return str(value)
