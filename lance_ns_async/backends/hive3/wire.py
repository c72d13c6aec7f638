"""Methods of a Hive Metastore and encoders of their arguments. No function here makes a call.

Source: the IDL of Hive 3.1.3, which later servers still support. Names are sent in lower case, as metastores store
them. Before 3.0 there are no catalogs: ids begin with the database, and the fields for the catalog are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.transports.thrift.binary import (
    flag,
    no_structs,
    number,
    short,
    struct_field,
    text,
    text_pairs,
    texts,
)
from lance_ns_async.transports.thrift.decoder import Shape
from lance_ns_async.transports.thrift.transport import Method

_EXISTS, _MISSING, _UNKNOWN_DB = "AlreadyExistsException", "NoSuchObjectException", "UnknownDBException"
_OBJECT, _OPERATION, _META = "InvalidObjectException", "InvalidOperationException", "MetaException"

_CATALOG: Shape = {1: None, 2: None, 3: None}
_DATABASE: Shape = {2: None, 3: None, 4: None, 6: None, 7: None}
_TABLE: Shape = {1: None, 4: None, 7: {2: None}, 9: None, 25: None}
_FORMAT_FIELDS: Shape = {1: None, 9: None}

SET_UGI = Method("set_ugi", (_META,))
GET_CATALOGS = Method("get_catalogs", (_META,), gives={1: None})
GET_CATALOG = Method("get_catalog", (_MISSING, _META), gives={1: _CATALOG})
CREATE_CATALOG = Method("create_catalog", (_EXISTS, _OBJECT, _META), void=True)
ALTER_CATALOG = Method("alter_catalog", (_MISSING, _OPERATION, _META), void=True)
DROP_CATALOG = Method("drop_catalog", (_MISSING, _OPERATION, _META), void=True)
GET_DATABASES = Method("get_databases", (_META,))
GET_DATABASE = Method("get_database", (_MISSING, _META), gives=_DATABASE)
CREATE_DATABASE = Method("create_database", (_EXISTS, _OBJECT, _META), void=True)
DROP_DATABASE = Method("drop_database", (_MISSING, _OPERATION, _META), void=True)
GET_ALL_TABLES = Method("get_all_tables", (_META,))
GET_FUNCTIONS = Method("get_functions", (_META,))
FILTER_TABLES = Method("get_table_names_by_filter", (_META, _OPERATION, _UNKNOWN_DB))
GET_TABLE = Method("get_table_req", (_META, _MISSING), gives={1: _TABLE})
GET_WHOLE_TABLE = Method("get_table_req", (_META, _MISSING), whole=True)
GET_TABLES = Method("get_table_objects_by_name_req", (_META, _OPERATION, _UNKNOWN_DB), gives={1: _TABLE})
GET_TABLE_FORMATS = Method("get_table_objects_by_name_req", (_META, _OPERATION, _UNKNOWN_DB), gives={1: _FORMAT_FIELDS})
CREATE_TABLE = Method("create_table", (_EXISTS, _OBJECT, _META, _MISSING), void=True)
ALTER_TABLE = Method("alter_table_with_environment_context", (_OPERATION, _META), void=True)
DROP_TABLE = Method("drop_table", (_MISSING, _META), void=True)

OWNER_TYPES = {1: "USER", 2: "ROLE", 3: "GROUP"}

# LIKE matches a whole value with a Java regular expression; = fails if the column is a CLOB.
_LANCE_ALONE = 'hive_filter_field_params__table_type like "(?i)lance"'
_ALL = -1


@dataclass(frozen=True, slots=True)
class HiveCatalog:
    """A catalog as a metastore stores it."""

    name: str
    location: str
    description: str | None = None

    def field(self, id: int) -> bytes:
        description = () if self.description is None else (text(2, self.description),)
        return struct_field(id, text(1, self.name.lower()), *description, text(3, self.location))


@dataclass(frozen=True, slots=True)
class HiveDatabase:
    """A database as a metastore stores it."""

    parameters: Mapping[str, str]
    description: str | None = None
    location: str | None = None
    owner: str | None = None
    owner_type: int | None = None

    def field(self, id: int, database: NamespaceId) -> bytes:
        parts = [text(1, database.name.lower()), text_pairs(4, self.parameters), *_catalog(8, database)]
        parts += [
            text(at, value)
            for at, value in ((2, self.description), (3, self.location), (6, self.owner))
            if value is not None
        ]
        if self.owner_type is not None:
            parts.append(number(7, self.owner_type))
        return struct_field(id, *parts)


def user_arguments(name: str, groups: Sequence[str]) -> bytes:
    """Returns the arguments of set_ugi."""
    return text(1, name) + texts(2, groups)


def reference(database: NamespaceId) -> str:
    """Returns a database's name for methods without an argument for the catalog."""
    *catalog, name = (level.lower() for level in database)
    return f"@{catalog[0]}#{name}" if catalog else name


