"""Schema checks of a read: the common columns of many tables and their widest types, before any Spark job."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from pyspark.sql import types as t

from lance_ns_async.errors import nearest, one_line, shortened, without_source
from lance_ns_async.model import TableId
from lance_ns_async.spark.read.reading import Condition, encode_schema, has_columns
from lance_ns_async.spark.resolve.report import Difference
from lance_ns_async.spark.types import arrow_schema, spark_type
from lance_ns_async.storage.sql_bounds import Texts, tokens

if TYPE_CHECKING:
    from lance_ns_async.spark.resolve.location import Location

Unify: TypeAlias = Literal["strict", "by_name"]
"""Whether tables must have the same columns, or missing columns are null and types are widened."""

_MODES = ("strict", "by_name")

_FEW = 5  # Maximum number of differing tables in an error message.
_HOLDERS: Mapping[type[t.DataType], Sequence[type[t.DataType]]] = {
    t.ByteType: (t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType),
    t.ShortType: (t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType),
    t.IntegerType: (t.IntegerType, t.LongType, t.DoubleType),
    t.LongType: (t.LongType,),
    t.FloatType: (t.FloatType, t.DoubleType),
    t.DoubleType: (t.DoubleType,),
}
"""The types that hold all values of a type, the smallest first."""

_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class _Kind:
    """Tables with the same schema."""

    schema: pa.Schema
    """The requested columns, of which some may have no Spark type."""
    tables: Sequence[TableId]
    columns: Mapping[str, t.DataType | None]
    """The Spark types of these columns; None for a type that Spark does not have."""

    @property
    def key(self) -> object:
        """A key that is equal for kinds that Spark can read together; column order, widths and units may differ."""
        return tuple(sorted((name, _key(self.schema.field(name).type, type)) for name, type in self.columns.items()))


def common(
    locations: Iterable[Location],
    columns: Collection[str] | None,
    *,
    filter: str | None = None,
    unify: Unify = "strict",
    table_column: str | None = None,
) -> tuple[t.StructType, Condition | None]:
    """Returns the columns to read from pinned tables, and the checked filter; see `Locations.dataframe`."""
    if unify not in _MODES:
        raise InvalidInputError(f"unify {unify!r}: must be one of {', '.join(map(repr, _MODES))}")
    by_schema = _by_schema(locations)
    parsed_filter = None if filter is None else Filter(filter)
    if columns is not None:
        _check_columns(columns, by_schema, unify)
    kinds = [_kind(schema, tables, columns) for schema, tables in by_schema.items()]
    for kind in kinds:
        _check_kind(kind)
    usual, others = _usual(kinds)
    if unify == "by_name":
        struct = _by_name([usual, *others], columns)
    elif others:
        raise _differing(usual, kinds, others)
    else:
        struct = _struct((name, usual.columns[name]) for name in (usual.columns if columns is None else columns))
    condition = None if parsed_filter is None else _condition(parsed_filter, by_schema, unify, table_column)
    return struct, condition


def differences(locations: Iterable[Location], columns: Collection[str] | None) -> Mapping[TableId, Difference]:
    """Returns the differences of each table that differs from the most common schema, see `Locations.differences`."""
    by_schema = _by_schema(locations)
    if columns is not None:
        _check_columns(columns, by_schema, "by_name")
    if not by_schema:
        return {}
    usual, others = _usual([_kind(schema, tables, columns) for schema, tables in by_schema.items()])
    return {id: difference for kind in others for difference in [_difference(usual, kind)] for id in kind.tables}


def _by_schema(locations: Iterable[Location]) -> Mapping[pa.Schema, Sequence[TableId]]:
    # Tables are grouped by the identity of the schema first, because many share one and comparing schemas is slower.
    by_object: dict[int, tuple[pa.Schema, list[TableId]]] = {}
    for location in locations:
        by_object.setdefault(id(location.schema), (location.schema, []))[1].append(location.id)
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
    fields = [field for field in schema if columns is None or field.name in columns]
    return _Kind(pa.schema(fields), tables, {field.name: spark_type(field.type) for field in fields})


def _check_kind(kind: _Kind) -> None:
    unfit = [f"{it.name!r} ({it.type})" for it in kind.schema if kind.columns[it.name] is None]
    fit = [name for name, type in kind.columns.items() if type is not None]
    if unfit:
        raise InvalidInputError(
            f"Spark has no type for {', '.join(unfit)} of {_tables(kind.tables)}: omit it with "
            f"columns=[{list_names(fit)}], or store it as a type Spark has"
        )
    unreadable = [name for name in fit if "`" in name]
    if unreadable:
        raise InvalidInputError(
            f"Lance cannot select {unreadable[0]!r} of {_tables(kind.tables)}, because of the backtick in its name: "
            f"omit it with columns=[{list_names([name for name in fit if name not in unreadable])}]"
        )


def _usual(kinds: Sequence[_Kind]) -> tuple[_Kind, Sequence[_Kind]]:
    """Returns a kind with the columns that most tables have, and the kinds with other columns."""
    counts = Counter[object]()
    for kind in kinds:
        counts[kind.key] += len(kind.tables)
    key = counts.most_common(1)[0][0]
    return next(kind for kind in kinds if kind.key == key), [kind for kind in kinds if kind.key != key]


def _differing(model: _Kind, kinds: Sequence[_Kind], others: Sequence[_Kind]) -> InvalidInputError:
    differing = [(id, kind) for kind in others for id in kind.tables]
    some = "; ".join(f"{id}: {_difference(model, kind)}" for id, kind in differing[:_FEW])
    more = f"; and {len(differing) - _FEW} more" if len(differing) > _FEW else ""
    shared_names = [
        name for name, type in model.columns.items() if all(kind.columns.get(name) == type for kind in others)
    ]
    remedy = "read all columns with unify='by_name', or read each kind separately with locations.select(...)"
    if shared_names:
        remedy = f"read the common columns with columns=[{list_names(shared_names)}], {remedy}"
    return InvalidInputError(
        f"{len(differing)} of {sum(len(kind.tables) for kind in kinds)} tables differ from {_tables(model.tables)}: "
        f"{some}{more}. To go on, {remedy}"
    )


def _difference(model: _Kind, kind: _Kind) -> Difference:
    own, usual = kind.schema, model.schema
    types = {name: (own.field(name).type, usual.field(name).type) for name in own.names if name in usual.names}
    return Difference(
        tuple(name for name in usual.names if name not in own.names),
        tuple(name for name in own.names if name not in usual.names),
        {
            name: (one, other)
            for name, (one, other) in types.items()
            if _key(one, kind.columns[name]) != _key(other, model.columns[name])
        },
    )


def _by_name(kinds: Sequence[_Kind], columns: Collection[str] | None) -> t.StructType:
    """Returns the columns of all kinds, each with a type that holds the values of all tables."""
    names = list(dict.fromkeys(name for kind in kinds for name in kind.columns) if columns is None else columns)
    spelling: dict[str, str] = {}
    for name in names:
        # Spark ignores the case of column names.
        if (other := spelling.setdefault(name.casefold(), name)) != name:
            raise InvalidInputError(
                f"unify='by_name': the columns {other!r} and {name!r} differ only in case; "
                "rename one of them, or omit it with columns=[...]"
            )
    return _struct((name, _widest(name, kinds, names)) for name in names)


def _widest(name: str, kinds: Sequence[_Kind], names: Sequence[str]) -> t.DataType:
    result = widest(type for kind in kinds if (type := kind.columns.get(name)) is not None)
    if result is None:
        raise _no_common_type(
            name, kinds, f"Omit it with columns=[{list_names([it for it in names if it != name])}], or "
        )
    return result


def _no_common_type(name: str, kinds: Sequence[_Kind], remedy: str = "") -> InvalidInputError:
    tables: dict[pa.DataType, list[TableId]] = defaultdict(list)
    for kind in kinds:
        if name in kind.columns:
            tables[kind.schema.field(name).type] += kind.tables
    some = "; ".join(f"{type} in {_tables(ids)}" for type, ids in list(tables.items())[:_FEW])
    return InvalidInputError(
        f"unify='by_name': no type holds all values of column {name!r} without loss: {some}. "
        f"{remedy or 'To go on, '}read each kind separately with locations.select(...)"
    )


def _condition(
    filter: Filter, by_schema: Mapping[pa.Schema, Sequence[TableId]], unify: Unify, table_column: str | None
) -> Condition:
    """Returns the filter, which Lance accepts for the common types of its columns."""
    names = list(dict.fromkeys(name for schema in by_schema for name in schema.names))
    by_name: dict[str, list[pa.DataType]] = defaultdict(list)
    for schema in by_schema:
        for it in schema:
            if filter.may_use(it.name):
                by_name[it.name].append(it.type)
    # Columns that the filter turns out not to use may have types without a common one.
    candidates = pa.schema([(name, _common_type(types) or types[0]) for name, types in by_name.items()])
    filter.check(candidates, names, table_column)
    if len(by_schema) == 1:
        return Condition(filter.sql)
    used = filter.columns(candidates)
    kinds = [_kind(schema, tables, used) for schema, tables in by_schema.items()]
    usual, others = _usual(kinds)
    if others and unify == "strict":
        raise _differing_filter(filter, kinds, usual, others)
    for name in used:
        if _common_type(by_name[name]) is None:
            raise _no_common_type(name, kinds)
    types = pa.schema([candidates.field(name) for name in used])
    if all(has_columns(kind.schema, types) for kind in kinds):
        return Condition(filter.sql)
    return Condition(filter.sql, encode_schema(types))


def _differing_filter(
    filter: Filter, kinds: Sequence[_Kind], usual: _Kind, others: Sequence[_Kind]
) -> InvalidInputError:
    count = sum(len(kind.tables) for kind in others)
    return InvalidInputError(
        f"{filter}: {count} of {sum(len(kind.tables) for kind in kinds)} tables differ from {_tables(usual.tables)} in "
        f"columns of the filter: {others[0].tables[0]}: {_difference(usual, others[0])}. To go on, use "
        "unify='by_name', or read each kind separately with locations.select(...)"
    )


def _common_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Returns an Arrow type that holds the values of all types; None if there is none."""
    if len(set(types)) == 1:
        return types[0]
    own = [spark_type(type) for type in types]
    wide = None if None in own else widest(type for type in own if type is not None)
    return None if wide is None else arrow_schema(_struct([("_", wide)])).field(0).type


