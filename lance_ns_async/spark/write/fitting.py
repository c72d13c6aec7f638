"""Schema checks of a write: the columns and types of a table for a DataFrame, before any Spark job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError
from pyspark.sql.types import StructField, StructType

from lance_ns_async.errors import error_about, without_source
from lance_ns_async.model import TableId
from lance_ns_async.spark.types import arrow_schema, is_list, spark_type

_is = pa.types

_ALIKE: Sequence[Callable[[pa.DataType], bool]] = (
    _is.is_integer,
    _is.is_floating,
    _is.is_decimal,
    _is.is_date,
    _is.is_time,
    _is.is_duration,
    lambda it: _is.is_timestamp(it) and it.tz is None,
    lambda it: _is.is_timestamp(it) and it.tz is not None,
    lambda it: _is.is_string(it) or _is.is_large_string(it) or _is.is_string_view(it),
    lambda it: _is.is_binary(it) or _is.is_large_binary(it) or _is.is_fixed_size_binary(it) or _is.is_binary_view(it),
)
"""Groups of types with the same kind of values, but different ranges; a task checks the range of each value."""


def columns(frame: StructType) -> pa.Schema:
    """Returns the Arrow schema of a DataFrame, nullable at every depth, as Spark creates new tables."""
    if not frame.fields:
        raise InvalidInputError("df: has no columns")
    twice = [name for name, count in Counter(frame.names).items() if count > 1]
    if twice:
        raise InvalidInputError(f"df: {frame.names.count(twice[0])} columns are named {twice[0]!r}; rename them")
    fields = {field.name: _arrow(field) for field in frame.fields}
    unfit = [f"{it.name!r} ({it.dataType.simpleString()})" for it in frame.fields if fields[it.name] is None]
    if unfit:
        raise InvalidInputError(f"df: Arrow has no type for {', '.join(unfit)}; cast or drop these columns")
    return pa.schema(fields.values())


def for_append(id: TableId, frame: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Returns the schema of the table if the DataFrame can be appended to it."""
    missing = [name for name in table.names if name not in frame.names]
    extra = [name for name in frame.names if name not in table.names]
    problems = [f"column {name!r} is only in the table" for name in missing]
    problems += (f"column {name!r} is only in the DataFrame" for name in extra)
    problems += _misfits(frame, [field for field in table if field.name in frame.names])
    if problems:
        advice = "select, rename or cast columns of the DataFrame, and use lit(None) for a missing column"
        raise _invalid(id, f"{', '.join(problems)}; {advice}")
    return table


def for_new(id: TableId, frame: pa.Schema, target: pa.Schema | None, existing: pa.Schema | None) -> pa.Schema:
    """Returns the schema of a new table, or of a version that replaces all rows and columns.

    Args:
        id: The table.
        frame: The schema of the DataFrame, used for columns that the other two do not determine.
        target: The types that the caller has requested for some or all columns, or None.
        existing: The schema of the existing table, or None. A column keeps its type if Spark sees no difference.
    """
    target, existing = target or pa.schema([]), existing or pa.schema([])
    strangers = [name for name in target.names if name not in frame.names]
    if strangers:
        raise InvalidInputError(f"schema: {strangers[0]!r} is not a column of the DataFrame")
    problems = _misfits(frame, target)
    if problems:
        raise _invalid(id, f"{', '.join(problems)}; cast columns of the DataFrame")
    return pa.schema([_new(field, target, existing) for field in frame])


def check_storable(id: TableId, schema: pa.Schema, data_storage_version: Any) -> None:
    """Checks that Lance can store and read these columns."""
    import lance

    # All columns are nullable here, because Lance refuses some types only if there is a row.
    fields = [field.with_nullable(True) for field in schema]
    row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in fields], schema=pa.schema(fields))
    try:
        lance.write_dataset(row, "memory://", data_storage_version=data_storage_version).to_table()
    except (OSError, ValueError) as e:
        why = " ".join(without_source(str(e)).split("\n", 1)[0].split())
        raise InvalidInputError(f"table {id}: Lance cannot store these columns ({why})") from e


def fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Returns whether values can be cast with the same meaning; single values may still be out of range."""
    if source == target or _is.is_null(source):
        return True
    if _is.is_dictionary(target):
        return fits(source, target.value_type)
    if is_list(source) and is_list(target):
        return fits(source.value_type, target.value_type)
    if _is.is_struct(source) and _is.is_struct(target):
        inside, names = {it.name: it.type for it in source}, [it.name for it in target]
        return sorted(inside) == sorted(names) and all(fits(inside[it.name], it.type) for it in target)
    if _is.is_map(source) and _is.is_map(target):
        return fits(source.key_type, target.key_type) and fits(source.item_type, target.item_type)
    if _is.is_integer(source) and _is.is_floating(target):
        return True
    return any(kind(source) and kind(target) for kind in _ALIKE)


def _arrow(field: StructField) -> pa.Field | None:
    try:
        column_type = spark_type(arrow_schema(StructType([field])).field(0).type)
    except (TypeError, ValueError):
        return None
    return (
        None if column_type is None else arrow_schema(StructType([StructField(field.name, column_type, True)])).field(0)
    )


def _new(field: pa.Field, target: pa.Schema, existing: pa.Schema) -> pa.Field:
    if field.name in target.names:
        return target.field(field.name)
    if field.name in existing.names and spark_type(existing.field(field.name).type) == spark_type(field.type):
        return existing.field(field.name)
    return field


def _misfits(frame: pa.Schema, target: Iterable[pa.Field]) -> list[str]:
    return [
        f"column {field.name!r} is {frame.field(field.name).type} in the DataFrame, but must be {field.type}"
        for field in target
        if not fits(frame.field(field.name).type, field.type)
    ]


def _invalid(id: TableId, why: str) -> TableSchemaValidationError:
    return error_about(TableSchemaValidationError, id, why)
