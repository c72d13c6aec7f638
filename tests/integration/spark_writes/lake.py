"""A catalog for writes by Spark, and jobs that fail."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DescribeTableRequest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lance_ns_async import Namespace
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.resolve.report import WriteReport

JOB_FAILED = (PySparkException, Py4JJavaError)  # The errors of a failed job; Spark before 4.0 raises the latter
ID = ["db", "t"]


class Lake:
    """A catalog with one namespace, `db`, whose tables are in a directory."""

    def __init__(self, impl: str, properties: Mapping[str, str]) -> None:
        self.namespace = Namespace.connect(impl, properties)
        self.resolver = LocationResolver(self.namespace)
        self.namespace.create_namespace(CreateNamespaceRequest(id=["db"]))

    def write(self, df: DataFrame, mode: Any = "create", **options: Any) -> WriteReport:
        return self.resolver.write(df, ID, mode=mode, **options)

    def make(self, rows: pa.Table, **options: Any) -> str:
        """Writes a table without this package; returns its location."""
        location = self.declare()
        lance.write_dataset(rows, location, **options)
        return location

    def declare(self) -> str:
        location = self.namespace.declare_table(DeclareTableRequest(id=ID)).location
        assert location is not None
        return location

    def location(self) -> str:
        location = self.namespace.describe_table(DescribeTableRequest(id=ID)).location
        assert location is not None
        return location

    def dataset(self, version: int | None = None) -> Any:
        return lance.dataset(self.location(), version=version)

    def ids(self, version: int | None = None) -> list[Any]:
        return sorted(self.dataset(version).to_table()["id"].to_pylist())


def files(root: Path) -> set[str]:
    paths = (path for path in root.rglob("*.lance") if path.is_file() and "__manifest" not in path.parts)
    return {path.name for path in paths}


def await_files(root: Path, expected: set[str]) -> None:
    """Returns as soon as only these files are left; a failed task may still be removing its own."""
    until = time.monotonic() + 30
    while files(root) != expected:
        assert time.monotonic() < until, files(root) ^ expected
        time.sleep(0.01)


def failing(spark: SparkSession, at: int = 399) -> DataFrame:
    """Returns a hundred rows in each of four partitions, of which the last fails at its end."""
    reached = f.col("id") == at
    failed = f.raise_error(f.lit("no more")).cast("long")
    return spark.range(0, 400, 1, 4).select(f.when(reached, failed).otherwise(f.col("id")).alias("id"))
