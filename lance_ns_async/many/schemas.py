"""The common columns of many tables and their widest types, before any row is read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.types as is_a
from lance_namespace.errors import InvalidInputError

from lance_ns_async.many.filters import Filter, list_names
from lance_ns_async.model import TableId
from lance_ns_async.storage.scanning import Condition, has_columns

Unify: TypeAlias = Literal["strict", "by_name"]
"""Whether tables must have the same columns, or missing columns are null and types are widened."""

_MODES = ("strict", "by_name")

_FEW = 5  # Maximum number of differing tables in an error message.

_WIDE = (pa.int64(), pa.uint64(), pa.float32(), pa.float64())
_HOLDERS: Mapping[pa.DataType, Sequence[pa.DataType]] = {
    pa.int8(): (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int32(), pa.int64(), pa.float64()),
    pa.int64(): (pa.int64(),),
    pa.uint8(): (pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), *_WIDE),
    pa.uint16(): (pa.uint16(), pa.int32(), pa.uint32(), *_WIDE),
    pa.uint32(): (pa.uint32(), pa.int64(), pa.uint64(), pa.float64()),
    pa.uint64(): (pa.uint64(),),
    pa.float16(): (pa.float16(), pa.float32(), pa.float64()),
    pa.float32(): (pa.float32(), pa.float64()),
    pa.float64(): (pa.float64(),),
}
"""The types that hold all values of a type, the smallest first."""

_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of one table's columns from those that most tables have."""

    missing: Sequence[str] = ()
    """Columns that most tables have, but not this one."""
    extra: Sequence[str] = ()
    """Columns that only this table, or only few tables have."""
    types: Mapping[str, tuple[pa.DataType, pa.DataType]] = field(default_factory=dict)
    """The column's type in this table and in most tables, for each column whose values differ in kind."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra or self.types)

    def __str__(self) -> str:
        differences = [f"column {name!r} is missing" for name in self.missing]
        differences += (f"column {name!r} is extra" for name in self.extra)
        differences += (f"column {name!r} is {own}, not {usual}" for name, (own, usual) in self.types.items())
        return ", ".join(differences) or "none"


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads the tables: what it cannot read, and how its user reads fewer tables."""

    separately: str
    """The advice to read the tables of each kind by a call of its own."""
    fewer: str
    """The advice to read fewer tables."""
    name: str = "Arrow"
    has: Callable[[pa.DataType], bool] = lambda _: True
    """Returns whether it has a type."""
    ignores_case: bool = False
    """Whether columns whose names differ only in case are one column."""
    in_sql: bool = False
    """Whether its user names the columns in SQL, instead of by the argument `columns`."""

    def only(self, names: Sequence[str]) -> str:
        """Returns the advice to read only some columns."""
        return "a SELECT of other columns" if self.in_sql else f"columns=[{list_names(names)}]"


@dataclass(frozen=True, slots=True)
class _Kind:
    """Tables with the same schema."""

    schema: pa.Schema
    """The requested columns."""
    tables: Sequence[TableId]

    @property
    def key(self) -> object:
        """A key that is equal for kinds that are read together; column order, widths and units may differ."""
        return tuple(sorted((it.name, _key(it.type)) for it in self.schema))


def common(
    schemas: Iterable[tuple[TableId, pa.Schema]],
    columns: Collection[str] | None,
    reader: Reader,
    *,
    filter: str | None = None,
    unify: Unify = "strict",
    table_column: str | None = None,
) -> tuple[pa.Schema, Condition | None]:
    """Returns the columns to read from tables, and the checked filter.

    Args:
        schemas: The tables with their columns.
        columns: The names of the columns; None means all.
        reader: Who reads them.
        filter: A condition in Lance's SQL; None means all rows.
        unify: Whether the tables must have the same columns.
        table_column: The name of the column for the id of the table, which is not part of the result.

    Raises:
        InvalidInputError: The columns of the tables differ, the reader cannot read one, or the filter is invalid.
    """
    if unify not in _MODES:
        raise InvalidInputError(f"unify {unify!r}: must be one of {', '.join(map(repr, _MODES))}")
    by_schema = _by_schema(schemas)
    parsed_filter = None if filter is None else Filter(filter)
    if columns is not None:
        _check_columns(columns, by_schema, unify)
    kinds = [_kind(schema, tables, columns) for schema, tables in by_schema.items()]
    for kind in kinds:
        _check_kind(kind, reader)
    if not kinds:
        return pa.schema([]), None
    usual, others = _usual(kinds)
    if others and unify == "strict":
        raise _differing(usual, kinds, others, reader)
    names = list(dict.fromkeys(name for kind in (usual, *others) for name in kind.schema.names))
    if columns is not None:
        names = list(columns)
    if unify == "by_name" and reader.ignores_case:
        _check_case(kinds, names, reader)
    schema = pa.schema([(name, _widest(name, kinds, names, reader)) for name in names])
    if parsed_filter is None:
        return schema, None
    return schema, _condition(parsed_filter, by_schema, unify, table_column, reader)


