"""Concurrent writes of a real Spark session, and other writers in the middle of one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import ConcurrentModificationError, TableAlreadyExistsError
from pyspark.sql import SparkSession

from tests.integration.spark_writes.lake import Lake, files
from tests.support.spark_sessions import SPARK

pytestmark = SPARK


def test_concurrent_appends_are_all_kept(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(0))
    with ThreadPoolExecutor(3) as threads:
        frames = [spark.range(n * 10, n * 10 + 10) for n in range(3)]
        versions = {report.version for report in threads.map(lambda df: lake.write(df, "append"), frames)}
    assert versions == {2, 3, 4}
    assert lake.ids() == list(range(30))


def test_one_of_concurrent_creates_succeeds(spark: SparkSession, lake: Lake) -> None:
    def create(n: int) -> int | None:
        try:
            lake.write(spark.range(n * 10, n * 10 + 10))
        except TableAlreadyExistsError:
            return None
        return n

    with ThreadPoolExecutor(3) as threads:
        (winner,) = (n for n in threads.map(create, range(3)) if n is not None)
    assert lake.ids() == list(range(winner * 10, winner * 10 + 10))


def test_append_to_a_table_that_is_replaced_meanwhile_fails(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    location = lake.make(pa.table({"id": [7]}))

    def replace(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import lance

        for batch in batches:
            lance.write_dataset(pa.table({"other": ["x"]}), location, mode="overwrite")
            yield batch

    with pytest.raises(ConcurrentModificationError, match=r"^Concurrent modification: db\$t"):
        lake.write(spark.range(0, 5, 1, 1).mapInArrow(replace, "id long"), "append")
    assert lake.dataset().to_table().to_pylist() == [{"other": "x"}]
    assert len(files(tmp_path)) == 2
