"""SQL views and unions in a real Spark session without a JVM connector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest
from lance_namespace.errors import InvalidInputError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lance_ns_async import Namespace, TableId
from lance_ns_async.spark import LocationResolver, Locations, union, views
from tests.support.budget import thorough, with_usual
from tests.support.spark import SPARK

pytestmark = SPARK
ODD = ["a`b", "a.b", "é 1", "x'y\"z", "-- c"]


@pytest.fixture
def ns(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        ns.create_namespace(CreateNamespaceRequest(id=["db"]))
        yield ns


def write(ns: Namespace, *names: str) -> Locations:
    for n, name in enumerate(names):
        location = ns.declare_table(DeclareTableRequest(id=["db", name])).location
        lance.write_dataset(pa.table({"id": [n, n + 10], "s": ["a", None]}), location)
    return LocationResolver(ns).prefetch([["db", name] for name in names], on_error="raise")


def named(spark: SparkSession) -> list[str]:
    return sorted(table.name for table in spark.catalog.listTables() if table.isTemporary)


def test_each_table_is_a_view_until_they_are_closed(spark: SparkSession, ns: Namespace) -> None:
    locations = write(ns, "t0", "t1")
    with views(spark, locations) as made:
        assert not made.connector
        assert dict(made) == dict(zip(locations, ["`db_t0`", "`db_t1`"], strict=True))
        assert made["db.t1"] == made[["db", "t1"]] == "`db_t1`"
        assert made.get(TableId(["db", "t2"])) is None
        with pytest.raises(InvalidInputError, match=r"^sql: there is no table or view `db`.`t0`, did you mean db_t0\?"):
            made.sql("SELECT * FROM db.t0")
        joined = spark.sql("SELECT a.id, b.id FROM db_t0 a JOIN db_t1 b ON a.id + 1 = b.id ORDER BY 1")
        assert list(map(tuple, joined.collect())) == [(0, 1), (10, 11)]
        assert spark.table("db_t0").columns == ["id", "s"]
        kept = spark.table("db_t0")
    assert named(spark) == []
    made.close()
    assert kept.count() == 2
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM db_t0")


def test_odd_names_are_quoted_and_dropped(spark: SparkSession, ns: Namespace) -> None:
    locations = write(ns, *(f"t{n}" for n in range(len(ODD))))
    with views(spark, locations, name=dict(zip(locations, ODD, strict=True)).__getitem__) as made:
        assert sorted(named(spark)) == sorted(ODD)
        for n, view in enumerate(made.values()):
            assert spark.sql(f"SELECT min(id) FROM {view}").collect() == [(n,)]
    assert named(spark) == []


def test_a_view_of_somebody_else_is_left_alone(spark: SparkSession, ns: Namespace) -> None:
    spark.range(3).createTempView("db_t1")
    try:
        with pytest.raises(InvalidInputError, match="a temporary view `db_t1` already exists; drop it, or"):
            views(spark, write(ns, "t0", "t1"))
        assert named(spark) == ["db_t1"]
        assert spark.table("db_t1").count() == 3
    finally:
        spark.catalog.dropTempView("db_t1")


def test_views_are_made_all_or_none(spark: SparkSession, ns: Namespace) -> None:
    locations = write(ns, "t0", "t1")
    lance.write_dataset(pa.table({"u": pa.array([1], pa.uint32())}), locations["db.t1"].location, mode="overwrite")
    locations = LocationResolver(ns).prefetch(locations)
    with pytest.raises(InvalidInputError, match=r"'u' \(uint32\) of db"):
        views(spark, locations)
    assert named(spark) == []


def test_a_connector_that_is_not_there_is_reported(spark: SparkSession, ns: Namespace) -> None:
    locations = write(ns, "t")
    with pytest.raises(
        InvalidInputError, match=r"no data source 'lance'; start Spark with local_spark\(connector=True\)"
    ):
        views(spark, locations, connector=True)
    with views(spark, locations, connector=False) as made:
        # The version stays pinned.
        lance.write_dataset(pa.table({"id": [7], "s": ["new"]}), locations["db.t"].location, mode="append")
        assert made.sql(f"SELECT * FROM {made['db.t']}").count() == made.union().count() == 2


def test_the_union_of_views_names_the_table(spark: SparkSession, ns: Namespace) -> None:
    with views(spark, write(ns, "t0", "t1", "t2")) as made:
        made.union().createOrReplaceTempView("everything")
        result = spark.sql("SELECT _table, sum(id) FROM everything GROUP BY 1 ORDER BY 1").collect()
        assert list(map(tuple, result)) == [("db$t0", 10), ("db$t1", 12), ("db$t2", 14)]
        assert made.union(table_column=None).columns == ["id", "s"]
        spark.catalog.dropTempView("everything")
        with pytest.warns(UserWarning, match="a union of 201 branches in a chain") as caught:
            made.sql(" UNION ALL ".join(["SELECT 1"] * 201))
        assert caught[0].filename == __file__


@thorough
@pytest.mark.parametrize("count", with_usual([1, 2, 3, 64, 300], 1, 2, 64))
def test_a_union_is_a_balanced_tree(spark: SparkSession, count: int) -> None:
    united = union(spark.range(n, n + 1) for n in range(count))
    if count < 100:
        assert united.agg(f.sum("id"), f.count("*")).collect() == [(sum(range(count)), count)]
    # Matching columns by name puts a projection between two unions.
    assert depth(united) <= 2 * math.ceil(math.log2(count)) + 1


def depth(frame: DataFrame) -> int:
    lines = str(frame._jdf.queryExecution().analyzed()).splitlines()
    return max(len(line) - len(line.lstrip(" :+-")) for line in lines) // 3 + 1


def test_columns_are_united_by_name(spark: SparkSession) -> None:
    left, right = (
        spark.createDataFrame([(1, "a")], "x int, y string"),
        spark.createDataFrame([("b", 2)], "y string, x int"),
    )
    assert sorted(map(tuple, union([left, right]).collect())) == [(1, "a"), (2, "b")]
    with pytest.raises(AnalysisException):
        union([left, right.drop("y")])
    assert union([left, right.drop("y")], allow_missing_columns=True).where("y is null").collect() == [(2, None)]
