"""Concurrent writes of a table, whose tasks run in this process, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from lance_namespace import DeclareTableRequest
from lance_namespace.errors import ConcurrentModificationError, TableAlreadyExistsError

from tests.support.lake import ID, Lake
from tests.support.spark_jobs import NONE, ROWS, SCHEMA, Job, files, notes

# It needs pyspark, but no JVM.
pytestmark = pytest.mark.integration


async def test_first_version_of_another_client_is_kept(async_lake: Lake, tmp_path: Path) -> None:
    lost = await Job.begin(async_lake.ns)
    other = await Job.begin(async_lake.ns, "append")
    late = await Job.begin(async_lake.ns, "append")
    written = [job.task(ROWS) for job in (lost, other, late)]
    await other.commit(written[1])
    with pytest.raises(TableAlreadyExistsError, match="another client wrote its first version"):
        await lost.commit(written[0])
    with pytest.raises(ConcurrentModificationError, match="another client wrote its first version"):
        await late.commit(written[2])
    assert "table n$t stays registered, because a version of it is at" in notes(await lost.abandon())
    assert files(tmp_path) == [written[1][0].files[0].path]
    assert await async_lake.values("id") == [1, 2, 3]


async def test_concurrent_appends_are_all_kept(async_lake: Lake) -> None:
    await (await Job.begin(async_lake.ns)).commit()
    jobs = [await Job.begin(async_lake.ns, "append") for _ in range(3)]
    assert [(await job.commit(job.task(ROWS))).version for job in jobs] == [2, 3, 4]
    assert await async_lake.values("id") == [1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_commit_after_another_overwrite_fails(async_lake: Lake, tmp_path: Path, mode: str) -> None:
    await (await Job.begin(async_lake.ns)).commit()
    first, second = [await Job.begin(async_lake.ns, it) for it in (mode, "overwrite")]
    written = first.task(ROWS), second.task(ROWS)
    await second.commit(written[1])
    with pytest.raises(ConcurrentModificationError):
        await first.commit(written[0])
    assert files(tmp_path) == [written[1][0].files[0].path]


async def test_append_without_rows_commits_the_first_version(async_lake: Lake) -> None:
    await async_lake.ns.declare_table(DeclareTableRequest(id=ID))
    job = await Job.begin(async_lake.ns, "append")
    assert (await job.commit(job.task(NONE))).schema == SCHEMA
