"""Spark's filters as Lance SQL: Lance keeps exactly the rows that Spark would."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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

from lance_ns_async.spark.read.filters import column, keeps, sql

pytestmark = pytest.mark.integration

VALUES: Mapping[str, list[Any]] = {
    "i": [-(2**63) + 1, -1, 0, 7, 2**63 - 1, None],
    "small int": [-128, -1, 0, 7, 127, None],
    "s": ["", "a", "B", "it's", '"', "%_\\", "a\nb\t", "é\u0301", "\U0001f600", "日本", "a'--", None],
    "Select": ["a", "ab", "b", None, "\\'", "''"],
    "ok": [True, False, None],
    "d": [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None],
}
TYPES = {
    "i": pa.int64(),
    "small int": pa.int8(),
    "s": pa.string(),
    "Select": pa.large_string(),
    "ok": pa.bool_(),
    "d": pa.date32(),
}
TEXTS = ("s", "Select")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each column runs through its values, once in each row of a length that no two have in common."""
    columns = {
        name: pa.array([values[row % len(values)] for row in range(60)], TYPES[name]) for name, values in VALUES.items()
    }
    path: Path = tmp_path_factory.mktemp("filters") / "t.lance"
    return lance.write_dataset(pa.table(columns), str(path), max_rows_per_file=17)


def truth(filter: Filter, value: Any) -> bool | None:
    """What a filter says of a value in SQL's three-valued logic."""
    match filter:
        case Not(child=child):
            said = truth(child, value)
            return None if said is None else not said
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe(value=other):
            return bool(value == other)
    if value is None:
        return None
    match filter:
        case EqualTo(value=other):
            return bool(value == other)
        case In(value=others):
            return value in others
        case StringStartsWith(value=part):
            return bool(value.startswith(part))
        case StringEndsWith(value=part):
            return bool(value.endswith(part))
        case StringContains(value=part):
            return part in value
    own, other = (v.encode() if isinstance(v, str) else v for v in (value, getattr(filter, "value")))  # noqa: B009
    match filter:
        case GreaterThan():
            return bool(own > other)
        case GreaterThanOrEqual():
            return bool(own >= other)
        case LessThan():
            return bool(own < other)
        case LessThanOrEqual():
            return bool(own <= other)
    raise AssertionError(filter)


@st.composite
def filters(draw: st.DrawFn, names: tuple[str, ...] = tuple(VALUES)) -> Filter:
    name = draw(st.sampled_from(names))
    values = st.sampled_from([value for value in VALUES[name] if value is not None])
    if name in TEXTS:
        values |= st.text(max_size=3)
    compared = st.one_of(
        *(
            st.builds(kind, st.just((name,)), values)
            for kind in (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
        ),
        st.builds(In, st.just((name,)), st.lists(values, min_size=1, max_size=3).map(tuple)),
        st.builds(IsNull, st.just((name,))),
        st.builds(IsNotNull, st.just((name,))),
    )
    if name in TEXTS:
        parts = (StringStartsWith, StringEndsWith, StringContains)
        compared |= st.one_of(*(st.builds(kind, st.just((name,)), values) for kind in parts))
    chosen: Filter = draw(compared)
    return Not(chosen) if draw(st.booleans()) else chosen


@given(st.lists(filters(), min_size=1, max_size=2))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lance_keeps_the_rows_that_spark_would(dataset: Any, given: list[Filter]) -> None:
    conditions = [sql(filter, tuple(VALUES)) for filter in given]
    assert None not in conditions
    rows = dataset.to_table().to_pylist()
    expected = [row for row in rows if all(truth(f, row[str(column(f))]) is True for f in given)]
    assert dataset.to_table(filter=" AND ".join(map(str, conditions))).to_pylist() == expected


@given(filters(names=("s",)), st.text(max_size=3) | st.sampled_from([v for v in VALUES["s"] if v is not None]))
def test_a_table_is_kept_if_its_id_would_be(filter: Filter, id: str) -> None:
    assert keeps(filter, id) is truth(filter, id)


@pytest.mark.parametrize(
    "filter",
    [
        EqualTo(("x",), 1),
        EqualTo(("i", "inner"), 1),
        EqualTo(("i",), None),
        EqualTo(("i",), -(2**63)),
        EqualTo(("i",), 1.5),
        GreaterThan(("d",), datetime(2024, 1, 1)),
        In(("i",), (1, None)),
        In(("i",), ()),
        Not(In(("i",), (1, None))),
        EqualTo(("i",), b"x"),
    ],
)
def test_inexact_filters_are_left_to_spark(filter: Filter) -> None:
    assert sql(filter, tuple(VALUES)) is None


@pytest.mark.parametrize(
    "filter", [EqualTo(("_table",), None), Not(In(("_table",), ("a", None))), GreaterThan(("_table",), 3)]
)
def test_a_table_is_not_judged_by_what_is_no_text(filter: Filter) -> None:
    assert keeps(filter, "db$t") is None
