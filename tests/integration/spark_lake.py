"""An embedded catalog for reads by Spark, and rows for its tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

from lance_ns_async import Namespace
from lance_ns_async.spark import LocationResolver, Locations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TABLES = 40


class Lake:
    """An embedded catalog with one namespace, `db`."""

    def __init__(self, root: Path, **storage: str) -> None:
        options = {f"storage.{key}": value for key, value in storage.items()}
        self.namespace = Namespace.connect("dir", {"root": str(root), **options})
        self.namespace.create_namespace(CreateNamespaceRequest(id=["db"]))

    def write(self, name: str, rows: pa.Table, **options: Any) -> str:
        location = self.namespace.declare_table(DeclareTableRequest(id=["db", name])).location
        assert location is not None
        lance.write_dataset(rows, location, mode="overwrite", **options)
        return location

    def prefetch(self, *what: str, pin_versions: bool = True) -> Locations:
        return LocationResolver(self.namespace).prefetch(what or "db.*", pin_versions=pin_versions, on_error="raise")


def rows(n: int) -> pa.Table:
    """Returns ten rows, numbered over all tables."""
    return pa.table(
        {
            "id": pa.array(range(n * 10, n * 10 + 10), pa.int64()),
            "s": pa.array([None, *(f"it's {i}" for i in range(1, 10))]),
            "x": pa.array([i / 2 for i in range(10)], pa.float64()),
        }
    )


def partitions(frame: DataFrame) -> int:
    return int(frame.rdd.getNumPartitions())
