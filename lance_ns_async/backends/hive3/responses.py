"""Decoders of a Hive Metastore's responses, the codes of its exceptions, and their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import lance_namespace.errors as err
from lance_namespace.errors import ConcurrentModificationError, UnsupportedOperationError

from lance_ns_async.backends.hive3 import locations
from lance_ns_async.backends.hive3.wire import OWNER_TYPES, AlterTable, HiveCatalog, HiveDatabase, table_parameters
from lance_ns_async.backends.shared import registrations, response_checks
from lance_ns_async.errors import COMMON_ERRORS, Code, ErrorTable, error_about, not_lance
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.transports.thrift.binary import struct_field, text, text_pairs
from lance_ns_async.transports.thrift.decoder import Decoder, fields_of, struct_in

INTERNAL_PARAMETERS = frozenset(
    {
        "COLUMN_STATS_ACCURATE",
        "DO_NOT_UPDATE_STATS",
        "EXTERNAL",
        registrations.KEY,
        "numFiles",
        "numFilesErasureCoded",
        "numRows",
        "rawDataSize",
        "totalSize",
        "transient_lastDdlTime",
    }
)
"""Parameters of tables for internal use; responses omit them, and declarations may not contain them."""

_LAST_CHANGE = "transient_lastDdlTime"  # The parameter with the time of the last change, in seconds.

DESCRIPTION, LOCATION = "database.description", "database.location-uri"
OWNER, OWNER_TYPE = "database.owner", "database.owner-type"
"""Properties of databases that the spec keeps outside of their parameters."""

_FILLED_IN = frozenset({LOCATION, OWNER, OWNER_TYPE})
"""Of these, the properties that a server sets if a client does not."""

CATALOG_DESCRIPTION, CATALOG_LOCATION = "description", "catalog.location.uri"
"""The properties of catalogs, which have no others."""

INCOMPARABLE = "Incomparable"
"""Code of this package for a metastore whose database cannot compare parameters of tables."""

_EXCEPTION_CODES: Sequence[tuple[str, re.Pattern[str], Code]] = tuple(
    (f"{name}Exception", re.compile(pattern), code)
    for name, pattern, code in (
        ("NoSuchObject", r"table not found$", "NoSuchTable"),
        ("NoSuchObject", r"^(database )?[^ ]+$", "NoSuchDatabase"),
        ("InvalidObject", r"^No such catalog|^(database )?[^ ]+$", "NoSuchDatabase"),
        ("InvalidOperation", r"already exists$", "TableExists"),
        ("InvalidOperation", r"table not found$|^table .+ doesn't exist", "NoSuchTable"),
        ("InvalidOperation", r"does(n't| not) exist", "NoSuchDatabase"),
        ("InvalidOperation", r"is not empty|still objects|non-default databases", "NotEmpty"),
        ("Meta", r"(?i)duplicate (key|entry)|unique (key )?constraint", "Duplicate"),
        ("Meta", r"NullPointerException.*\"db\" is null", "NoSuchDatabase"),
        ("Meta", r"Permission denied|AccessControl|AccessDenied|not authorized", "Denied"),
        ("Meta", r"^Can not drop ", "Unacceptable"),
        ("Meta", r"No FileSystem for scheme|ClassNotFoundException|URISyntaxException", "Unacceptable"),
        ("Meta", r"is not a directory|Unable to create database path", "Unacceptable"),
        ("Meta", r"Attempt to store value", "Unacceptable"),
        ("Meta", r"Put request failed", "NotStored"),
        ("Meta", r"^The table has been modified", "Replaced"),
        ("Meta", r'Error executing SQL query "update "TABLE_PARAMS"[\s\S]*CLOB', INCOMPARABLE),
    )
)


def read_error(name: str, message: str) -> tuple[Code, ...]:
    """Returns the codes of an exception by its message; empty if its name is precise enough."""
    return tuple(code for exception, pattern, code in _EXCEPTION_CODES if exception == name and pattern.search(message))


def catalogs(result: Any) -> list[str]:
    """Returns the names of the catalogs in a response."""
    return names(result[1])


def catalog(result: Any) -> HiveCatalog:
    """Returns the catalog in a response."""
    fields = result[1]
    return HiveCatalog(response_checks.text(fields[1]), response_checks.text(fields[3]), optional_text(fields, 2))


def catalog_properties(catalog: HiveCatalog) -> dict[str, str]:
    """Returns the properties of a catalog."""
    description = {} if catalog.description is None else {CATALOG_DESCRIPTION: catalog.description}
    return {**description, CATALOG_LOCATION: locations.from_hive(catalog.location)}


def database(result: Any) -> HiveDatabase:
    """Returns the database in a response."""
    kind = result.get(7)
    if not isinstance(kind, int | None):
        raise TypeError(f"{type(kind).__name__} instead of a number")
    return HiveDatabase(
        parameters=response_checks.texts(result.get(4)),
        description=optional_text(result, 2),
        location=optional_text(result, 3),
        owner=optional_text(result, 6),
        owner_type=kind,
    )


def database_properties(database: HiveDatabase) -> dict[str, str]:
    """Returns the parameters of a database; its other fields are added as properties if they are not empty."""
    fields = {
        DESCRIPTION: database.description,
        LOCATION: database.location and locations.from_hive(database.location),
        OWNER: database.owner,
        OWNER_TYPE: OWNER_TYPES.get(database.owner_type or 0),
    }
    return {**database.parameters, **{name: value for name, value in fields.items() if value}}


def is_made_of(properties: Mapping[str, str], requested_properties: Mapping[str, str]) -> bool:
    """Returns whether the properties of a namespace are the requested ones; ignores defaults that the server added."""
    comparable = {
        key: value for key, value in properties.items() if key in requested_properties or key not in _FILLED_IN
    }
    place = requested_properties.get(LOCATION)
    if place is not None and locations.is_at(comparable.get(LOCATION, ""), place):
        comparable[LOCATION] = place
    return comparable == requested_properties


def names(result: Any) -> list[str]:
    """Returns the names in a response."""
    if not isinstance(result, list):
        raise TypeError(f"{type(result).__name__} instead of a list of names")
    return [response_checks.text(name) for name in result]


def table(id: TableId, storage_options: Mapping[str, str] | None, result: Any) -> Table:
    """Returns the Lance table in a response."""
    response_checks.check_name(id.name, result[1].get(1))
    return _table(id, storage_options, result[1])


def tables(
    parent: NamespaceId, names: Sequence[str], storage_options: Mapping[str, str] | None, result: Any
) -> dict[str, Table]:
    """Returns the Lance tables in a response by the requested names; a response has each table once, in any order."""
    by_name = {one[1]: one for one in result[1] if _is_lance(one)}
    return {
        name: _table(parent.table(name), storage_options, by_name[name.lower()])
        for name in names
        if name.lower() in by_name
    }


def lance_names(result: Any) -> list[str]:
    """Returns the names of the Lance tables in a response."""
    return [response_checks.text(one[1]) for one in result[1] if _is_lance(one)]


def renaming(id: TableId, to: TableId, result: bytes) -> AlterTable:
    """Returns the table in a response with another name; other fields stay, also unknown ones."""
    body = struct_in(fields_of(struct_in(fields_of(result)[0]))[1])
    decoder = Decoder({4: None, 9: None, 12: None, 25: None})
    decoder.feed(body)
    if (kind := decoder.fields.get(12)) != "EXTERNAL_TABLE":
        raise UnsupportedOperationError(
            f"Not supported: rename_table of {id}: the metastore would move its data, because its type is {kind}; "
            "deregister the table and register it by its new name"
        )
    fields = fields_of(body)
    fields[1] = text(1, to.name.lower())
    fields[2] = text(2, to.parent.name.lower())
    parameters = response_checks.texts(decoder.fields.get(9))
    fields[9] = text_pairs(9, table_parameters(registrations.with_new_change(parameters)))
    return _change(decoder.fields, fields)


def replacement(old: Table, location: str, properties: Mapping[str, str], result: bytes) -> AlterTable:
    """Returns the table of a response with another location and other parameters.

    All other fields are unchanged, including unknown ones, and so are the parameters in `INTERNAL_PARAMETERS`.
    """
    body = struct_in(fields_of(struct_in(fields_of(result)[0]))[1])
    decoder = Decoder({1: None, 4: None, 7: {2: None}, 9: None, 12: None, 25: None})
    decoder.feed(body)
    _check_same(old, decoder.fields)
    if (kind := decoder.fields.get(12)) != "EXTERNAL_TABLE":
        raise UnsupportedOperationError(
            f"Not supported: replacing {old.id}: its type is {kind}, so the metastore may move or delete its data; "
            "deregister the table and register it again"
        )
    fields = fields_of(body)
    storage = fields_of(struct_in(fields[7]))
    if location != old.location:
        # The stored spelling of an unchanged location stays.
        storage[2] = text(2, location)
    fields[7] = struct_field(7, *storage.values())
    own = {
        key: value for key, value in response_checks.texts(decoder.fields.get(9)).items() if key in INTERNAL_PARAMETERS
    }
    fields[9] = text_pairs(9, table_parameters(registrations.with_new_change({**own, **properties})))
    return _change(decoder.fields, fields)


def as_external(old: Table, result: bytes) -> AlterTable:
    """Returns the table in a response as an external table; all other fields stay."""
    body = struct_in(fields_of(struct_in(fields_of(result)[0]))[1])
    decoder = Decoder({1: None, 4: None, 7: {2: None}, 9: None, 25: None})
    decoder.feed(body)
    _check_same(old, decoder.fields)
    fields = fields_of(body)
    parameters = response_checks.texts(decoder.fields.get(9))
    fields[9] = text_pairs(9, table_parameters(registrations.with_new_change(parameters)))
    fields[12] = text(12, "EXTERNAL_TABLE")
    return _change(decoder.fields, fields)


def _change(decoded: Any, fields: Mapping[int, bytes]) -> AlterTable:
    parameters = response_checks.texts(decoded.get(9))
    expected = next(((key, parameters[key]) for key in (registrations.KEY, _LAST_CHANGE) if key in parameters), None)
    return AlterTable(struct_field(3, *fields.values()), expected, (decoded.get(4), decoded.get(25)))


def creation(result: Any) -> tuple[int | None, int | None]:
    """Returns the time of the creation of a table, and from Hive 4 its number."""
    return result[1].get(4), result[1].get(25)


def _check_same(old: Table, fields: Any) -> None:
    there = _table(old.id, None, fields)
    if (there.registration, there.location) != (old.registration, old.location):
        raise error_about(ConcurrentModificationError, old.id, "another client replaced it meanwhile")


def visible_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    """Returns the parameters of a table without those for internal use."""
    return {key: value for key, value in parameters.items() if key not in INTERNAL_PARAMETERS}


def optional_text(fields: Any, field: int) -> str | None:
    """Returns the text of a field; None if it is missing."""
    return None if (value := fields.get(field)) is None else response_checks.text(value)


def _is_lance(fields: Any) -> bool:
    kind: str = fields.get(9, {}).get("table_type", "")
    return kind.lower() == "lance"


def _table(id: TableId, storage_options: Mapping[str, str] | None, fields: Any) -> Table:
    parameters = response_checks.texts(fields.get(9))
    if not _is_lance(fields):
        kind = parameters.get("table_type")
        reason = f"its table_type is {kind!r}" if kind else "it has no parameter table_type"
        raise not_lance(id, reason)
    return Table(
        id,
        locations.from_hive(response_checks.text(fields[7][2])),
        visible_parameters(parameters),
        storage_options,
        # Since 4.0, tables have numbers; older metastores only store the second of the creation.
        registration=registrations.identity(parameters, fields.get(4), fields.get(25)),
        is_owned=parameters.get("EXTERNAL", "").lower() != "true",
    )


ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "unauthenticated": err.UnauthenticatedError,
    "UNKNOWN_METHOD": err.UnsupportedOperationError,
    "NoSuchDatabase": err.NamespaceNotFoundError,
    "NoSuchTable": err.TableNotFoundError,
    "TableExists": err.TableAlreadyExistsError,
    ("Duplicate", "namespace"): err.NamespaceAlreadyExistsError,
    ("Duplicate", "table"): err.TableAlreadyExistsError,
    "NotEmpty": err.NamespaceNotEmptyError,
    "Denied": err.PermissionDeniedError,
    "Unacceptable": err.InvalidInputError,
    "NotStored": err.InvalidInputError,
    "Replaced": err.ConcurrentModificationError,
    "Incomparable": err.InternalError,
    # The lengths were checked before the call, so another client removed the table during it.
    ("NotStored", "replace_table"): err.ConcurrentModificationError,
    "UnknownDBException": err.NamespaceNotFoundError,
    ("NoSuchObjectException", "namespace"): err.NamespaceNotFoundError,
    ("NoSuchObjectException", "declare_table"): err.NamespaceNotFoundError,
    ("AlreadyExistsException", "namespace"): err.NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "table"): err.TableAlreadyExistsError,
    "InvalidObjectException": err.InvalidInputError,
    "InvalidOperationException": err.InvalidInputError,
    "MetaException": err.InternalError,
}
