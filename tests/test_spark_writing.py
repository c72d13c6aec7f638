"""What a write from Spark does in the catalog and the storage, and which columns fit: all that needs no JVM."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata
from lance_namespace import DeclareTableRequest, DeregisterTableRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.located import staging
from lance_ns_async.model import Table
from lance_ns_async.policy import Caller, Policy
from lance_ns_async.spark import LocationResolver, fitting
from lance_ns_async.spark.sink import fragments_writer
from lance_ns_async.spark.writing import Writing, _ours
from lance_ns_async.tables.staging import Staged
from tests.fakes.memory import MemoryBackend
from tests.lake import ID, Lake, lake

# It needs pyspark, as what Spark itself is needed for does.
pytestmark = pytest.mark.integration

FRAME = StructType([StructField("id", LongType(), nullable=False), StructField("s", StringType())])
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
ROWS = pa.record_batch([[1, 2, 3], ["a", "b", None]], schema=SCHEMA)
NONE = ROWS.slice(0, 0)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Lake]:
    async with lake(tmp_path) as made:
        yield made


def writing(mode: str = "create", id: Sequence[str] = ID, **how: Any) -> Writing:
    given: dict[str, Any] = {"schema": None, "data_storage_version": None, "limits": {}}
    return Writing(TableId(id), mode, **{**given, **how})


class Job:
    """A write whose tasks run here, one after the other."""

    def __init__(self, ns: AsyncNamespace, wanted: Writing, staged: Staged) -> None:
        self.ns = ns
        self.staged = staged
        self._sink = wanted.sink(staged)

    @classmethod
    async def begun(cls, ns: AsyncNamespace, mode: str = "create", **how: Any) -> Job:
        wanted = writing(mode, **how)
        return cls(ns, wanted, await staging(ns).begin(wanted.id, mode, partial(wanted.fit, FRAME)))

    def task(self, *batches: pa.RecordBatch) -> list[FragmentMetadata]:
        given = fragments_writer(self._sink, None)(batches)
        return [FragmentMetadata.from_json(text) for batch in given for text in batch.column(0).to_pylist()]

    async def commit(self, *tasks: list[FragmentMetadata]) -> Any:
        return await staging(self.ns).commit(self.staged, [*chain(*tasks)])

    async def abandon(self, *tasks: list[FragmentMetadata]) -> BaseException:
        """Gives the error with what it was told of what is left."""
        error = KeyError("why")
        await staging(self.ns).abandon(self.staged, [*chain(*tasks)], error)
        return error


def files(root: Path) -> list[str]:
    """The data files that are there, but for those of the catalog itself."""
    found = (path for path in root.rglob("*.lance") if path.is_file() and "__manifest" not in path.parts)
    return sorted(path.name for path in found)


def notes(error: BaseException) -> str:
    return "; ".join(getattr(error, "__notes__", ()))


async def test_what_tasks_wrote_is_committed_at_once(there: Lake) -> None:
    job = await Job.begun(there.ns)
    tasks = [job.task(NONE, ROWS, ROWS), job.task(), job.task(NONE), job.task(ROWS)]
    assert [len(fragments) for fragments in tasks] == [1, 0, 0, 1]
    assert (await job.commit(*tasks)).version == 1
    assert await there.values("id") == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_a_file_holds_no_more_rows_than_it_may(there: Lake) -> None:
    job = await Job.begun(there.ns, limits={"max_rows_per_file": 2, "max_bytes_per_file": None})
    assert [fragment.physical_rows for fragment in job.task(ROWS, ROWS)] == [2, 2, 2]


async def test_a_table_that_is_there_is_not_declared(there: Lake) -> None:
    await there.create()
    with pytest.raises(TableAlreadyExistsError):
        await Job.begun(there.ns)
    with pytest.raises(TableNotFoundError):
        await Job.begun(there.ns, "append", id=["n", "other"])


async def test_a_job_that_failed_leaves_no_table(there: Lake, tmp_path: Path) -> None:
    job = await Job.begun(there.ns)
    job.task(ROWS)
    assert notes(await job.abandon()) == ""
    assert files(tmp_path) == [] and there.left() == []
    with pytest.raises(TableNotFoundError):
        await there.location()


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_a_job_that_failed_leaves_the_table_as_it_was(there: Lake, tmp_path: Path, mode: str) -> None:
    await (await Job.begun(there.ns)).commit()
    job = await Job.begun(there.ns, mode)
    assert notes(await job.abandon(job.task(ROWS), job.task(ROWS))) == ""
    assert files(tmp_path) == []
    assert (await there.dataset()).version == 1


async def test_a_table_that_others_wrote_meanwhile_is_theirs(there: Lake, tmp_path: Path) -> None:
    lost, failed = await Job.begun(there.ns), None
    other = await Job.begun(there.ns, "append")
    late = await Job.begun(there.ns, "append")
    written = [job.task(ROWS) for job in (lost, other, late)]
    await other.commit(written[1])
    with pytest.raises(TableAlreadyExistsError, match="somebody else has written its first version"):
        await lost.commit(written[0])
    with pytest.raises(ConcurrentModificationError, match="somebody else has written its first version"):
        await late.commit(written[2])
    failed = await lost.abandon()
    assert notes(failed) == ""
    assert files(tmp_path) == [written[1][0].files[0].path]
    assert await there.values("id") == [1, 2, 3]


async def test_appends_at_once_are_all_kept(there: Lake) -> None:
    await (await Job.begun(there.ns)).commit()
    jobs = [await Job.begun(there.ns, "append") for _ in range(3)]
    assert [(await job.commit(job.task(ROWS))).version for job in jobs] == [2, 3, 4]
    assert await there.values("id") == [1, 1, 1, 2, 2, 2, 3, 3, 3]


async def test_of_overwrites_at_once_one_wins(there: Lake, tmp_path: Path) -> None:
    await (await Job.begun(there.ns)).commit()
    first, second = [await Job.begun(there.ns, "overwrite") for _ in range(2)]
    written = first.task(ROWS), second.task(ROWS)
    await second.commit(written[1])
    with pytest.raises(ConcurrentModificationError):
        await first.commit(written[0])
    assert files(tmp_path) == [written[1][0].files[0].path]


async def test_nothing_appended_is_no_version(there: Lake) -> None:
    await (await Job.begun(there.ns)).commit()
    assert (await (await Job.begun(there.ns, "append")).commit()).version == 1
    assert (await (await Job.begun(there.ns, "overwrite")).commit()).version == 2


async def test_a_declared_table_gets_its_first_version_even_if_it_is_empty(there: Lake) -> None:
    await there.ns.declare_table(DeclareTableRequest(id=ID))
    job = await Job.begun(there.ns, "append")
    assert (await job.commit(job.task(NONE))).schema == SCHEMA


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
async def test_a_table_that_is_gone_is_not_committed(there: Lake, tmp_path: Path, mode: str) -> None:
    if mode != "create":
        await (await Job.begun(there.ns)).commit()
    job = await Job.begun(there.ns, mode)
    written = job.task(ROWS)
    await there.ns.deregister_table(DeregisterTableRequest(id=ID))
    with pytest.raises(TableNotFoundError) as raised:
        await job.commit(written)
    assert notes(raised.value) == "" and files(tmp_path) == []


class Commits:
    """Stands in for pylance's commit: calls it, or not, and then raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, done: bool) -> None:
        self._commit = lance.LanceDataset.commit
        self._done = done
        monkeypatch.setattr(lance.LanceDataset, "commit", self)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self._done:
            self._commit(*args, **kwargs)
        raise OSError("LanceError(IO): the answer was lost, /lance/commit.rs:1:1")


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
async def test_a_commit_whose_answer_was_lost_is_found(there: Lake, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    if mode != "create":
        await (await Job.begun(there.ns)).commit()
    job = await Job.begun(there.ns, mode)
    Commits(monkeypatch, done=True)
    assert (await job.commit(job.task(ROWS))).version == (1 if mode == "create" else 2)
    assert await there.values("id") == [1, 2, 3]


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
async def test_a_commit_that_did_nothing_leaves_no_files(
    there: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if mode != "create":
        await (await Job.begun(there.ns)).commit()
    job = await Job.begun(there.ns, mode)
    Commits(monkeypatch, done=False)
    with pytest.raises(InternalError, match="the answer was lost") as raised:
        await job.commit(job.task(ROWS))
    assert notes(raised.value) == "" and files(tmp_path) == []
    assert (there.left() == []) == (mode == "create")


async def test_where_nobody_knows_whether_it_was_committed_nothing_is_removed(
    there: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await Job.begun(there.ns)
    written = job.task(ROWS)
    Commits(monkeypatch, done=True)

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise OSError("error sending request")

    monkeypatch.setattr(lance, "dataset", unreachable)
    with pytest.raises(InternalError) as raised:
        await job.commit(written)
    monkeypatch.undo()
    assert "nobody can tell yet, so nothing was removed" in notes(raised.value)
    assert await there.values("id") == [1, 2, 3]


class Catalog:
    """A catalog in memory, whose calls fail as they are told to."""

    id = TableId(["t"])

    def __init__(self, root: Path, backend: MemoryBackend | None = None) -> None:
        self.backend = backend or MemoryBackend()
        self.ns = AsyncNamespace(self.backend, Caller(Policy(), {}), "memory")
        self.location = str(root / "t")

    def fail(self, operation: str, error: LanceNamespaceError) -> None:
        self.backend.faults[operation, self.id] = error

    async def begun(self, mode: str) -> Job:
        self.backend.tables[self.id] = Table(self.id, self.location)
        return await Job.begun(self.ns, mode, id=self.id)


async def test_what_cannot_be_removed_is_told(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    job = await catalog.begun("append")
    written = job.task(ROWS)
    catalog.fail("describe_table", PermissionDeniedError("Permission denied: t"))
    assert f"what was written to {catalog.location} is left (Permission denied: t)" in notes(await job.abandon(written))
    with pytest.raises(PermissionDeniedError):
        await job.commit(written)
    assert len(files(tmp_path)) == 1


async def test_a_table_that_is_elsewhere_by_now_is_not_committed(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    job = await catalog.begun("append")
    written = job.task(ROWS)
    catalog.backend.tables[catalog.id] = Table(catalog.id, str(tmp_path / "moved"))
    with pytest.raises(ConcurrentModificationError, match=r"meanwhile it is at .*/moved"):
        await job.commit(written)


async def test_a_declaration_that_could_not_be_used_is_taken_back(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.fail("describe_table", ServiceUnavailableError("Service unavailable: t"))
    with pytest.raises(ServiceUnavailableError):
        await Job.begun(catalog.ns, id=catalog.id)
    assert catalog.backend.tables == {}


class Keeping(MemoryBackend):
    """A catalog that keeps columns, and has its tables in a directory, of which it makes nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    async def declare_table(
        self, id: TableId, location: str | None, properties: Any, schema: pa.Schema | None = None
    ) -> Table:
        made = await super().declare_table(id, location or str(self._root / id.name), properties)
        self.tables[id] = Table(id, made.location, dict(properties), schema=schema)
        return self.tables[id]


async def test_a_table_declared_for_a_job_that_failed_is_gone_with_its_files(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, Keeping(tmp_path))
    job = await Job.begun(catalog.ns, id=catalog.id)
    assert catalog.backend.tables[catalog.id].schema == SCHEMA
    written = job.task(ROWS)
    assert files(tmp_path) == [written[0].files[0].path]
    assert notes(await job.abandon(written)) == ""
    assert files(tmp_path) == [] and catalog.backend.tables == {}


@pytest.mark.parametrize("done", [True, False])
async def test_a_catalog_that_keeps_columns_has_those_of_the_latest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    catalog = Catalog(tmp_path, Keeping(tmp_path))
    columns = pa.schema([("id", pa.int8())])
    before = Table(catalog.id, catalog.location, {"owner": "me"}, schema=columns)
    lance.write_dataset(columns.empty_table(), catalog.location)
    catalog.backend.tables[catalog.id] = before
    job = await Job.begun(catalog.ns, "overwrite", id=catalog.id)
    assert catalog.backend.tables[catalog.id] == before
    if done:
        await job.commit(job.task(ROWS))
    else:
        Commits(monkeypatch, done=False)
        with pytest.raises(InternalError):
            await job.commit(job.task(ROWS))
    found = catalog.backend.tables[catalog.id]
    assert (found.location, found.properties) == (before.location, before.properties)
    assert found.schema == (SCHEMA if done else columns)


REFUSED: Sequence[tuple[Callable[[], object], str]] = [
    (lambda: writing(limits={"max_rows_per_file": 0}), "max_rows_per_file 0: at least 1"),
    (lambda: writing("append", schema=SCHEMA), "schema: a table that is appended to has its columns"),
    (lambda: fitting.for_new(TableId(["t"]), SCHEMA, pa.schema([("x", pa.int8())]), None), "'x' is no column"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_what_cannot_be_asked_for_is_refused(call: Callable[[], object], told: str) -> None:
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


def test_what_a_task_of_ours_said_is_raised_as_that() -> None:
    told = (
        "Traceback ...\n  File x, line 1\n"
        "lance_namespace.errors.PermissionDeniedError: Permission denied: t (at s3://b/t: no)\n\n\tat org.apache"
    )
    error = KeyError(told)
    error.add_note("and this is left")
    ours = _ours(RuntimeError(told))
    assert isinstance(ours, PermissionDeniedError) and str(ours) == "Permission denied: t (at s3://b/t: no)"
    assert _ours(RuntimeError("ZeroDivisionError: division by zero")) is None
    assert _ours(RuntimeError("lance_namespace.errors.json: no class of errors")) is None
