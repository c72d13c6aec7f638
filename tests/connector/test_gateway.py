"""SQL statements of Spark's Lance connector through the gateway, in front of real catalogs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lance_ns_async import AsyncNamespace
from lance_ns_async.gateway import serving
from lance_ns_async.gateway.access import hash_of
from tests.connector.lake import MARKS, Ask
from tests.servers.catalogs import CATALOGS, Properties
from tests.servers.iceberg_rest import IcebergRest
from tests.support.budget import with_usual

pytestmark = MARKS
NAMESPACES = {"iceberg": "shared", "hive3": "hive.shared"}
"""The namespace of the tables, by backend; Hive has databases in catalogs."""


@pytest.fixture(scope="module", params=with_usual(["iceberg", "hive3"], "iceberg"))
def db(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace in a catalog of Spark that is served by a gateway."""
    impl = request.param
    catalog = f"shared_{impl}"
    folder = tmp_path_factory.mktemp(impl)
    with ExitStack() as stack, start_blocking_portal() as portal:
        if impl == "iceberg":
            server: IcebergRest = request.getfixturevalue("server")
            properties: Properties = {"endpoint": server.endpoint, "root": folder.as_uri()}
        else:
            properties = stack.enter_context(CATALOGS[impl](folder))
        lake = AsyncNamespace.connect(impl, properties)
        with portal.wrap_async_context_manager(lake), portal.wrap_async_context_manager(serving(lake)) as gateway:
            settings = {
                "": "org.lance.spark.LanceNamespaceSparkCatalog",
                ".impl": "rest",
                ".uri": gateway.url,
                ".headers.x-lance-token": gateway.token,
                ".single_level_ns": "false",
            }
            for key, value in settings.items():
                spark.conf.set(f"spark.sql.catalog.{catalog}{key}", value)
            namespace = f"{catalog}.{NAMESPACES[impl]}"
            spark.sql(f"CREATE NAMESPACE {namespace}")
            yield namespace


def test_table_is_created_filled_and_read(ask: Ask, db: str) -> None:
    table = f"{db}.people"
    ask(f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING)")
    ask(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    ask(f"INSERT INTO {table} SELECT id + 2, upper(name) FROM {table}")
    assert ask(f"SELECT * FROM {table} ORDER BY id") == [(1, "a"), (2, "b"), (3, "A"), (4, "B")]
    assert ask(f"SELECT name FROM {table} WHERE id > 2 ORDER BY id LIMIT 1") == [("A",)]


def test_dropped_table_is_created_again_with_other_rows(ask: Ask, db: str) -> None:
    """The connector caches files by location and version, so the new table needs another location."""
    table = f"{db}.again"
    for round in range(2):
        ask(f"CREATE TABLE {table} AS SELECT id + {100 * round} AS id FROM range({round + 1})")
        assert ask(f"SELECT min(id), count(*) FROM {table}") == [(100 * round, round + 1)]
        ask(f"DROP TABLE {table} PURGE")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            ask(f"SELECT * FROM {table}")


def test_deregistered_table_is_created_again_with_other_columns(ask: Ask, db: str) -> None:
    """`DROP TABLE` without `PURGE` deregisters the table, and leaves its files."""
    table = f"{db}.columns"
    ask(f"CREATE TABLE {table} AS SELECT id FROM range(3)")
    assert ask(f"SELECT count(*) FROM {table}") == [(3,)]
    ask(f"DROP TABLE {table}")
    ask(f"CREATE TABLE {table} (word STRING)")
    ask(f"INSERT INTO {table} VALUES ('x')")
    assert ask(f"SELECT * FROM {table}") == [("x",)]


def test_rows_are_replaced_and_deleted(ask: Ask, db: str) -> None:
    table = f"{db}.replaced"
    ask(f"CREATE TABLE {table} AS SELECT id FROM range(3)")
    ask(f"INSERT OVERWRITE {table} SELECT id FROM range(5)")
    assert ask(f"SELECT count(*) FROM {table}") == [(5,)]
    ask(f"DELETE FROM {table} WHERE id >= 3")
    assert ask(f"SELECT count(*) FROM {table}") == [(3,)]
    ask(f"DROP TABLE {table} PURGE")
    ask(f"CREATE TABLE {table} AS SELECT 'y' AS word")
    assert ask(f"SELECT * FROM {table}") == [("y",)]


def test_tables_are_listed_described_and_missed(ask: Ask, db: str) -> None:
    ask(f"CREATE TABLE {db}.listed (id BIGINT)")
    assert (db.partition(".")[2], "listed", False) in ask(f"SHOW TABLES IN {db}")
    assert (db.partition(".")[2],) in ask(f"SHOW NAMESPACES IN {db.rpartition('.')[0]}")
    assert ("id", "bigint") in [row[:2] for row in ask(f"DESCRIBE TABLE {db}.listed")]
    ask(f"DROP TABLE {db}.listed")
    ask(f"DROP TABLE IF EXISTS {db}.listed")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        ask(f"DROP TABLE {db}.listed")


def test_view_reads_appended_rows(spark: SparkSession, ask: Ask, db: str) -> None:
    table = f"{db}.base"
    ask(f"CREATE TABLE {table} AS SELECT id FROM range(4)")
    spark.table(table).createOrReplaceTempView("base_view")
    assert ask("SELECT sum(id) FROM base_view") == [(6,)]
    spark.range(10, 12).writeTo(table).append()
    assert ask(f"SELECT sum(id) FROM {table}") == [(27,)]
    spark.catalog.dropTempView("base_view")


def test_each_right_allows_what_it_says(spark: SparkSession, ask: Ask, tmp_path: Path) -> None:
    rights = ("read", "write", "admin")
    file = tmp_path / "tokens.toml"
    file.write_text("".join(f'[{it}]\nrights = "{it}"\nsha256 = ["{hash_of(it)}"]\n' for it in rights))
    lake = AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")})
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(lake),
        portal.wrap_async_context_manager(serving(lake, tokens=file)) as gateway,
    ):
        for it in rights:
            spark.conf.set(f"spark.sql.catalog.with_{it}", "org.lance.spark.LanceNamespaceSparkCatalog")
            settings = {"impl": "rest", "uri": gateway.url, "headers.x-lance-token": it, "single_level_ns": "false"}
            for key, value in settings.items():
                spark.conf.set(f"spark.sql.catalog.with_{it}.{key}", value)
        ask("CREATE NAMESPACE with_write.db")
        ask("CREATE TABLE with_write.db.t AS SELECT id FROM range(3)")
        assert ask("SELECT count(*) FROM with_read.db.t") == [(3,)]
        with pytest.raises(Exception, match="read has the right 'read'"):
            ask("CREATE TABLE with_read.db.u (id BIGINT)")
        ask("DROP TABLE with_admin.db.t PURGE")
        assert ask("SHOW TABLES IN with_read.db") == []
