"""Reading many tables through a Spark Connect server, with another JVM and Python than the client's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import lance
import pyarrow as pa
import pyspark
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lance_ns_async.spark import LocationResolver, Locations
from lance_ns_async.spark.java import spark_java_home
from lance_ns_async.spark.read.sql import views
from tests.fakes.iceberg import FakeIceberg
from tests.servers.process import LOOPBACK, free_port
from tests.support.budget import thorough, with_usual

pytestmark = [pytest.mark.integration, thorough]
TABLES = 40
POLL_SECONDS = 0.1


class ConnectServer:
    """A Spark Connect server in a separate process, on a port of the loopback address."""

    def __init__(self, log: Path, python: str = sys.executable) -> None:
        self.port = free_port()
        self._log = log
        home = Path(pyspark.__file__).parent
        settings = {
            "spark.master": "local[2]",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        properties = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        environment = {
            "JAVA_HOME": str(spark_java_home()),
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": python,
            "SPARK_LOCAL_IP": LOOPBACK,
        }
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [str(home / "bin" / "spark-submit"), *main, *properties],
                env={**os.environ, **environment},
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> None:
        """Returns when the server listens; raises RuntimeError with its log if it never does."""
        for _ in range(int(120.0 / POLL_SECONDS)):
            try:
                self._process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                with socket.socket() as probe:
                    if probe.connect_ex((LOOPBACK, self.port)) == 0:
                        return
            else:
                break
        raise RuntimeError(f"the Connect server did not start; its log ends:\n{self._log.read_text()[-3000:]}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def connect(folder: Path, python: str = sys.executable) -> Iterator[SparkSession]:
    server = ConnectServer(folder / "log", python)
    try:
        server.wait()
        # So that later tests of this process do not use a Connect client.
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
            session = SparkSession.builder.remote(f"sc://{LOOPBACK}:{server.port}").create()
            yield session
            session.stop()
    finally:
        server.stop()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with connect(tmp_path_factory.mktemp("connect")) as session:
        yield session


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        for n in range(TABLES):
            location = str(tmp_path / f"t{n}")
            lance.write_dataset(pa.table({"id": range(n * 10, n * 10 + 10), "s": [f"{n}"] * 10}), location)
            server.add_table(["db"], f"t{n}", location=location)
        yield server


@pytest.fixture
def resolver(catalog: FakeIceberg) -> Iterator[LocationResolver]:
    with LocationResolver.connect("iceberg", {"endpoint": catalog.endpoint}) as resolver:
        yield resolver


@pytest.fixture
def locations(resolver: LocationResolver) -> Locations:
    return resolver.prefetch("db.*", on_error="raise")


def test_many_tables_are_one_dataframe(spark: SparkSession, catalog: FakeIceberg, locations: Locations) -> None:
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    catalog.clear()
    frame = locations.dataframe(spark)
    assert frame.columns == ["id", "s", "_table"]
    with redirect_stdout(StringIO()) as plan:
        frame.explain()
    assert f"BatchScan lance-ns: read {TABLES} tables of db.*" in plan.getvalue()
    (result,) = frame.agg(f.count("*").alias("n"), f.count_distinct("_table").alias("tables")).collect()
    assert (result["n"], result["tables"]) == (TABLES * 10, TABLES)
    # Neither this process nor the server's process called the catalog again.
    assert catalog.requests == []


@pytest.mark.parametrize("filter", with_usual([None, "id % 10 > 7 AND s <> '8'"], "id % 10 > 7 AND s <> '8'"))
def test_filters_mean_the_same(spark: SparkSession, locations: Locations, filter: str | None) -> None:
    frame = locations.dataframe(spark, ["id"], filter=filter)
    rows = frame.where("id > 77 and id < 100")
    result = [row["id"] for row in rows.where("id % 10 > 7 and _table <> 'db$t8'").orderBy("id").collect()]
    assert result == [78, 79, 98, 99]
    assert frame.count() == (TABLES * 10 if filter is None else TABLES * 2 - 2)


def test_refreshed_locations_make_a_new_frame(
    spark: SparkSession, resolver: LocationResolver, locations: Locations
) -> None:
    before = locations.dataframe(spark)
    lance.write_dataset(pa.table({"id": [-1], "s": ["new"]}), locations["db.t0"].location, mode="append")
    resolver.forget()
    again = resolver.refresh(locations)
    assert again.report.calls == TABLES
    assert before.count() == again.dataframe(spark).count() == TABLES * 10
    resolver.forget()
    assert resolver.prefetch("db.*").dataframe(spark).count() == TABLES * 10 + 1


def test_views_are_the_servers(spark: SparkSession, locations: Locations) -> None:
    with views(spark, locations.select(["db.t1", "db.t2"])) as made:
        assert not made.connector
        query = (
            f"SELECT count(*) AS n, min(a.id) AS low FROM {made['db.t1']} a JOIN {made['db.t2']} b ON a.id + 10 = b.id"
        )
        assert made.sql(query).collect() == [(10, 10)]
        assert made.union().count() == 20
        assert [table.name for table in spark.catalog.listTables()] == ["db_t1", "db_t2"]
    assert spark.catalog.listTables() == []


def test_locations_are_rows_but_there_is_no_connector(spark: SparkSession, locations: Locations) -> None:
    assert locations.to_dataframe(spark).where("rows = 10 and version = 1").count() == TABLES
    with pytest.raises(InvalidInputError, match=r"^views: the session has no data source 'lance'"):
        views(spark, locations, connector=True)
    with pytest.raises(InvalidInputError, match="Connect"), locations.serve(spark):
        pass


def test_micro_batches_resolve_where_they_run(spark: SparkSession, catalog: FakeIceberg, tmp_path: Path) -> None:
    source, result, endpoint = tmp_path / "orders", tmp_path / "found", catalog.endpoint
    for folder in (source, result):
        folder.mkdir()
    for n in range(2):
        (source / f"{n}.json").write_text(f'{{"id": {n}}}')

    def count(batch: DataFrame, number: int) -> None:
        # On the server, so no files of this process are there.
        with LocationResolver.connect("iceberg", {"endpoint": endpoint}) as resolver:
            joined = batch.join(resolver.prefetch("db.*").dataframe(batch.sparkSession), "id")
            (result / str(number)).write_text(str(joined.count()))

    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source))
    query = stream.writeStream.foreachBatch(count).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert {path.name: path.read_text() for path in result.iterdir()} == {"0": "1", "1": "1"}


@thorough
def test_a_server_without_this_package_is_an_error_with_a_remedy(locations: Locations, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    with connect(tmp_path, str(bare / "bin" / "python")) as session:
        message = r"^Spark starts a Python that cannot serve \(.+\): start Spark, .* with PYSPARK_PYTHON=/path"
        with pytest.raises(ImportError, match=message):
            locations.dataframe(session)
