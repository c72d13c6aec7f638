"""The users, catalogs, schemas, tables and further objects of a Unity Catalog server in memory."""

from __future__ import annotations

import json
import shutil
import time
import zlib
from bisect import bisect_right, insort
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from tests.fakes.server import Received
from tests.fakes.unity.checks import forbidden, internal, unauthenticated

Json = dict[str, Any]
T = TypeVar("T")
Key = tuple[int, bytes]


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class NamedObjects(Generic[T]):
    """Objects by name, listed in the byte order of their names or in an arbitrary order. Two concurrent requests may
    create objects with the same name. Such tables can only be listed; of such schemas, the server uses the first one it
    finds."""

    def __init__(self, kind: str, *, shuffled: bool = False) -> None:
        self.kind = kind
        self._shuffled = shuffled
        self._entries: dict[str, list[T]] = {}
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._entries)

    def like(self, kind: str) -> NamedObjects[Any]:
        """Returns an empty collection for another kind, listed in the same order."""
        return NamedObjects(kind, shuffled=self._shuffled)

    def names(self) -> list[str]:
        """Returns each name once; raises an error for duplicates."""
        for name in self._entries:
            self.find(name)
        return list(self._entries)

    def find(self, name: str) -> T | None:
        """Returns the object with a name; raises an error if there are two tables."""
        entries = self._entries.get(name)
        if entries is None:
            return None
        if len(entries) > 1 and self.kind != "Schema":
            raise internal(
                f"org.hibernate.NonUniqueResultException: Query did not return a unique result: {len(entries)} "
                "results were returned"
            )
        return entries[0]

    def one(self, name: str) -> T:
        result = self.find(name)
        assert result is not None
        return result

    def put(self, name: str, entry: T) -> None:
        self._entries.setdefault(name, []).append(entry)
        insort(self._keys, self._key(name))

    def move(self, name: str, new: str) -> None:
        entry = self.one(name)
        self.remove(name)
        self.put(new, entry)

    def remove(self, name: str) -> None:
        self._keys.remove(self._key(name))
        entries = self._entries[name]
        del entries[0]
        if not entries:
            del self._entries[name]

    def after(self, name: str | None, count: int) -> list[tuple[str, T]]:
        start = 0 if name is None else bisect_right(self._keys, self._key(name))
        result: list[tuple[str, T]] = []
        for key in dict.fromkeys(self._keys[start : start + count]):
            text = key[1].decode()
            result += [(text, entry) for entry in self._entries[text]]
        return result[:count]

    def _key(self, name: str) -> Key:
        raw = name.encode()
        return (zlib.crc32(raw) if self._shuffled else 0), raw


@dataclass(slots=True)
class TableRow:
    """A table in the form of responses, encoded once for each form."""

    info: Json
    _written: dict[tuple[bool, bool], bytes] = field(default_factory=dict)

    def change(self, **fields: Any) -> None:
        self.info.update(fields)
        self._written.clear()

    def text(self, *, columns: bool = True, properties: bool = True) -> bytes:
        form = (columns, properties)
        written = self._written.get(form)
        if written is None:
            left: Json = ({} if columns else {"columns": []}) | ({} if properties else {"properties": {}})
            written = self._written[form] = compact({**self.info, **left})
        return written


@dataclass(slots=True)
class AssetRow:
    """A volume, a function or a model in the form of responses."""

    info: Json

    def text(self) -> bytes:
        return compact(self.info)


@dataclass(slots=True)
class SchemaRow(AssetRow):
    """A schema in the form of responses, and its tables."""

    tables: NamedObjects[TableRow]
    assets: dict[str, NamedObjects[Any]]  # Volumes, functions and models by the paths of their listings


@dataclass(slots=True)
class CatalogRow(AssetRow):
    """A catalog in the form of responses, and its schemas."""

    schemas: NamedObjects[SchemaRow]


def catalog_info(name: str, properties: Json, comment: Any = None) -> Json:
    return {
        "name": name,
        "comment": comment,
        "properties": properties,
        **made(),
        "id": str(uuid4()),
        "storage_root": None,
        "storage_location": None,
    }


