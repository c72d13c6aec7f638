"""A Spark session for writes, and catalogs whose tables it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lance_ns_async.spark.local import local_spark
from tests.fakes.iceberg import FakeIceberg
from tests.integration.spark_writes.lake import Lake
from tests.support import lake as async_lakes


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # One task runs after the other, so that earlier tasks have ended before one fails: a task that Spark interrupts
    # between its last row and its result leaves a file. Each is tried twice, and batches are small.
    settings = {"spark.master": "local[1,2]", "spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
    session = local_spark("tests", config=settings)
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake("dir", {"root": str(tmp_path)})
    with lake.namespace:
        yield lake


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Lake]:
    """Provides a catalog that commits the versions of its tables."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        lake = Lake("iceberg", {**properties, "backoff_initial": "1ms", "backoff_max": "10ms"})
        with lake.namespace:
            yield lake


@pytest.fixture
async def async_lake(tmp_path: Path) -> AsyncIterator[async_lakes.Lake]:
    async with async_lakes.lake(tmp_path) as lake:
        yield lake
