"""Columns and values that a real Spark session writes, and the errors for those that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.integration.spark_writes.lake import ID, Lake, await_files, failing, files
from tests.support.spark_sessions import SPARK

pytestmark = SPARK

VECTORS = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.list_(pa.float32(), 2))])

TWO_VECTORS = [(1, [0.0, 1.0]), (2, [2.0, 3.0])]


def test_vectors(spark: SparkSession, lake: Lake) -> None:
    df = spark.createDataFrame(TWO_VECTORS, "id long, v array<double>")
    lake.write(df, schema=pa.schema([pa.field("v", pa.list_(pa.float32(), 2))]))
    lake.write(df, "append")
    assert lake.dataset().schema == VECTORS
    assert lake.dataset().count_rows() == 4
    # Types that are the same for Spark stay unchanged.
    lake.write(df.select("id", f.col("v").cast("array<float>")), "overwrite")
    assert lake.dataset().schema == VECTORS
    assert [tuple(row.values()) for row in lake.dataset().to_table().to_pylist()] == TWO_VECTORS


def test_values_of_all_types_are_kept(spark: SparkSession, lake: Lake) -> None:
    moment = datetime(2024, 2, 29, 12, 30, 0, 123456)
    ddl = (
        "b boolean, y tinyint, i int, f float, d double, dec decimal(20,3), s string, bin binary, day date, "
        "at timestamp_ntz, utc timestamp, l array<array<int>>, st struct<a:int,b:array<string>>, m map<string,int>"
    )
    row: Sequence[Any] = [True, -128, 7, 0.5, 1e300, Decimal("1.250"), "é", b"\0", date(2024, 2, 29), moment]
    row = [*row, moment.replace(tzinfo=UTC), [[1], None, []], {"a": 1, "b": ["x", None]}, {"k": 1, "n": None}]
    df = spark.createDataFrame([tuple(row), (None,) * len(row)], ddl)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        lake.write(df)
        lake.write(df, "append")
        rows = lake.dataset().to_table().to_pylist(maps_as_pydicts="strict")
        assert sorted((list(it.values()) for it in rows), key=str) == sorted([row, [None] * len(row)] * 2, key=str)
        assert lake.dataset().schema.field("utc").type == pa.timestamp("us", "UTC")
        again = lake.resolver.prefetch("db.t").dataframe(spark, table_column=None)
        assert (
            again.where("b").select("utc", "at", "m").collect() == df.union(df).where("b")["utc", "at", "m"].collect()
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


MISFITS: Mapping[str, tuple[str, str]] = {
    "missing": ("id", r"column 's' is only in the table; .*lit\(None\)"),
    "extra": ("id, s, 1 x", "column 'x' is only in the DataFrame"),
    "case": ("id ID, s", "column 'id' is only in the table, column 'ID' is only in the DataFrame"),
    "type": ("string(id) id, s", "column 'id' is string in the DataFrame, but must be int64"),
    "both": ("double(id) id", "column 's' is only in the table, column 'id' is double in the DataFrame"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_append_refuses_other_columns(spark: SparkSession, lake: Lake, case: str) -> None:
    lake.make(pa.table({"id": [1], "s": ["a"]}))
    selected, message = MISFITS[case]
    with pytest.raises(TableSchemaValidationError, match=rf"^Table schema invalid: db\$t \({message}"):
        lake.write(failing(spark).withColumn("s", f.lit("b")).selectExpr(*selected.split(", ")), "append")


def test_append_casts_to_the_types_of_the_table(spark: SparkSession, lake: Lake) -> None:
    types = [pa.int8(), pa.large_string(), pa.float32(), pa.uint16(), pa.list_(pa.float16(), 1), pa.int32()]
    names = ["a", "b", "c", "d", "e", "f"]
    lake.make(pa.schema(zip(names, types, strict=True)).empty_table())
    df = spark.sql("select 1L a, 'x' b, 0.5D c, 7 d, array(1.5D) e, null f")
    lake.write(df, "append")
    assert lake.dataset().to_table().to_pylist() == [{"a": 1, "b": "x", "c": 0.5, "d": 7, "e": [1.5], "f": None}]


UNFIT: Mapping[str, tuple[str, pa.Field, str, str]] = {
    "length": (
        "create",
        pa.field("x", pa.list_(pa.float32(), 2)),
        "array(1.0D)",
        "a value cannot be cast to fixed_size",
    ),
    "range": ("append", pa.field("x", pa.int8()), "int(id * 100)", "a value cannot be cast to int8: Integer value"),
    "null": (
        "append",
        pa.field("x", pa.int64(), nullable=False),
        "if(id = 19, null, id)",
        "has a null, but is not nullable",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_value_that_cannot_be_cast_fails_the_job(spark: SparkSession, lake: Lake, tmp_path: Path, case: str) -> None:
    mode, field, sql, message = UNFIT[case]
    schema = pa.schema([field])
    if mode == "append":
        lake.make(schema.empty_table())
    before = files(tmp_path)
    df = spark.range(0, 20, 1, 2).selectExpr(f"{sql} x")
    with pytest.raises(TableSchemaValidationError, match=rf"^Table schema invalid: db\$t \(column 'x': {message}"):
        lake.write(df, mode, schema=schema if mode == "create" else None)
    await_files(tmp_path, before)
    assert lake.namespace.exists(ID) == (mode == "append")


UNSTORABLE: Mapping[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "dot": (lambda df: df.withColumnRenamed("id", "a.b"), "cannot store these columns .*Top level field a.b"),
    "twice": (lambda df: df.selectExpr("id", "id"), "2 columns are named 'id'"),
    "none": (lambda df: df.select(), "has no columns"),
    "interval": (lambda df: df.selectExpr("make_interval(1) i"), r"no type for 'i' \(interval\)"),
    "reserved": (lambda df: df.withColumnRenamed("id", "_rowid"), "_rowid is a reserved name"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
def test_unstorable_columns_are_refused(spark: SparkSession, lake: Lake, case: str) -> None:
    change, message = UNSTORABLE[case]
    with pytest.raises(InvalidInputError, match=message):
        lake.write(change(failing(spark)))
    assert not lake.namespace.exists(ID)


def test_unusual_column_names(spark: SparkSession, lake: Lake) -> None:
    names = ["a b", "select", "é", 'say "x"', "A", "a/b", " "]
    df = spark.range(1).select(*(f.lit(n).alias(name) for n, name in enumerate(names)))
    lake.write(df)
    lake.write(df.select(*(f"`{name}`" for name in reversed(names))), "append")
    assert lake.dataset().to_table().to_pylist() == [{name: n for n, name in enumerate(names)}] * 2
