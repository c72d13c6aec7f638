"""Effects of a Spark write on the catalog and the storage, without a JVM."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import DeclareTableRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import Namespace, TableId
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.job_errors import task_error
from lance_ns_async.spark.write import fitting
from tests.support.lake import ID, Lake, lake
from tests.support.spark_jobs import NONE, ROWS, SCHEMA, Job, files, notes, writing

# It needs pyspark, but no JVM.
pytestmark = pytest.mark.integration


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as made:
        yield made


async def test_what_tasks_wrote_is_committed_at_once(there: Lake) -> None:
    job = await Job.begin(there.ns)
    tasks = [job.task(NONE, ROWS, ROWS), job.task(), job.task(NONE), job.task(ROWS)]
    assert [len(fragments) for fragments in tasks] == [1, 0, 0, 1]
    assert (await job.commit(*tasks)).version == 1
    assert await there.values("id") == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_file_holds_no_more_rows_than_it_may(there: Lake) -> None:
    job = await Job.begin(there.ns, limits={"max_rows_per_file": 2, "max_bytes_per_file": None})
    assert [fragment.physical_rows for fragment in job.task(ROWS, ROWS)] == [2, 2, 2]


async def test_a_table_that_is_there_is_not_declared(there: Lake) -> None:
    await there.create()
    with pytest.raises(TableAlreadyExistsError):
        await Job.begin(there.ns)
    with pytest.raises(TableNotFoundError):
        await Job.begin(there.ns, "append", id=["n", "other"])


async def test_a_table_that_others_wrote_meanwhile_is_theirs(there: Lake, tmp_path: Path) -> None:
    lost, failed = await Job.begin(there.ns), None
    other = await Job.begin(there.ns, "append")
    late = await Job.begin(there.ns, "append")
    written = [job.task(ROWS) for job in (lost, other, late)]
    await other.commit(written[1])
    with pytest.raises(TableAlreadyExistsError, match="another client wrote its first version"):
        await lost.commit(written[0])
    with pytest.raises(ConcurrentModificationError, match="another client wrote its first version"):
        await late.commit(written[2])
    failed = await lost.abandon()
    assert "table n$t stays registered, because a version of it is at" in notes(failed)
    assert files(tmp_path) == [written[1][0].files[0].path]
    assert await there.values("id") == [1, 2, 3]


async def test_appends_at_once_are_all_kept(there: Lake) -> None:
    await (await Job.begin(there.ns)).commit()
    jobs = [await Job.begin(there.ns, "append") for _ in range(3)]
    assert [(await job.commit(job.task(ROWS))).version for job in jobs] == [2, 3, 4]
    assert await there.values("id") == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_of_overwrites_at_once_one_wins(there: Lake, tmp_path: Path) -> None:
    await (await Job.begin(there.ns)).commit()
    first, second = [await Job.begin(there.ns, "overwrite") for _ in range(2)]
    written = first.task(ROWS), second.task(ROWS)
    await second.commit(written[1])
    with pytest.raises(ConcurrentModificationError):
        await first.commit(written[0])
    assert files(tmp_path) == [written[1][0].files[0].path]


async def test_nothing_appended_is_no_version(there: Lake) -> None:
    await (await Job.begin(there.ns)).commit()
    assert (await (await Job.begin(there.ns, "append")).commit()).version == 1
    assert (await (await Job.begin(there.ns, "overwrite")).commit()).version == 2


async def test_a_declared_table_gets_its_first_version_even_if_it_is_empty(there: Lake) -> None:
    await there.ns.declare_table(DeclareTableRequest(id=ID))
    job = await Job.begin(there.ns, "append")
    assert (await job.commit(job.task(NONE))).schema == SCHEMA


REFUSED: Sequence[tuple[Callable[[], object], str]] = [
    (lambda: writing(limits={"max_rows_per_file": 0}), "max_rows_per_file 0: must be at least 1"),
    (lambda: writing("append", schema=SCHEMA), "schema: not allowed with mode 'append'"),
    (lambda: fitting.for_new(TableId(["t"]), SCHEMA, pa.schema([("x", pa.int8())]), None), "'x' is not a column"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_what_cannot_be_requested_is_refused(call: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        call()


@pytest.mark.parametrize("mode", ["Append", "insert"])
async def test_modes_are_words_and_the_loop_is_not_held_up(there: Lake, tmp_path: Path, mode: str) -> None:
    nobody: Any = None
    with pytest.raises(InvalidInputError, match=r"^write: this resolver has an AsyncNamespace"):
        LocationResolver(there.ns).write(nobody, ID, mode="append")
    if mode == "insert":
        with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
            with pytest.raises(InvalidInputError, match=r"mode 'insert': unknown; it is one of create, append"):
                LocationResolver(ns).write(nobody, ID, mode=mode)  # type: ignore[arg-type]  # which is the point


def test_errors_of_tasks_are_raised_unchanged() -> None:
    told = (
        "Traceback ...\n  File x, line 1\n"
        "lance_namespace.errors.PermissionDeniedError: Permission denied: t (at s3://b/t: no)\n\n\tat org.apache"
    )
    error = KeyError(told)
    error.add_note("and this is left")
    ours = task_error(RuntimeError(told))
    assert isinstance(ours, PermissionDeniedError) and str(ours) == "Permission denied: t (at s3://b/t: no)"
    assert task_error(RuntimeError("ZeroDivisionError: division by zero")) is None
    assert task_error(RuntimeError("lance_namespace.errors.json: no class of errors")) is None
