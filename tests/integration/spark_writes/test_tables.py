"""Writes of DataFrames in a real Spark session: the resulting tables, and the refused writes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lance_ns_async import TableId
from lance_ns_async.spark.resolve.report import WriteReport
from tests.integration.spark_writes.lake import ID, JOB_FAILED, Lake, await_files, failing, files
from tests.support.budget import thorough
from tests.support.spark import SPARK

pytestmark = SPARK


def test_create_writes_all_partitions(spark: SparkSession, lake: Lake) -> None:
    # Two of the four partitions have no rows.
    report = lake.write(spark.range(0, 100, 1, 4).where("id < 30 or id >= 90"))
    assert report == WriteReport(TableId(ID), lake.location(), 1, 40, 3)
    assert lake.ids() == [*range(30), *range(90, 100)]
    assert lake.dataset().schema == pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("declared", [True, False])
def test_create_and_ignore_leave_an_existing_table(
    spark: SparkSession, lake: Lake, declared: bool, tmp_path: Path
) -> None:
    if declared:
        lake.declare()
    else:
        lake.make(pa.table({"id": [7]}))
    before = files(tmp_path)
    with pytest.raises(err.TableAlreadyExistsError, match=r"^Table already exists: db\$t"):
        lake.write(failing(spark))
    report = lake.write(failing(spark), "ignore")
    assert report == WriteReport(TableId(ID), lake.location(), None if declared else 1, 0, 0)
    assert files(tmp_path) == before


def test_ignore_creates_a_missing_table(spark: SparkSession, lake: Lake) -> None:
    assert lake.write(spark.range(3), "ignore").rows == 3
    assert lake.ids() == [0, 1, 2]
    for id in ("db.t", "db$t", TableId(["db", "t"])):
        assert lake.resolver.write(spark.range(1), id, mode="append").id == TableId(["db", "t"])
    assert lake.ids() == [0, 0, 0, 0, 1, 2]


def test_append_adds_rows_by_column_name(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(3).withColumn("s", f.lit("a")))
    report = lake.write(spark.range(3, 5).select(f.lit("b").alias("s"), "id"), "append")
    assert (report.version, report.rows) == (2, 2)
    assert lake.dataset().schema.names == ["id", "s"]
    assert sorted(map(tuple, (row.values() for row in lake.dataset().to_table().to_pylist()))) == [
        *((n, "a") for n in range(3)),
        *((n, "b") for n in range(3, 5)),
    ]


def test_prefetch_after_append_returns_the_new_version(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(3))
    assert lake.resolver.prefetch("db.t")["db.t"].rows == 3
    lake.write(spark.range(3), "append")
    assert lake.resolver.prefetch("db.t")["db.t"].rows == 6


def test_append_needs_a_table_which_may_have_no_version(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(err.TableNotFoundError, match=r"^Table not found: db\$t"):
        lake.write(failing(spark), "append")
    lake.declare()
    assert lake.write(spark.range(3), "append").version == 1
    assert lake.ids() == [0, 1, 2]


def test_overwrite_replaces_rows_and_columns(spark: SparkSession, lake: Lake) -> None:
    assert lake.write(spark.range(3), "overwrite").version == 1
    report = lake.write(spark.range(2).select(f.col("id").cast("string"), f.lit(1.5).alias("x")), "overwrite")
    assert (report.version, report.rows) == (2, 2)
    assert lake.dataset().to_table().to_pylist() == [{"id": "0", "x": 1.5}, {"id": "1", "x": 1.5}]
    assert lake.ids(version=1) == [0, 1, 2]


def test_overwrite_can_read_the_same_table(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(10))
    rows = lake.resolver.prefetch("db.t").dataframe(spark, table_column=None)
    assert lake.write(rows.where("id % 2 = 0"), "overwrite").rows == 5
    assert lake.ids() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_write_without_rows(spark: SparkSession, lake: Lake, mode: str) -> None:
    if mode != "create":
        lake.write(spark.range(3))
    report = lake.write(spark.range(3).where("id > 5"), mode)
    assert (report.version, report.rows, report.fragments) == ({"create": 1, "append": 1, "overwrite": 2}[mode], 0, 0)
    assert lake.dataset().schema == pa.schema([("id", pa.int64())])
    assert lake.dataset().count_rows() == (3 if mode == "append" else 0)


def test_managed_catalog_commits_the_versions(spark: SparkSession, managed: Lake) -> None:
    for mode, version in (("create", 1), ("append", 2), ("append", 3), ("overwrite", 4)):
        assert managed.write(spark.range(3), mode).version == version
        assert managed.namespace.describe_table(DescribeTableRequest(id=ID)).version == version
    assert [managed.ids(version=number) for number in (2, 4)] == [[0, 0, 1, 1, 2, 2], [0, 1, 2]]
    with pytest.raises(JOB_FAILED, match="no more"):
        managed.write(failing(spark), "append")
    with pytest.raises(err.TableAlreadyExistsError):
        managed.write(failing(spark))


@thorough
def test_file_size_and_format(spark: SparkSession, lake: Lake) -> None:
    df = spark.range(0, 100, 1, 2)
    assert lake.write(df, max_rows_per_file=25, data_storage_version="2.0").fragments == 4
    assert lake.dataset().data_storage_version == "2.0"
    lake.write(df, "append")
    lake.write(df, "overwrite", data_storage_version="2.0")
    assert {it.file_minor_version for fragment in lake.dataset().get_fragments() for it in fragment.data_files()} == {0}
    with pytest.raises(err.InvalidInputError, match=r"data_storage_version '2.1': table db\$t has the version '2.0'"):
        lake.write(failing(spark), "append", data_storage_version="2.1")
    with pytest.raises(err.InvalidInputError, match=r"Unknown Lance storage version: 9.9"):
        lake.resolver.write(failing(spark), "db.u", data_storage_version="9.9")


def test_plans_show_no_secrets(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake("dir", {"root": str(tmp_path), "storage.aws_secret_access_key": "hush"})
    with lake.namespace:
        report = lake.write(spark.range(3))
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [str(executions.apply(n).physicalPlanDescription()) for n in range(executions.size())]
    assert any("MapInArrow" in text for text in plans)
    assert not any("hush" in text for text in [repr(report), *plans])


def test_warning_about_expiring_storage_options(spark: SparkSession, tmp_path: Path) -> None:
    expiring = str(int((time.time() + 120) * 1000))
    lake = Lake("dir", {"root": str(tmp_path), "storage.expires_at_millis": expiring})
    with lake.namespace, pytest.warns(UserWarning, match=r"of 1 tables expire in 1\d\d s") as warnings:
        lake.resolver.write(spark.range(3), ID)
        assert lake.ids() == [0, 1, 2]
    assert [it.filename for it in warnings if "expire" in str(it.message)] == [__file__]


def test_job_descriptions(spark: SparkSession, lake: Lake) -> None:
    context = spark.sparkContext

    def description(mode: str) -> str:
        lake.write(spark.range(3), mode=mode)
        executions = spark._jsparkSession.sharedState().statusStore().executionsList()
        return str(executions.apply(executions.size() - 1).description())

    def properties() -> list[str | None]:
        return [context.getLocalProperty(name) for name in ("spark.job.description", "spark.jobGroup.id")]

    assert description("create") == "lance-ns: create db.t"
    assert properties() == [None, None]
    context.setJobGroup("mine", "my job")
    try:
        assert description("append") == "my job"
        assert properties() == ["my job", "mine"]
        context.setJobDescription(cast(str, None))  # None removes it
        assert description("append") == "lance-ns: append to db.t"
        assert properties() == [None, "mine"]
    finally:
        for name in ("spark.job.description", "spark.jobGroup.id"):
            context.setLocalProperty(name, cast(str, None))


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
    with pytest.raises(err.TableSchemaValidationError, match=rf"^Table schema invalid: db\$t \({message}"):
        lake.write(failing(spark).withColumn("s", f.lit("b")).selectExpr(*selected.split(", ")), "append")


def test_append_casts_to_the_types_of_the_table(spark: SparkSession, lake: Lake) -> None:
    types = [pa.int8(), pa.large_string(), pa.float32(), pa.uint16(), pa.list_(pa.float16(), 1), pa.int32()]
    lake.make(pa.schema(zip(["a", "b", "c", "d", "e", "f"], types, strict=True)).empty_table())
    lake.write(spark.sql("select 1L a, 'x' b, 0.5D c, 7 d, array(1.5D) e, null f"), "append")
    assert lake.dataset().to_table().to_pylist() == [{"a": 1, "b": "x", "c": 0.5, "d": 7, "e": [1.5], "f": None}]


PAIR, NEVER_NULL = pa.field("x", pa.list_(pa.float32(), 2)), pa.field("x", pa.int64(), nullable=False)
UNFIT: Mapping[str, tuple[str, pa.Field, str, str]] = {
    "length": ("create", PAIR, "array(1.0D)", "a value cannot be cast to fixed_size"),
    "range": ("append", pa.field("x", pa.int8()), "int(id * 100)", "a value cannot be cast to int8: Integer value"),
    "null": ("append", NEVER_NULL, "if(id = 19, null, id)", "has a null, but is not nullable"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_value_that_cannot_be_cast_fails_the_job(spark: SparkSession, lake: Lake, tmp_path: Path, case: str) -> None:
    mode, field, sql, message = UNFIT[case]
    schema = pa.schema([field])
    if mode == "append":
        lake.make(schema.empty_table())
    before = files(tmp_path)
    df = spark.range(0, 20, 1, 2).selectExpr(f"{sql} x")
    with pytest.raises(err.TableSchemaValidationError, match=rf"^Table schema invalid: db\$t \(column 'x': {message}"):
        lake.write(df, mode, schema=schema if mode == "create" else None)
    await_files(tmp_path, before)
    assert lake.namespace.exists(ID) == (mode == "append")


UNSTORABLE: Mapping[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "dot": (lambda df: df.withColumnRenamed("id", "a.b"), "cannot store these columns .*Top level field a.b"),
    "twice": (lambda df: df.selectExpr("id", "id"), "2 columns are named 'id'"),
    "none": (lambda df: df.select(), "has no columns"),
    "interval": (lambda df: df.selectExpr("make_interval(1) i"), r"no type for 'i' \(interval\)"),
    "reserved": (lambda df: df.withColumnRenamed("id", "_rowid"), "_rowid is a reserved name"),
    "stream": (lambda df: df.sparkSession.readStream.format("rate").load(), "foreachBatch"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
def test_unstorable_frames_are_refused(spark: SparkSession, lake: Lake, case: str) -> None:
    change, message = UNSTORABLE[case]
    with pytest.raises(err.InvalidInputError, match=message):
        lake.write(change(failing(spark)))
    assert not lake.namespace.exists(ID)


def test_unusual_column_names(spark: SparkSession, lake: Lake) -> None:
    names = ["a b", "select", "é", 'say "x"', "A", "a/b", " "]
    df = spark.range(1).select(*(f.lit(n).alias(name) for n, name in enumerate(names)))
    lake.write(df)
    lake.write(df.select(*(f"`{name}`" for name in reversed(names))), "append")
    assert lake.dataset().to_table().to_pylist() == [{name: n for n, name in enumerate(names)}] * 2


@pytest.mark.parametrize("catalog", ["lake", "managed"])
def test_failed_create_leaves_nothing(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, catalog: str
) -> None:
    lake: Lake = request.getfixturevalue(catalog)
    with pytest.raises(JOB_FAILED, match="no more"):
        lake.write(failing(spark))
    assert not lake.namespace.exists(ID)
    await_files(tmp_path, set())


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_failed_job_leaves_the_table_unchanged(spark: SparkSession, lake: Lake, tmp_path: Path, mode: str) -> None:
    lake.make(pa.table({"id": [7]}))
    before = files(tmp_path)
    with pytest.raises(JOB_FAILED, match="no more"):
        lake.write(failing(spark), mode)
    await_files(tmp_path, before)
    assert (lake.dataset().version, lake.ids()) == (1, [7])


def test_killed_task_is_repeated_without_duplicate_rows(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    marks = str(tmp_path / "died")

    def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for n, batch in enumerate(batches):
            if n == 3 and batch.column(0)[0].as_py() >= 100:
                with suppress(FileExistsError):
                    os.close(os.open(marks, os.O_CREAT | os.O_EXCL))
                    # The process that writes, a child of the same daemon, dies during the write.
                    os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    assert lake.write(spark.range(0, 200, 1, 2).mapInArrow(dies_once, "id long"), max_rows_per_file=10).rows == 200
    assert os.path.exists(marks)
    assert lake.ids() == list(range(200))


def test_concurrent_appends_are_all_kept(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(0))
    with ThreadPoolExecutor(3) as threads:
        frames = [spark.range(n * 10, n * 10 + 10) for n in range(3)]
        versions = {report.version for report in threads.map(lambda df: lake.write(df, "append"), frames)}
    assert versions == {2, 3, 4}
    assert lake.ids() == list(range(30))


def test_one_of_concurrent_creates_succeeds(spark: SparkSession, lake: Lake) -> None:
    def create(n: int) -> int | None:
        try:
            lake.write(spark.range(n * 10, n * 10 + 10))
        except err.TableAlreadyExistsError:
            return None
        return n

    with ThreadPoolExecutor(3) as threads:
        (winner,) = (n for n in threads.map(create, range(3)) if n is not None)
    assert lake.ids() == list(range(winner * 10, winner * 10 + 10))


def test_append_to_a_table_that_is_replaced_meanwhile_fails(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    location = lake.make(pa.table({"id": [7]}))

    def replace(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import lance

        for batch in batches:
            lance.write_dataset(pa.table({"other": ["x"]}), location, mode="overwrite")
            yield batch

    with pytest.raises(err.ConcurrentModificationError, match=r"^Concurrent modification: db\$t"):
        lake.write(spark.range(0, 5, 1, 1).mapInArrow(replace, "id long"), "append")
    assert lake.dataset().to_table().to_pylist() == [{"other": "x"}]
    assert len(files(tmp_path)) == 2
