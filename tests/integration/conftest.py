"""A Spark session for reads, and catalogs with tables to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lance_ns_async.spark import Locations
from tests.integration.spark_lake import TABLES, Lake, rows
from tests.support.spark import shared_spark, stopping

__all__ = ["shared_spark", "stopping"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(shared_spark: SparkSession) -> SparkSession:
    return shared_spark


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
