"""Compaction tasks of Spark, executed here without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_ns_async import TableId
from lance_ns_async.fleet.maintenance.engine import Job
from lance_ns_async.model import EXPIRY, Table
from lance_ns_async.spark.maintain import tasks
from lance_ns_async.tables import maintaining


@pytest.fixture
def real(tmp_path: Path) -> Iterator[list[Job]]:
    """A job for a table with data, and one for a table without."""
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": range(30)}), path, max_rows_per_file=10)
    (task,) = maintaining.plan_tasks(dataset, {})
    table = Table(TableId(["a.b", "t"]), path, storage_options={"key": "hush", EXPIRY: "1"})
    yield [Job(table, 1, 0, task), Job(Table(TableId(["gone"]), str(tmp_path / "gone")), 1, 0, task)]


def test_a_failure_is_a_result_and_others_are_executed(real: list[Job]) -> None:
    good, bad = map(tasks.decode, tasks.execute(tasks.encode(real)))
    assert good[:2] == ("a.b$t", 0) and good[3] is None and len(maintaining.new_files([good[2]])) == 1
    assert bad[0] == "gone" and bad[3] is not None and bad[3][0] == "TableVersionNotFoundError"
    dataset = lance.dataset(real[0].table.location)
    assert maintaining.commit(dataset, [good[2]], {}) == 3
    assert dataset.count_rows() == 30 and len(dataset.get_fragments()) == 1
