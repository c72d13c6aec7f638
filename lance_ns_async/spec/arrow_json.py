"""Conversion of Arrow schemas to the spec's JSON form, and of its types to Arrow.

Types have the names that Lance's own namespaces write. These names cannot express all properties of Arrow types:

- A timestamp loses unit and time zone; a duration and a time lose the unit. `timestamp` and `duration` are read as
  microseconds, as in Lance. `time32` and `time64`, which Lance writes but does not read, are read as milliseconds and
  nanoseconds, the finest unit of each.
- A dictionary or view becomes its value type. An extension type becomes the type that Lance stores, and the field's
  metadata name the extension, as in Arrow's own format.
- Types that no dataset can contain have no name: unions, run-end encoded types, list views, intervals, decimals of less
  than 128 bits, and maps with sorted keys.

The more precise type names of `lance.schema` can also be read, for example `timestamp:ns:UTC`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from lance_namespace.errors import UnsupportedOperationError
from lance_namespace_urllib3_client.models.json_arrow_data_type import JsonArrowDataType
from lance_namespace_urllib3_client.models.json_arrow_field import JsonArrowField
from lance_namespace_urllib3_client.models.json_arrow_schema import JsonArrowSchema

# Each name is read as the first Arrow type of its list.
_SIMPLE: Mapping[str, list[pa.DataType]] = {
    "null": [pa.null()],
    "bool": [pa.bool_()],
    "int8": [pa.int8()],
    "int16": [pa.int16()],
    "int32": [pa.int32()],
    "int64": [pa.int64()],
    "uint8": [pa.uint8()],
    "uint16": [pa.uint16()],
    "uint32": [pa.uint32()],
    "uint64": [pa.uint64()],
    "float16": [pa.float16()],
    "float32": [pa.float32()],
    "float64": [pa.float64()],
    "date32": [pa.date32()],
    "date64": [pa.date64()],
    "time32": [pa.time32("ms"), pa.time32("s")],
    "time64": [pa.time64("ns"), pa.time64("us")],
    "timestamp": [pa.timestamp("us")],
    "duration": [pa.duration("us"), pa.duration("s"), pa.duration("ms"), pa.duration("ns")],
    "utf8": [pa.string(), pa.string_view()],
    "large_utf8": [pa.large_string()],
    "binary": [pa.binary(), pa.binary_view()],
    "large_binary": [pa.large_binary()],
}
_WORDS = {arrow: word for word, arrow_types in _SIMPLE.items() for arrow in arrow_types}
_TYPES = {word: arrow_types[0] for word, arrow_types in _SIMPLE.items()} | {"boolean": pa.bool_()}

# A decimal's length is 1000 times its precision plus its scale, which may be negative.
_DECIMALS = {"decimal128": pa.decimal128, "decimal256": pa.decimal256}
_DIGITS = 1000
_LOWEST_SCALE, _HIGHEST_SCALE = -128, 127

_MAX_INT32 = 2**31 - 1

_EXTENSION = "ARROW:extension:name"


def json_schema(schema: pa.Schema) -> JsonArrowSchema:
    """Returns the schema in JSON Arrow form."""
    try:
        metadata = _metadata(schema.metadata)
    except UnicodeDecodeError as e:
        raise _without_json("metadata of the schema", e) from e
    return JsonArrowSchema(fields=[_column(field) for field in schema], metadata=metadata)


def arrow_schema(json_schema: JsonArrowSchema) -> pa.Schema:
    """Returns the schema of its JSON Arrow form."""
    fields = [pa.field(it.name, arrow_type(it.type), it.nullable, it.metadata) for it in json_schema.fields]
    return pa.schema(fields, json_schema.metadata)


def arrow_type(json_type: JsonArrowDataType) -> pa.DataType:
    """Returns the Arrow type of a JSON Arrow type, with names of the spec or of `lance.schema`."""
    word = json_type.type.lower()
    if (simple := _TYPES.get(word)) is not None:
        return simple
    match word:
        case "decimal128" | "decimal256":
            precision, scale = divmod(_length(json_type) - _LOWEST_SCALE, _DIGITS)
            if (scale := scale + _LOWEST_SCALE) > _HIGHEST_SCALE:
                raise ValueError(f"the length of {word} must be {_DIGITS} times the precision, plus the scale")
            return _DECIMALS[word](precision, scale)
        case "fixed_size_binary":
            return pa.binary(_length(json_type))
        case "list":
            return pa.list_(_fields(json_type)[0])
        case "large_list":
            return pa.large_list(_fields(json_type)[0])
        case "fixed_size_list":
            return pa.list_(_fields(json_type)[0], _length(json_type))
        case "struct":
            return pa.struct(_fields(json_type, least=0))
        case "map":
            entries = _fields(json_type)[0].type
            if not pa.types.is_struct(entries) or entries.num_fields != 2 or entries[0].nullable:
                raise ValueError("the field of map must be a struct of a key that is not nullable, and a value")
            return pa.map_(entries[0], entries[1])
    return _lance_type(json_type.type)


def _column(field: pa.Field) -> JsonArrowField:
    try:
        return _field(field)
    except (ValueError, RecursionError, pa.ArrowException) as e:
        raise _without_json(f"column {field.name!r}", e) from e


def _without_json(what: str, why: Exception) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"Not supported: the {what} in JSON Arrow form ({why}); open the dataset to read its schema"
    )


def _field(field: pa.Field) -> JsonArrowField:
    type, metadata = to_json_type(field.type), _metadata(field.metadata)
    if isinstance(field.type, pa.BaseExtensionType):
        metadata = _extension(field)
        if metadata[_EXTENSION] == "lance.json":
            # Lance stores this extension as binary, whatever its Arrow storage type.
            type = JsonArrowDataType(type="large_binary")
    return JsonArrowField(name=field.name, nullable=field.nullable, type=type, metadata=metadata)


def to_json_type(arrow: pa.DataType) -> JsonArrowDataType:
    """Returns a type in JSON Arrow form; raises ValueError if it has no name there."""
    if isinstance(arrow, pa.BaseExtensionType):
        return to_json_type(arrow.storage_type)
    if (word := _WORDS.get(arrow)) is not None:
        return JsonArrowDataType(type=word)
    match arrow:
        case pa.TimestampType():
            return JsonArrowDataType(type="timestamp")
        case pa.Decimal128Type() | pa.Decimal256Type():
            length = arrow.precision * _DIGITS + arrow.scale
            return JsonArrowDataType(type=f"decimal{arrow.bit_width}", length=length)
        case pa.FixedSizeBinaryType() if pa.types.is_fixed_size_binary(arrow):
            return JsonArrowDataType(type="fixed_size_binary", length=arrow.byte_width)
        case pa.DictionaryType():
            return to_json_type(arrow.value_type)
        case pa.ListType():
            return _nested_type("list", [arrow.value_field])
        case pa.LargeListType():
            return _nested_type("large_list", [arrow.value_field])
        case pa.FixedSizeListType():
            return _nested_type("fixed_size_list", [arrow.value_field], arrow.list_size)
        case pa.StructType():
            return _nested_type("struct", arrow)
        case pa.MapType() if not arrow.keys_sorted:
            entries = pa.struct([arrow.key_field, arrow.item_field])
            return _nested_type("map", [pa.field("entries", entries, nullable=False)])
    raise ValueError(f"no name for the type {arrow}")


def _nested_type(word: str, fields: Iterable[pa.Field], length: int | None = None) -> JsonArrowDataType:
    return JsonArrowDataType(type=word, fields=[_field(field) for field in fields], length=length)


def _metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, str] | None:
    return {key.decode(): value.decode() for key, value in metadata.items()} if metadata else None


def _extension(field: pa.Field) -> dict[str, str]:
    """Returns the field's metadata including the keys of its extension, which pyarrow does not provide."""
    from lance.schema import LanceSchema

    lance_field: Any = LanceSchema.from_pyarrow(pa.schema([field.with_name("it")])).fields()[0]
    metadata: dict[str, str] = lance_field.metadata
    return metadata


def _fields(json_type: JsonArrowDataType, least: int = 1) -> list[pa.Field]:
    if json_type.fields is None or len(json_type.fields) < least:
        raise ValueError(f"{json_type.type} requires fields")
    return [pa.field(it.name, arrow_type(it.type), it.nullable, it.metadata) for it in json_type.fields]


def _length(json_type: JsonArrowDataType) -> int:
    if json_type.length is None or json_type.length > _MAX_INT32:
        raise ValueError(f"{json_type.type} requires a length of at most {_MAX_INT32}")
    length: int = json_type.length
    return length


def _lance_type(word: str) -> pa.DataType:
    from lance.schema import json_to_schema

    try:
        return json_to_schema({"fields": [{"name": "it", "nullable": True, "type": {"type": word}}]}).field(0).type
    except ValueError as e:
        raise ValueError(f"unknown type {word!r}") from e
