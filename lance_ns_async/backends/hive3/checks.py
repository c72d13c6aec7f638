"""Checks of names, locations and properties, which a Hive Metastore rejects after up to 20 seconds or misinterprets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.backends.hive3.locations import path, to_hive
from lance_ns_async.backends.hive3.responses import (
    CATALOG_DESCRIPTION,
    CATALOG_LOCATION,
    DESCRIPTION,
    INTERNAL_PARAMETERS,
    LOCATION,
    OWNER,
    OWNER_TYPE,
)
from lance_ns_async.backends.hive3.wire import OWNER_TYPES, HiveCatalog, HiveDatabase
from lance_ns_async.model import Id, NamespaceId, TableId

_NAME = re.compile(r"[A-Za-z0-9_]+")
_MAX_CATALOG_LENGTHS = (256,)
_MAX_DATABASE_LENGTHS = (*_MAX_CATALOG_LENGTHS, 128)
_MAX_TABLE_LENGTHS = (*_MAX_DATABASE_LENGTHS, 256)
_ABSOLUTE = re.compile(r"/(?!/)|[A-Za-z][A-Za-z0-9+.-]*:/")
_WITH_HOST = re.compile(r"file://[^/]")
_IGNORED_SEGMENTS = frozenset({"", ".", ".."})
_MAX_LOCATION_LENGTH = 4000
_MAX_KEY_LENGTH = 256
_MAX_DATABASE_KEY_LENGTH = 180
_MAX_DATABASE_VALUE_LENGTH = 4000
_MAX_OWNER_LENGTH = 128


def check_new_table(id: TableId) -> None:
    """Raises InvalidInputError if not all metastores accept the names of a new table."""
    _check_new(id, _MAX_TABLE_LENGTHS)


def _check_new(id: Id, longest_names: Sequence[int]) -> None:
    """Raises InvalidInputError if not all metastores accept the names of an id.

    Args:
        longest_names: The maximum length of each name; without catalogs, the id begins at the second.
    """
    for name, longest in zip(id, longest_names[-len(id) :], strict=True):
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"{id.kind} id {list(id)!r}: the name {name!r} is invalid; use letters A to Z, digits and _"
            )
        if len(name) > longest:
            raise InvalidInputError(
                f"{id.kind} id {list(id)!r}: the name {name!r} has {len(name)} characters; at most {longest}"
            )


def check_findable(id: Id) -> None:
    """Raises the error for a missing object if a server would interpret the id as that of another object."""
    parent = id.parent if isinstance(id, TableId) else NamespaceId(id)
    for level, name in enumerate(parent):
        # Calls contain a database as @catalog#name, in which a # or ! at the end means no database.
        if not findable(name) or ("#" in name if level == 0 else name.endswith(("#", "!"))):
            raise NamespaceNotFoundError(f"Namespace not found: {ascii(str(parent))[1:-1]} ({_no_name(name)})")
    if isinstance(id, TableId) and not findable(id.name):
        raise TableNotFoundError(f"Table not found: {ascii(str(id))[1:-1]} ({_no_name(id.name)})")


def findable(name: str) -> bool:
    """Returns whether a server searches for exactly this name; it removes blanks at the ends."""
    return name.isprintable() and name == name.strip()


def _no_name(name: str) -> str:
    return f"no metastore can have the name {name!a}"


def check_declaration(id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
    """Raises InvalidInputError for a table that a server would reject."""
    check_new_table(id)
    what = f"table {id}"
    if location is not None:
        _check_location(what, location)
    _check_sizes(what, properties, _MAX_KEY_LENGTH, None)
    if internal := sorted(INTERNAL_PARAMETERS.intersection(properties)):
        raise InvalidInputError(f"{what}: reserved for the metastore: {', '.join(internal)}; omit them")
    if (kind := properties.get("table_type", "lance")).lower() != "lance":
        raise InvalidInputError(f"{what}: table_type={kind!r} is not supported; only 'lance' is")
    if (managed_by := properties.get("managed_by", "storage")).lower() != "storage":
        raise InvalidInputError(
            f"{what}: managed_by={managed_by!r} is not supported; only 'storage' is, where Lance commits versions"
        )


def new_catalog(id: NamespaceId, properties: Mapping[str, str], default: str) -> HiveCatalog:
    """Returns the catalog to create; at `default` if the properties contain no location."""
    _check_new(id, _MAX_CATALOG_LENGTHS)
    what = f"namespace {id}"
    if unknown := [key for key in properties if key not in (CATALOG_DESCRIPTION, CATALOG_LOCATION)]:
        raise InvalidInputError(
            f"{what}: {', '.join(unknown)}: a catalog can store only {CATALOG_DESCRIPTION} and {CATALOG_LOCATION}; "
            "databases can store any property"
        )
    _check_sizes(what, properties, _MAX_DATABASE_KEY_LENGTH, _MAX_DATABASE_VALUE_LENGTH)
    location = properties.get(CATALOG_LOCATION, default)
    _check_location(what, location)
    return HiveCatalog(id.name, to_hive(location), properties.get(CATALOG_DESCRIPTION))


def new_database(id: NamespaceId, properties: Mapping[str, str]) -> HiveDatabase:
    """Returns the database to create."""
    _check_new(id, _MAX_DATABASE_LENGTHS)
    what = f"namespace {id}"
    _check_sizes(what, properties, _MAX_DATABASE_KEY_LENGTH, _MAX_DATABASE_VALUE_LENGTH)
    parameters = dict(properties)
    description, location = parameters.pop(DESCRIPTION, None), parameters.pop(LOCATION, None)
    owner, owner_type = parameters.pop(OWNER, None), parameters.pop(OWNER_TYPE, None)
    if location is not None:
        _check_location(what, location)
        location = to_hive(location)
    if owner is not None and len(owner) > _MAX_OWNER_LENGTH:
        raise InvalidInputError(f"{what}: {OWNER} has {len(owner)} characters; at most {_MAX_OWNER_LENGTH}")
    owner_types = {name: number for number, name in OWNER_TYPES.items()}
    if owner_type is not None and owner_type.upper() not in owner_types:
        raise InvalidInputError(f"{what}: {OWNER_TYPE}={owner_type!r} is unknown; use one of {', '.join(owner_types)}")
    return HiveDatabase(
        parameters, description, location, owner, None if owner_type is None else owner_types[owner_type.upper()]
    )


def _check_location(what: str, location: str) -> None:
    if not _ABSOLUTE.match(location):
        raise InvalidInputError(f"{what}: its location {location!r} is relative; give an absolute URI or path")
    if len(location) > _MAX_LOCATION_LENGTH:
        raise InvalidInputError(f"{what}: its location has {len(location)} characters; at most {_MAX_LOCATION_LENGTH}")
    if _WITH_HOST.match(location) or _IGNORED_SEGMENTS.intersection(path(to_hive(location)).split("/")[1:]):
        raise InvalidInputError(
            f"{what}: its location {location!r} would be stored in another form; give it without '//', '.' and '..' in "
            "its path, and without a host in a file URI"
        )
    _check_encodable(what, "its location", location)


def _check_sizes(what: str, properties: Mapping[str, str], longest_key: int, longest_value: int | None) -> None:
    for key, value in properties.items():
        if len(key) > longest_key:
            raise InvalidInputError(
                f"{what}: the property {key[:40]!r}... has a key of {len(key)} characters; at most {longest_key}"
            )
        if longest_value is not None and len(value) > longest_value:
            raise InvalidInputError(
                f"{what}: the property {key!r} has {len(value)} characters; at most {longest_value}"
            )
        _check_encodable(what, f"the property {key!r}", key + value)


def _check_encodable(what: str, part: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise InvalidInputError(f"{what}: {part} cannot be written as UTF-8") from e
