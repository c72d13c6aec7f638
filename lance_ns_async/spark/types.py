"""Conversion between Arrow types and Spark types, for all supported versions of Spark.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

# Older versions of Spark assume UTC; Spark 4.2 and newer need it as an argument.
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def spark_type(type: pa.DataType) -> DataType | None:
    """Returns the Spark type of an Arrow type, nullable at every depth; None if Spark has none."""
    try:
        result = from_arrow_type(_plain(type), prefer_timestamp_ntz=True)
        # Some types exist in Spark, but not in the Arrow batches that it accepts.
        arrow_schema(StructType([StructField("_", result)]))
    except (TypeError, ValueError):
        return None
    return result


def struct_type(schema: pa.Schema) -> StructType:
    """Returns the Spark schema of columns whose types Spark has, all of them nullable."""
    columns = ((it.name, spark_type(it.type)) for it in schema)
    return StructType([StructField(name, type, nullable=True) for name, type in columns if type is not None])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema of the batches that Spark accepts for a Spark schema."""
    return to_arrow_schema(schema, **_UTC)


def is_list(type: pa.DataType) -> bool:
    """Returns whether a type is a list, a large list or a fixed-size list."""
    import pyarrow as pa

    is_a = pa.types
    return bool(is_a.is_list(type) or is_a.is_large_list(type) or is_a.is_fixed_size_list(type))


def _plain(type: pa.DataType) -> pa.DataType:
    """Returns the type with nullable fields and without what some versions of Spark do not know."""
    import pyarrow as pa

    is_a = pa.types
    if is_list(type):
        return pa.list_(_plain(type.value_type))
    if is_a.is_struct(type):
        return pa.struct([(field.name, _plain(field.type)) for field in type])
    if is_a.is_map(type):
        return pa.map_(_plain(type.key_type), _plain(type.item_type))
    if is_a.is_dictionary(type):
        return _plain(type.value_type)
    if is_a.is_large_string(type):
        return pa.string()
    if is_a.is_large_binary(type) or is_a.is_fixed_size_binary(type):
        return pa.binary()
    return type
