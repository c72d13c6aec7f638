"""Executors in separate processes: they read tables, and do not call the catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from lance_ns_async.spark.local import local_spark
from tests.connector.lake import MARKS, Lake

pytestmark = MARKS


@pytest.fixture
def cluster() -> Iterator[SparkSession]:
    if running := SparkSession.getActiveSession():
        running.stop()
    session = local_spark("tests", cores=1, config={"spark.master": "local-cluster[1,1,1024]"}, connector=True)
    yield session
    session.stop()


def test_executors_make_no_calls(cluster: SparkSession, lake: Lake, catalog: str) -> None:
    for n in range(3):
        lake.write(f"t{n}")
    with lake.prefetch().serve(cluster, catalog, resolver=lake.resolver) as served:
        frame = cluster.sql(" UNION ALL ".join(f"SELECT * FROM {catalog}.db.t{n}" for n in range(3)))
        frame._jdf.queryExecution().executedPlan()
        planned = served.answered
        assert planned > 0
        processes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
        assert sum(processes) == 30
        assert len(frame.collect()) == 30
        assert served.answered == planned
        assert lake.calls == []


def test_spark_may_stop_inside(spark: SparkSession, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        assert spark.table(f"{catalog}.db.t").count() == 10
        spark.stop()
