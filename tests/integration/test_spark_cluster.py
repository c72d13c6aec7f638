"""Work on many tables by executors in separate processes: they make no catalog call, and nothing shows a secret."""

from __future__ import annotations

import base64
import os
import re
import secrets
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lance_ns_async import Namespace
from lance_ns_async.fleet import CompactOptions, sync
from lance_ns_async.spark import LocationResolver, Locations, SparkEngine, broker
from lance_ns_async.spark.local import local_spark
from lance_ns_async.spark.renewal import Renewal
from tests.fakes.iceberg import FakeIceberg
from tests.fakes.s3 import KeyedS3, RenewingPolaris
from tests.support import budget
from tests.support.budget import thorough
from tests.support.spark import SPARK, stop_jvm

pytestmark = [*SPARK, pytest.mark.long]
TABLES = 16
WRITTEN = 8
MERGE_ALL = CompactOptions(max_small_fragments=1)
EXECUTORS = 2 if budget.is_thorough else 1
SECRET = f"hush-{secrets.token_hex(8)}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provides Spark's home, in which executors work, so that it must not be the installation folder."""
    home = tmp_path_factory.mktemp("spark")
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    (home / "events").mkdir()
    return home


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Lets the processes that are started in the block write their output to a file."""
    with ExitStack() as stack, path.open("wb") as file:
        for stream in (1, 2):
            before = os.dup(stream)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, stream)
            os.dup2(file.fileno(), stream)
        yield


@pytest.fixture(scope="module")
def spark(home: Path) -> Iterator[SparkSession]:
    stop_jvm()
    with pytest.MonkeyPatch.context() as environment, output_to(home / "driver.log"):
        environment.setenv("SPARK_HOME", str(home))
        cluster = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (home / "events").as_uri(),
            "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
        }
        session = local_spark("cluster", config=cluster)
    yield session
    stop_jvm()


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        for n in range(TABLES):
            location = str(tmp_path / f"t{n}")
            lance.write_dataset(rows(n), location)
            server.add_table(["db"], f"t{n}", location=location)
        yield server


@pytest.fixture
def locations(catalog: FakeIceberg) -> Locations:
    with LocationResolver.connect("iceberg", {"endpoint": catalog.endpoint}) as resolver:
        result = resolver.prefetch("db.*", on_error="raise")
    catalog.clear()
    return result


def rows(n: int) -> pa.Table:
    return pa.table({"id": pa.array(range(n * 10, n * 10 + 10), pa.int64())})


def test_executors_read_and_never_call_the_catalog(
    spark: SparkSession, catalog: FakeIceberg, locations: Locations
) -> None:
    frame = locations.dataframe(spark, partitions=8)
    (result,) = frame.agg(f.count_distinct("id").alias("rows"), f.count_distinct("_table").alias("tables")).collect()
    assert (result["rows"], result["tables"]) == (TABLES * 10, TABLES)
    assert locations.dataframe(spark, filter="id > 75").where("_table = 'db$t7'").count() == 4
    assert catalog.requests == []


def test_writers_and_maintenance_on_executors_make_no_catalog_call(spark: SparkSession, tmp_path: Path) -> None:
    with (
        FakeIceberg() as server,
        LocationResolver.connect("iceberg", {"endpoint": server.endpoint, "root": tmp_path.as_uri()}) as resolver,
    ):
        resolver.namespace.create_namespace({"id": ["new"]})
        df = spark.range(0, 80, 1, 4).withColumn("name", f.concat(f.lit("t"), f.col("id") % WRITTEN))
        # The calls of the driver as documented, one of them for the namespace; a call of an executor would be one more.
        calls_by_mode: list[tuple[Literal["create", "append"], int]] = [("create", 4), ("append", 2), ("append", 2)]
        for mode, calls in calls_by_mode:
            server.clear()
            report = resolver.write_many(df, by="name", into="new", mode=mode, progress=False)
            assert (len(report.rows), report.failed, len(server.requests)) == (WRITTEN, [], calls * WRITTEN + 1)
        server.clear()
        driver = resolver.namespace
        assert isinstance(driver, Namespace)
        assert sync.maintain(driver, "new.*", compact=MERGE_ALL, engine=SparkEngine(spark)).counts == {
            "maintained": WRITTEN
        }
        # Two pages of the listing, and a describe for each table.
        assert len(server.requests) == WRITTEN + 2
        locations = resolver.prefetch("new.*")
        assert [len(lance.dataset(at.location).get_fragments()) for at in locations.values()] == [1] * WRITTEN
        ids = lance.dataset(locations["new.t3"].location).to_table()["id"].to_pylist()
        assert sorted(ids) == sorted(3 * list(range(3, 80, WRITTEN)))


@thorough
def test_executors_are_no_threads_of_the_driver(spark: SparkSession) -> None:
    # Each Python worker is forked by a daemon, which the executor's JVM has started.
    workers = spark.range(0, 8, 1, 8).mapInArrow(_daemon, "pid long")
    daemons = {row["pid"] for row in workers.collect()}
    assert len(daemons) == EXECUTORS
    assert os.getpid() not in daemons


def _daemon(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"pid": pa.array([os.getppid()], pa.int64())})


def test_executors_get_the_credentials_that_the_driver_was_given(spark: SparkSession) -> None:
    with KeyedS3() as s3, RenewingPolaris(s3) as catalog:
        catalog.write_tables(6, rows(1), "cat.db")
        with LocationResolver.connect("polaris", catalog.properties, vend_credentials=True) as resolver:
            frame = resolver.prefetch("cat.db.*", on_error="raise").dataframe(spark)
            catalog.clear()
            assert frame.count() == 60
            assert catalog.requests == []
            assert len(catalog.issued) == 6


def with_decoded(text: str) -> str:
    """Returns a text, and after it what is encoded in it as plans of data sources are, even if it is cut off."""
    parts = [text]
    for encoded in re.findall(r"[A-Za-z0-9+/]{40,}", text):
        with suppress(zlib.error):
            content = base64.b64decode(encoded[: len(encoded) // 4 * 4])
            parts.append(zlib.decompressobj().decompress(content).decode(errors="replace"))
    return "\n".join(parts)


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Provides the tokens of all endpoints for renewals."""
    tokens: list[str] = []

    def note(uri: str, token: str, authority: str) -> Renewal:
        tokens.append(token)
        return Renewal(uri, token, authority)

    monkeypatch.setattr(broker, "Renewal", note)
    return tokens


