"""Structured Streaming joined with located tables, and maintenance of many tables, in a real Spark session."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from lance_ns_async import Namespace
from lance_ns_async.engine.locate import Vend
from lance_ns_async.fleet import CleanupOptions, CompactOptions, sync
from lance_ns_async.fleet.maintenance.engine import Job, JobResult, Settle
from lance_ns_async.model import Table, TableId
from lance_ns_async.operations import maintaining
from lance_ns_async.operations.maintaining import Examination
from lance_ns_async.spark import LocationResolver, SparkEngine
from lance_ns_async.spark.tasks import Delivery
from lance_ns_async.spark.write.task_writer import Sink, fragments_writer
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import KeyedS3, RenewingPolaris
from tests.integration.spark_lake import Lake
from tests.support.budget import thorough
from tests.support.spark import SPARK

pytestmark = [
    *SPARK,
    pytest.mark.filterwarnings("ignore:the storage options of"),
]  # the keys must expire with each batch

BATCHES = 3
MERGE_ALL = CompactOptions(max_small_fragments=1)


@pytest.fixture
def s3() -> Iterator[KeyedS3]:
    with KeyedS3() as running:
        yield running


@pytest.fixture
def catalog(s3: KeyedS3) -> Iterator[RenewingPolaris]:
    with RenewingPolaris(s3) as running:
        running.write_tables(2, prices(1.0), "shop.prices")
        # They expire so soon that they are never cached.
        running.lasts = 30.0
        yield running


@pytest.fixture
def resolver(catalog: RenewingPolaris) -> Iterator[LocationResolver]:
    with LocationResolver.connect("polaris", catalog.properties, vend_credentials=True) as resolver:
        yield resolver


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """Returns a stream with one micro-batch per file."""
    source = tmp_path / "orders"
    source.mkdir()
    for n in range(BATCHES):
        (source / f"{n}.json").write_text(json.dumps({"order": n, "id": n}))
    return spark.readStream.schema("order long, id long").option("maxFilesPerTrigger", 1).json(str(source))


def uri(name: str) -> str:
    return f"s3://lake/shop/prices/{name}"


def prices(price: float) -> pa.Table:
    return pa.table({"id": range(BATCHES), "price": [price] * BATCHES})


def run(stream: DataFrame, each: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    query = stream.writeStream.foreachBatch(each).trigger(availableNow=True)
    query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def test_each_batch_reads_what_was_pinned_by_keys_that_are_good(
    s3: KeyedS3, catalog: RenewingPolaris, resolver: LocationResolver, stream: DataFrame, tmp_path: Path
) -> None:
    locations = resolver.prefetch("shop.prices.*", on_error="raise")
    result: list[list[tuple[object, ...]]] = []

    def enrich(batch: DataFrame, number: int) -> None:
        nonlocal locations
        s3.revoked.update(catalog.issued)
        lance.write_dataset(prices(9.0), uri("t0000"), mode="append", storage_options=s3.options)
        locations = resolver.refresh(locations)
        joined = batch.join(locations.dataframe(batch.sparkSession), "id")
        result.append(sorted(map(tuple, joined.select("order", "price", "_table").collect())))

    run(stream, enrich, tmp_path / "checkpoint")
    assert sorted(result) == [[(n, 1.0, "shop$prices$t0000"), (n, 1.0, "shop$prices$t0001")] for n in range(BATCHES)]
    assert len(catalog.issued) == 2 + 2 * BATCHES


def test_batches_read_tables_that_appear_during_the_stream(
    s3: KeyedS3, catalog: RenewingPolaris, resolver: LocationResolver, stream: DataFrame, tmp_path: Path
) -> None:
    counts: list[int] = []

    def read(batch: DataFrame, number: int) -> None:
        locations = resolver.prefetch("shop.prices.*", on_error="raise")
        # Not the session of the batch, of which the stream has made a copy.
        counts.append(batch.join(locations.dataframe(stream.sparkSession, columns=["id"], renew=True), "id").count())
        resolver.write(stream.sparkSession.range(BATCHES), f"shop.prices.new{number}", renew=True)

    run(stream, read, tmp_path / "checkpoint")
    assert counts == [2, 3, 4]


@thorough
def test_a_frame_made_before_is_not_refreshed(
    s3: KeyedS3, catalog: RenewingPolaris, resolver: LocationResolver, spark: SparkSession
) -> None:
    locations = resolver.prefetch("shop.prices.*", on_error="raise")
    frame = locations.dataframe(spark)
    s3.revoked.update(catalog.issued)
    refreshed = resolver.refresh(locations).dataframe(spark)
    with pytest.raises(PythonException, match=r"table shop\$prices\$t000[01], version 1 at s3://.* 400 Bad Request"):
        frame.count()
    assert refreshed.count() == 2 * BATCHES


def test_a_frame_made_before_renews_its_credentials_on_request(
    s3: KeyedS3, catalog: RenewingPolaris, resolver: LocationResolver, spark: SparkSession
) -> None:
    locations = resolver.prefetch("shop.prices.*", on_error="raise")
    frame = locations.dataframe(spark, renew=True)
    s3.revoked.update(catalog.issued)
    assert frame.count() == 2 * BATCHES == frame.where("price > 0").count()
    assert len(catalog.issued) == 4
    rows = spark.range(3).selectExpr("id", "cast(1.5 as double) as price")
    assert resolver.write(rows, "shop.prices.t0000", mode="append", renew=True).rows == 3
    assert resolver.write(rows, "shop.prices.new", renew=True).rows == 3


def test_maintenance_renews_credentials(
    s3: KeyedS3, catalog: RenewingPolaris, resolver: LocationResolver, spark: SparkSession
) -> None:
    class Withdrawing(SparkEngine):
        async def run(self, jobs: Sequence[Job], settle: Settle, vend: Vend) -> None:
            s3.revoked.update(catalog.issued)
            await super().run(jobs, settle, vend)

    for name in ("t0000", "t0001"):
        lance.write_dataset(prices(2.0), uri(name), mode="append", storage_options=s3.options)
    namespace = resolver.namespace
    assert isinstance(namespace, Namespace)
    options: Any = {"compact": MERGE_ALL, "cleanup": CleanupOptions(older_than="0s", delete_unverified=True)}
    report = sync.maintain(namespace, "shop.prices.*", engine=Withdrawing(spark, renew=True), **options)
    assert report.counts == {"maintained": 2}, report.problems
    assert report.counters["versions removed"] == 6
    failed = sync.maintain(namespace, "shop.prices.*", engine=Withdrawing(spark), **options)
    assert failed.counts == {"denied": 2} and "400 Bad Request" in failed.problems[0].reason


def test_writes_of_tasks_renew_credentials(
    s3: KeyedS3, catalog: RenewingPolaris, resolver: LocationResolver, spark: SparkSession
) -> None:
    at = resolver.prefetch("shop.prices.t0000", on_error="raise")["shop.prices.t0000"]
    renewal = resolver._renewal([at], spark)
    s3.revoked.update(catalog.issued)
    for version, replaces in ((at.version, False), (None, True)):
        sink = Sink(str(at.id), at.location, prices(1.0).schema, version, replaces, {}, at.storage_options, renewal)
        (result,) = fragments_writer(sink, None)(prices(1.0).to_batches())
        assert json.loads(result["fragment"][0].as_py())["physical_rows"] == BATCHES
    assert len(catalog.issued) == 2


TABLES = 12
FRAGMENTS = 6


def rows(n: int) -> pa.Table:
    return pa.table({"id": pa.array(range(n * 1000, n * 1000 + 60), pa.int64()), "s": ["it's"] * 60})


@pytest.fixture
def many_tables(tmp_path: Path) -> Lake:
    many_tables = Lake(tmp_path)
    for n in range(TABLES):
        many_tables.write(f"t{n}", rows(n), max_rows_per_file=60 // FRAGMENTS)
    return many_tables


def test_tables_are_compacted_by_spark_and_committed_here(spark: SparkSession, many_tables: Lake) -> None:
    resolver = LocationResolver(many_tables.namespace)
    paths = {id.name: at.location.removeprefix("file://") for id, at in resolver.prefetch("db.*").items()}
    for file in Path(paths["t7"], "data").iterdir():
        file.write_bytes(b"no data")
    next(Path(paths["t9"], "data").iterdir()).unlink()
    cleanup = CleanupOptions(older_than=None, delete_unverified=True)
    plan = sync.plan_maintenance(many_tables.namespace, "db.*", compact=MERGE_ALL, cleanup=cleanup)
    assert len(plan.pending) == TABLES and f"{TABLES} tables" in repr(plan)
    engine = SparkEngine(spark)
    by_spark = sync.plan_maintenance(many_tables.namespace, "db.*", compact=MERGE_ALL, cleanup=cleanup, engine=engine)
    assert by_spark.tables == plan.tables
    engine = SparkEngine(spark, partitions=5)
    report = sync.maintain(many_tables.namespace, "db.*", compact=MERGE_ALL, cleanup=cleanup, engine=engine)
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
    engine = SparkEngine(spark)
    again = sync.maintain(many_tables.namespace, "db.*", compact=MERGE_ALL, cleanup=cleanup, engine=engine)
    assert again.counts == {"unchanged": TABLES - 2, "failed": 2}


def test_versions_of_the_catalog_are_committed_by_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        with Namespace.connect("iceberg", {**properties, "backoff_initial": "1ms"}) as namespace:
            namespace.create_namespace({"id": ["db"]})
            for name in ("a", "b"):
                for n in range(3):
                    namespace.write(["db", name], rows(n), mode="append" if n else "create")
            assert sync.maintain(namespace, "db.*", compact=MERGE_ALL, engine=SparkEngine(spark)).counts == {
                "maintained": 2
            }
            at = LocationResolver(namespace).prefetch("db.a")["db.a"]
            assert (at.version, at.fragments, at.rows) == (5, 1, 180)


async def vend(table: Table) -> Table:
    raise AssertionError("nothing expires")


async def test_results_arrive_with_each_spark_task_and_errors_are_results(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": range(40)}), path, max_rows_per_file=4)
    _, tasks = maintaining.examine(
        dataset, Examination(max_small_fragments=1, compaction={"target_rows_per_fragment": 20})
    )
    assert len(tasks) == 2
    table, gone = Table(TableId(["t"]), path), Table(TableId(["gone"]), str(tmp_path / "gone"))
    jobs = [Job(table, "rewrite", task.content, 1, n) for n, task in enumerate(tasks)]
    jobs.append(Job(gone, "rewrite", tasks[0].content, 1))
    results: list[JobResult] = []
    await SparkEngine(spark).run(jobs, results.append, vend)
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
