"""Writing DataFrames in a real Spark session: what is in the table then, and what is left where it went wrong."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest, DescribeTableRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSchemaValidationError,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lance_ns_async import Namespace, TableId
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.local import local_spark
from lance_ns_async.spark.report import WriteReport
from tests.fakes.iceberg import FakeIceberg

# Spark starts its JVM by a fork, which pylance warns of; the JVM does not care.
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]

JOB_FAILED = (PySparkException, Py4JJavaError)
"""Of which Spark before 4.0 raises the latter."""

ID = ["db", "t"]
VECTORS = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.list_(pa.float32(), 2))])
TWO_VECTORS = [(1, [0.0, 1.0]), (2, [2.0, 3.0])]


class Lake:
    """A catalog with one namespace, `db`, whose tables lie in a directory."""

    def __init__(self, impl: str, properties: Mapping[str, str]) -> None:
        self.namespace = Namespace.connect(impl, properties)
        self.resolver = LocationResolver(self.namespace)
        self.namespace.create_namespace(CreateNamespaceRequest(id=["db"]))

    def write(self, df: DataFrame, mode: Any = "create", **how: Any) -> WriteReport:
        return self.resolver.write(df, ID, mode=mode, **how)

    def make(self, rows: pa.Table, **how: Any) -> str:
        """Writes a table without us; gives where it is."""
        location = self.declare()
        lance.write_dataset(rows, location, **how)
        return location

    def declare(self) -> str:
        location = self.namespace.declare_table(DeclareTableRequest(id=ID)).location
        assert location is not None
        return location

    def location(self) -> str:
        location = self.namespace.describe_table(DescribeTableRequest(id=ID)).location
        assert location is not None
        return location

    def dataset(self, version: int | None = None) -> Any:
        return lance.dataset(self.location(), version=version)

    def ids(self, version: int | None = None) -> list[Any]:
        """What is really in the column `id`, sorted."""
        found: list[Any] = self.dataset(version).to_table()["id"].to_pylist()
        return sorted(found)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # A task is tried twice, more than locally else, and a batch is small.
    settings = {"spark.master": "local[2,2]", "spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
    session = local_spark("tests", config=settings)
    yield session
    session.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake("dir", {"root": str(tmp_path)})
    with lake.namespace:
        yield lake


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Lake]:
    """A catalog that commits the versions of its tables."""
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "managed_by": "impl"}
        lake = Lake("iceberg", {**properties, "backoff_initial": "1ms", "backoff_max": "10ms"})
        with lake.namespace:
            yield lake


def files(root: Path) -> set[str]:
    """All data files that are there, but for those of the catalog itself."""
    found = (path for path in root.rglob("*.lance") if path.is_file() and "__manifest" not in path.parts)
    return {path.name for path in found}


def await_files(root: Path, wanted: set[str]) -> None:
    """Returns when these are left: a task that was cut off may still be removing its own."""
    until = time.monotonic() + 30
    while files(root) != wanted:
        assert time.monotonic() < until, files(root) ^ wanted
        time.sleep(0.01)


def failing(spark: SparkSession, at: int = 399) -> DataFrame:
    """A hundred rows in each of four partitions, of which the last fails at its end."""
    reached = f.col("id") == at
    failed = f.raise_error(f.lit("no more")).cast("long")
    return spark.range(0, 400, 1, 4).select(f.when(reached, failed).otherwise(f.col("id")).alias("id"))


def test_a_table_is_created_of_all_partitions(spark: SparkSession, lake: Lake) -> None:
    # Two of the four partitions have no row.
    found = lake.write(spark.range(0, 100, 1, 4).where("id < 30 or id >= 90"))
    assert found == WriteReport(TableId(ID), lake.location(), 1, 40, 3)
    assert lake.ids() == [*range(30), *range(90, 100)]
    assert lake.dataset().schema == pa.schema([("id", pa.int64())])


@pytest.mark.parametrize("id", ["db.t", "db$t", TableId(["db", "t"])])
def test_a_table_is_named_as_elsewhere(spark: SparkSession, lake: Lake, id: Any) -> None:
    assert lake.resolver.write(spark.range(3), id).id == TableId(["db", "t"])
    assert lake.ids() == [0, 1, 2]


@pytest.mark.parametrize("declared", [True, False])
def test_one_that_is_there_is_not_created(spark: SparkSession, lake: Lake, declared: bool, tmp_path: Path) -> None:
    if declared:
        lake.declare()
    else:
        lake.make(pa.table({"id": [7]}))
    before = files(tmp_path)
    with pytest.raises(TableAlreadyExistsError, match=r"^Table already exists: db\$t"):
        lake.write(failing(spark))
    found = lake.write(failing(spark), "ignore")
    assert found == WriteReport(TableId(ID), lake.location(), None if declared else 1, 0, 0)
    assert files(tmp_path) == before


def test_ignore_creates_what_is_not_there(spark: SparkSession, lake: Lake) -> None:
    assert lake.write(spark.range(3), "ignore").rows == 3
    assert lake.ids() == [0, 1, 2]


def test_rows_are_appended(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(3).withColumn("s", f.lit("a")))
    more = spark.range(3, 5).select(f.lit("b").alias("s"), "id")
    found = lake.write(more, "append")
    assert (found.version, found.rows) == (2, 2)
    assert lake.dataset().schema.names == ["id", "s"]
    assert sorted(map(tuple, (row.values() for row in lake.dataset().to_table().to_pylist()))) == [
        *((n, "a") for n in range(3)),
        *((n, "b") for n in range(3, 5)),
    ]


def test_what_was_appended_is_found_at_once(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(3))
    assert lake.resolver.prefetch("db.t")["db.t"].rows == 3
    lake.write(spark.range(3), "append")
    assert lake.resolver.prefetch("db.t")["db.t"].rows == 6


def test_a_missing_table_is_not_appended_to(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(TableNotFoundError, match=r"^Table not found: db\$t"):
        lake.write(failing(spark), "append")


def test_a_table_that_was_only_declared_gets_its_first_rows(spark: SparkSession, lake: Lake) -> None:
    lake.declare()
    assert lake.write(spark.range(3), "append").version == 1
    assert lake.ids() == [0, 1, 2]


def test_an_overwrite_replaces_rows_and_columns(spark: SparkSession, lake: Lake) -> None:
    assert lake.write(spark.range(3), "overwrite").version == 1
    found = lake.write(spark.range(2).select(f.col("id").cast("string"), f.lit(1.5).alias("x")), "overwrite")
    assert (found.version, found.rows) == (2, 2)
    assert lake.dataset().to_table().to_pylist() == [{"id": "0", "x": 1.5}, {"id": "1", "x": 1.5}]
    assert lake.ids(version=1) == [0, 1, 2]


def test_an_overwrite_reads_what_it_replaces(spark: SparkSession, lake: Lake) -> None:
    lake.write(spark.range(10))
    rows = lake.resolver.prefetch("db.t").dataframe(spark, table_column=None)
    assert lake.write(rows.where("id % 2 = 0"), "overwrite").rows == 5
    assert lake.ids() == [0, 2, 4, 6, 8]


def test_vectors_are_written(spark: SparkSession, lake: Lake) -> None:
    df = spark.createDataFrame(TWO_VECTORS, "id long, v array<double>")
    lake.write(df, schema=pa.schema([pa.field("v", pa.list_(pa.float32(), 2))]))
    lake.write(df, "append")
    assert lake.dataset().schema == VECTORS
    assert lake.dataset().count_rows() == 4
    # What is the same to Spark stays as the table has it.
    lake.write(df.select("id", f.col("v").cast("array<float>")), "overwrite")
    assert lake.dataset().schema == VECTORS
    assert [tuple(row.values()) for row in lake.dataset().to_table().to_pylist()] == TWO_VECTORS


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
def test_no_rows_at_all(spark: SparkSession, lake: Lake, mode: str) -> None:
    if mode != "create":
        lake.write(spark.range(3))
    none = spark.range(3).where("id > 5")
    found = lake.write(none, mode)
    assert (found.version, found.rows, found.fragments) == ({"create": 1, "append": 1, "overwrite": 2}[mode], 0, 0)
    assert lake.dataset().schema == pa.schema([("id", pa.int64())])
    assert lake.dataset().count_rows() == (3 if mode == "append" else 0)


def test_values_arrive_as_they_were(spark: SparkSession, lake: Lake) -> None:
    moment = datetime(2024, 2, 29, 12, 30, 0, 123456)
    ddl = (
        "b boolean, y tinyint, i int, f float, d double, dec decimal(20,3), s string, bin binary, day date, "
        "at timestamp_ntz, utc timestamp, l array<array<int>>, st struct<a:int,b:array<string>>, m map<string,int>"
    )
    row: Sequence[Any] = [True, -128, 7, 0.5, 1e300, Decimal("1.250"), "é", b"\0", date(2024, 2, 29), moment]
    row = [*row, moment.replace(tzinfo=UTC), [[1], None, []], {"a": 1, "b": ["x", None]}, {"k": 1, "n": None}]
    df = spark.createDataFrame([tuple(row), (None,) * len(row)], ddl)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        lake.write(df)
        lake.write(df, "append")
        found = lake.dataset().to_table().to_pylist(maps_as_pydicts="strict")
        assert sorted((list(it.values()) for it in found), key=str) == sorted([row, [None] * len(row)] * 2, key=str)
        assert lake.dataset().schema.field("utc").type == pa.timestamp("us", "UTC")
        again = lake.resolver.prefetch("db.t").dataframe(spark, table_column=None)
        assert (
            again.where("b").select("utc", "at", "m").collect() == df.union(df).where("b")["utc", "at", "m"].collect()
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


MISFITS: Mapping[str, tuple[str, str]] = {
    "missing": ("id", r"column 's' is in the table alone; .*lit\(None\)"),
    "extra": ("id, s, 1 x", "column 'x' is in the DataFrame alone"),
    "case": ("id ID, s", "column 'id' is in the table alone, column 'ID' is in the DataFrame alone"),
    "type": ("string(id) id, s", "column 'id' is string in the DataFrame and is to be int64"),
    "both": ("double(id) id", "column 's' is in the table alone, column 'id' is double in the DataFrame"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_other_columns_are_not_appended(spark: SparkSession, lake: Lake, case: str) -> None:
    lake.make(pa.table({"id": [1], "s": ["a"]}))
    selected, told = MISFITS[case]
    with pytest.raises(TableSchemaValidationError, match=rf"^Table schema invalid: db\$t \({told}"):
        lake.write(failing(spark).withColumn("s", f.lit("b")).selectExpr(*selected.split(", ")), "append")


def test_columns_that_hold_the_same_are_appended(spark: SparkSession, lake: Lake) -> None:
    types = [pa.int8(), pa.large_string(), pa.float32(), pa.uint16(), pa.list_(pa.float16(), 1), pa.int32()]
    names = ["a", "b", "c", "d", "e", "f"]
    lake.make(pa.schema(zip(names, types, strict=True)).empty_table())
    df = spark.sql("select 1L a, 'x' b, 0.5D c, 7 d, array(1.5D) e, null f")
    lake.write(df, "append")
    assert lake.dataset().to_table().to_pylist() == [{"a": 1, "b": "x", "c": 0.5, "d": 7, "e": [1.5], "f": None}]


UNFIT: Mapping[str, tuple[str, pa.Field, str, str]] = {
    "length": ("create", pa.field("x", pa.list_(pa.float32(), 2)), "array(1.0D)", "a value cannot be made fixed_size"),
    "range": ("append", pa.field("x", pa.int8()), "int(id * 100)", "a value cannot be made int8: Integer value"),
    "null": ("append", pa.field("x", pa.int64(), nullable=False), "if(id = 19, null, id)", "there is a null in it"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_values_that_do_not_fit_end_the_job(spark: SparkSession, lake: Lake, tmp_path: Path, case: str) -> None:
    mode, field, sql, told = UNFIT[case]
    schema = pa.schema([field])
    if mode == "append":
        lake.make(schema.empty_table())
    before = files(tmp_path)
    df = spark.range(0, 20, 1, 2).selectExpr(f"{sql} x")
    with pytest.raises(TableSchemaValidationError, match=rf"^Table schema invalid: db\$t \(column 'x': {told}"):
        lake.write(df, mode, schema=schema if mode == "create" else None)
    await_files(tmp_path, before)
    assert lake.namespace.exists(ID) == (mode == "append")


UNSTORABLE: Mapping[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "dot": (lambda df: df.withColumnRenamed("id", "a.b"), "cannot store what it is to be .*Top level field a.b"),
    "twice": (lambda df: df.selectExpr("id", "id"), "'id' names 2 columns"),
    "none": (lambda df: df.select(), "it has no column"),
    "interval": (lambda df: df.selectExpr("make_interval(1) i"), r"no type for 'i' \(interval\)"),
    "reserved": (lambda df: df.withColumnRenamed("id", "_rowid"), "_rowid is a reserved name"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
def test_columns_that_cannot_be_stored_are_named(spark: SparkSession, lake: Lake, case: str) -> None:
    change, told = UNSTORABLE[case]
    with pytest.raises(InvalidInputError, match=told):
        lake.write(change(failing(spark)))
    assert not lake.namespace.exists(ID)


def test_columns_of_any_other_name_are_written(spark: SparkSession, lake: Lake) -> None:
    names = ["a b", "select", "é", 'say "x"', "A", "a/b", " "]
    df = spark.range(1).select(*(f.lit(n).alias(name) for n, name in enumerate(names)))
    lake.write(df)
    lake.write(df.select(*(f"`{name}`" for name in reversed(names))), "append")
    assert lake.dataset().to_table().to_pylist() == [{name: n for n, name in enumerate(names)}] * 2


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
                    # The process that writes, a child of the same daemon, dies in the middle.
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


def test_a_catalog_that_commits_versions_commits_ours(spark: SparkSession, managed: Lake) -> None:
    for mode, version in (("create", 1), ("append", 2), ("append", 3), ("overwrite", 4)):
        assert managed.write(spark.range(3), mode).version == version
        assert managed.namespace.describe_table(DescribeTableRequest(id=ID)).version == version
    assert [managed.ids(version=number) for number in (2, 4)] == [[0, 0, 1, 1, 2, 2], [0, 1, 2]]
    with pytest.raises(JOB_FAILED, match="no more"):
        managed.write(failing(spark), "append")
    with pytest.raises(TableAlreadyExistsError):
        managed.write(failing(spark))


def test_a_catalog_that_commits_versions_forgets_a_table_that_failed(
    spark: SparkSession, managed: Lake, tmp_path: Path
) -> None:
    with pytest.raises(JOB_FAILED, match="no more"):
        managed.write(failing(spark))
    assert not managed.namespace.exists(ID)
    await_files(tmp_path, set())


def test_files_have_the_size_and_the_format_asked_for(spark: SparkSession, lake: Lake) -> None:
    df = spark.range(0, 100, 1, 2)
    assert lake.write(df, max_rows_per_file=25, data_storage_version="2.0").fragments == 4
    assert lake.dataset().data_storage_version == "2.0"
    lake.write(df, "append")
    lake.write(df, "overwrite", data_storage_version="2.0")
    assert {it.file_minor_version for fragment in lake.dataset().get_fragments() for it in fragment.data_files()} == {0}
    with pytest.raises(InvalidInputError, match=r"data_storage_version '2.1': table db\$t is stored as '2.0'"):
        lake.write(failing(spark), "append", data_storage_version="2.1")
    with pytest.raises(InvalidInputError, match=r"Unknown Lance storage version: 9.9"):
        lake.resolver.write(failing(spark), "db.u", data_storage_version="9.9")


def test_secrets_reach_the_tasks_and_nobody_else(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake("dir", {"root": str(tmp_path), "storage.aws_secret_access_key": "hush"})
    with lake.namespace:
        found = lake.write(spark.range(3))
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    shown = [str(executions.apply(n).physicalPlanDescription()) for n in range(executions.size())]
    assert any("MapInArrow" in text for text in shown)
    assert not any("hush" in text for text in [repr(found), *shown])


def test_storage_options_about_to_expire_are_warned_of(spark: SparkSession, tmp_path: Path) -> None:
    expiring = str(int((time.time() + 120) * 1000))
    lake = Lake("dir", {"root": str(tmp_path), "storage.expires_at_millis": expiring})
    with lake.namespace, pytest.warns(UserWarning, match=r"of 1 tables expire in 1\d\d s") as caught:
        lake.resolver.write(spark.range(3), ID)
        assert lake.ids() == [0, 1, 2]
    assert [it.filename for it in caught if "expire" in str(it.message)] == [__file__]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_sparks_own_writer_is_refused(spark: SparkSession, lake: Lake, mode: str) -> None:
    lake.write(spark.range(3))
    lake.resolver.prefetch("db.t").dataframe(spark)
    with pytest.raises(AnalysisException, match=r"use LocationResolver.write\(df, id, mode=...\)"):
        spark.range(3).write.format("lance_ns").mode(mode).save()


def test_a_stream_is_refused(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match="foreachBatch"):
        lake.write(spark.readStream.format("rate").load())
