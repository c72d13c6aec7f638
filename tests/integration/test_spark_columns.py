"""Columns and types that a real Spark session reads, and those that are refused before any job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lance_ns_async.spark import Locations
from tests.integration.spark_lake import Lake, rows
from tests.support.spark_sessions import SPARK

pytestmark = SPARK


def test_columns_are_chosen_and_ordered(spark: SparkSession, many: Locations) -> None:
    few = many.select(["db.t0", "db.t1"])
    assert few.dataframe(spark, columns=["x", "id"], table_column="from").columns == ["x", "id", "from"]
    for none in (None, ""):
        frame = few.dataframe(spark, columns=["id"], table_column=none)
        assert [row.asDict() for row in frame.where("id = 13").collect()] == [{"id": 13}]
    only_tables = few.dataframe(spark, columns=[])
    assert sorted(map(tuple, only_tables.groupBy("_table").count().collect())) == [("db$t0", 10), ("db$t1", 10)]


@pytest.mark.parametrize(
    ("columns", "table_column", "message"),
    [
        (["id", "nix"], "_table", r"columns: 'nix' is not in db\$t0 and 1 more; its columns are 'id', 's', 'x'"),
        (["id", "id"], "_table", "'id' is a duplicate"),
        ("id", "_table", r"use columns=\['id'\]"),
        ([], None, "must not be empty without a table_column"),
        (None, "ID", r"table_column 'ID': the tables have a column 'id'"),
    ],
)
def test_columns_that_cannot_be_are_refused(
    spark: SparkSession, many: Locations, columns: Any, table_column: str | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        many.select(["db.t0", "db.t1"]).dataframe(spark, columns=columns, table_column=table_column)


def test_tables_that_differ_are_named_before_any_job(spark: SparkSession, lake: Lake) -> None:
    for n in range(5):
        lake.write(f"t{n}", rows(n))
    lake.write("less", rows(5).drop_columns(["x"]))
    lake.write("more", rows(6).append_column("y", pa.array([True] * 10)))
    lake.write("other", rows(7).set_column(1, "s", pa.array(range(10), pa.int32())))
    locations = lake.prefetch()
    with pytest.raises(InvalidInputError) as caught:
        locations.dataframe(spark)
    assert str(caught.value) == (
        "3 of 8 tables differ from db$t0 and 4 more: db$less: column 'x' is missing; "
        "db$more: column 'y' is extra; db$other: column 's' is int32, not string. "
        "To go on, read the common columns with columns=['id'], read all columns with "
        "unify='by_name', or read each kind separately with locations.select(...)"
    )
    assert locations.dataframe(spark, columns=["id"]).count() == 80
    assert locations.select("db.t?").dataframe(spark).count() == 50


def test_different_tables_are_read_by_name(spark: SparkSession, lake: Lake) -> None:
    lake.write(
        "a", pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([[1.0, 0.1]] * 2, pa.list_(pa.float32(), 2))})
    )
    lake.write(
        "b", pa.table({"x": [0.5], "id": pa.array([2**40], pa.int64()), "v": pa.array([[0.1]], pa.list_(pa.float64()))})
    )
    lake.write("c", pa.table({"id": [3], "d": pa.array([{"a": 1}], pa.struct([("a", pa.int8())]))}))
    lake.write("d", pa.table({"id": [4], "d": pa.array([{"a": 1000}], pa.struct([("a", pa.int64())]))}))
    locations = lake.prefetch()
    assert {id[1]: str(difference) for id, difference in locations.differences(["id", "x"]).items()} == {
        "a": "column 'id' is int32, not int64",
        "b": "column 'x' is extra",
    }
    frame = locations.dataframe(spark, unify="by_name", table_column=None)
    assert dict(frame.dtypes) == {"id": "bigint", "v": "array<double>", "x": "double", "d": "struct<a:bigint>"}
    rounded = pa.scalar(0.1, pa.float32()).as_py()
    expected = [
        (1, [1.0, rounded], None, None),
        (2, [1.0, rounded], None, None),
        (3, None, None, (1,)),
        (4, None, None, (1000,)),
        (2**40, [0.1], 0.5, None),
    ]
    assert frame.select("id", "v", "x", "d").orderBy("id").collect() == expected
    for filter, ids in (
        (f"id > 1 and id < {2**40}", [2, 3, 4]),
        ("x IS NULL and id <> 2", [1, 3, 4]),
        ("x = 0.5 or id = 1", [1, 2**40]),
        ("d.a = 1000", [4]),
        ("array_length(v) = 2", [1, 2]),
    ):
        frame = locations.dataframe(spark, ["id"], filter=filter, unify="by_name", table_column=None)
        assert [row["id"] for row in frame.orderBy("id").collect()] == ids
    with pytest.raises(InvalidInputError, match="no type holds all values of column 's'"):
        lake.write("e", pa.table({"s": [1]}))
        lake.write("f", pa.table({"s": ["x"]}))
        lake.prefetch().dataframe(spark, unify="by_name")


def test_tables_may_differ_in_what_spark_does_not_tell_apart(spark: SparkSession, lake: Lake) -> None:
    lake.write("a", pa.table({"id": [1], "s": pa.array(["x"]), "at": pa.array([0], pa.timestamp("us"))}))
    schema = pa.schema(
        [
            pa.field("at", pa.timestamp("ms"), nullable=False),
            pa.field("s", pa.large_string()),
            pa.field("id", pa.int64(), nullable=False),
        ],
        metadata={"from": "elsewhere"},
    )
    lake.write("b", pa.table([[1000], ["y"], [2]], schema=schema))
    locations = lake.prefetch().dataframe(spark, table_column=None).orderBy("id").collect()
    assert locations == [(1, "x", datetime(1970, 1, 1)), (2, "y", datetime(1970, 1, 1, 0, 0, 1))]


def test_types_spark_does_not_have_are_named(spark: SparkSession, lake: Lake) -> None:
    unfit = {"u": pa.array([1], pa.uint32()), "half": pa.array([[1.0]], pa.list_(pa.float16(), 1))}
    for n in range(2):
        lake.write(f"t{n}", pa.table({"id": [1], **unfit, "s": ["a"]}))
    locations = lake.prefetch()
    message = r"'u' \(uint32\), 'half' \(fixed_size_list.*halffloat.*\) of db\$t0 and 1 more: .* columns=\['id', 's'\]"
    with pytest.raises(InvalidInputError, match=message):
        locations.dataframe(spark)
    assert locations.dataframe(spark, columns=["id", "s"]).count() == 2


def test_values_arrive_as_they_were(spark: SparkSession, lake: Lake) -> None:
    day, moment = date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 0, 123456)
    utc = moment.replace(tzinfo=UTC)
    types: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
        "bool": (pa.bool_(), [True, False]),
        "tiny": (pa.int8(), [-128, 127]),
        "int": (pa.int32(), [-(2**31), 2**31 - 1]),
        "long": (pa.int64(), [-(2**63), 2**63 - 1]),
        "float": (pa.float32(), [0.5, float("inf")]),
        "double": (pa.float64(), [-0.0, 1e300]),
        "decimal": (pa.decimal128(20, 2), [Decimal("-123456789012345678.90"), Decimal("0.01")]),
        "text": (pa.string(), ["", "é\U0001f600"]),
        "large text": (pa.large_string(), ["a", "b"]),
        "code": (pa.dictionary(pa.int16(), pa.string()), ["red", "green"]),
        "bytes": (pa.large_binary(), [b"", b"\x00\xff"]),
        "fixed": (pa.binary(2), [b"ab", b"cd"]),
        "day": (pa.date32(), [day, date(1, 1, 1)]),
        "naive": (pa.timestamp("ns"), [moment, datetime(1969, 12, 31)]),
        "aware": (pa.timestamp("us", "UTC"), [utc, utc - timedelta(days=36500)]),
        "vector": (pa.list_(pa.float32(), 3), [[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]]),
        "list": (pa.list_(pa.field("item", pa.string())), [["a", None], []]),
        "struct": (
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))]),
            [{"a": 1, "b": [2]}, {"a": 3, "b": []}],
        ),
    }
    for n in range(2):
        columns = {name: pa.array([values[n], None], type) for name, (type, values) in types.items()}
        lake.write(f"t{n}", pa.table(columns))
    frame = lake.prefetch().dataframe(spark, table_column="from")
    assert [field.dataType.simpleString() for field in frame.schema][13:16] == [
        "timestamp_ntz",
        "timestamp",
        "array<float>",
    ]
    # Spark's own Python side converts aware times to the machine's zone and drops the zone.
    frame = frame.withColumn("aware", f.unix_micros("aware"))
    result = {row["from"]: row.asDict(recursive=True) for row in frame.where("tiny is not null").collect()}
    for n in range(2):
        expected = {name: values[n] for name, (_, values) in types.items()}
        expected["aware"] = (expected["aware"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        actual = {name: bytes(v) if isinstance(v, bytearray) else v for name, v in result[f"db$t{n}"].items()}
        assert actual == {**expected, "from": f"db$t{n}"}
    nulls = frame.where("tiny is null").drop("from").collect()
    assert [set(row) for row in nulls] == [{None}, {None}]


def test_times_too_fine_for_spark_are_errors_and_not_truncated(spark: SparkSession, lake: Lake) -> None:
    lake.write("t", pa.table({"at": pa.array([1_000_001], pa.timestamp("ns"))}))
    frame = lake.prefetch().dataframe(spark)
    with pytest.raises(PythonException, match=r"db\$t, version 1 .*column 'at' cannot be cast to timestamp\[us\]"):
        frame.collect()


def test_blobs_are_read_as_bytes(spark: SparkSession, lake: Lake) -> None:
    schema = pa.schema([pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    lake.write("t", pa.table([[b"x" * 1000, b"y"]], schema=schema), data_storage_version="2.1")
    locations = lake.prefetch().dataframe(spark, table_column=None).collect()
    assert sorted(bytes(row["b"]) for row in locations) == [b"x" * 1000, b"y"]


@pytest.mark.parametrize("name", ["a b", "select", "é", "a/b", 'say "x"'])
def test_columns_of_any_name_are_read_and_filtered(spark: SparkSession, lake: Lake, name: str) -> None:
    lake.write("t", pa.table({name: [1, 2, 3], "s": ["a", "b", "b"]}))
    locations = lake.prefetch()
    assert locations.dataframe(spark, filter=f"`{name}` > 1 and s = 'b'").count() == 2
    assert locations.dataframe(spark).where("s = 'a'").select(f"`{name}`").collect() == [(1,)]


def test_columns_lance_cannot_select_are_named(spark: SparkSession, lake: Lake) -> None:
    lake.write("t", pa.table({"tick`": [1, 2], "s": ["a", "b"]}))
    locations = lake.prefetch()
    with pytest.raises(InvalidInputError, match=r"'tick`' of db\$t, because of the backtick .* columns=\['s'\]"):
        locations.dataframe(spark)
    assert locations.dataframe(spark, columns=["s"], filter="s = 'a'").count() == 1
