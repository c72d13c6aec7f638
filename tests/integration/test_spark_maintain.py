"""Maintenance of many tables in a real Spark session: rows are kept, failures stay alone, and nothing is done twice."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lance_ns_async import Namespace
from lance_ns_async.fleet import CleanupOptions, sync
from lance_ns_async.fleet.maintenance.engine import Job, JobResult
from lance_ns_async.model import Table, TableId
from lance_ns_async.operations import maintaining
from lance_ns_async.operations.maintaining import Examination
from lance_ns_async.spark import LocationResolver, SparkEngine
from lance_ns_async.spark.tasks import Delivery
from tests.fakes.iceberg import FakeIceberg
from tests.integration.spark_lake import Lake
from tests.support.spark_sessions import SPARK

pytestmark = SPARK

TABLES = 12
FRAGMENTS = 6


def rows(n: int) -> pa.Table:
    return pa.table({"id": pa.array(range(n * 1000, n * 1000 + 60), pa.int64()), "s": ["it's"] * 60})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    for n in range(TABLES):
        lake.write(f"t{n}", rows(n), max_rows_per_file=60 // FRAGMENTS)
    return lake


def test_tables_are_compacted_by_spark_and_committed_here(spark: SparkSession, lake: Lake) -> None:
    resolver = LocationResolver(lake.namespace)
    paths = {id.name: at.location.removeprefix("file://") for id, at in resolver.prefetch("db.*").items()}
    for file in Path(paths["t7"], "data").iterdir():
        file.write_bytes(b"no data")
    next(Path(paths["t9"], "data").iterdir()).unlink()
    cleanup = CleanupOptions(older_than=None)
    plan = sync.plan_maintenance(lake.namespace, "db.*", cleanup=cleanup)
    assert len(plan.pending) == TABLES and f"{TABLES} tables" in repr(plan)
    by_spark = sync.plan_maintenance(lake.namespace, "db.*", cleanup=cleanup, engine=SparkEngine(spark))
    assert by_spark.tables == plan.tables
    report = sync.maintain(lake.namespace, "db.*", cleanup=cleanup, engine=SparkEngine(spark, partitions=5))
    assert report.counts == {"maintained": TABLES - 2, "failed": 2}
    assert {str(row.id) for row in report.problems} == {"db$t7", "db$t9"}
    assert json.loads(report.to_json())["counters"]["fragments after"] == TABLES - 2
    for n in range(TABLES):
        dataset = lance.dataset(paths[f"t{n}"])
        if n in (7, 9):
            assert dataset.version == 1
            continue
        table = dataset.to_table()
        assert sorted(table["id"].to_pylist()) == rows(n)["id"].to_pylist()
        assert len(dataset.get_fragments()) == 1 and len(dataset.versions()) == 1
        assert len([*Path(paths[f"t{n}"], "data").iterdir()]) == 1
    again = sync.maintain(lake.namespace, "db.*", cleanup=cleanup, engine=SparkEngine(spark))
    assert again.counts == {"unchanged": TABLES - 2, "failed": 2}


def test_versions_of_the_catalog_are_committed_by_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        with Namespace.connect("iceberg", {**properties, "backoff_initial": "1ms"}) as namespace:
            namespace.create_namespace({"id": ["db"]})
            for name in ("a", "b"):
                for n in range(3):
                    namespace.write(["db", name], rows(n), mode="append" if n else "create")
            assert sync.maintain(namespace, "db.*", engine=SparkEngine(spark)).counts == {"maintained": 2}
            at = LocationResolver(namespace).prefetch("db.a")["db.a"]
            assert (at.version, at.fragments, at.rows) == (5, 1, 180)


async def test_results_arrive_with_each_spark_task_and_errors_are_results(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": range(40)}), path, max_rows_per_file=4)
    _, tasks = maintaining.examine(dataset, Examination(compaction={"target_rows_per_fragment": 20}))
    assert len(tasks) == 2
    table, gone = Table(TableId(["t"]), path), Table(TableId(["gone"]), str(tmp_path / "gone"))
    jobs = [Job(table, "rewrite", task.content, 1, n) for n, task in enumerate(tasks)]
    jobs.append(Job(gone, "rewrite", tasks[0].content, 1))
    results: list[JobResult] = []
    await SparkEngine(spark).run(jobs, results.append)
    assert sorted((str(it.id), it.number) for it in results) == [("gone", 0), ("t", 0), ("t", 1)]
    contents = [it.content for it in sorted(results, key=lambda it: it.number) if it.error is None]
    maintaining.commit(dataset, contents, {})
    assert sorted(dataset.to_table()["id"].to_pylist()) == [*range(40)] and len(dataset.get_fragments()) == 2


def test_results_are_delivered_on_the_driver_only() -> None:
    received: list[str] = []
    delivery = Delivery(received.append)
    assert delivery.addInPlace([], ["a", "b"]) == [] and received == ["a", "b"]
    elsewhere = pickle.loads(pickle.dumps(delivery))
    assert elsewhere.addInPlace(["a"], ["b"]) == ["a", "b"] and received == ["a", "b"]
