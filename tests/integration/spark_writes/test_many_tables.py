"""One DataFrame written into many tables in a real Spark session."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import DeclareTableRequest, DescribeTableRequest
from lance_namespace.errors import InvalidInputError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lance_ns_async import TableId
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.write import many
from lance_ns_async.spark.write.many import By
from lance_ns_async.spark.write.task_writer import Sink, tables_writer
from tests.fakes.hive3 import FakeHive
from tests.integration.spark_writes.lake import JOB_FAILED, Lake, files
from tests.support.spark import SPARK

pytestmark = SPARK


def rows(spark: SparkSession, number: int = 100, tables: int = 4) -> DataFrame:
    """Row `id` belongs to table `t<id modulo tables>`."""
    name = f.concat(f.lit("t"), f.col("id") % tables)
    return spark.range(0, number, 1, 3).withColumn("name", name)


def ids(lake: Lake, name: str) -> list[int]:
    location = lake.namespace.describe_table(DescribeTableRequest(id=["db", name])).location
    assert location is not None
    return sorted(lance.dataset(location).to_table()["id"].to_pylist())


def names(lake: Lake) -> list[str]:
    return sorted(lake.namespace.list_tables({"id": ["db"]}).tables)


def write(lake: Lake, df: DataFrame, mode: Any = "create", **options: Any) -> Any:
    return lake.resolver.write_many(df, by="name", into="db", mode=mode, progress=False, **options)


def test_tables_are_created_appended_to_and_overwritten(spark: SparkSession, lake: Lake) -> None:
    progress: list[tuple[int, int]] = []
    report = lake.resolver.write_many(rows(spark), by="name", into="db", progress=lambda *it: progress.append(it))
    assert (report.counts, report.failed, report.counters["rows"], progress[-1]) == ({"created": 4}, [], 100, (4, 4))
    assert [ids(lake, f"t{n}") for n in range(4)] == [list(range(n, 100, 4)) for n in range(4)]
    assert write(lake, rows(spark, 5, 5), "append").counts == {"appended": 4, "created": 1}
    assert (ids(lake, "t4"), ids(lake, "t1").count(1)) == ([4], 2)
    assert write(lake, rows(spark, 2, 2), "overwrite").counts == {"replaced": 2}
    assert [ids(lake, f"t{n}") for n in range(2)] == [[0], [1]]


def test_versions_that_a_catalog_commits(spark: SparkSession, managed: Lake) -> None:
    assert write(managed, rows(spark)).counts == {"created": 4}
    assert write(managed, rows(spark), "append").counts == {"appended": 4}
    assert ids(managed, "t3") == sorted(2 * list(range(3, 100, 4)))


def test_several_values_and_expressions_name_a_table(spark: SparkSession, lake: Lake) -> None:
    by: By = ["name", f.col("id") > 50]
    assert lake.resolver.write_many(rows(spark, 100, 2), by=by, into=["db"], progress=False).counts == {"created": 4}
    assert ids(lake, "t1_true") == list(range(51, 100, 2))
    lake.resolver.write_many(rows(spark, 4), by="id", into=lambda n: ["db", f"row {n}"], progress=False)
    assert ids(lake, "row 3") == [3]
    # Missing namespaces are created.
    report = lake.resolver.write_many(rows(spark), by="name", into="fresh", progress=False)
    assert report.raise_for_errors().counts == {"created": 4}
    assert len(lake.namespace.list_tables("fresh").tables) == 4


def test_a_frame_that_is_not_of_spark_is_refused(lake: Lake) -> None:
    frame: Any = pa.table({"id": [1]})
    for use in (lake.resolver.write, lambda df, _: lake.resolver.write_many(df, by="id", into="db")):
        with pytest.raises(
            InvalidInputError, match=r"^df: must be a DataFrame of Spark, not a pyarrow Table; use spark"
        ):
            use(frame, "db.t")


def test_names_that_a_catalog_does_not_distinguish_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("A", 1), ("a", 2), ("b", 3)], "name string, id long")
    # Without a root, tables would be created below the working directory if the write were not refused.
    with (
        FakeHive(tmp_path) as server,
        LocationResolver.connect("hive3", {"uri": server.uri, "root": tmp_path.as_uri()}) as resolver,
    ):
        with pytest.raises(InvalidInputError, match=r"hive\$db\$A and hive\$db\$a have the same name"):
            resolver.write_many(df, by="name", into="hive.db", mode="overwrite", progress=False)
        assert server.calls == []


def test_a_large_table_is_written_by_several_tasks(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "ROWS_A_PART", 200)
    report = write(lake, rows(spark, 1000, 1))
    assert report.rows[0].fields["rows"] == 1000
    assert report.rows[0].fields["fragments"] > 1
    assert ids(lake, "t0") == list(range(1000))


UNSAFE = {
    "null": "is null",
    "''": "is empty",
    "'../x'": "not safe",
    "'a$b'": "not safe",
    "'a/b'": "not safe",
    "'é'": "invalid in a directory catalog",
    "repeat('x', 300)": "more than 255 bytes",
}
"""Names in Spark's SQL, and why they are refused."""


