"""A Spark session with the connector for each module, and a lake and a catalog name for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lance_ns_async.spark.local import local_spark
from tests.connector.lake import Ask, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = local_spark("tests", cores=2, connector=True)
    yield session
    session.stop()


@pytest.fixture
def ask(spark: SparkSession) -> Ask:
    """Returns the rows of a statement as tuples."""
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
