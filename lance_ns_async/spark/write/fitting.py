"""Schema checks of a write: the columns and types of a table for a DataFrame, before any Spark job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError
from pyspark.sql.types import StructField, StructType

from lance_ns_async.errors import without_source
from lance_ns_async.model import TableId
from lance_ns_async.spark.types import arrow_schema, is_list, spark_type

if TYPE_CHECKING:
    from lance import LanceDataset

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
    """Returns the Arrow schema of a DataFrame, nullable at every depth, as Spark creates new tables.

    Raises:
        InvalidInputError: There is no column, two columns have the same name, or Arrow has no type for a column.
    """
    if not frame.fields:
        raise InvalidInputError("df: it has no column")
    twice = [name for name, count in Counter(frame.names).items() if count > 1]
    if twice:
        raise InvalidInputError(f"df: {twice[0]!r} names {frame.names.count(twice[0])} columns of it; rename them")
    fields = {field.name: _arrow(field) for field in frame.fields}
    unfit = [f"{it.name!r} ({it.dataType.simpleString()})" for it in frame.fields if fields[it.name] is None]
    if unfit:
        raise InvalidInputError(f"df: Arrow has no type for {', '.join(unfit)}; cast that, or leave it out")
    return pa.schema(fields.values())


def for_append(id: TableId, given: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Returns the schema of the table if the DataFrame can be appended to it.

    Raises:
        TableSchemaValidationError: The DataFrame lacks a column, has another one, or has a type that cannot be cast.
    """
    missing = [name for name in table.names if name not in given.names]
    extra = [name for name in given.names if name not in table.names]
    told = [f"column {name!r} is in the table alone" for name in missing]
    told += (f"column {name!r} is in the DataFrame alone" for name in extra)
    told += _misfits(given, [field for field in table if field.name in given.names])
    if told:
        advice = "select, rename or cast columns of the DataFrame, and for a missing one use lit(None)"
        raise _invalid(id, f"{', '.join(told)}; {advice}")
    return table


def for_new(id: TableId, given: pa.Schema, wanted: pa.Schema | None, kept: pa.Schema | None) -> pa.Schema:
    """Returns the schema of a new table, or of a version that replaces all rows and columns.

    Args:
        id: The table.
        given: The schema of the DataFrame, used for columns that the other two do not determine.
        wanted: The types that the caller has requested for some or all columns, or None.
        kept: The schema of the existing table, or None. A column keeps its type if Spark sees no difference.

    Raises:
        InvalidInputError: The DataFrame does not have a column of `wanted`.
        TableSchemaValidationError: The type of a column cannot be cast to that in `wanted`.
    """
    wanted, kept = wanted or pa.schema([]), kept or pa.schema([])
    strangers = [name for name in wanted.names if name not in given.names]
    if strangers:
        raise InvalidInputError(f"schema: {strangers[0]!r} is no column of the DataFrame")
    told = _misfits(given, wanted)
    if told:
        raise _invalid(id, f"{', '.join(told)}; cast columns of the DataFrame")
    return pa.schema([_new(field, wanted, kept) for field in given])


def storable(id: TableId, schema: pa.Schema, data_storage_version: Any) -> LanceDataset:
    """Returns a dataset with these columns in memory.

    Raises:
        InvalidInputError: Lance cannot store or read such a dataset.
    """
    import lance

    # All columns are nullable here, because Lance refuses some types only if there is a row.
    fields = [field.with_nullable(True) for field in schema]
    row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in fields], schema=pa.schema(fields))
    try:
        dataset = lance.write_dataset(row, "memory://", data_storage_version=data_storage_version)
        dataset.to_table()
    except (OSError, ValueError) as e:
        why = " ".join(without_source(str(e)).split("\n", 1)[0].split())
        raise InvalidInputError(f"table {id}: Lance cannot store what it is to be ({why})") from e
    return dataset


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns whether values can be cast with the same meaning; single values may still be out of range."""
    if given == wanted or _is.is_null(given):
        return True
    if _is.is_dictionary(wanted):
        return fits(given, wanted.value_type)
    if is_list(given) and is_list(wanted):
        return fits(given.value_type, wanted.value_type)
    if _is.is_struct(given) and _is.is_struct(wanted):
        inside, names = {it.name: it.type for it in given}, [it.name for it in wanted]
        return sorted(inside) == sorted(names) and all(fits(inside[it.name], it.type) for it in wanted)
    if _is.is_map(given) and _is.is_map(wanted):
        return fits(given.key_type, wanted.key_type) and fits(given.item_type, wanted.item_type)
    if _is.is_integer(given) and _is.is_floating(wanted):
        return True
    return any(kind(given) and kind(wanted) for kind in _ALIKE)


def _arrow(field: StructField) -> pa.Field | None:
    try:
        found = spark_type(arrow_schema(StructType([field])).field(0).type)
    except (TypeError, ValueError):
        return None
    return None if found is None else arrow_schema(StructType([StructField(field.name, found, True)])).field(0)


def _new(field: pa.Field, wanted: pa.Schema, kept: pa.Schema) -> pa.Field:
    if field.name in wanted.names:
        return wanted.field(field.name)
    if field.name in kept.names and spark_type(kept.field(field.name).type) == spark_type(field.type):
        return kept.field(field.name)
    return field


def _misfits(given: pa.Schema, wanted: Iterable[pa.Field]) -> list[str]:
    return [
        f"column {field.name!r} is {given.field(field.name).type} in the DataFrame and is to be {field.type}"
        for field in wanted
        if not fits(given.field(field.name).type, field.type)
    ]


def _invalid(id: TableId, why: str) -> TableSchemaValidationError:
    return TableSchemaValidationError(f"Table schema invalid: {id} ({why})")