def _struct(columns: Iterable[tuple[str, t.DataType | None]]) -> t.StructType:
    return t.StructType([t.StructField(name, type, nullable=True) for name, type in columns if type is not None])


def _key(own: pa.DataType, type: t.DataType | None) -> str:
    """Returns a text that is equal for types that Spark reads alike."""
    return str(own) if type is None else type.json()


def _tables(ids: Sequence[TableId]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"


def widest(types: Iterable[t.DataType]) -> t.DataType | None:
    """Returns the smallest type that holds all values of all types without loss; None if Spark has none."""
    result: t.DataType | None = None
    for type in dict.fromkeys(types):
        result = type if result is None else _wider(result, type)
        if result is None:
            return None
    return result


def _wider(a: t.DataType, b: t.DataType) -> t.DataType | None:
    match a, b:
        case _ if a == b or isinstance(b, t.NullType):
            return a
        case t.NullType(), _:
            return b
        case t.DecimalType(), t.DecimalType():
            whole, scale = max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale)
            return t.DecimalType(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None
        case t.ArrayType(), t.ArrayType():
            element = _wider(a.elementType, b.elementType)
            return None if element is None else t.ArrayType(element)
        case t.MapType(), t.MapType():
            key, value = _wider(a.keyType, b.keyType), _wider(a.valueType, b.valueType)
            return None if key is None or value is None else t.MapType(key, value)
        case t.StructType(), t.StructType() if a.names == b.names:
            fields = [(x.name, _wider(x.dataType, y.dataType)) for x, y in zip(a.fields, b.fields, strict=True)]
            if any(type is None for _, type in fields):
                return None
            return t.StructType([t.StructField(name, type) for name, type in fields if type is not None])
    holders = _HOLDERS.get(type(b), ())
    return next((holder() for holder in _HOLDERS.get(type(a), ()) if holder in holders), None)


_VARIABLE = frozenset(  # Functions whose value differs from scan to scan.
    "current_date current_time current_timestamp localtime localtimestamp now rand random today uuid".split()
)

_SYSTEM = frozenset("_rowid _rowaddr _rowoffset _row_created_at_version _row_last_updated_at_version".split())
"""Columns that Lance adds to every table; their values differ from table to table and are no data."""

_NO_COLUMN = "__lance_ns_no_column"
_MOST_NAMES = 20
_LONGEST_FILTER = 200
_LONGEST_REASON = 500

_UNKNOWN = re.compile(r"No field named (?:\"(?P<quoted>[^\"]+)\"|(?P<plain>[^\s.]+))")


class Filter:
    """A filter in Lance's SQL."""

    def __init__(self, sql: str) -> None:
        if not isinstance(sql, str):
            raise InvalidInputError(f"filter {sql!r}: must be a string with a condition in SQL")
        Texts({"filter": sql}).check()
        self.sql = sql
        parts = [(kind, text) for kind, text in tokens(sql) if kind not in ("space", "comment")]
        if not parts:
            raise InvalidInputError(f"filter {sql!r}: must not be empty; omit it for all rows")
        if ("other", ";") in parts:
            raise InvalidInputError(f"{self}: must be one condition, without ';'")
        self._names = {text.casefold() for kind, text in parts if kind in ("word", "quoted")}

    def __str__(self) -> str:
        return f"filter {shortened(self.sql, _LONGEST_FILTER)!r}"

    def may_use(self, column: str) -> bool:
        """Returns whether the text contains the name of the column."""
        return column.casefold() in self._names

    def columns(self, candidates: pa.Schema) -> Sequence[str]:
        """Returns those of the columns that the filter uses."""
        # Lance ignores the case of a name if no column has exactly that name.
        without = {
            name: [it for it in candidates if it.name.casefold() != name.casefold()] for name in candidates.names
        }
        return [name for name, others in without.items() if self._problem(pa.schema(others)) is not None]

    def check(self, types: pa.Schema, names: Collection[str], table_column: str | None) -> None:
        """Checks that Lance accepts the filter for the columns that it may use; the message has all `names`."""
        existing = {name.casefold() for name in names}
        system = sorted((self._names & _SYSTEM) - existing)
        if system:
            raise InvalidInputError(f"{self}: {system[0]} is not supported, because it is not a column")
        variable = sorted((self._names & _VARIABLE) - existing)
        if variable:
            raise InvalidInputError(f"{self}: {variable[0]} has another value in each task; use a literal instead")
        problem = self._problem(types)
        if problem is None:
            return
        if (unknown := _UNKNOWN.search(problem)) is None:
            raise InvalidInputError(f"{self}: {problem}")
        name = unknown["quoted"] or unknown["plain"]
        if table_column is not None and name.casefold() == table_column.casefold():
            raise InvalidInputError(
                f"{self}: {name!r} is not a column of the tables; use locations.select(...) or "
                "locations.where(...) to read fewer tables"
            )
        near = nearest(name, names)
        suggestion = "" if near is None else f"did you mean {near!r}? "
        raise InvalidInputError(f"{self}: no column {name!r}; {suggestion}The columns are {list_names(names)}")

    def _problem(self, types: pa.Schema) -> str | None:
        """Returns the reason why Lance rejects the filter for these columns; None if it accepts it."""
        import lance

        if not types.names:
            types = pa.schema([(_NO_COLUMN, pa.bool_())])  # Lance needs one
        try:
            dataset: Any = lance.write_dataset(pa.Table.from_batches([], types), "memory://")
            dataset.scanner(columns=[], filter=self.sql, with_row_id=True).explain_plan()
        except (OSError, ValueError, RuntimeError, NotImplementedError) as e:
            reason = without_source(one_line(str(e))).removeprefix("Invalid user input: ")
            return shortened(reason, _LONGEST_REASON)
        return None


def list_names(names: Collection[str]) -> str:
    """Returns the first names for an error message."""
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, list(names)[:_MOST_NAMES])) + more
