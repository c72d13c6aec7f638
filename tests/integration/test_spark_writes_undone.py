"""Writes of a real Spark session that fail or conflict, and the state that they leave."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import ConcurrentModificationError, TableAlreadyExistsError
from pyspark.sql import SparkSession

from tests.integration.spark_writes import (
    ID,
    JOB_FAILED,
    Lake,
    await_files,
    committing,
    embedded,
    failing,
    files,
    session,
)

# Spark starts its JVM by a fork, of which pylance warns; the JVM does not use pylance.
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    running = session()
    yield running
    running.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with embedded(tmp_path) as lake:
        yield lake


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Lake]:
    with committing(tmp_path) as lake:
        yield lake


def test_of_a_job_that_fails_nothing_is_left(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(JOB_FAILED, match="no more"):
        lake.write(failing(spark))
    assert not lake.namespace.exists(ID)
    await_files(tmp_path, set())


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_stays_as_it_was_when_a_job_fails(spark: SparkSession, lake: Lake, tmp_path: Path, mode: str) -> None:
    lake.make(pa.table({"id": [7]}))
    before = files(tmp_path)
    with pytest.raises(JOB_FAILED, match="no more"):
        lake.write(failing(spark), mode)
    await_files(tmp_path, before)
    assert (lake.dataset().version, lake.ids()) == (1, [7])


def test_a_task_that_dies_is_done_again_and_no_row_is_double(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
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


def test_many_append_at_once(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(0))
    with ThreadPoolExecutor(3) as threads:
        frames = [spark.range(n * 10, n * 10 + 10) for n in range(3)]
        versions = {found.version for found in threads.map(lambda df: lake.write(df, "append"), frames)}
    assert versions == {2, 3, 4}
    assert lake.ids() == list(range(30))


def test_of_many_that_create_a_table_one_does(spark: SparkSession, lake: Lake) -> None:
    def create(n: int) -> int | None:
        try:
            lake.write(spark.range(n * 10, n * 10 + 10))
        except TableAlreadyExistsError:
            return None
        return n

    with ThreadPoolExecutor(3) as threads:
        (winner,) = (n for n in threads.map(create, range(3)) if n is not None)
    assert lake.ids() == list(range(winner * 10, winner * 10 + 10))


def test_rows_for_a_table_that_was_replaced_meanwhile_are_not_appended(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    location = lake.make(pa.table({"id": [7]}))

    def replaces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import lance

        for batch in batches:
            lance.write_dataset(pa.table({"other": ["x"]}), location, mode="overwrite")
            yield batch

    with pytest.raises(ConcurrentModificationError, match=r"^Concurrent modification: db\$t"):
        lake.write(spark.range(0, 5, 1, 1).mapInArrow(replaces, "id long"), "append")
    assert lake.dataset().to_table().to_pylist() == [{"other": "x"}]
    assert len(files(tmp_path)) == 2


def test_a_catalog_that_commits_versions_forgets_a_table_that_failed(
    spark: SparkSession, managed: Lake, tmp_path: Path
) -> None:
    with pytest.raises(JOB_FAILED, match="no more"):
        managed.write(failing(spark))
    assert not managed.namespace.exists(ID)
    await_files(tmp_path, set())
