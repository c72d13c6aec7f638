"""Spark over servers of the Lance REST protocol: tables are written, found, read and maintained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lance_ns_async import Namespace
from lance_ns_async.fleet import sync
from lance_ns_async.spark import LocationResolver, SparkEngine
from tests.contract.rest_sites import rest_on_pylance
from tests.support.budget import with_usual
from tests.support.gateway import served
from tests.support.spark_sessions import SPARK

pytestmark = SPARK


@pytest.fixture(params=with_usual(["pylance", "gateway"], "gateway"))
def resolver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocationResolver]:
    if request.param == "pylance":
        with rest_on_pylance(tmp_path) as site, LocationResolver.connect("rest", site.properties) as resolver:
            yield resolver
        return
    with served("dir", {"root": str(tmp_path)}) as gateway:
        headers = {f"header.{name}": value for name, value in gateway.headers.items()}
        with LocationResolver.connect("rest", {"uri": gateway.url, **headers}) as resolver:
            yield resolver


def test_tables_of_a_rest_server_are_written_read_and_maintained(
    spark: SparkSession, resolver: LocationResolver
) -> None:
    resolver.namespace.create_namespace({"id": ["sales"]})
    df = spark.range(0, 60, 1, 3).withColumn("name", f.concat(f.lit("t"), f.col("id") % 6))
    for outcome in ("created", "appended"):
        report = resolver.write_many(df, by="name", into="sales", mode="append", progress=False)
        assert report.counts == {outcome: 6}
    resolver.write(df, "sales.all")
    locations = resolver.prefetch("sales.*", on_error="raise")
    assert len(locations) == 7
    frame = locations.dataframe(spark)
    assert (frame.count(), frame.where("_table = 'sales$t5'").count()) == (180, 20)
    driver = resolver.namespace
    assert isinstance(driver, Namespace)
    assert sync.maintain(driver, "sales.t*", engine=SparkEngine(spark)).counts == {"maintained": 6}
    resolver.forget("sales.t*")
    assert resolver.prefetch("sales.*").dataframe(spark, filter="id >= 30").count() == 90
