"""Values of partition fields: transforms are compared with the DataFusion expressions of the spec."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_ns_async.operations.partition_values import derive, divide
from lance_ns_async.spec.partitions import Partitioning, new_spec, with_field_ids

pytestmark = pytest.mark.floors


ROWS = pa.table(
    {
        "at": pa.array([datetime(1969, 12, 31, 23, 59, 59), datetime(2025, 2, 28, 7), None], pa.timestamp("us")),
        "day": pa.array([date(1969, 12, 31), date(2025, 2, 28), None]),
        "n": pa.array([-11, 19, None], pa.int32()),
        "wide": pa.array([-11, 19, None], pa.int64()),
        "s": ["naïveté", "", None],
    }
)
PARTITIONING = Partitioning(with_field_ids(ROWS.schema), ())


def derived(field: Any, rows: pa.Table = ROWS) -> list[Any]:
    partitioning = Partitioning(with_field_ids(rows.schema), ())
    values: list[Any] = derive(partitioning, new_spec(partitioning, [field]).fields[0], rows).to_pylist()
    return values


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        *((f"{part}(at)", f"date_part('{part}', col0)") for part in ("year", "month", "day", "hour")),
        *((f"{part}(day)", f"date_part('{part}', col0)") for part in ("year", "month", "day")),
        ("truncate(10, n)", "col0 - (col0 % 10)"),
        ("truncate(3, s)", "left(col0, 3)"),
        ("s", "col0"),
    ],
)
def test_a_transform_is_the_expression_of_the_spec(text: str, expression: str) -> None:
    field = new_spec(PARTITIONING, [text]).fields[0].to_json()
    del field["transform"]
    assert derived(text) == derived({**field, "expression": expression})


def test_a_width_may_be_larger_than_the_values() -> None:
    rows = pa.table(
        {"n": pa.array([2**64 - 1, 2**63 + 5, 7], pa.uint64()), "i": pa.array([-128, 127, None], pa.int8())}
    )
    assert derived("truncate(10, n)", rows) == [2**64 - 6, 2**63 + 2, 0]
    assert derived("truncate(200, i)", rows) == [0, 0, None]
    assert derived("truncate(100, i)", rows) == [-100, 100, None]


def test_a_hash_is_that_of_murmur3() -> None:
    """The hash of "hello" is 0x248bfa47 and that of "hello, world" is 0x149bbb7f, as published for the algorithm."""
    rows = pa.table({"s": ["hello", "hello, world", None]})
    assert derived("bucket(1000000, s)", rows) == [0x248BFA47 % 1_000_000, 0x149BBB7F % 1_000_000, None]


def test_equal_numbers_have_the_same_bucket() -> None:
    assert derived("bucket(97, n)") == derived("bucket(97, wide)")
    small = pa.table({"n": pa.array([200, 0], pa.uint8())})
    assert derived("bucket(97, n)", small) == derived("bucket(97, n)", small.cast(pa.schema({"n": pa.int16()})))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_are_hashed_like_their_bytes(numbers: list[int]) -> None:
    rows = pa.table({"n": numbers, "b": [number.to_bytes(8, "little", signed=True) for number in numbers]})
    assert derived("bucket(1000000007, n)", rows) == derived("bucket(1000000007, b)", rows)


def test_a_bucket_of_sixteen_is_in_one_of_eight() -> None:
    """Appendix F of the published text: partitions of compatible buckets are joined without moving rows."""
    rows = pa.table({"n": pa.array([*range(-500, 500), None])})
    fine, coarse = derived("bucket(16, n)", rows), derived("bucket(8, n)", rows)
    assert set(fine) == {*range(16), None}
    assert [None if bucket is None else bucket % 8 for bucket in fine] == coarse


def test_nulls_are_left_out_of_the_hash_of_several_columns() -> None:
    rows = pa.table({"a": ["x", None, "x", None], "b": ["y", "y", None, None]})
    both, first, second, neither = derived("bucket(97, a, b)", rows)
    assert [first, second] == derived("bucket(97, b)", rows)[1:2] + derived("bucket(97, a)", rows)[2:3]
    assert neither is None and both == derived("bucket(97, s)", pa.table({"s": ["xy"]}))[0]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"\x00\xff", None]),
        pa.array([True, False]),
        pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        pa.array([date(2025, 1, 1), None]),
        pa.array([2**64 - 1, 0], pa.uint64()),
        pa.array(["x", None], pa.large_string()),
    ],
    ids=lambda values: str(values.type),
)
def test_values_of_other_types_have_buckets(values: pa.Array) -> None:
    for value, bucket in zip(values.to_pylist(), derived("bucket(5, v)", pa.table({"v": values})), strict=True):
        assert bucket is None if value is None else bucket in range(5)


def test_rows_are_divided_by_all_fields_and_keep_their_order() -> None:
    rows = pa.table({"a": ["x", "y", "x", None, "x", None], "b": [1, 1, 2, 1, 1, 1]})
    partitioning = Partitioning(with_field_ids(rows.schema), ())
    values, parts = divide(partitioning, new_spec(partitioning, ["a", "b"]), rows)
    assert [tuple(row.values()) for row in values.to_pylist()] == [("x", 1), ("y", 1), ("x", 2), (None, 1)]
    assert parts[0].to_pylist() == [{"a": "x", "b": 1}] * 2
    assert [part.num_rows for part in parts] == [2, 1, 1, 2]


def test_a_removed_column_counts_as_null() -> None:
    spec = new_spec(PARTITIONING, ["n", "bucket(3, n, s)"])
    without = Partitioning(pa.schema([field for field in PARTITIONING.schema if field.name != "n"]), [spec])
    rows = ROWS.drop_columns(["n"])
    assert derive(without, spec.fields[0], rows).to_pylist() == [None] * 3
    assert derive(without, spec.fields[1], rows).to_pylist() == derived("bucket(3, s)")


def test_an_expression_that_fails_is_named() -> None:
    field = {"field_id": "e", "source_ids": [2], "expression": "col0 / 0", "result_type": {"type": "int32"}}
    with pytest.raises(InvalidInputError, match=r"partition field 'e': 'col0 / 0' failed \(.*[Dd]ivide by zero"):
        derived(field)
