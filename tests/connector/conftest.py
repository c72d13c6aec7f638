"""A Spark with the connector for each module, and a lake and a catalog's name for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.lake import Ask, Lake
from tests.servers.connector import spark_with_connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = spark_with_connector("tests", cores=2)
    yield session
    session.stop()


@pytest.fixture
def ask(spark: SparkSession) -> Ask:
    """The rows that a statement gives, as plain tuples."""
    return lambda statement: [tuple(row) for row in spark.sql(statement).collect()]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path / "lake")
    with found.namespace, found.namespace.observe(found.calls.append):
        yield found


@pytest.fixture
def catalog() -> str:
    """A name that no other test has, because Spark keeps what it once loaded."""
    return f"lance{next(_numbers)}"
