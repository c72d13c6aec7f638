"""The Spark session of a process of tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lance_ns_async.spark.local import local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[1,2]"

# Spark starts its JVM by a fork, of which pylance warns; the JVM does not use pylance.
SPARK = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]
"""Marks of the tests that use Spark."""


def stop_spark(*, unless: str | None = None) -> None:
    """Stops the session of this process, if there is one, except for one with the master `unless`."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None and session.sparkContext.master != unless:
        session.stop()


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
    config = {"spark.master": MASTER, "spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "2"}
    stop_spark(unless=MASTER)
    return local_spark("tests", config=config)
