"""Writes from Spark whose tasks run in this process, without a JVM: arguments, rows, concurrency and rollback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import lance
import lance_namespace.errors as err
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata
from lance_namespace import DeclareTableRequest, DeregisterTableRequest
from pyspark.sql.types import ArrayType, FloatType, LongType, StringType, StructField, StructType

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.lifecycle.staging import StagedWrite
from lance_ns_async.model import Table
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.write import write
from lance_ns_async.spark.write.task_writer import Sink, conform, fragments_writer
from lance_ns_async.spark.write.write import Writing
from tests.fakes.memory import MemoryBackend, over
from tests.integration.spark_writes.lake import files
from tests.support.lake import ID, Lake
from tests.unit.lifecycle.test_creating import Keeping

FRAME = StructType([StructField("id", LongType(), nullable=False), StructField("s", StringType())])
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
ROWS = pa.record_batch([[1, 2, 3], ["a", "b", None]], schema=SCHEMA)
NONE = ROWS.slice(0, 0)


def writing(mode: str = "create", **options: Any) -> Writing:
    defaults: dict[str, Any] = {"schema": None, "data_storage_version": None, "limits": {}}
    return Writing(mode, **{**defaults, **options})


class Job:
    """A write whose tasks run in this process, one after the other."""

    def __init__(self, ns: AsyncNamespace, arguments: Writing, staged: StagedWrite) -> None:
        self.ns = ns
        self.staged = staged
        self._sink = arguments.sink(staged, None)

    @classmethod
    async def begin(cls, ns: AsyncNamespace, mode: str = "create", *, id: Sequence[str] = ID, **options: Any) -> Job:
        arguments = writing(mode, **options)
        fit = partial(arguments.fit, TableId(id), FRAME)
        return cls(ns, arguments, await ns.session.staging().begin(TableId(id), mode, fit))

    def task(self, *batches: pa.RecordBatch) -> list[FragmentMetadata]:
        results = fragments_writer(self._sink, None)(batches)
        return [FragmentMetadata.from_json(text) for batch in results for text in batch.column(0).to_pylist()]

    async def commit(self, *tasks: list[FragmentMetadata]) -> Any:
        return await self.ns.session.staging().commit(self.staged, [*chain(*tasks)])

    async def abandon(self, *tasks: list[FragmentMetadata]) -> BaseException:
        """Returns the error with its notes about remaining files."""
        error = KeyError("why")
        await self.ns.session.staging().abandon(self.staged, [*chain(*tasks)], error)
        return error


def notes(error: BaseException) -> str:
    return "; ".join(getattr(error, "__notes__", ()))


# It needs pyspark, but no JVM.
pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
async def test_commit_of_a_removed_table_fails(async_lake: Lake, tmp_path: Path, mode: str) -> None:
    if mode != "create":
        await (await Job.begin(async_lake.ns)).commit()
    job = await Job.begin(async_lake.ns, mode)
    written = job.task(ROWS)
    await async_lake.ns.deregister_table(DeregisterTableRequest(id=ID))
    with pytest.raises(err.TableNotFoundError) as raised:
        await job.commit(written)
    assert notes(raised.value) == "" and files(tmp_path) == set()


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
    with pytest.raises(err.InternalError, match="the answer was lost") as raised:
        await job.commit(job.task(ROWS))
    assert notes(raised.value) == "" and files(tmp_path) == set()
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
    with pytest.raises(err.InternalError) as raised:
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

    def fail(self, operation: str, error: err.LanceNamespaceError) -> None:
        self.backend.faults[operation, self.id] = error

    async def begin(self, mode: str) -> Job:
        self.backend.tables[self.id] = Table(self.id, self.location)
        return await Job.begin(self.ns, mode, id=self.id)


async def test_files_that_are_left_are_reported(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    job = await catalog.begin("append")
    written = job.task(ROWS)
    catalog.fail("describe_table", err.PermissionDeniedError("Permission denied: t"))
    assert f"files written to {catalog.location} were not deleted (Permission denied: t)" in notes(
        await job.abandon(written)
    )
    with pytest.raises(err.PermissionDeniedError):
        await job.commit(written)
    assert len(files(tmp_path)) == 1


async def test_commit_of_a_moved_table_fails(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    job = await catalog.begin("append")
    written = job.task(ROWS)
    catalog.backend.tables[catalog.id] = Table(catalog.id, str(tmp_path / "moved"))
    with pytest.raises(err.ConcurrentModificationError, match=r"but the table is now at .*/moved"):
        await job.commit(written)


async def test_declaration_that_cannot_be_described_is_kept(tmp_path: Path) -> None:
    """Another client may have written to it meanwhile."""
    catalog = Catalog(tmp_path)
    catalog.fail("describe_table", err.ServiceUnavailableError("Service unavailable: t"))
    with pytest.raises(err.ServiceUnavailableError) as raised:
        await Job.begin(catalog.ns, id=catalog.id)
    assert "table t stays registered at mem://t" in notes(raised.value)
    assert list(catalog.backend.tables) == [catalog.id]


async def test_abandoned_declaration_is_removed_with_its_files(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, Keeping(tmp_path))
    job = await Job.begin(catalog.ns, id=catalog.id)
    assert catalog.backend.tables[catalog.id].schema == SCHEMA
    written = job.task(ROWS)
    assert files(tmp_path) == {written[0].files[0].path}
    assert notes(await job.abandon(written)) == ""
    assert files(tmp_path) == set() and catalog.backend.tables == {}


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
        with pytest.raises(err.InternalError):
            await job.commit(job.task(ROWS))
    table = catalog.backend.tables[catalog.id]
    assert (table.location, table.properties) == (before.location, before.properties)
    assert table.schema == (SCHEMA if done else columns)


async def test_first_version_of_another_client_is_kept(async_lake: Lake, tmp_path: Path) -> None:
    lost = await Job.begin(async_lake.ns)
    other = await Job.begin(async_lake.ns, "append")
    late = await Job.begin(async_lake.ns, "append")
    written = [job.task(ROWS) for job in (lost, other, late)]
    await other.commit(written[1])
    with pytest.raises(err.TableAlreadyExistsError, match="another client wrote its first version"):
        await lost.commit(written[0])
    with pytest.raises(err.ConcurrentModificationError, match="another client wrote its first version"):
        await late.commit(written[2])
    assert "table n$t stays registered, because a version of it is at" in notes(await lost.abandon())
    assert files(tmp_path) == {written[1][0].files[0].path}
    assert await async_lake.values("id") == [1, 2, 3]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_commit_after_another_overwrite_fails(async_lake: Lake, tmp_path: Path, mode: str) -> None:
    await (await Job.begin(async_lake.ns)).commit()
    first, second = [await Job.begin(async_lake.ns, it) for it in (mode, "overwrite")]
    written = first.task(ROWS), second.task(ROWS)
    await second.commit(written[1])
    with pytest.raises(err.ConcurrentModificationError):
        await first.commit(written[0])
    assert files(tmp_path) == {written[1][0].files[0].path}


async def test_append_without_rows_commits_the_first_version(async_lake: Lake) -> None:
    await async_lake.ns.declare_table(DeclareTableRequest(id=ID))
    job = await Job.begin(async_lake.ns, "append")
    assert (await job.commit(job.task(NONE))).schema == SCHEMA


NO_FRAME: Any = None

INVALID: Sequence[tuple[Callable[[], object], str]] = [
    (lambda: writing(limits={"max_rows_per_file": 0}), "max_rows_per_file 0: must be at least 1"),
    (lambda: writing("append", schema=SCHEMA), "schema: not allowed with mode 'append'"),
    (lambda: write.schema_for_new(TableId(["t"]), SCHEMA, pa.schema([("x", pa.int8())]), None), "'x' is not a column"),
]


@pytest.mark.parametrize(("call", "message"), INVALID)
def test_invalid_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(err.InvalidInputError, match=message):
        call()


async def test_an_async_namespace_and_an_unknown_mode_are_refused(async_lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(err.InvalidInputError, match=r"^write: this resolver has an AsyncNamespace"):
        LocationResolver(async_lake.ns).write(NO_FRAME, ID, mode="append")
    mode: Any = "insert"
    with (
        Namespace.connect("dir", {"root": str(tmp_path)}) as ns,
        pytest.raises(err.InvalidInputError, match=r"mode 'insert': unknown, known are create, append"),
    ):
        LocationResolver(ns).write(NO_FRAME, ID, mode=mode)


def test_sink_shows_no_secrets() -> None:
    assert "hush" not in repr(Sink("t", "/t", SCHEMA, None, replaces=False, options={"key": "hush"}))


def test_errors_of_the_rows_are_raised_unchanged(tmp_path: Path) -> None:
    def rows() -> Any:
        yield ROWS
        raise ZeroDivisionError("of the user's own")

    sink = Sink("t", str(tmp_path / "t"), SCHEMA, None, replaces=False)
    with pytest.raises(ZeroDivisionError, match="of the user's own"):
        list(fragments_writer(sink, None)(rows()))
    assert list(tmp_path.rglob("*.lance")) == []


NOT_NULL = pa.field("it", pa.int64(), nullable=False)
LIST, STRUCT = pa.list_(pa.int64()), pa.struct([("it", pa.int64())])

NULLS: Sequence[tuple[pa.DataType, pa.DataType, Any, bool]] = [
    (LIST, pa.list_(NOT_NULL), [[1], None], False),
    (LIST, pa.list_(NOT_NULL), [[1, None]], True),
    (LIST, pa.list_(NOT_NULL, 2), [[1, 2], None], False),
    (LIST, pa.list_(NOT_NULL, 2), [[1, None]], True),
    (LIST, pa.list_(pa.int64(), 2), [[1, None]], False),
    (STRUCT, pa.struct([NOT_NULL]), [None, {"it": 1}], False),
    (STRUCT, pa.struct([NOT_NULL]), [{"it": None}], True),
    (pa.struct([("l", LIST)]), pa.struct([pa.field("l", pa.list_(NOT_NULL))]), [{"l": [None]}], True),
    (pa.list_(STRUCT), pa.list_(pa.struct([NOT_NULL])), [[None, {"it": 1}], None], False),
    (pa.list_(STRUCT), pa.list_(pa.struct([NOT_NULL])), [[{"it": 1}], [{"it": None}]], True),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), NOT_NULL), [[("k", 1)], None], False),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), NOT_NULL), [[("k", 1), ("l", None)]], True),
]


@pytest.mark.parametrize(("source", "type", "values", "refused"), NULLS)
def test_nulls_in_columns_that_are_not_nullable(
    source: pa.DataType, type: pa.DataType, values: Any, refused: bool
) -> None:
    want = pa.schema([pa.field("x", type)])
    batch = pa.RecordBatch.from_arrays([pa.array(values, source)], ["x"])
    if not refused:
        assert conform(batch, want, "t").column(0).to_pylist() == values
        return
    with pytest.raises(err.TableSchemaValidationError, match=r"^Table schema invalid: t \(column 'x': "):
        conform(batch, want, "t")


def test_missing_offsets_of_lists_are_added() -> None:
    none, offsets = pa.py_buffer(b""), pa.array([0, 0], pa.int32()).buffers()[1]
    inner = pa.Array.from_buffers(LIST, 0, [None, none], children=[pa.array([], pa.int64())])
    column = pa.Array.from_buffers(pa.list_(LIST), 1, [pa.py_buffer(b"\0"), offsets], children=[inner])
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    lists = conform(batch, batch.schema, "t").column(0)
    assert lists.to_pylist() == [None] and lists.values.buffers()[1].size > 0


FITS: Sequence[tuple[pa.DataType, pa.DataType, bool]] = [
    (pa.int64(), pa.int8(), True),
    (pa.int64(), pa.float32(), True),
    (pa.float64(), pa.int64(), False),
    (pa.float64(), pa.float16(), True),
    (pa.string(), pa.int64(), False),
    (pa.string(), pa.large_string(), True),
    (pa.string(), pa.dictionary(pa.int8(), pa.string()), True),
    (pa.string(), pa.binary(), False),
    (pa.binary(), pa.binary(4), True),
    (pa.bool_(), pa.int8(), False),
    (pa.null(), pa.list_(pa.float32(), 4), True),
    (pa.list_(pa.float64()), pa.list_(pa.float32(), 4), True),
    (pa.list_(pa.string()), pa.list_(pa.float32(), 4), False),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Oslo"), True),
    (pa.timestamp("us", "UTC"), pa.timestamp("us"), False),
    (pa.date32(), pa.timestamp("us"), False),
    (pa.decimal128(10, 2), pa.decimal128(20, 4), True),
    (pa.struct({"a": pa.int64(), "b": pa.string()}), pa.struct({"b": pa.string(), "a": pa.int32()}), True),
    (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.string()}), False),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32()), True),
    (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), False),
    (pa.list_(pa.int64()), pa.int64(), False),
]


@pytest.mark.parametrize(("source", "target", "fit"), FITS)
def test_types_that_can_be_cast(source: pa.DataType, target: pa.DataType, fit: bool) -> None:
    assert write.fits(source, target) is fit
    if fit:
        # Arrow's own behaviour.
        assert pa.nulls(1, source).cast(target).to_pylist() == [None]


def test_new_columns_are_nullable_at_every_depth() -> None:
    inside = StructType([StructField("a", LongType(), nullable=False)])
    frame = StructType([StructField("l", ArrayType(inside, containsNull=False), nullable=False)])
    (column,) = write.frame_schema(frame)
    assert column.nullable and column.type.value_field.nullable and column.type.value_type.field(0).nullable


def test_types_of_new_versions() -> None:
    vector = pa.field("v", pa.list_(pa.float32(), 2), nullable=False, metadata={"of": "meaning"})
    frame = write.frame_schema(
        StructType([StructField(name, ArrayType(FloatType())) for name in "vw"] + [StructField("s", StringType())])
    )
    fit = partial(write.schema_for_new, TableId(["t"]), frame)
    assert fit(None, None) == frame
    assert fit(None, pa.schema([vector, ("s", pa.int64())])) == frame.set(0, vector)
    wide = pa.schema([pa.field("v", pa.list_(pa.float16(), 2))])
    assert fit(wide, pa.schema([vector, ("s", pa.large_string())])) == pa.schema(
        [wide.field(0), frame.field("w"), pa.field("s", pa.large_string())]
    )
