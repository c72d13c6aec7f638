"""Arrow's types and Spark's, whichever Spark it is.

Imported in Spark's own Python processes, so it imports next to nothing.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

# Spark 4.2 took the place of a UTC that was assumed by one that is asked for.
_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def spark_type(type: pa.DataType) -> DataType | None:
    """Spark's type for an Arrow type, null allowed at every depth; None where there is none."""
    try:
        found = from_arrow_type(_plain(type), prefer_timestamp_ntz=True)
        # Some types have a name in Spark, but none in the batches it takes.
        arrow_schema(StructType([StructField("_", found)]))
    except (TypeError, ValueError):
        return None
    return found


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark takes batches of."""
    return to_arrow_schema(schema, **_UTC)


def is_list(type: pa.DataType) -> bool:
    """Whether its values are lists, be they long or all of one length."""
    import pyarrow as pa

    is_a = pa.types
    return bool(is_a.is_list(type) or is_a.is_large_list(type) or is_a.is_fixed_size_list(type))


def _plain(type: pa.DataType) -> pa.DataType:
    """The type with the widths and fixed lengths left out that not every Spark knows of, null allowed inside."""
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
