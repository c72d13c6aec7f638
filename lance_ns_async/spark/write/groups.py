"""Groups of the rows of a DataFrame, one for each table: their values, their tables, and the tasks that write them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lance_namespace.errors import InvalidInputError
from pyspark.sql import functions as f
from pyspark.sql.types import (
    AtomicType,
    BooleanType,
    DateType,
    IntegerType,
    IntegralType,
    StringType,
    StructField,
    StructType,
)

from lance_ns_async.many.patterns import table_id
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.spark.session import default_tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

By: TypeAlias = "str | Column | Sequence[str | Column]"
"""The columns or expressions whose values select the table of a row."""

Into: TypeAlias = str | Iterable[str] | Callable[..., str | Iterable[str]]
"""The namespace of the tables, or a function that returns the id of the table for values of `by`."""

INDEX = "_lance_ns_table"
"""The column with the index of the table of a row."""

ROWS_A_PART = 1024 * 1024
"""Number of rows of one table above which several tasks write it: as many as a file of Lance has by default."""

_PART, _PARTS = "_lance_ns_part", "_lance_ns_parts"
_FORBIDDEN = frozenset("/\\$*?[]")
_LONGEST = 255
_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one table."""

    values: tuple[Any, ...]
    """The values of `by`."""
    id: TableId
    rows: int


class Grouping:
    """The expressions by which a DataFrame is divided."""

    def __init__(self, df: DataFrame, by: By) -> None:
        items: Sequence[str | Column] = by if isinstance(by, list | tuple) else [cast("str | Column", by)]
        if not items:
            raise InvalidInputError("by: is empty; use the name of a column, or several")
        unknown = [item for item in items if isinstance(item, str) and item not in df.columns]
        if unknown:
            raise InvalidInputError(f"by: {unknown[0]!r} is not a column of the DataFrame")
        self._keys = [f"_lance_ns_by_{n}" for n in range(len(items))]
        self._df = df
        expressions = [_column(item) if isinstance(item, str) else item for item in items]
        pairs = zip(expressions, self._keys, strict=True)
        self._with_keys = df.select("*", *(expression.alias(key) for expression, key in pairs))
        self._fields = [self._with_keys.schema[key] for key in self._keys]
        for n, field in enumerate(self._fields):
            if not isinstance(field.dataType, StringType | IntegralType | BooleanType | DateType):
                raise InvalidInputError(
                    f"by: item {n + 1} is {field.dataType.simpleString()}, and names of tables are made from string, "
                    "integer, boolean or date; cast it to string"
                )

    def count(self, limit: int) -> Sequence[tuple[tuple[Any, ...], int]]:
        """Returns the values with their number of rows. Runs a Spark job."""
        counts = self._with_keys.groupBy(*self._keys).agg(f.count(f.lit(1))).limit(limit + 1).collect()
        if len(counts) > limit:
            raise InvalidInputError(f"by: has more than {limit:,} values, and each is a table; raise max_tables")
        return [(tuple(row)[:-1], row[-1]) for row in counts]

    def divide(self, groups: Sequence[Group], *, partial: bool) -> DataFrame:
        """Returns the rows with the index of their group: those of a group are consecutive in each partition.

        Rows of other groups are omitted if `partial`; otherwise their index is null.
        """
        spark = self._df.sparkSession
        targets = [f"_lance_ns_to_{n}" for n in range(len(self._keys))]
        fields = [StructField(name, it.dataType) for name, it in zip(targets, self._fields, strict=True)]
        schema = StructType([*fields, StructField(INDEX, IntegerType()), StructField(_PARTS, IntegerType())])
        parts = [ceil(group.rows / ROWS_A_PART) for group in groups]
        indexes = spark.createDataFrame([(*group.values, n, parts[n]) for n, group in enumerate(groups)], schema)
        matches = [f.col(key) == f.col(target) for key, target in zip(self._keys, targets, strict=True)]
        with_indexes = self._with_keys.join(f.broadcast(indexes), matches, "inner" if partial else "left")
        # The part of a row depends on its values only, so that a task that is repeated gets the same rows.
        atomic = [_column(it.name) for it in self._df.schema.fields if isinstance(it.dataType, AtomicType)]
        part = f.when(f.col(_PARTS) > 1, f.pmod(f.xxhash64(*atomic), f.col(_PARTS))) if atomic else f.lit(0)
        columns = [_column(name) for name in self._df.columns]
        tasks = max(default_tasks(spark), ceil(sum(group.rows for group in groups) / ROWS_A_PART))
        return (
            with_indexes.select(*columns, INDEX, part.alias(_PART))
            .repartition(min(tasks, sum(parts)), INDEX, _PART)
            # Spark sorts with bounded memory, so that a task never holds all rows of a table.
            .sortWithinPartitions(INDEX)
            .drop(_PART)
        )


def name_tables(counts: Sequence[tuple[tuple[Any, ...], int]], into: Into) -> Sequence[Group]:
    """Returns the groups with the ids of their tables, in the order of the ids.

    Args:
        counts: The values and their number of rows.
        into: The namespace, or a function; in a namespace, the name is the value, or the values joined by `_`.
    """
    naming = into if callable(into) else _naming(into)
    groups: dict[TableId, Group] = {}
    problems: list[str] = []
    for values, rows in counts:
        problem = _problem_of_values(values)
        if problem is None:
            id = table_id(naming(*values))
            problem = next(filter(None, map(_problem_of_name, id)), None)
            if problem is None and id in groups:
                problem = f"has the same table, {id}, as {_format(groups[id].values)}"
            groups.setdefault(id, Group(values, id, rows))
        if problem is not None:
            problems.append(f"{_format(values)} {problem}")
    raise_problems(problems)
    return [groups[id] for id in sorted(groups)]


def raise_problems(problems: Collection[str]) -> None:
    """Raises InvalidInputError with the first problems, if there is one."""
    if problems:
        first_problems = "; ".join(list(problems)[:_MOST_SHOWN])
        more = f"; and {len(problems) - _MOST_SHOWN:,} more" if len(problems) > _MOST_SHOWN else ""
        raise InvalidInputError(
            f"by: {len(problems):,} values cannot be tables, and nothing was written: {first_problems}{more}; "
            "filter the DataFrame, or use another expression"
        )


def _naming(into: str | Iterable[str]) -> Callable[..., TableId]:
    namespace = NamespaceId(into)
    return lambda *values: namespace.table("_".join(map(_text, values)))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _problem_of_values(values: Sequence[Any]) -> str | None:
    if any(value is None for value in values):
        return "is null"
    return "is empty" if any(value == "" for value in values) else None


def _problem_of_name(name: str) -> str | None:
    """Returns what is wrong with a name that comes from data; catalogs have further rules."""
    if name != name.strip() or name in (".", "..") or not name.isprintable() or not _FORBIDDEN.isdisjoint(name):
        return f"gives the name {name[:80]!r}, which is not safe"
    return f"gives a name of more than {_LONGEST} bytes" if len(name.encode()) > _LONGEST else None


def _format(values: Sequence[Any]) -> str:
    texts = [repr(value)[:80] for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _column(name: str) -> Column:
    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")
