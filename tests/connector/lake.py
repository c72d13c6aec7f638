"""A catalog with tables for the connector, and its recorded calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DescribeTableRequest
from lance_namespace.errors import TableNotFoundError

from lance_ns_async import Namespace
from lance_ns_async.calls.observers import Call
from lance_ns_async.spark import LocationResolver, Locations

Ask: TypeAlias = Callable[[str], list[tuple[object, ...]]]  # Returns the rows of a statement

MARKS = [
    pytest.mark.integration,
    # Spark starts its JVM by a fork, of which pylance warns; the JVM does not use pylance.
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    # Spark 3.5 does not close the socket through which rows come from the JVM.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Lake:
    """An embedded catalog with one namespace, `db`, and a record of its calls."""

    def __init__(self, root: Path, **storage: str) -> None:
        options = {f"storage.{key}": value for key, value in storage.items()}
        self.namespace = Namespace.connect("dir", {"root": str(root), **options})
        self.namespace.create_namespace(CreateNamespaceRequest(id=["db"]))
        self.resolver = LocationResolver(self.namespace)
        self.calls: list[Call] = []

    def write(self, name: str, rows: int = 10, mode: str = "create") -> None:
        """Creates a table in `db` with a number of rows, numbered from 0; with mode `append`, adds them."""
        more = pa.table({"id": range(rows)})
        lance.write_dataset(more, namespace_client=self.namespace, table_id=["db", name], mode=mode)

    def rows(self, name: str) -> int | None:
        """Returns the current number of rows of a table in `db`; None if the catalog does not have it."""
        try:
            location = self.namespace.describe_table(DescribeTableRequest(id=["db", name])).location
        except TableNotFoundError:
            return None
        assert location is not None
        return lance.dataset(location).count_rows()

    def prefetch(self, *what: str) -> Locations:
        """Returns the prefetched tables, and clears the record of calls."""
        result = self.resolver.prefetch(what or "db.*", pin_versions=False)
        self.calls.clear()
        return result
