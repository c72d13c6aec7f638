"""The Spark session of a process of tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

from lance_ns_async import Namespace, NamespaceId, Policy, TableId
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.local import local_spark
from tests.fakes.iceberg import FakeIceberg

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


def stop_jvm() -> None:
    """Ends the session and the JVM of this process, so that the next session starts one with its own environment."""
    from pyspark import SparkContext

    stop_spark()
    if (gateway := SparkContext._gateway) is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def stopping() -> Iterator[None]:
    yield
    stop_spark()


@pytest.fixture(scope="module")
def shared_spark(stopping: None) -> SparkSession:
    """Provides the session of all tests of a process: its first query starts several processes, and takes long. One
    task runs after the other, so that earlier tasks have ended before one fails: a task that Spark interrupts between
    its last row and its result leaves a file. Each task is tried twice."""
    config = {"spark.master": MASTER, "spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "2"}
    stop_spark(unless=MASTER)
    return local_spark("tests", config=config)


ROWS = pa.table({"id": [1, 2, 3], "s": ["a", None, "c"]})


class Lake:
    """An embedded catalog for new tables."""

    def __init__(self, root: Path, storage: Mapping[str, str] | None = None) -> None:
        self.properties = {"root": str(root), **{f"storage.{key}": value for key, value in (storage or {}).items()}}
        self.namespace = Namespace.connect("dir", self.properties)
        self._made: set[NamespaceId] = {NamespaceId()}

    def declare(self, *names: str) -> str:
        self._make(TableId(names).parent)
        location = self.namespace.declare_table(DeclareTableRequest(id=list(names))).location
        assert location is not None
        return location

    def write(self, *names: str, rows: pa.Table = ROWS, rows_per_file: int = 1024) -> str:
        location = self.declare(*names)
        lance.write_dataset(rows, location, mode="overwrite", max_rows_per_file=rows_per_file)
        return location

    def _make(self, id: NamespaceId) -> None:
        if id not in self._made:
            self._make(id.parent)
            self.namespace.create_namespace(CreateNamespaceRequest(id=list(id)))
            self._made.add(id)


@contextmanager
def lake_in(root: Path) -> Iterator[Lake]:
    lake = Lake(root)
    with lake.namespace:
        yield lake


def resolver_of(server: FakeIceberg) -> LocationResolver:
    """Returns a separate resolver for a catalog, whose calls are retried at once."""
    policy = Policy(backoff_initial=0.001, backoff_max=0.001)
    return LocationResolver.connect("iceberg", {"endpoint": server.endpoint}, policy=policy)


def ids(*texts: str) -> list[TableId]:
    return [TableId(text) for text in texts]


async def prefetch_together(
    count: int,
    wait_for: Callable[[int], None],
    release: Callable[[], None],
    resolver: LocationResolver,
    names: list[str],
) -> list[TableId]:
    """Prefetches tables of `db` whose calls are held until a number of them wait."""
    what = [f"db.{name}" for name in names]
    prefetching = asyncio.ensure_future(resolver.aprefetch(what, pin_versions=False, max_in_flight=count))
    await asyncio.to_thread(wait_for, count)
    release()
    return list(await prefetching)
