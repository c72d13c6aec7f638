"""What comes over the wire from a Hive Metastore: what answers and exceptions mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lance_namespace.errors import ConcurrentModificationError, UnsupportedOperationError

from lance_ns_async.backends import registrations, values
from lance_ns_async.backends.hive3 import locations
from lance_ns_async.backends.hive3.wire import OWNER_TYPES, Catalog, Database, table_parameters
from lance_ns_async.errors import PHRASES, Code, not_lance
from lance_ns_async.model import NamespaceId, Table, TableId
from lance_ns_async.transports.thrift.binary import nested, text, text_pairs
from lance_ns_async.transports.thrift.decoder import Decoder, fields_of, struct_in

HIDDEN = frozenset(
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
"""Parameters of tables that metastores keep for themselves: no answer shows them, and no declaration sets them."""

DESCRIPTION, LOCATION = "database.description", "database.location-uri"
OWNER, OWNER_TYPE = "database.owner", "database.owner-type"
"""Properties of databases that the spec keeps outside of their parameters."""

_FILLED_IN = frozenset({LOCATION, OWNER, OWNER_TYPE})
"""Of these, what a server decides where nobody else does."""

CATALOG_DESCRIPTION, CATALOG_LOCATION = "description", "catalog.location.uri"
"""The properties of catalogs, which have no others."""

_TOLD: Sequence[tuple[str, re.Pattern[str], Code]] = tuple(
    (f"{name}Exception", re.compile(pattern), code)
    for name, pattern, code in (
        ("NoSuchObject", r"table not found$", "NoSuchTable"),
        ("NoSuchObject", r"^(database )?[^ ]+$", "NoSuchDatabase"),
        ("InvalidObject", r"^No such catalog|^(database )?[^ ]+$", "NoSuchDatabase"),
        ("InvalidOperation", r"already exists$", "TableExists"),
        ("InvalidOperation", r"table not found$", "NoSuchTable"),
        ("InvalidOperation", r"does(n't| not) exist", "NoSuchDatabase"),
        ("InvalidOperation", r"is not empty|still objects|non-default databases", "NotEmpty"),
        ("Meta", r"(?i)duplicate (key|entry)|unique (key )?constraint", "Duplicate"),
        ("Meta", r"NullPointerException.*\"db\" is null", "NoSuchDatabase"),
        ("Meta", r"Permission denied|AccessControl|AccessDenied|not authorized", "Denied"),
        ("Meta", r"^Can not drop ", "Unacceptable"),
        ("Meta", r"No FileSystem for scheme|ClassNotFoundException|URISyntaxException", "Unacceptable"),
        ("Meta", r"is not a directory|Unable to create database path", "Unacceptable"),
        ("Meta", r"Attempt to store value|Put request failed", "Unacceptable"),
    )
)


def explain(name: str, message: str) -> tuple[Code, ...]:
    """What an exception means, where its message says more than its name."""
    return tuple(code for told, pattern, code in _TOLD if told == name and pattern.search(message))


def catalogs(found: Any) -> list[str]:
    """The names of all catalogs."""
    return names(found[1])


def catalog(found: Any) -> Catalog:
    """The catalog of an answer."""
    kept = found[1]
    return Catalog(values.text(kept[1]), values.text(kept[3]), _told(kept, 2))


def catalog_properties(kept: Catalog) -> dict[str, str]:
    """What a catalog's answer shows."""
    described = {} if kept.description is None else {CATALOG_DESCRIPTION: kept.description}
    return {**described, CATALOG_LOCATION: locations.shown(kept.location)}


def database(found: Any) -> Database:
    """The database of an answer."""
    kind = found.get(7)
    if not isinstance(kind, int | None):
        raise TypeError(f"{type(kind).__name__} where a number is wanted")
    return Database(
        parameters=values.texts(found.get(4)),
        description=_told(found, 2),
        location=_told(found, 3),
        owner=_told(found, 6),
        owner_type=kind,
    )


def database_properties(kept: Database) -> dict[str, str]:
    """The parameters of a database, and its other fields under names of their own where they say something."""
    fields = {
        DESCRIPTION: kept.description,
        LOCATION: kept.location and locations.shown(kept.location),
        OWNER: kept.owner,
        OWNER_TYPE: OWNER_TYPES.get(kept.owner_type or 0),
    }
    return {**kept.parameters, **{name: value for name, value in fields.items() if value}}