def test_unsafe_names_are_refused_before_any_write(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    for name, reason in UNSAFE.items():
        df = spark.range(6).selectExpr("id", f"if(id < 5, 'good', {name}) name")
        with pytest.raises(InvalidInputError, match=reason):
            write(lake, df)
        assert (names(lake), files(tmp_path)) == ([], set())


def test_impossible_divisions_are_refused(spark: SparkSession, lake: Lake) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"max_tables": 3}, "more than 3 values"),
        ({"by": "x"}, "'x' is not a column"),
        ({"by": f.col("id") / 2}, "double"),
        ({"by": []}, "is empty"),
        ({"into": lambda name: ["db", "one"]}, "same table"),
        ({"only": ["db.other"]}, "no row of the DataFrame"),
        ({"max_in_flight": 0}, "at least 1"),
        ({"mode": "ignore"}, "unknown"),
    ]
    for options, reason in refused:
        with pytest.raises(InvalidInputError, match=reason):
            lake.resolver.write_many(rows(spark), **{"by": "name", "into": "db", **options})
    assert names(lake) == []


def test_a_failed_table_is_taken_back_and_written_alone_later(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    types = pa.schema([("id", pa.int8())])
    df = rows(spark, 131)  # 128, 129 and 130 do not fit
    report = write(lake, df, schema=types)
    assert report.counts == {"created": 1, "failed": 3}
    assert sorted(report.failed) == [TableId(["db", f"t{n}"]) for n in range(3)]
    assert names(lake) == ["t3"]
    assert len(files(tmp_path)) == 1
    assert write(lake, df, only=report.failed).counts == {"created": 3}
    assert ids(lake, "t0")[-1] == 128


def test_nothing_is_left_of_a_failed_job(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    write(lake, rows(spark, 8, 2))
    before = files(tmp_path)
    broken = f.when(f.col("id") == 7, f.raise_error(f.lit("no more")).cast("long")).otherwise(f.col("id"))
    df = rows(spark, 100).withColumn("id", broken).withColumn("name", f.concat(f.lit("t"), f.col("id") % 4))
    with pytest.raises(JOB_FAILED):
        write(lake, df, "append")
    assert (files(tmp_path), len(names(lake))) == (before, 2)


def test_a_frame_that_changes_fails_instead_of_losing_rows(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    # Only the second evaluation, which reads all columns, drops a row.
    def drop_one(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            drops = marker.exists() and 0 in batch.column("id").to_pylist()
            yield batch.slice(1) if drops else batch
        marker.touch()

    marker = tmp_path / "evaluated"
    report = write(lake, rows(spark.newSession(), 40).coalesce(1).mapInArrow(drop_one, "id long, name string"))
    assert report.counts == {"created": 3, "failed": 1}
    assert "cache it" in report.having("failed")[0].reason
    assert report.failed == [TableId(["db", "t0"])]


def test_a_killed_write_is_finished_by_repeating_it(spark: SparkSession, lake: Lake) -> None:
    # What a killed driver leaves: committed tables, and declarations without a version.
    write(lake, rows(spark), only=["db.t0", "db.t1"])
    lake.namespace.declare_table(DeclareTableRequest(id=["db", "t2"]))
    report = write(lake, rows(spark))
    assert report.counts == {"exists": 2, "created": 2}
    assert report.failed == []
    assert [len(ids(lake, f"t{n}")) for n in range(4)] == [25] * 4


def test_a_task_that_fails_removes_its_files(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    sinks = [Sink(f"t{n}", str(tmp_path / f"t{n}"), schema, None, False) for n in range(2)]
    batch = pa.record_batch({"id": [1, 2, 3], "table": [0, 0, 1]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        raise KeyError("upstream")

    with pytest.raises(KeyError, match="upstream"):
        list(tables_writer(sinks, "table", None)(batches()))
    assert files(tmp_path) == set()
    (written,) = tables_writer(sinks, "table", None)([batch])
    assert [json.loads(text)[0] for text in written.column(0).to_pylist()] == [0, 1]
    assert len(files(tmp_path)) == len(os.listdir(tmp_path)) == 2
