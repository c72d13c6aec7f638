"""Translation of Spark filters to Lance SQL, if both have exactly the same meaning. Needs Spark 4.1.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)


def column(filter: Filter) -> str | None:
    """Returns the column of a filter; None if the filter is about a nested field."""
    while isinstance(filter, Not):
        filter = filter.child
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def keeps(filter: Filter, value: str) -> bool | None:
    """Returns whether a filter keeps a row with `value` in its column; None if that cannot be decided here."""
    # Python compares code points and Spark compares UTF-8 bytes, which gives the same order.
    match filter:
        case Not(child=child):
            result = keeps(child, value)
            return None if result is None else not result
        case EqualTo(value=str() as other) | EqualNullSafe(value=str() as other):
            return value == other
        case In(value=others) if all(isinstance(other, str) for other in others):
            return value in others
        case GreaterThan(value=str() as other):
            return value > other
        case GreaterThanOrEqual(value=str() as other):
            return value >= other
        case LessThan(value=str() as other):
            return value < other
        case LessThanOrEqual(value=str() as other):
            return value <= other
        case StringStartsWith(value=part):
            return value.startswith(part)
        case StringEndsWith(value=part):
            return value.endswith(part)
        case StringContains(value=part):
            return part in value
        case IsNotNull():
            return True
        case IsNull():
            return False
        case _:
            return None


LONGEST = 1 << 20
"""Maximum length of all conditions in characters; Lance needs a second to parse so many, in each task."""

MOST = 1_000
"""Maximum number of conditions for Lance."""

_MOST_VALUES = 100_000
_MOST_NOT = 8
"""Maximum depth of nested NOT; each level doubles the time of Lance's parser."""


def sql(filter: Filter, filterable: Collection[str]) -> str | None:
    """Returns an equivalent condition, which is true, false and null for the same rows; None if there is none."""
    name = column(filter)
    if name is None or name not in filterable or not _is_quick_to_plan(filter):
        return None
    condition = _condition(filter, f"`{name}`")
    return None if condition is None or len(condition) > LONGEST else condition


def _is_quick_to_plan(filter: Filter) -> bool:
    """Returns whether Lance can parse and plan the filter in a short time; otherwise Spark applies it."""
    depth = 0
    while isinstance(filter, Not):
        filter, depth = filter.child, depth + 1
    return depth <= _MOST_NOT and not (isinstance(filter, In) and len(filter.value) > _MOST_VALUES)


def _condition(filter: Filter, name: str) -> str | None:
    match filter:
        case Not(child=child):
            inner = _condition(child, name)
            return None if inner is None else f"(NOT {inner})"
        case EqualTo(value=value):
            return _compare(name, "=", value)
        case EqualNullSafe(value=value):
            equal = _compare(name, "=", value)
            return None if equal is None else f"({name} IS NOT NULL AND {equal})"
        case GreaterThan(value=value):
            return _compare(name, ">", value)
        case GreaterThanOrEqual(value=value):
            return _compare(name, ">=", value)
        case LessThan(value=value):
            return _compare(name, "<", value)
        case LessThanOrEqual(value=value):
            return _compare(name, "<=", value)
        case In(value=values):
            literals = [literal for value in values if (literal := _literal(value)) is not None]
            return f"({name} IN ({', '.join(literals)}))" if len(literals) == len(values) > 0 else None
        case StringStartsWith(value=part):
            return f"starts_with({name}, {_literal(part)})"
        case StringEndsWith(value=part):
            return f"ends_with({name}, {_literal(part)})"
        case StringContains(value=part):
            return f"contains({name}, {_literal(part)})"
        case IsNull():
            return f"({name} IS NULL)"
        case IsNotNull():
            return f"({name} IS NOT NULL)"
        case _:
            return None


def _compare(name: str, operator: str, value: object) -> str | None:
    literal = _literal(value)
    return None if literal is None else f"({name} {operator} {literal})"


def _literal(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        # The smallest 64-bit integer is excluded: its sign is parsed separately, so it would become a float.
        return str(value) if abs(value) < 2**63 else None
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if type(value) is date:
        return f"date '{value.isoformat()}'"
    return None
