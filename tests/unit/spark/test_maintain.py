"""Tasks of maintenance in Spark, executed here without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_ns_async import TableId
from lance_ns_async.fleet.maintenance.engine import Job
from lance_ns_async.model import EXPIRY, Table
from lance_ns_async.operations import maintaining
from lance_ns_async.operations.maintaining import CleanupLimits, Examination
from lance_ns_async.spark import maintain


@pytest.fixture
def real(tmp_path: Path) -> Iterator[list[Job]]:
    """A job for a table with data, and one for a table without."""
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": range(30)}), path, max_rows_per_file=10)
    _, (task,) = maintaining.examine(dataset, Examination(compaction={}))
    table = Table(TableId(["a.b", "t"]), path, storage_options={"key": "hush", EXPIRY: "1"})
    gone = Table(TableId(["gone"]), str(tmp_path / "gone"))
    yield [Job(it, "rewrite", task.content, version=1, size=task.size) for it in (table, gone)]


def test_a_failure_is_a_result_and_others_are_executed(real: list[Job]) -> None:
    good, bad = map(json.loads, maintain.execute(maintain.encode(real)))
    assert good[:2] == ["a.b$t", 0] and good[3] is None and len(maintaining.new_files([good[2]])) == 1
    assert bad[0] == "gone" and bad[3] is not None and bad[3][0] == "TableVersionNotFoundError"
    dataset = lance.dataset(real[0].table.location)
    assert maintaining.commit(dataset, [good[2]], {}) == 3
    assert dataset.count_rows() == 30 and len(dataset.get_fragments()) == 1


def test_examinations_and_clean_ups_are_those_of_this_process(real: list[Job]) -> None:
    table = real[0].table
    dataset = lance.dataset(table.location)
    dataset.create_scalar_index("id", "BTREE")
    lance.write_dataset(pa.table({"id": range(5)}), table.location, mode="append")
    limits = CleanupLimits(older_than=0.0, retain_versions=2)
    what = Examination(target_rows=20, cleanup=limits, compaction={"target_rows_per_fragment": 20}, min_fragments=3)
    result, cleaned = map(
        json.loads,
        maintain.execute(
            maintain.encode([Job(table, "examine", what.encoded()), Job(table, "clean up", limits.encoded(), number=1)])
        ),
    )
    dataset = lance.dataset(table.location)
    expected = maintaining.examine(dataset, Examination(20, True, None, what.compaction, 3))[1]
    state, planned = maintaining.parse_examination(result[2])
    assert (state.version, state.rows, state.fragments, state.small_fragments) == (3, 35, 4, 4)
    assert (state.stale_indexes, state.unindexed_rows) == (("id_idx",), 5)
    assert planned == expected and len(planned) > 0
    assert (
        maintaining.parse_removed(cleaned[2])
        == (state.old_versions, state.removable_bytes)
        == (1, state.removable_bytes)
    )
    assert [it["version"] for it in dataset.versions()] == [2, 3]