def with_table_column(schema: pa.Schema, table_column: str | None, reader: Reader) -> pa.Schema:
    """Returns the columns with the one for the id of the table, if there is one.

    Raises:
        InvalidInputError: The tables have a column of that name, or there would be no column.
    """
    if not table_column:
        if not schema.names:
            raise InvalidInputError("columns []: must not be empty without a table_column")
        return schema
    for name in schema.names:
        if name == table_column or (reader.ignores_case and name.casefold() == table_column.casefold()):
            raise InvalidInputError(
                f"table_column {table_column!r}: the tables have a column {name!r}; "
                "set another name with table_column=..., or None for no such column"
            )
    return schema.append(pa.field(table_column, pa.string()))


def differences(
    schemas: Iterable[tuple[TableId, pa.Schema]], columns: Collection[str] | None
) -> Mapping[TableId, Difference]:
    """Returns the differences of each table that differs from the most common schema."""
    by_schema = _by_schema(schemas)
    if columns is not None:
        _check_columns(columns, by_schema, "by_name")
    if not by_schema:
        return {}
    usual, others = _usual([_kind(schema, tables, columns) for schema, tables in by_schema.items()])
    return {id: difference for kind in others for difference in [_difference(usual, kind)] for id in kind.tables}


def widest(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Returns the smallest type that holds all values of all types without loss; None if there is none."""
    result: pa.DataType | None = None
    for type in dict.fromkeys(types):
        result = type if result is None else _wider(result, type)
        if result is None:
            return None
    return result


def _by_schema(schemas: Iterable[tuple[TableId, pa.Schema]]) -> Mapping[pa.Schema, Sequence[TableId]]:
    # Tables are grouped by the identity of the schema first, because many share one and comparing schemas is slower.
    by_object: dict[int, tuple[pa.Schema, list[TableId]]] = {}
    for table, schema in schemas:
        by_object.setdefault(id(schema), (schema, []))[1].append(table)
    tables_by_schema: dict[pa.Schema, list[TableId]] = defaultdict(list)
    for schema, tables in by_object.values():
        tables_by_schema[schema] += tables
    return tables_by_schema


def _check_columns(columns: Collection[str], by_schema: Mapping[pa.Schema, Sequence[TableId]], unify: Unify) -> None:
    if isinstance(columns, str):
        raise InvalidInputError(f"columns {columns!r}: must be a list, not a string; use columns=[{columns!r}]")
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InvalidInputError(f"columns: {twice[0]!r} is a duplicate")
    for name in columns:
        without = {schema: tables for schema, tables in by_schema.items() if name not in schema.names}
        if without and (unify == "strict" or len(without) == len(by_schema)):
            tables = [id for some in without.values() for id in some]
            has = list_names(next(iter(without)).names)
            raise InvalidInputError(f"columns: {name!r} is not in {_tables(tables)}; its columns are {has}")


def _kind(schema: pa.Schema, tables: Sequence[TableId], columns: Collection[str] | None) -> _Kind:
    return _Kind(pa.schema([it for it in schema if columns is None or it.name in columns]), tables)


def _check_kind(kind: _Kind, reader: Reader) -> None:
    fit = [it.name for it in kind.schema if reader.has(it.type)]
    unfit = [f"{it.name!r} ({it.type})" for it in kind.schema if it.name not in fit]
    if unfit:
        raise InvalidInputError(
            f"{reader.name} has no type for {', '.join(unfit)} of {_tables(kind.tables)}: omit it with "
            f"{reader.only(fit)}, or store it as a type {reader.name} has"
        )
    unreadable = [name for name in fit if "`" in name]
    if unreadable:
        raise InvalidInputError(
            f"Lance cannot select {unreadable[0]!r} of {_tables(kind.tables)}, because of the backtick in its name: "
            f"omit it with {reader.only([name for name in fit if name not in unreadable])}"
        )


def _usual(kinds: Sequence[_Kind]) -> tuple[_Kind, Sequence[_Kind]]:
    """Returns a kind with the columns that most tables have, and the kinds with other columns."""
    counts = Counter[object]()
    for kind in kinds:
        counts[kind.key] += len(kind.tables)
    key = counts.most_common(1)[0][0]
    return next(kind for kind in kinds if kind.key == key), [kind for kind in kinds if kind.key != key]


def _differing(model: _Kind, kinds: Sequence[_Kind], others: Sequence[_Kind], reader: Reader) -> InvalidInputError:
    differing = [(id, kind) for kind in others for id in kind.tables]
    some = "; ".join(f"{id}: {_difference(model, kind)}" for id, kind in differing[:_FEW])
    more = f"; and {len(differing) - _FEW} more" if len(differing) > _FEW else ""
    shared_names = [it.name for it in model.schema if all(_has_alike(kind.schema, it) for kind in others)]
    remedy = f"read all columns with unify='by_name', or {reader.separately}"
    if shared_names:
        remedy = f"read the common columns with columns=[{list_names(shared_names)}], {remedy}"
    return InvalidInputError(
        f"{len(differing)} of {sum(len(kind.tables) for kind in kinds)} tables differ from {_tables(model.tables)}: "
        f"{some}{more}. To go on, {remedy}"
    )


def _has_alike(schema: pa.Schema, field: pa.Field) -> bool:
    return field.name in schema.names and _key(schema.field(field.name).type) == _key(field.type)


def _difference(model: _Kind, kind: _Kind) -> Difference:
    own, usual = kind.schema, model.schema
    types = {name: (own.field(name).type, usual.field(name).type) for name in own.names if name in usual.names}
    return Difference(
        tuple(name for name in usual.names if name not in own.names),
        tuple(name for name in own.names if name not in usual.names),
        {name: (one, other) for name, (one, other) in types.items() if _key(one) != _key(other)},
    )


def _check_case(kinds: Sequence[_Kind], names: Collection[str], reader: Reader) -> None:
    spelling: dict[str, str] = {}
    for name in names:
        if (other := spelling.setdefault(name.casefold(), name)) != name:
            some, others = (
                _tables([id for kind in kinds if it in kind.schema.names for id in kind.tables]) for it in (other, name)
            )
            rest = reader.only([it for it in names if it != name])
            raise InvalidInputError(
                f"the columns {other!r} of {some} and {name!r} of {others} differ only in case, and are one column for "
                f"{reader.name}: rename one of them, omit it with {rest}, or {reader.separately}"
            )


def _widest(name: str, kinds: Sequence[_Kind], names: Sequence[str], reader: Reader) -> pa.DataType:
    result = widest(kind.schema.field(name).type for kind in kinds if name in kind.schema.names)
    if result is None or not reader.has(result):
        others = [it for it in names if it != name]
        raise _no_common_type(name, kinds, reader, f"Omit it with {reader.only(others)}, or ")
    return result


def _no_common_type(name: str, kinds: Sequence[_Kind], reader: Reader, remedy: str = "") -> InvalidInputError:
    tables: dict[pa.DataType, list[TableId]] = defaultdict(list)
    for kind in kinds:
        if name in kind.schema.names:
            tables[kind.schema.field(name).type] += kind.tables
    some = "; ".join(f"{type} in {_tables(ids)}" for type, ids in list(tables.items())[:_FEW])
    subject = "sql" if reader.in_sql else "unify='by_name'"
    return InvalidInputError(
        f"{subject}: no type holds all values of column {name!r} without loss: {some}. "
        f"{remedy or 'To go on, '}{reader.separately}"
    )


def _condition(
    filter: Filter,
    by_schema: Mapping[pa.Schema, Sequence[TableId]],
    unify: Unify,
    table_column: str | None,
    reader: Reader,
) -> Condition:
    """Returns the filter, which Lance accepts for the common types of its columns."""
    names = list(dict.fromkeys(name for schema in by_schema for name in schema.names))
    by_name: dict[str, list[pa.DataType]] = defaultdict(list)
    for schema in by_schema:
        for it in schema:
            if filter.may_use(it.name):
                by_name[it.name].append(it.type)
    # Columns that the filter turns out not to use may have types without a common one.
    candidates = pa.schema([(name, widest(types) or types[0]) for name, types in by_name.items()])
    filter.check(candidates, names, table_column, reader.fewer)
    if len(by_schema) == 1:
        return Condition(filter.sql)
    used = filter.columns(candidates)
    kinds = [_kind(schema, tables, used) for schema, tables in by_schema.items()]
    usual, others = _usual(kinds)
    if others and unify == "strict":
        raise _differing_filter(filter, kinds, usual, others, reader)
    for name in used:
        if widest(by_name[name]) is None:
            raise _no_common_type(name, kinds, reader)
    types = pa.schema([candidates.field(name) for name in used])
    if all(has_columns(kind.schema, types) for kind in kinds):
        return Condition(filter.sql)
    return Condition(filter.sql, types)


def _differing_filter(
    filter: Filter, kinds: Sequence[_Kind], usual: _Kind, others: Sequence[_Kind], reader: Reader
) -> InvalidInputError:
    count = sum(len(kind.tables) for kind in others)
    return InvalidInputError(
        f"{filter}: {count} of {sum(len(kind.tables) for kind in kinds)} tables differ from {_tables(usual.tables)} in "
        f"columns of the filter: {others[0].tables[0]}: {_difference(usual, others[0])}. To go on, use "
        f"unify='by_name', or {reader.separately}"
    )


def _tables(ids: Sequence[TableId]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"


@lru_cache(10_000)
def _key(type: pa.DataType) -> str:
    """Returns a text that is equal for types of the same values, whatever their widths, units and encodings."""
    return str(_plain(type))


def _plain(type: pa.DataType) -> pa.DataType:
    """Returns the type with nullable fields and without widths, units and encodings."""
    match type:
        case _ if _is_text(type):
            return pa.string()
        case _ if _is_bytes(type):
            return pa.binary()
        case _ if _is_list(type):
            return pa.list_(_plain(type.value_type))
        case pa.StructType():
            return pa.struct([(it.name, _plain(it.type)) for it in type])
        case pa.MapType():
            return pa.map_(_plain(type.key_type), _plain(type.item_type))
        case pa.DictionaryType():
            return _plain(type.value_type)
        case pa.TimestampType():
            return pa.timestamp("us", None if type.tz is None else "UTC")
        case pa.DurationType():
            return pa.duration("us")
        case pa.Decimal128Type() | pa.Decimal256Type():
            return _decimal(type.precision, type.scale)
        case _ if is_a.is_time(type):
            return pa.time64("us")
        case _ if is_a.is_date(type):
            return pa.date32()
    return type


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Returns the smallest type that holds all values of two types."""
    match a, b:
        case _ if a == b or is_a.is_null(b):
            return a
        case _ if is_a.is_null(a):
            return b
        case (pa.DictionaryType(), _) | (_, pa.DictionaryType()):
            return _wider(*(it.value_type if is_a.is_dictionary(it) else it for it in (a, b)))
        case _ if _is_text(a) and _is_text(b):
            return pa.large_string() if pa.large_string() in (a, b) else pa.string()
        case _ if _is_bytes(a) and _is_bytes(b):
            return pa.large_binary() if pa.large_binary() in (a, b) else pa.binary()
        case _ if _is_list(a) and _is_list(b):
            return _wider_list(a, b)
        case pa.StructType(), pa.StructType() if [it.name for it in a] == [it.name for it in b]:
            fields = [(x.name, _wider(x.type, y.type)) for x, y in zip(a, b, strict=True)]
            return None if any(type is None for _, type in fields) else pa.struct(fields)
        case pa.MapType(), pa.MapType():
            key, value = _wider(a.key_type, b.key_type), _wider(a.item_type, b.item_type)
            return None if key is None or value is None else pa.map_(key, value)
        case pa.TimestampType(), pa.TimestampType() if (a.tz is None) == (b.tz is None):
            return pa.timestamp(_finest(a.unit, b.unit), a.tz if a.tz == b.tz else "UTC")
        case pa.DurationType(), pa.DurationType():
            return pa.duration(_finest(a.unit, b.unit))
        case _ if is_a.is_time(a) and is_a.is_time(b):
            return pa.time64("ns" if pa.time64("ns") in (a, b) else "us")
        case _ if is_a.is_date(a) and is_a.is_date(b):
            return pa.date32()
        case _ if is_a.is_decimal(a) and is_a.is_decimal(b):
            whole, scale = max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale)
            return _decimal(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None
    holders = _HOLDERS.get(b, ())
    return next((holder for holder in _HOLDERS.get(a, ()) if holder in holders), None)


def _wider_list(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    value = _wider(a.value_type, b.value_type)
    if value is None:
        return None
    if is_a.is_fixed_size_list(a) and is_a.is_fixed_size_list(b) and a.list_size == b.list_size:
        return pa.list_(value, a.list_size)
    return pa.large_list(value) if is_a.is_large_list(a) or is_a.is_large_list(b) else pa.list_(value)


def _decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else pa.decimal256(precision, scale)


def _finest(a: str, b: str) -> str:
    return max(a, b, key=("s", "ms", "us", "ns").index)


def _is_text(type: pa.DataType) -> bool:
    return any(it(type) for it in (is_a.is_string, is_a.is_large_string, is_a.is_string_view))


def _is_bytes(type: pa.DataType) -> bool:
    kinds = (is_a.is_binary, is_a.is_large_binary, is_a.is_fixed_size_binary, is_a.is_binary_view)
    return any(it(type) for it in kinds)


def _is_list(type: pa.DataType) -> bool:
    return any(it(type) for it in (is_a.is_list, is_a.is_large_list, is_a.is_fixed_size_list))
