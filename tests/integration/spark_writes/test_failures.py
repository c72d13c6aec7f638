"""Writes of a real Spark session that fail, and the state that they leave."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.integration.spark_writes.lake import ID, JOB_FAILED, Lake, await_files, failing, files
from tests.support.spark_sessions import SPARK

pytestmark = SPARK


@pytest.mark.parametrize("catalog", ["lake", "managed"])
def test_failed_create_leaves_nothing(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, catalog: str
) -> None:
    lake: Lake = request.getfixturevalue(catalog)
    with pytest.raises(JOB_FAILED, match="no more"):
        lake.write(failing(spark))
    assert not lake.namespace.exists(ID)
    await_files(tmp_path, set())


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_failed_job_leaves_the_table_unchanged(spark: SparkSession, lake: Lake, tmp_path: Path, mode: str) -> None:
    lake.make(pa.table({"id": [7]}))
    before = files(tmp_path)
    with pytest.raises(JOB_FAILED, match="no more"):
        lake.write(failing(spark), mode)
    await_files(tmp_path, before)
    assert (lake.dataset().version, lake.ids()) == (1, [7])


def test_killed_task_is_repeated_without_duplicate_rows(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    marks = str(tmp_path / "died")

    def dies_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for n, batch in enumerate(batches):
            if n == 3 and batch.column(0)[0].as_py() >= 100:
                with suppress(FileExistsError):
                    os.close(os.open(marks, os.O_CREAT | os.O_EXCL))
                    # The process that writes, a child of the same daemon, dies during the write.
                    kill_writers()
            yield batch

    df = spark.range(0, 200, 1, 2).mapInArrow(dies_once, "id long")
    assert lake.write(df, max_rows_per_file=10).rows == 200
    assert os.path.exists(marks)
    assert lake.ids() == list(range(200))


def kill_writers() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
