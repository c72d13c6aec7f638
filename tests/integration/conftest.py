"""A Spark session for reads, and catalogs with tables to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lance_ns_async.spark import Locations
from lance_ns_async.spark.local import local_spark
from tests.integration.spark_lake import TABLES, Lake, rows
from tests.support.spark_sessions import stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[1,2]"


@pytest.fixture(scope="session")
def stopping() -> Iterator[None]:
    """Stops Spark after the last test of a process."""
    yield
    stop_spark()


@pytest.fixture(scope="module")
def shared_spark(stopping: None) -> SparkSession:
    """Provides the session of all tests of a process: its first query starts several processes, and takes long.

    One task runs after the other, so that earlier tasks have ended before one fails: a task that Spark interrupts
    between its last row and its result leaves a file. Each task is tried twice.
    """
    config = {
        "spark.master": MASTER,
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
    }
    stop_spark(unless=MASTER)
    return local_spark("tests", config=config)


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