def named_catalog(name: str) -> bytes:
    """Returns the arguments of get_catalog and drop_catalog."""
    return struct_field(1, text(1, name.lower()))


def new_catalog(catalog: HiveCatalog) -> bytes:
    """Returns the arguments of create_catalog."""
    return struct_field(1, catalog.field(1))


def altered_catalog(catalog: HiveCatalog) -> bytes:
    """Returns the arguments of alter_catalog."""
    return struct_field(1, text(1, catalog.name.lower()), catalog.field(2))


def databases_in(parent: NamespaceId) -> bytes:
    """Returns the arguments of get_databases."""
    return text(1, reference(parent.child("*")))


def named_database(id: NamespaceId) -> bytes:
    """Returns the arguments of get_database and get_all_tables."""
    return text(1, reference(id))


def new_database(id: NamespaceId, database: HiveDatabase) -> bytes:
    """Returns the arguments of create_database."""
    return database.field(1, id)


def all_functions(database: NamespaceId) -> bytes:
    """Returns the arguments of get_functions for all functions."""
    return text(1, reference(database)) + text(2, "*")


def dropped_database(id: NamespaceId) -> bytes:
    """Returns the arguments of drop_database without cascade and without deletion of data."""
    return text(1, reference(id)) + flag(2, False) + flag(3, False)


def lance_tables(database: NamespaceId) -> bytes:
    """Returns the arguments of get_table_names_by_filter for all Lance tables."""
    return text(1, reference(database)) + text(2, _LANCE_ALONE) + short(3, _ALL)


def named_table(id: TableId) -> bytes:
    """Returns the arguments of get_table_req."""
    return struct_field(1, text(1, id.parent.name.lower()), text(2, id.name.lower()), *_catalog(4, id.parent))


def named_tables(database: NamespaceId, names: Sequence[str]) -> bytes:
    """Returns the arguments of get_table_objects_by_name_req."""
    tables = texts(2, [table.lower() for table in names])
    return struct_field(1, text(1, database.name.lower()), tables, *_catalog(4, database))


def new_table(id: TableId, location: str, parameters: Mapping[str, str]) -> bytes:
    """Returns the arguments of create_table for a table without columns, which readers of Lance do not need."""
    # Without the fields for columns and serialization, the server fails with a NullPointerException.
    storage = struct_field(7, no_structs(1), text(2, location), struct_field(7))
    return struct_field(
        1,
        text(1, id.name.lower()),
        text(2, id.parent.name.lower()),
        storage,
        no_structs(8),
        text_pairs(9, table_parameters(parameters)),
        text(12, "EXTERNAL_TABLE"),
        *_catalog(17, id.parent),
    )


@dataclass(frozen=True, slots=True)
class AlterTable:
    """A new state of a table, and what shows that it is still the one that was read."""

    table: bytes
    """The new state, encoded as field 3."""
    expected: tuple[str, str] | None
    """A parameter and its value that no other registration of the name has; None if the table has none."""
    creation: tuple[int | None, int | None]
    """The time of the creation in seconds, and from Hive 4 the number; an alteration changes neither."""


def altered_table(id: TableId, change: AlterTable) -> bytes:
    """Returns the arguments of alter_table_with_environment_context.

    From Hive 4, the server changes the table only if it has the expected parameter (HIVE-26882).
    """
    key, value = change.expected or ("", "")
    condition = {"expected_parameter_key": key, "expected_parameter_value": value} if key else {}
    context = struct_field(4, text_pairs(1, condition))
    return text(1, reference(id.parent)) + text(2, id.name.lower()) + change.table + context


def dropped_table(id: TableId) -> bytes:
    """Returns the arguments of drop_table without deletion of data."""
    return text(1, reference(id.parent)) + text(2, id.name.lower()) + flag(3, False)


def table_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    """Returns the parameters to send with a table. A table without EXTERNAL owns its data, whatever its type is."""
    # Without DO_NOT_UPDATE_STATS, the server lists all files under the location.
    return {**parameters, "EXTERNAL": "TRUE", "DO_NOT_UPDATE_STATS": "true"}


def _catalog(field: int, database: NamespaceId) -> Sequence[bytes]:
    """Returns the field with the catalog of a database; none if there are no catalogs."""
    return [text(field, catalog.lower()) for catalog in database.parent]