def renew_everywhere(spark: SparkSession) -> None:
    """Reads, searches, writes and maintains tables whose keys are withdrawn before; all secrets contain SECRET."""
    with_vectors = rows(1).append_column("v", pa.array([[0.0, 1.0]] * 10, pa.list_(pa.float32(), 2)))
    with KeyedS3() as s3, RenewingPolaris(s3, ("root", SECRET), SECRET) as catalog:
        catalog.write_tables(6, with_vectors, "cat.db")
        catalog.lasts = 40.0
        with LocationResolver.connect("polaris", catalog.properties, vend_credentials=True) as resolver:
            locations = resolver.prefetch("cat.db.*", on_error="raise")
            s3.revoked.update(catalog.issued)
            frame = locations.dataframe(spark, renew=True)
            assert frame.count() == 60
            frame.explain("extended")
            assert len(locations.search(spark, vector=[0.0, 1.0], k=3, renew=True).rows) == 3
            df = spark.range(0, 80, 1, 4).withColumn("name", f.concat(f.lit("n"), f.col("id") % WRITTEN))
            assert not resolver.write_many(df, by="name", into="cat.db", renew=True, progress=False).failed
            assert resolver.write(spark.range(5), "cat.db.n9", renew=True).rows == 5
            driver = resolver.namespace
            assert isinstance(driver, Namespace)
            report = sync.maintain(driver, "cat.db.n?", compact=MERGE_ALL, engine=SparkEngine(spark, renew=True))
            assert report.counts == {"maintained": 1, "unchanged": WRITTEN}


def test_event_log_output_and_command_lines_tell_no_secret(
    spark: SparkSession, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tokens: list[str]
) -> None:
    with Namespace.connect("dir", {"root": str(tmp_path), "storage.aws_secret_access_key": SECRET}) as ns:
        ns.create_namespace({"id": ["db"]})
        ns.write("db.t", pa.table({"id": [1, 2, 3]}))
        frame = LocationResolver(ns).prefetch("db.t", progress=False).dataframe(spark)
        frame.createOrReplaceTempView("secretly")
        assert spark.sql("select * from secretly where id > 1").count() == 2
        frame.explain("extended")
    renew_everywhere(spark)
    assert len(tokens) > 3
    # Of all processes of the machine: the secrets are random, so none but the tests' can tell them.
    commands = subprocess.run(("ps", "-A", "-ww", "-o", "args="), capture_output=True, text=True, check=True).stdout
    assert "deploy.SparkSubmit" in commands and "CoarseGrainedExecutorBackend" in commands
    printed = capsys.readouterr().out
    assert "== Physical Plan ==" in printed
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    events = [file.read_text() for file in (home / "events").rglob("*") if file.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text and "secretly" in text for text in events)
    logs = [file.read_text() for file in (home / "driver.log", *(home / "work").rglob("std*"))]
    assert len(logs) >= 1 + 2 * EXECUTORS
    for text in (*commands.splitlines(), printed, *events, *logs):
        decoded = with_decoded(text)
        assert not [secret for secret in (SECRET, *tokens) if secret in decoded]
