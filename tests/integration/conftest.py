"""A Spark session for reads, and catalogs with tables to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lance_ns_async.spark import Locations
from lance_ns_async.spark.local import local_spark
from tests.integration.spark_lake import TABLES, Lake, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = local_spark("tests", cores=2, config={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Locations:
    """Returns the locations of many tables with ten rows each."""
    lake = Lake(tmp_path_factory.mktemp("many"))
    for n in range(TABLES):
        lake.write(f"t{n}", rows(n))
    return lake.prefetch()
