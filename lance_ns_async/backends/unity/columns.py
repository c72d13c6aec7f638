"""Lossless conversion between Arrow schemas and Unity columns.

A column's `type_json` is a field in Spark's JSON format. If Spark's types cannot represent the whole Arrow field, the
`metadata` of the `type_json` also contains the field in Arrow's IPC format. The first column's contains the metadata of
the schema. Therefore nothing is stored for a schema without columns. Map fields with names other than `key` and `value`
lose these names, because Arrow's format cannot represent them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId

EXACT = "lance:arrow"
"""Metadata key in a `type_json` for the Arrow field, if the Unity type cannot represent all of it."""

SCHEMA = "lance:schema"
"""Metadata key in the first column's `type_json` for the metadata of the schema."""

_NO_COLUMNS = ["__placeholder_id"]  # Column names that other Lance clients declare if they do not know the columns.

_MAX_COLUMN_LENGTH = 255

Json = Any


@dataclass(frozen=True, slots=True)
class UnityType:
    """A type in Unity's three forms: its name, SQL, and Spark's JSON."""

    name: str
    text: str
    json: Json


# The first Arrow type of each row is the one to which the Unity type is decoded.
_SIMPLE: Sequence[tuple[UnityType, Sequence[pa.DataType]]] = (
    (UnityType("BOOLEAN", "boolean", "boolean"), [pa.bool_()]),
    (UnityType("BYTE", "tinyint", "byte"), [pa.int8()]),
    (UnityType("SHORT", "smallint", "short"), [pa.int16(), pa.uint8()]),
    (UnityType("INT", "int", "integer"), [pa.int32(), pa.uint16(), pa.time32("s"), pa.time32("ms")]),
    (
        UnityType("LONG", "bigint", "long"),
        [pa.int64(), pa.uint32(), pa.time64("us"), pa.time64("ns"), *map(pa.duration, ("s", "ms", "us", "ns"))],
    ),
    (UnityType("FLOAT", "float", "float"), [pa.float32(), pa.float16()]),
    (UnityType("DOUBLE", "double", "double"), [pa.float64()]),
    (UnityType("STRING", "string", "string"), [pa.string(), pa.large_string(), pa.string_view()]),
    (
        UnityType("BINARY", "binary", "binary"),
        [pa.binary(), pa.large_binary(), pa.binary_view(), pa.month_day_nano_interval()],
    ),
    (UnityType("DATE", "date", "date"), [pa.date32(), pa.date64()]),
    (UnityType("NULL", "void", "void"), [pa.null()]),
    (UnityType("TIMESTAMP", "timestamp", "timestamp"), [pa.timestamp("us", "UTC")]),
    (UnityType("TIMESTAMP_NTZ", "timestamp_ntz", "timestamp_ntz"), [pa.timestamp("us")]),
)
_FROM_ARROW = {arrow: unity for unity, arrow_types in _SIMPLE for arrow in arrow_types}
_TO_ARROW = {unity.json: arrow_types[0] for unity, arrow_types in _SIMPLE}
_BY_NAME = {unity.name: unity for unity, _ in _SIMPLE}

_STRING, _BINARY = _BY_NAME["STRING"], _BY_NAME["BINARY"]
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_CHARACTERS = re.compile(r"(var)?char\(\d+\)")
_MAX_DIGITS = 38


def columns(id: TableId, schema: pa.Schema) -> list[dict[str, Any]]:
    """Returns the columns of a schema in the form of a declaration."""
    result = [_column(id, i, field) for i, field in enumerate(schema)]
    if result and schema.metadata:
        first_field = json.loads(result[0]["type_json"])
        first_field["metadata"][SCHEMA] = _encode_schema(pa.schema([], metadata=schema.metadata))
        result[0]["type_json"] = _text(first_field)
    return result


def schema(columns: Sequence[Any] | None) -> pa.Schema | None:
    """Returns the Arrow schema of columns; None if there are none, or one has a type without an Arrow equivalent."""
    if not columns:
        return None
    try:
        if [column["name"] for column in columns] == _NO_COLUMNS:
            return None
        fields = [_struct_field(column) for column in sorted(columns, key=lambda column: column.get("position") or 0)]
        metadata = (fields[0].get("metadata") or {}).get(SCHEMA)
        return pa.schema([_field(one) for one in fields], metadata=metadata and _decode_schema(metadata).metadata)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException):
        # Other clients may store types of their own, and the table's location does not depend on them.
        return None


def unity_type(arrow: pa.DataType) -> UnityType:
    """Returns the Unity type that is closest to an Arrow type; raises ValueError if there is none."""
    # Extension types that are defined in Python are not hashable.
    if not isinstance(arrow, pa.ExtensionType) and (simple := _FROM_ARROW.get(arrow)) is not None:
        return simple
    for fits, convert in _CONVERSIONS:
        if fits(arrow):
            return convert(arrow)
    raise ValueError(f"Unity Catalog has no type for {arrow}")


def arrow_type(spark_type: Json) -> pa.DataType:
    """Returns the Arrow type of a type in Spark's JSON; raises ValueError if there is none."""
    match spark_type:
        case str() if spark_type in _TO_ARROW:
            return _TO_ARROW[spark_type]
        case str() if decimal := _DECIMAL.fullmatch(spark_type):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        case str() if _CHARACTERS.fullmatch(spark_type):
            return pa.string()
        case {"type": "array", "elementType": element}:
            return pa.list_(pa.field("item", arrow_type(element), nullable=_nullable(spark_type, "containsNull")))
        case {"type": "map", "keyType": key, "valueType": value}:
            item = pa.field("value", arrow_type(value), nullable=_nullable(spark_type, "valueContainsNull"))
            return pa.map_(arrow_type(key), item)
        case {"type": "struct", "fields": [*fields]}:
            return pa.struct([pa.field(f["name"], arrow_type(f["type"]), _nullable(f)) for f in fields])
    raise ValueError(f"Arrow has no type for {spark_type!r}")