def schema_info(catalog: str, name: str, properties: Json, comment: Any = None, root: str | None = None) -> Json:
    """Returns a new schema; managed tables are in a folder below its root."""
    id = str(uuid4())
    return {
        "name": name,
        "catalog_name": catalog,
        "comment": comment,
        "properties": properties,
        "full_name": f"{catalog}.{name}",
        **made(),
        "schema_id": id,
        "storage_root": root,
        "storage_location": None if root is None else f"{root}/__unitystorage/schemas/{id}",
    }


def table_info(body: Json, location: str, properties: Json | None, columns: list[Json] | None) -> Json:
    """Returns a new table; responses do not contain its full name."""
    return {
        "name": body["name"],
        "catalog_name": body["catalog_name"],
        "schema_name": body["schema_name"],
        "table_type": body["table_type"],
        "data_source_format": body.get("data_source_format"),
        "columns": columns,
        "storage_location": location,
        "comment": body.get("comment"),
        "properties": properties,
        **made(),
        "table_id": str(uuid4()),
        "view_definition": None,
        "view_dependencies": None,
    }


def made() -> Json:
    now = int(time.time() * 1000)
    return {"owner": None, "created_at": now, "created_by": None, "updated_at": now, "updated_by": None}


KINDS = {"volumes": "Volume", "functions": "Function", "models": "Registered_model"}
"""The last segment of a listing's path, and the kind of the listed objects."""


def volume(catalog: str, schema: str, name: str, kind: str, location: str) -> AssetRow:
    own: Json = {"volume_id": str(uuid4()), "volume_type": kind, "storage_location": location}
    return AssetRow({**_named(catalog, schema, name), **own})


def function(catalog: str, schema: str, name: str) -> AssetRow:
    own: Json = {"function_id": str(uuid4()), "data_type": "INT", "routine_body": "EXTERNAL"}
    return AssetRow({**_named(catalog, schema, name), **own})


def model(catalog: str, schema: str, name: str, location: str) -> AssetRow:
    """Returns a new registered model, whose versions have their files under its location."""
    return AssetRow({**_named(catalog, schema, name), "id": str(uuid4()), "storage_location": location})


def delete_directory(location: str) -> None:
    """Deletes a local directory, as the server does with managed data; a missing one is not an error."""
    if location.startswith("file:"):
        shutil.rmtree(unquote(urlsplit(location).path), ignore_errors=True)


def _named(catalog: str, schema: str, name: str) -> Json:
    full_name = f"{catalog}.{schema}.{name}"
    return {"name": name, "catalog_name": catalog, "schema_name": schema, "full_name": full_name, **made()}


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    grants: frozenset[str] | None = None  # Full names of the only tables that the user may read; None for all rights

    def sees(self, full_name: str) -> bool:
        """Returns whether listings contain a table, or a schema or catalog of such tables."""
        if self.grants is None:
            return True
        return any(grant == full_name or grant.startswith(f"{full_name}.") for grant in self.grants)

    def check(self, full_name: str) -> None:
        if not self.sees(full_name):
            raise forbidden()

    @property
    def is_authorized(self) -> bool:
        return self is not EVERYBODY

    def check_owner(self) -> None:
        if self.grants is not None:
            raise forbidden()


EVERYBODY = User()


class Access:
    """The valid tokens of a server; None disables authorization."""

    def __init__(self, tokens: Collection[str] | None) -> None:
        self._users: dict[str, User | None] | None = None if tokens is None else {t: User() for t in tokens}

    def set(self, token: str, user: User | None) -> None:
        """Makes a token valid for a user; None is a user that the catalog does not know."""
        if self._users is None:
            raise ValueError("authorization: off; give a set of tokens, which may be empty")
        self._users[token] = user

    def expire(self) -> None:
        if self._users is not None:
            self._users.clear()

    def user(self, request: Received) -> User:
        if self._users is None:
            return EVERYBODY
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer":
            raise unauthenticated("No authorization found.")
        if token not in self._users:
            raise unauthenticated("Invalid access token.")
        user = self._users[token]
        if user is None:
            raise forbidden(f"User not allowed: {token}")
        return user
