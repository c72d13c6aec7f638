"""Schema checks of a read: the common columns of many tables, before any Spark job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidInputError
from pyspark.sql.types import DataType, StructType

from lance_ns_async.model import TableId
from lance_ns_async.spark.types import spark_type

if TYPE_CHECKING:
    from lance_ns_async.spark.resolve.location import Location

_FEW = 5
"""Maximum number of differing tables in an error message."""

_MANY = 20
"""Maximum number of columns in an error message."""


@dataclass(frozen=True, slots=True)
class Common:
    """The columns to read, which all tables have."""

    schema: StructType
    filterable: Sequence[str]
    """Columns for which every comparison has the same result in Lance and Spark."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Tables with the same schema."""

    schema: pa.Schema
    tables: Sequence[TableId]
    columns: Mapping[str, DataType]

    @property
    def key(self) -> object:
        """A key that is equal for kinds that Spark can read together; column order, widths and units may differ."""
        return tuple(sorted((name, type.json()) for name, type in self.columns.items()))


def common(locations: Iterable[Location], columns: Collection[str] | None) -> Common:
    """Returns the columns to read.

    Args:
        locations: The pinned tables.
        columns: The requested columns; None for all.

    Raises:
        InvalidInputError: The tables have different columns, or a column cannot be read; the message has a remedy.
    """
    by_schema = _by_schema(locations)
    if columns is not None:
        _check_columns(columns, by_schema)
    kinds = [_kind(schema, tables, columns) for schema, tables in by_schema.items()]
    counts = Counter[object]()
    for kind in kinds:
        counts[kind.key] += len(kind.tables)
    usual = counts.most_common(1)[0][0]
    model = next(kind for kind in kinds if kind.key == usual)
    others = [kind for kind in kinds if kind.key != usual]
    if others:
        raise _differing(model, counts[usual], others)
    struct = StructType()
    for name in model.columns if columns is None else columns:
        struct = struct.add(name, model.columns[name], nullable=True)
    return Common(struct, _filterable(struct.names, by_schema))


def _by_schema(locations: Iterable[Location]) -> Mapping[pa.Schema, Sequence[TableId]]:
    # Tables are grouped by the identity of the schema first, because many share one and comparing schemas is slower.
    by_object: dict[int, tuple[pa.Schema, list[TableId]]] = {}
    for location in locations:
        by_object.setdefault(id(location.schema), (location.schema, []))[1].append(location.id)
    tables_by_schema: dict[pa.Schema, list[TableId]] = defaultdict(list)
    for schema, tables in by_object.values():
        tables_by_schema[schema] += tables
    return tables_by_schema


def _check_columns(columns: Collection[str], by_schema: Mapping[pa.Schema, Sequence[TableId]]) -> None:
    if isinstance(columns, str):
        raise InvalidInputError(f"columns {columns!r}: must be a list, not a string; use columns=[{columns!r}]")
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise InvalidInputError(f"columns: {twice[0]!r} is a duplicate")
    for name in columns:
        without = {schema: tables for schema, tables in by_schema.items() if name not in schema.names}
        if without:
            tables = [id for some in without.values() for id in some]
            has = _list_names(next(iter(without)).names)
            raise InvalidInputError(f"columns: {name!r} is not in {_tables(tables)}; its columns are {has}")


def _kind(schema: pa.Schema, tables: Sequence[TableId], columns: Collection[str] | None) -> _Kind:
    fields = [field for field in schema if columns is None or field.name in columns]
    types = {field.name: spark_type(field.type) for field in fields}
    unfit = [f"{field.name!r} ({field.type})" for field in fields if types[field.name] is None]
    fit = {name: type for name, type in types.items() if type is not None}
    if unfit:
        raise InvalidInputError(
            f"Spark has no type for {', '.join(unfit)} of {_tables(tables)}: omit it with "
            f"columns=[{_list_names(list(fit))}], or store it as a type Spark has"
        )
    unreadable = [name for name in fit if "`" in name]
    if unreadable:
        raise InvalidInputError(
            f"Lance cannot select {unreadable[0]!r} of {_tables(tables)}, because of the backtick in its name: "
            f"omit it with columns=[{_list_names([name for name in fit if name not in unreadable])}]"
        )
    return _Kind(schema, tables, fit)


def _differing(model: _Kind, usual: int, others: Sequence[_Kind]) -> InvalidInputError:
    differing = [(id, kind) for kind in others for id in kind.tables]
    differences = "; ".join(f"{id}: {_difference(model, kind)}" for id, kind in differing[:_FEW])
    more = f"; and {len(differing) - _FEW} more" if len(differing) > _FEW else ""
    shared_names = [
        name for name, type in model.columns.items() if all(kind.columns.get(name) == type for kind in others)
    ]
    remedy = "read each kind separately with locations.select(...)"
    if shared_names:
        remedy = f"read the common columns with columns=[{_list_names(shared_names)}], or {remedy}"
    return InvalidInputError(
        f"{len(differing)} of {len(differing) + usual} tables differ from {_tables(model.tables)}: "
        f"{differences}{more}. To go on, {remedy}"
    )


def _difference(model: _Kind, kind: _Kind) -> str:
    differences = [f"column {name!r} is missing" for name in model.columns if name not in kind.columns]
    differences += (f"column {name!r} is extra" for name in kind.columns if name not in model.columns)
    for name, type in kind.columns.items():
        if name in model.columns and type != model.columns[name]:
            differences.append(
                f"column {name!r} is {kind.schema.field(name).type}, not {model.schema.field(name).type}"
            )
    return ", ".join(differences)


def _filterable(names: Sequence[str], schemas: Iterable[pa.Schema]) -> Sequence[str]:
    return [name for name in names if all(_compares_alike(schema.field(name).type) for schema in schemas)]


def _compares_alike(type: pa.DataType) -> bool:
    # Floats are excluded, because Spark treats -0.0 as equal to 0.0 and NaN as the largest value. Times and decimals
    # are excluded, because Lance has no exact literals for them.
    tests = (
        pa.types.is_signed_integer,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_date32,
    )
    return any(test(type) for test in tests)


def _tables(ids: Sequence[TableId]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"


def _list_names(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MANY else ""
    return ", ".join(map(repr, names[:_MANY])) + more