def is_made_of(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether the properties of a namespace are those wanted, whatever the server filled in that nobody gave."""
    told = {key: value for key, value in found.items() if key in wanted or key not in _FILLED_IN}
    place = wanted.get(LOCATION)
    if place is not None and locations.is_at(told.get(LOCATION, ""), place):
        told[LOCATION] = place
    return told == wanted


def names(found: Any) -> list[str]:
    """A list of names."""
    if not isinstance(found, list):
        raise TypeError(f"{type(found).__name__} where a list of names is wanted")
    return [values.text(name) for name in found]


def table(id: TableId, storage_options: Mapping[str, str] | None, found: Any) -> Table:
    """The Lance table of an answer."""
    values.check_name(id.name, found[1].get(1))
    return _table(id, storage_options, found[1])


def tables(
    parent: NamespaceId, asked: Sequence[str], storage_options: Mapping[str, str] | None, found: Any
) -> dict[str, Table]:
    """The Lance tables of an answer, which has them in any order and each once, by the names they were asked by."""
    kept = {one[1]: one for one in found[1] if _is_lance(one)}
    return {
        name: _table(parent.table(name), storage_options, kept[name.lower()]) for name in asked if name.lower() in kept
    }


def lance_names(found: Any) -> list[str]:
    """The names of the Lance tables among those of an answer."""
    return [values.text(one[1]) for one in found[1] if _is_lance(one)]


def renamed(id: TableId, to: TableId, answer: bytes) -> bytes:
    """The table of an answer under another name, as a field 3 with all else as it came, known to us or not."""
    kept = struct_in(fields_of(struct_in(fields_of(answer)[0]))[1])
    decoder = Decoder({9: None, 12: None})
    decoder.feed(kept)
    if (kind := decoder.found.get(12)) != "EXTERNAL_TABLE":
        raise UnsupportedOperationError(
            f"Not supported: rename_table of {id}: the metastore would move its data, for it keeps it as {kind}; "
            "deregister the table and register it by its new name"
        )
    fields = fields_of(kept)
    fields[1] = text(1, to.name.lower())
    fields[2] = text(2, to.parent.name.lower())
    fields[9] = text_pairs(9, table_parameters(decoder.found.get(9, {})))
    return nested(3, *fields.values())


def replaced(old: Table, location: str, properties: Mapping[str, str], answer: bytes) -> bytes:
    """Returns the table of an answer with another location and other parameters, as a field 3.

    All else stays as it came, known to us or not. So do the parameters that the metastore keeps for itself.
    """
    kept = struct_in(fields_of(struct_in(fields_of(answer)[0]))[1])
    decoder = Decoder({1: None, 4: None, 7: {2: None}, 9: None, 12: None, 25: None})
    decoder.feed(kept)
    if _table(old.id, None, decoder.found).registration != old.registration:
        raise ConcurrentModificationError(
            f"{PHRASES[ConcurrentModificationError]}: {old.id} (it was dropped and declared again meanwhile)"
        )
    if (kind := decoder.found.get(12)) != "EXTERNAL_TABLE":
        raise UnsupportedOperationError(
            f"Not supported: replacing {old.id}: the metastore keeps it as {kind} and may move or delete its data; "
            "deregister the table and register it again"
        )
    fields = fields_of(kept)
    storage = fields_of(struct_in(fields[7]))
    storage[2] = text(2, location)
    fields[7] = nested(7, *storage.values())
    own = {key: value for key, value in values.texts(decoder.found.get(9)).items() if key in HIDDEN}
    fields[9] = text_pairs(9, table_parameters({**own, **properties}))
    return nested(3, *fields.values())


def shown(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a table without the metastore's own."""
    return {key: value for key, value in parameters.items() if key not in HIDDEN}


def _told(found: Any, field: int) -> str | None:
    """A text that need not be there."""
    return None if (told := found.get(field)) is None else values.text(told)


def _is_lance(found: Any) -> bool:
    kind: str = found.get(9, {}).get("table_type", "")
    return kind.lower() == "lance"


def _table(id: TableId, storage_options: Mapping[str, str] | None, found: Any) -> Table:
    parameters = values.texts(found.get(9))
    if not _is_lance(found):
        kind = parameters.get("table_type")
        told = f"its table_type is {kind!r}" if kind else "it has no parameter table_type"
        raise not_lance(id, told)
    return Table(
        id,
        locations.shown(values.text(found[7][2])),
        shown(parameters),
        storage_options,
        # Since 4.0 a metastore numbers its tables; older ones have the second of the creation alone.
        registration=registrations.identity(parameters, found.get(4), found.get(25)),
    )