def _column(id: TableId, position: int, field: pa.Field) -> dict[str, Any]:
    if len(field.name) > _MAX_COLUMN_LENGTH:
        raise InvalidInputError(
            f"table {id}: the name of column {field.name[:40]!r}... has {len(field.name)} characters; "
            f"Unity Catalog allows at most {_MAX_COLUMN_LENGTH}"
        )
    try:
        unity = unity_type(field.type)
        plain = pa.field(field.name, arrow_type(unity.json), nullable=field.nullable)
    except ValueError as e:
        raise InvalidInputError(f"table {id}: column {field.name!r}: {e}; declare it without a schema") from e
    spark_field = {"name": field.name, "type": unity.json, "nullable": field.nullable, "metadata": {}}
    # The serialized forms are compared, because Arrow's own comparison ignores names and metadata in nested types.
    if (exact := _encode_schema(pa.schema([field]))) != _encode_schema(pa.schema([plain])):
        spark_field["metadata"] = {EXACT: exact}
    column = {
        "name": field.name,
        "type_text": unity.text,
        "type_json": _text(spark_field),
        "type_name": unity.name,
        "position": position,
        "nullable": field.nullable,
    }
    if (decimal := _DECIMAL.fullmatch(unity.text)) is not None:
        column |= {"type_precision": int(decimal[1]), "type_scale": int(decimal[2])}
    return column


def _struct_field(column: Any) -> Json:
    """Returns the field of a column; if its writer omitted it, it is derived from the column's other members."""
    spark_field = json.loads(column["type_json"]) if column.get("type_json") else _named_type(column)
    if isinstance(spark_field, dict) and "name" in spark_field and "type" in spark_field:
        return spark_field
    # This is a type without a field; other Lance clients write it as `{"type": "long"}`.
    bare = spark_field["type"] if isinstance(spark_field, dict) and spark_field.keys() == {"type"} else spark_field
    return {"name": column["name"], "type": bare, "nullable": _nullable(column)}


def _nullable(spark_field: Json, key: str = "nullable") -> bool:
    return spark_field.get(key) is not False


def _named_type(column: Any) -> Json:
    if (name := column["type_name"]) == "DECIMAL":
        return f"decimal({column['type_precision']},{column['type_scale']})"
    return _BY_NAME[name].json


def _field(spark_field: Json) -> pa.Field:
    plain = pa.field(spark_field["name"], arrow_type(spark_field["type"]), nullable=_nullable(spark_field))
    encoded = (spark_field.get("metadata") or {}).get(EXACT)
    if encoded is None:
        return plain
    exact: pa.Field = _decode_schema(encoded).field(0)
    # Another writer may have changed the column later and kept the metadata.
    fresh = (exact.name, exact.nullable, unity_type(exact.type).json) == (
        plain.name,
        plain.nullable,
        spark_field["type"],
    )
    return exact if fresh else plain


def _decimal(arrow: Any) -> UnityType:
    if not (arrow.precision <= _MAX_DIGITS and 0 <= arrow.scale <= arrow.precision):
        return _STRING
    return _digits(arrow.precision, arrow.scale)


def _digits(precision: int, scale: int) -> UnityType:
    decimal = f"decimal({precision},{scale})"
    return UnityType("DECIMAL", decimal, decimal)


def _timestamp(arrow: Any) -> UnityType:
    return _BY_NAME["TIMESTAMP" if arrow.tz else "TIMESTAMP_NTZ"]


def _array(arrow: Any) -> UnityType:
    element, nullable = unity_type(arrow.value_type), arrow.value_field.nullable
    spark_type = {"type": "array", "elementType": element.json, "containsNull": nullable}
    return UnityType("ARRAY", f"array<{element.text}>", spark_type)


def _map(arrow: Any) -> UnityType:
    key, item = unity_type(arrow.key_type), unity_type(arrow.item_type)
    nullable = arrow.item_field.nullable
    spark_type = {"type": "map", "keyType": key.json, "valueType": item.json, "valueContainsNull": nullable}
    return UnityType("MAP", f"map<{key.text},{item.text}>", spark_type)


def _struct(arrow: Any) -> UnityType:
    types = [unity_type(field.type) for field in arrow]
    fields = [
        {"name": field.name, "type": unity.json, "nullable": field.nullable, "metadata": {}}
        for field, unity in zip(arrow, types, strict=True)
    ]
    text = ",".join(f"{field.name}:{unity.text}" for field, unity in zip(arrow, types, strict=True))
    return UnityType("STRUCT", f"struct<{text}>", {"type": "struct", "fields": fields})


# Extension, dictionary and run-end encoded types are stored as the type that they wrap.
_CONVERSIONS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any], UnityType]]] = (
    (lambda t: isinstance(t, pa.BaseExtensionType), lambda t: unity_type(t.storage_type)),
    (pa.types.is_dictionary, lambda t: unity_type(t.value_type)),
    (pa.types.is_run_end_encoded, lambda t: unity_type(t.value_type)),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_uint64, lambda t: _digits(20, 0)),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_fixed_size_binary, lambda t: _BINARY),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _array),
    (pa.types.is_large_list, _array),
    (pa.types.is_fixed_size_list, _array),
    (pa.types.is_list_view, _array),
    (pa.types.is_large_list_view, _array),
)


def _encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _decode_schema(encoded: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded, validate=True)))


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
