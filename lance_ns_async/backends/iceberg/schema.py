"""Conversion of a Lance table's Arrow schema to the schema that Iceberg's own tools see.

The Iceberg schema is only a view: Lance reads and writes by its own schema, and never reads this one. Each type becomes
the narrowest Iceberg type (format 2) that can represent all its values; only times finer than microseconds lose the
finer digits. Dictionary and run-end-encoded types become their value type, an extension type becomes its storage type.
Types without an Iceberg equivalent become binary: null, durations, intervals, unions, and decimals of more than 38
digits. A table with columns therefore never appears to have none.

A field is omitted if an earlier field has the same dotted name, because catalogs reject such a schema as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pyarrow as pa

Json = dict[str, Any]

_SIMPLE: Mapping[pa.DataType, str] = {
    arrow: iceberg
    for iceberg, arrow_types in (
        ("boolean", [pa.bool_()]),
        ("int", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()]),
        ("long", [pa.int64(), pa.uint32()]),
        ("decimal(20, 0)", [pa.uint64()]),
        ("float", [pa.float16(), pa.float32()]),
        ("double", [pa.float64()]),
        ("string", [pa.string(), pa.large_string(), pa.string_view()]),
        ("binary", [pa.binary(), pa.large_binary(), pa.binary_view()]),
        ("date", [pa.date32(), pa.date64()]),
        ("time", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]),
        ("uuid", [pa.uuid()]),
    )
    for arrow in arrow_types
}

_DOCS = (b"doc", b"comment")
"""Keys of Arrow field metadata with a description of the field: that of Iceberg and Parquet, and that of Spark."""

_MAX_DIGITS = 38


def iceberg_schema(schema: pa.Schema, schema_id: int) -> tuple[Json, int]:
    """Returns the Iceberg schema in its JSON form, and the last column id.

    Ids start at 1. The ids of a struct's fields come before those of nested fields, as in tables created by Iceberg.
    """
    ids = count(1)
    struct = _assign_ids(_struct(schema, "", set()), ids)
    return {**struct, "schema-id": schema_id}, next(ids) - 1


def _fields(fields: Iterable[pa.Field], prefix: str, names: set[str]) -> list[Json]:
    """Returns the fields, without ids.

    Args:
        prefix: The dotted name of the parent, with a trailing dot; empty at the top level.
        names: The dotted names in use, which are extended.
    """
    return [
        {"name": field.name, "required": not field.nullable, "type": type, **_doc(field)}
        for field in fields
        if (type := _typed_field(prefix + field.name, field.type, names)) is not None
    ]


def _typed_field(name: str, arrow: pa.DataType, names: set[str]) -> Any:
    """Returns the type of the field with a dotted name; None if the name, or a nested one it needs, is in use."""
    if name in names or (type := _type(arrow, f"{name}.", names)) is None:
        return None
    names.add(name)
    return type


def _type(arrow: pa.DataType, prefix: str, names: set[str]) -> Any:
    # Extension types defined in Python are not hashable.
    if not isinstance(arrow, pa.ExtensionType) and (simple := _SIMPLE.get(arrow)) is not None:
        return simple
    for fits, convert in _CONVERSIONS:
        if fits(arrow):
            return convert(arrow, prefix, names)
    return "binary"


def _decimal(arrow: Any, prefix: str, names: set[str]) -> str:
    # Arrow allows negative scales and scales above the precision; Iceberg allows neither.
    scale = max(arrow.scale, 0)
    precision = max(arrow.precision - min(arrow.scale, 0), scale)
    # The space after the comma matches the form that catalogs return.
    return f"decimal({precision}, {scale})" if precision <= _MAX_DIGITS else "binary"


def _list(arrow: Any, prefix: str, names: set[str]) -> Json | None:
    element = _typed_field(f"{prefix}element", arrow.value_type, names)
    if element is None:
        return None
    return {"type": "list", "element": element, "element-required": not arrow.value_field.nullable}


def _map(arrow: Any, prefix: str, names: set[str]) -> Json | None:
    key = _typed_field(f"{prefix}key", arrow.key_type, names)
    value = _typed_field(f"{prefix}value", arrow.item_type, names)
    if key is None or value is None:
        return None
    return {"type": "map", "key": key, "value": value, "value-required": not arrow.item_field.nullable}


def _struct(arrow: Any, prefix: str, names: set[str]) -> Json:
    return {"type": "struct", "fields": _fields(arrow, prefix, names)}


_CONVERSIONS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any, str, set[str]], Any]]] = (
    (lambda t: isinstance(t, pa.BaseExtensionType), lambda t, *within: _type(t.storage_type, *within)),
    (pa.types.is_dictionary, lambda t, *within: _type(t.value_type, *within)),
    (pa.types.is_run_end_encoded, lambda t, *within: _type(t.value_type, *within)),
    (pa.types.is_timestamp, lambda t, *within: "timestamptz" if t.tz else "timestamp"),
    (pa.types.is_decimal, _decimal),
    # Some catalogs fail for a length of 0.
    (pa.types.is_fixed_size_binary, lambda t, *within: f"fixed[{t.byte_width}]" if t.byte_width else "binary"),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _list),
    (pa.types.is_large_list, _list),
    (pa.types.is_fixed_size_list, _list),
    (pa.types.is_list_view, _list),
    (pa.types.is_large_list_view, _list),
)


def _doc(field: pa.Field) -> Json:
    metadata = field.metadata or {}
    doc = next((metadata[key] for key in _DOCS if metadata.get(key)), None)
    return {} if doc is None else {"doc": doc.decode("utf-8", "replace")}


def _assign_ids(type: Any, ids: Iterator[int]) -> Any:
    """Returns the type with an id for each of its fields, elements, keys and values."""
    match type:
        case {"type": "struct", "fields": fields}:
            fields_with_ids = [{"id": next(ids), **field} for field in fields]
            return {**type, "fields": [{**field, "type": _assign_ids(field["type"], ids)} for field in fields_with_ids]}
        case {"type": "list", "element": element}:
            return {**type, "element-id": next(ids), "element": _assign_ids(element, ids)}
        case {"type": "map", "key": key, "value": value}:
            parts = {"key-id": next(ids), "value-id": next(ids)}
            return {**type, **parts, "key": _assign_ids(key, ids), "value": _assign_ids(value, ids)}
    return type
