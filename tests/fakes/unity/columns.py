"""The columns of a Unity Catalog table: the checks of servers of 0.5.0 and later, and their responses."""

from __future__ import annotations

import json
from typing import Any

from .errors import UnityError, internal, invalid

Json = dict[str, Any]

TYPE_NAMES = frozenset(
    "BOOLEAN BYTE SHORT INT LONG FLOAT DOUBLE DATE TIMESTAMP TIMESTAMP_NTZ STRING BINARY DECIMAL INTERVAL ARRAY STRUCT "
    "MAP CHAR NULL USER_DEFINED_TYPE TABLE_TYPE VARIANT".split()
)
_FIELD = ("name", "type", "nullable", "metadata")
_NESTED = {
    "array": {"elementType": True, "containsNull": False},
    "map": {"keyType": True, "valueType": True, "valueContainsNull": False},
}


def read(value: Any) -> list[Json]:
    """Returns the columns of a request as far as they can be parsed."""
    columns = [] if value is None else value
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise invalid("Cannot deserialize value of type `ColumnInfo`")
    for column in columns:
        kind = column.get("type_name")
        if kind is not None and kind not in TYPE_NAMES:
            raise invalid(f"Cannot construct instance of `ColumnTypeName`, problem: Unexpected value '{kind}'")
    return list(columns)


def check_types(columns: list[Json]) -> None:
    """Raises an error if a column's `type_json` is not a field of Spark, or not the field of this column."""
    for column in columns:
        name, text = column.get("name"), column.get("type_json")
        if not text:
            raise _bad(name, f"Column {name} has null/empty typeJson")
        field = _parsed(name, text)
        for key in _FIELD:
            if field.get(key) is None:
                raise invalid(f"type_json.{key} is required.")
        if field["name"] != name:
            raise _bad(name, f"field name {field['name']} does not match column name {name}")
        nullable = column.get("nullable")
        if nullable is not None and nullable != field["nullable"]:
            raise _bad(
                name, f"field nullable {_java(field['nullable'])} does not match column nullable {_java(nullable)}"
            )


def check_storable(columns: list[Json]) -> None:
    """Raises an error for columns that the server's database refuses."""
    if len({(column.get("name"), column.get("position")) for column in columns}) < len(columns):
        raise internal("could not execute statement [Unique index or primary key violation]")
    for column in columns:
        for key in ("type_text", "type_name", "position"):
            if column.get(key) is None:
                raise internal(f"not-null property references a null or transient value: ColumnInfoDAO.{key}")
        if len(column.get("name") or "") > 255:
            raise internal("Value too long for column: CHARACTER VARYING(255)")


def kept(column: Json) -> Json:
    """Returns a column in the form of responses."""
    nullable = column.get("nullable")
    return {
        "name": column.get("name"),
        "type_text": column["type_text"].lower(),
        "type_json": column.get("type_json"),
        "type_name": column["type_name"],
        "type_precision": column.get("type_precision"),
        "type_scale": column.get("type_scale"),
        "type_interval_type": column.get("type_interval_type"),
        "position": column["position"],
        "comment": column.get("comment"),
        "nullable": True if nullable is None else nullable,
        "partition_index": column.get("partition_index"),
    }


def _parsed(name: Any, text: str) -> Json:
    try:
        field = json.loads(text)
    except ValueError:
        field = None
    if not _is_field(field):
        raise _bad(name, f"Failed to parse typeJson for column {name}: {text}")
    parsed: Json = field
    return parsed


def _is_field(field: Any) -> bool:
    # Missing keys are found later, and only in the outermost field.
    return (
        isinstance(field, dict)
        and field.keys() <= set(_FIELD)
        and _is_type(field.get("type"))
        and isinstance(field.get("nullable"), bool | None)
        and isinstance(field.get("metadata"), dict | None)
        and not isinstance(field.get("name"), dict | list)
    )


def _is_type(type: Any) -> bool:
    match type:
        case None | str():
            return True
        case {"type": "struct", "fields": list(fields)}:
            return type.keys() == {"type", "fields"} and all(map(_is_field, fields))
        case {"type": "array" | "map" as kind}:
            parts = _NESTED[kind]
            return type.keys() <= {"type", *parts} and all(
                _is_type(type.get(key)) for key, is_type in parts.items() if is_type
            )
    return False


def _bad(name: Any, message: str) -> UnityError:
    return invalid(f"Invalid type_json for column {name}: {message}")


def _java(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
