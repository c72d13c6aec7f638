"""A Spark session with the connector for all modules, and a lake and a catalog name for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lance_ns_async.spark.local import local_spark
from tests.connector.lake import Ask, Lake
from tests.servers.iceberg_rest import IcebergRest, iceberg_rest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()
SMALL = {"spark.sql.shuffle.partitions": "1"}
"""Tables of a few rows need one task for each step; Spark's default is 200."""


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """Returns the running session, or starts one; it runs until the process ends, or a test stops it."""
    return local_spark("tests", cores=2, config=SMALL, connector=True)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with iceberg_rest(tmp_path_factory.mktemp("iceberg")) as running:
        yield running


@pytest.fixture
def ask(spark: SparkSession) -> Ask:
    return lambda statement: [tuple(row) for row in spark.sql(statement).collect()]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    result = Lake(tmp_path / "lake")
    with result.namespace, result.namespace.observe(result.calls.append):
        yield result


@pytest.fixture
def catalog() -> str:
    """Returns a name that no other test uses, because Spark keeps loaded catalogs."""
    return f"lance{next(_numbers)}"
