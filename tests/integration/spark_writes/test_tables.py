"""Writes of DataFrames in a real Spark session: the resulting tables, and the refused writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import InvalidInputError, TableAlreadyExistsError, TableNotFoundError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lance_ns_async import TableId
from lance_ns_async.spark.resolve.report import WriteReport
from tests.integration.spark_writes.lake import ID, JOB_FAILED, Lake, failing, files
from tests.support.budget import thorough
from tests.support.spark_sessions import SPARK

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
    with pytest.raises(TableAlreadyExistsError, match=r"^Table already exists: db\$t"):
        lake.write(failing(spark))
    report = lake.write(failing(spark), "ignore")
    assert report == WriteReport(TableId(ID), lake.location(), None if declared else 1, 0, 0)
    assert files(tmp_path) == before


@pytest.mark.parametrize("id", ["db.t", "db$t", TableId(["db", "t"])])
def test_ids_have_three_forms(spark: SparkSession, lake: Lake, id: Any) -> None:
    assert lake.resolver.write(spark.range(3), id).id == TableId(["db", "t"])
    assert lake.ids() == [0, 1, 2]


def test_ignore_creates_a_missing_table(spark: SparkSession, lake: Lake) -> None:
    assert lake.write(spark.range(3), "ignore").rows == 3
    assert lake.ids() == [0, 1, 2]


def test_append_adds_rows_by_column_name(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(3).withColumn("s", f.lit("a")))
    more = spark.range(3, 5).select(f.lit("b").alias("s"), "id")
    report = lake.write(more, "append")
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


def test_append_needs_a_table(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(TableNotFoundError, match=r"^Table not found: db\$t"):
        lake.write(failing(spark), "append")


def test_append_to_a_declared_table_writes_its_first_version(spark: SparkSession, lake: Lake) -> None:
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
    none = spark.range(3).where("id > 5")
    report = lake.write(none, mode)
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
    with pytest.raises(TableAlreadyExistsError):
        managed.write(failing(spark))


@thorough
def test_file_size_and_format(spark: SparkSession, lake: Lake) -> None:
    df = spark.range(0, 100, 1, 2)
    assert lake.write(df, max_rows_per_file=25, data_storage_version="2.0").fragments == 4
    assert lake.dataset().data_storage_version == "2.0"
    lake.write(df, "append")
    lake.write(df, "overwrite", data_storage_version="2.0")
    assert {it.file_minor_version for fragment in lake.dataset().get_fragments() for it in fragment.data_files()} == {0}
    with pytest.raises(InvalidInputError, match=r"data_storage_version '2.1': table db\$t has the version '2.0'"):
        lake.write(failing(spark), "append", data_storage_version="2.1")
    with pytest.raises(InvalidInputError, match=r"Unknown Lance storage version: 9.9"):
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


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_spark_writer_is_refused(spark: SparkSession, lake: Lake, mode: str) -> None:
    lake.write(spark.range(3))
    lake.resolver.prefetch("db.t").dataframe(spark)
    with pytest.raises(AnalysisException, match=r"use LocationResolver.write\(df, id, mode=...\)"):
        spark.range(3).write.format("lance_ns").mode(mode).save()


def test_stream_is_refused(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match="foreachBatch"):
        lake.write(spark.readStream.format("rate").load())


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
