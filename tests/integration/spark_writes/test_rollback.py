"""Failed Spark writes: the rollback, the remaining files, and the errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import DeregisterTableRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from lance_ns_async import TableId
from lance_ns_async.model import Table
from tests.fakes.memory import MemoryBackend, over
from tests.support.lake import ID, Lake
from tests.support.spark_jobs import ROWS, SCHEMA, Job, files, notes

# It needs pyspark, but no JVM.
pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
async def test_commit_of_a_removed_table_fails(async_lake: Lake, tmp_path: Path, mode: str) -> None:
    if mode != "create":
        await (await Job.begin(async_lake.ns)).commit()
    job = await Job.begin(async_lake.ns, mode)
    written = job.task(ROWS)
    await async_lake.ns.deregister_table(DeregisterTableRequest(id=ID))
    with pytest.raises(TableNotFoundError) as raised:
        await job.commit(written)
    assert notes(raised.value) == "" and files(tmp_path) == []


class Commits:
    """Replaces pylance's commit to a table: calls it, or not, and then raises an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, done: bool) -> None:
        self._commit = lance.LanceDataset.commit
        self._done = done
        monkeypatch.setattr(lance.LanceDataset, "commit", self)

    def __call__(self, base: Any, *args: Any, **kwargs: Any) -> Any:
        args = base, *args
        if "__manifest" in str(getattr(base, "uri", base)):
            # The directory catalog's own table.
            return self._commit(*args, **kwargs)
        if self._done:
            self._commit(*args, **kwargs)
        raise OSError("LanceError(IO): the answer was lost, /lance/commit.rs:1:1")


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
async def test_commit_with_a_lost_response_is_recognized(
    async_lake: Lake, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if mode != "create":
        await (await Job.begin(async_lake.ns)).commit()
    job = await Job.begin(async_lake.ns, mode)
    Commits(monkeypatch, done=True)
    assert (await job.commit(job.task(ROWS))).version == (1 if mode == "create" else 2)
    assert await async_lake.values("id") == [1, 2, 3]


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
async def test_failed_commit_leaves_no_files(
    async_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if mode != "create":
        await (await Job.begin(async_lake.ns)).commit()
    job = await Job.begin(async_lake.ns, mode)
    Commits(monkeypatch, done=False)
    with pytest.raises(InternalError, match="the answer was lost") as raised:
        await job.commit(job.task(ROWS))
    assert notes(raised.value) == "" and files(tmp_path) == []
    assert (async_lake.left() == []) == (mode == "create")


async def test_nothing_is_removed_after_an_unknown_commit(
    async_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await Job.begin(async_lake.ns)
    written = job.task(ROWS)
    Commits(monkeypatch, done=True)

    def unreachable(*args: Any, **kwargs: Any) -> None:
        raise OSError("error sending request")

    monkeypatch.setattr(lance, "dataset", unreachable)
    with pytest.raises(InternalError) as raised:
        await job.commit(written)
    monkeypatch.undo()
    assert "it is unknown whether a version" in notes(raised.value)
    assert await async_lake.values("id") == [1, 2, 3]


class Catalog:
    """A catalog in memory, whose calls fail on demand."""

    id = TableId(["t"])

    def __init__(self, root: Path, backend: MemoryBackend | None = None) -> None:
        self.backend = backend or MemoryBackend()
        self.ns = over(self.backend)
        self.location = str(root / "t")

    def fail(self, operation: str, error: LanceNamespaceError) -> None:
        self.backend.faults[operation, self.id] = error

    async def begin(self, mode: str) -> Job:
        self.backend.tables[self.id] = Table(self.id, self.location)
        return await Job.begin(self.ns, mode, id=self.id)


async def test_files_that_are_left_are_reported(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    job = await catalog.begin("append")
    written = job.task(ROWS)
    catalog.fail("describe_table", PermissionDeniedError("Permission denied: t"))
    assert f"files written to {catalog.location} were not deleted (Permission denied: t)" in notes(
        await job.abandon(written)
    )
    with pytest.raises(PermissionDeniedError):
        await job.commit(written)
    assert len(files(tmp_path)) == 1


async def test_commit_of_a_moved_table_fails(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    job = await catalog.begin("append")
    written = job.task(ROWS)
    catalog.backend.tables[catalog.id] = Table(catalog.id, str(tmp_path / "moved"))
    with pytest.raises(ConcurrentModificationError, match=r"but the table is now at .*/moved"):
        await job.commit(written)


async def test_declaration_that_cannot_be_described_is_kept(tmp_path: Path) -> None:
    """Another client may have written to it meanwhile."""
    catalog = Catalog(tmp_path)
    catalog.fail("describe_table", ServiceUnavailableError("Service unavailable: t"))
    with pytest.raises(ServiceUnavailableError) as raised:
        await Job.begin(catalog.ns, id=catalog.id)
    assert "table t stays registered at mem://t" in notes(raised.value)
    assert list(catalog.backend.tables) == [catalog.id]


class Keeping(MemoryBackend):
    """A catalog that stores columns, and does not create the folders of tables."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    async def declare_table(
        self, id: TableId, location: str | None, properties: Any, schema: pa.Schema | None = None
    ) -> Table:
        declared = await super().declare_table(id, location or str(self._root / id.name), properties)
        self.tables[id] = Table(id, declared.location, dict(properties), schema=schema)
        return self.tables[id]


async def test_abandoned_declaration_is_removed_with_its_files(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, Keeping(tmp_path))
    job = await Job.begin(catalog.ns, id=catalog.id)
    assert catalog.backend.tables[catalog.id].schema == SCHEMA
    written = job.task(ROWS)
    assert files(tmp_path) == [written[0].files[0].path]
    assert notes(await job.abandon(written)) == ""
    assert files(tmp_path) == [] and catalog.backend.tables == {}


@pytest.mark.parametrize("done", [True, False])
async def test_columns_in_the_catalog_are_those_of_the_latest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    catalog = Catalog(tmp_path, Keeping(tmp_path))
    columns = pa.schema([("id", pa.int8())])
    before = Table(catalog.id, catalog.location, {"owner": "me"}, schema=columns)
    lance.write_dataset(columns.empty_table(), catalog.location)
    catalog.backend.tables[catalog.id] = before
    job = await Job.begin(catalog.ns, "overwrite", id=catalog.id)
    assert catalog.backend.tables[catalog.id] == before
    if done:
        await job.commit(job.task(ROWS))
    else:
        Commits(monkeypatch, done=False)
        with pytest.raises(InternalError):
            await job.commit(job.task(ROWS))
    table = catalog.backend.tables[catalog.id]
    assert (table.location, table.properties) == (before.location, before.properties)
    assert table.schema == (SCHEMA if done else columns)
