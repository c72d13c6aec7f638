"""A Spark session for writes, and catalogs whose tables it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fakes.iceberg import FakeIceberg
from tests.integration.spark_writes.lake import Lake
from tests.support import lake as async_lakes

BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> Iterator[SparkSession]:
    shared_spark.conf.set(BATCH, "10")
    yield shared_spark
    shared_spark.conf.unset(BATCH)


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
