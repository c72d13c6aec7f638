"""Tables as a source of Polars: the columns that a query needs, and the rows that simple conditions select."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_a

from lance_ns_async.many.relations import Relation

_COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
)


@dataclass(frozen=True, slots=True)
class PolarsSource:
    """A source of Polars: `read` has the arguments that `register_io_source` specifies."""

    relation: Relation

    def read(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yields the rows."""
        columns = self.relation.schema.names if with_columns is None else with_columns
        condition = None if predicate is None else arrow_condition(predicate, self.relation.schema)
        needed = [] if predicate is None else predicate.meta.root_names()
        scanner = self.relation.scanner(list(dict.fromkeys([*columns, *needed])), condition)
        left = n_rows
        with scanner.to_reader() as reader:
            for batch in reader:
                rows = pl.DataFrame(batch)
                # Lance applies a part of the condition alone, and Arrow compares NaN in another way than Polars.
                if predicate is not None:
                    rows = rows.filter(predicate)
                if left is not None:
                    rows = rows.head(left)
                    left -= len(rows)
                yield rows.select(columns)
                if left == 0:
                    return


def arrow_condition(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Returns a condition of Arrow that is true wherever the predicate is; None if there is no such simple one.

    Polars does not tell the operator of an expression, but compares expressions.
    """
    inputs = predicate.meta.pop()
    if len(inputs) != 2:
        return None
    right, left = inputs
    if predicate.meta.eq(left & right):
        parts = [it for it in (arrow_condition(left, schema), arrow_condition(right, schema)) if it is not None]
        return parts[0] if len(parts) == 1 else parts[0] & parts[1] if parts else None
    if not (left.meta.is_column() and right.meta.is_literal()):
        return None
    compare = next((it for it in _COMPARISONS if predicate.meta.eq(it(left, right))), None)
    name, value = left.meta.output_name(), pl.select(right).item()
    if compare is None or not _is_comparable(schema.field(name).type, value):
        return None
    return compare(pc.field(name), pa.scalar(value))


def _is_comparable(kind: pa.DataType, value: Any) -> bool:
    """Returns whether Lance, Arrow and Polars compare the values of a type with this one in the same way."""
    match value:
        case bool():
            return bool(is_a.is_boolean(kind))
        case int():
            return bool(is_a.is_integer(kind))
        case str():
            return bool(is_a.is_string(kind))
        case date() if not isinstance(value, datetime):
            return bool(is_a.is_date32(kind))
    return False


def polars_types(schema: pa.Schema) -> Mapping[str, pl.DataType]:
    """Returns the columns with the types as which Polars reads them."""
    return pl.DataFrame(schema.empty_table()).schema


def has_type(type: pa.DataType) -> bool:
    """Returns whether Polars has a type."""
    try:
        pl.DataFrame(pa.schema([("a", type)]).empty_table())
    except (pl.exceptions.PolarsError, pa.ArrowException, TypeError, ValueError, NotImplementedError):
        return False
    return True
