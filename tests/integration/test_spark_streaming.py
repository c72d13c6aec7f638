"""Structured Streaming joined with located tables: each micro-batch reads the same versions with valid keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from lance_ns_async.spark import LocationResolver
from tests.fakes.renewing import KeyedS3, RenewingPolaris
from tests.support.budget import thorough

pytestmark = [
    pytest.mark.integration,
    # Spark starts its JVM by a fork, of which pylance warns; the JVM does not use pylance.
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    # The keys must expire with each batch.
    pytest.mark.filterwarnings("ignore:the storage options of"),
]

BATCHES = 3


@pytest.fixture
def s3() -> Iterator[KeyedS3]:
    with KeyedS3() as running:
        yield running


@pytest.fixture
def catalog(s3: KeyedS3) -> Iterator[RenewingPolaris]:
    with RenewingPolaris(s3) as running:
        for name in running.add_lance_tables("shop", ("prices",), 2):
            lance.write_dataset(prices(1.0), uri(name), storage_options=s3.options)
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


def test_batches_may_read_what_is_newest(
    s3: KeyedS3, resolver: LocationResolver, stream: DataFrame, tmp_path: Path
) -> None:
    rows: list[int] = []

    def count(batch: DataFrame, number: int) -> None:
        resolver.forget()
        rows.append(resolver.prefetch("shop.prices.*", on_error="raise").dataframe(batch.sparkSession).count())
        lance.write_dataset(prices(9.0), uri("t0000"), mode="append", storage_options=s3.options)

    run(stream, count, tmp_path / "checkpoint")
    assert rows == [2 * BATCHES, 3 * BATCHES, 4 * BATCHES]
