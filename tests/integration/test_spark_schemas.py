"""Partitions, tables of a REST server, and searches of many tables, in Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lance_ns_async import Namespace, TableId
from lance_ns_async.fleet import CompactOptions, sync
from lance_ns_async.spark import LocationResolver, SparkEngine
from tests.contract.rest_sites import rest_on_pylance
from tests.integration.spark_lake import Lake
from tests.support.budget import with_usual
from tests.support.gateway import served
from tests.support.spark import SPARK

pytestmark = SPARK


SCHEMA = pa.schema({"n": pa.int64(), "day": pa.date32(), "region": pa.string()})
START = date(2026, 1, 1)
ROWS = pa.table(
    [range(60), [START + timedelta(days=n // 6) for n in range(60)], ["EU", "US", None] * 20], schema=SCHEMA
)
WHERE = "day >= date '2026-01-03' AND day < date '2026-01-05' AND region = 'EU'"
EXPECTED = [n for n in range(12, 24) if n % 3 == 0]


def test_only_partitions_that_may_match_are_resolved(spark: SparkSession, tmp_path: Path) -> None:
    with LocationResolver.connect("dir", {"root": str(tmp_path)}) as resolver:
        resolver.namespace.partition_by(["day", "region"], schema=SCHEMA)
        resolver.namespace.write_partitions(ROWS)
        locations = resolver.prefetch("**", where=WHERE)
        assert len(locations) == 2 and not locations.report.problems
        assert [location.rows for location in locations.values()] == [2, 2]
        rows = locations.dataframe(spark, ["n"], table_column=None, filter=WHERE).collect()
        assert sorted(row.n for row in rows) == EXPECTED

        # New rows are divided in another way, and the old ones stay where they are.
        resolver.namespace.partition_by(["month(day)", "bucket(4, n)"])
        resolver.namespace.write_partitions(ROWS)
        locations = resolver.prefetch("v2.**", where=f"{WHERE} AND n = 15")
        assert [id[0] for id in locations] == ["v2"]
        locations = resolver.prefetch("**", where=WHERE)
        assert sorted({id[0] for id in locations}) == ["v1", "v2"]
        rows = locations.dataframe(spark, ["n"], table_column=None, filter=WHERE).collect()
        assert sorted(row.n for row in rows) == sorted(EXPECTED * 2)
        assert len(resolver.prefetch("v1.**", where="day > date '2027-01-01'")) == 0


def test_a_version_in_the_manifest_is_not_ignored(tmp_path: Path) -> None:
    with LocationResolver.connect("dir", {"root": str(tmp_path)}) as resolver:
        resolver.namespace.partition_by(["region"], schema=SCHEMA)
        resolver.namespace.write_partitions(ROWS)
        lance.dataset(tmp_path / "__manifest").add_columns({"read_version": "cast(1 as bigint unsigned)"})
        with pytest.raises(UnsupportedOperationError, match="the manifest sets the version to read"):
            resolver.prefetch("**", where="region = 'EU'")


@pytest.fixture(params=with_usual(["pylance", "gateway"], "gateway"))
def resolver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocationResolver]:
    if request.param == "pylance":
        with rest_on_pylance(tmp_path) as site, LocationResolver.connect("rest", site.properties) as resolver:
            yield resolver
        return
    with served("dir", {"root": str(tmp_path)}) as gateway:
        with LocationResolver.connect("rest", gateway.properties) as resolver:
            yield resolver


def test_tables_of_a_rest_server_are_written_read_and_maintained(
    spark: SparkSession, resolver: LocationResolver
) -> None:
    resolver.namespace.create_namespace({"id": ["sales"]})
    df = spark.range(0, 60, 1, 3).withColumn("name", f.concat(f.lit("t"), f.col("id") % 6))
    for outcome in ("created", "appended"):
        assert resolver.write_many(df, by="name", into="sales", mode="append", progress=False).counts == {outcome: 6}
    resolver.write(df, "sales.all")
    locations = resolver.prefetch("sales.*", on_error="raise")
    assert len(locations) == 7
    frame = locations.dataframe(spark)
    assert (frame.count(), frame.where("_table = 'sales$t5'").count()) == (180, 20)
    driver = resolver.namespace
    assert isinstance(driver, Namespace)
    assert sync.maintain(
        driver, "sales.t*", compact=CompactOptions(max_small_fragments=1), engine=SparkEngine(spark)
    ).counts == {"maintained": 6}
    resolver.forget("sales.t*")
    assert resolver.prefetch("sales.*").dataframe(spark, filter="id >= 30").count() == 90


def rows(number: int, **columns: Any) -> pa.Table:
    """Returns rows whose vectors have equal distances in several tables."""
    vectors = pa.array([[float(n % 4), float(number % 3)] for n in range(8)], pa.list_(pa.float32(), 2))
    words = [f"word{n % 3}" for n in range(8)]
    return pa.table({"id": range(8), "word": words, "vector": vectors, **columns})


def test_the_rows_are_those_of_a_search_in_this_process(spark: SparkSession, lake: Lake) -> None:
    for number in range(9):
        lake.write(f"t{number}", rows(number, **({"more": ["x"] * 8} if number == 4 else {})))
        lake.namespace.create_table_scalar_index({"id": ["db", f"t{number}"], "column": "word", "index_type": "FTS"})
    lake.write("other", pa.table({"id": [1]}))
    gone = lake.write("gone", rows(0))
    locations = lake.prefetch()
    shutil.rmtree(gone.removeprefix("file://"))
    both = {"vector": [1.0, 1.0], "full_text": "word2"}
    for arguments in ({"vector": [1.0, 1.0], "filter": "id > 1"}, {"full_text": "word2"}, both):
        here = lake.namespace.search_many("db.*", k=7, **arguments)
        there = locations.search(spark, k=7, partitions=3, **arguments)
        assert there.rows == here.rows and there.rows.num_rows == 7
        assert set(there.errors) == {TableId(["db", "other"]), TableId(["db", "gone"])}
        assert set(there.searched) == set(here.searched)
    spark.sparkContext.setJobGroup("counted", "a search")
    locations.search(spark, vector=[1.0, 1.0], partitions=8)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted")) < 8
    spark.sparkContext.setJobGroup("others", "")
    few = locations.select("db.t1").search(spark, vector=[1.0, 1.0], k=2, columns=["id"], with_row_id=True)
    assert few.rows.column_names == ["id", "_rowid", "_distance", "_table"] and few.errors == {}
    lake.namespace.write(["db", "t2"], rows(2, more=[1] * 8), mode="overwrite")
    with pytest.raises(InvalidInputError, match=r"columns: .* no common type"):
        lake.prefetch("db.t2", "db.t4").search(spark, vector=[1.0, 1.0], k=20, partitions=1)


def test_invalid_arguments_are_refused_before_any_job(spark: SparkSession, lake: Lake) -> None:
    lake.write("t", rows(0))
    locations = lake.prefetch()
    invalid: dict[str, dict[str, Any]] = {
        "vector: pass a vector": {},
        "partitions 0": {"vector": [1.0], "partitions": 0},
        "k 0": {"vector": [1.0], "k": 0},
    }
    for message, arguments in invalid.items():
        with pytest.raises(InvalidInputError, match=message):
            locations.search(spark, **arguments)
