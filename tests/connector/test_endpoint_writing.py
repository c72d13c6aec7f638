"""SQL that creates, changes and drops tables, performed by the catalog itself."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.connector.lake import MARKS, Ask, Lake

pytestmark = MARKS


def test_a_table_made_from_a_query_is_in_the_catalog(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog, resolver=lake.resolver):
        ask(f"CREATE TABLE {catalog}.db.new AS SELECT id FROM {catalog}.db.t WHERE id < 4")
        assert ask(f"SELECT count(*) FROM {catalog}.db.new") == [(4,)]
        ask(f"INSERT INTO {catalog}.db.new VALUES (11)")
        assert ask(f"SELECT count(*) FROM {catalog}.db.new") == [(5,)]
    assert lake.rows("new") == 5
    assert {(call.operation, str(call.subject)) for call in lake.calls} == {
        ("describe_table", "db$new"),
        ("declare_table", "db$new"),
    }


def test_inserts_into_prefetched_tables_make_no_calls(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        ask(f"INSERT INTO {catalog}.db.t VALUES (10), (11)")
        assert ask(f"SELECT count(*) FROM {catalog}.db.t") == [(12,)]
    assert lake.calls == []
    assert lake.rows("t") == 12


def test_a_table_that_was_dropped_is_gone(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog, resolver=lake.resolver):
        assert ask(f"SELECT count(*) FROM {catalog}.db.t") == [(10,)]
        ask(f"DROP TABLE {catalog}.db.t")
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            ask(f"SELECT count(*) FROM {catalog}.db.t")
    assert lake.rows("t") is None
    assert [str(missing.subject) for missing in lake.resolver.prefetch(["db.t"]).report.missing] == ["db$t"]


@pytest.mark.parametrize("purge", ["", "PURGE"])
def test_a_table_made_anew_is_the_new_one(spark: SparkSession, ask: Ask, lake: Lake, catalog: str, purge: str) -> None:
    lake.write("t")
    lake.write("more", rows=30)
    with lake.prefetch().serve(spark, catalog, resolver=lake.resolver):
        ask(f"DROP TABLE {catalog}.db.t {purge}")
        ask(f"CREATE TABLE {catalog}.db.t AS SELECT * FROM {catalog}.db.more")
        assert ask(f"SELECT count(*) FROM {catalog}.db.t") == [(30,)]
    assert lake.rows("t") == 30


def test_namespaces_are_made_and_dropped(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog, resolver=lake.resolver):
        ask(f"CREATE NAMESPACE {catalog}.fresh")
        ask(f"CREATE TABLE {catalog}.fresh.t (id BIGINT)")
        assert ask(f"SHOW TABLES IN {catalog}.fresh") == [("fresh", "t", False)]
        with pytest.raises(Py4JJavaError, match="Namespace not empty: fresh"):
            ask(f"DROP NAMESPACE {catalog}.fresh")
        ask(f"DROP TABLE {catalog}.fresh.t")
        ask(f"DROP NAMESPACE {catalog}.fresh")
        assert ask(f"SHOW NAMESPACES IN {catalog}") == [("db",)]


def test_without_a_resolver_nothing_is_made(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        with pytest.raises(Py4JJavaError, match="declare_table needs the catalog, and `serve` has no resolver"):
            ask(f"CREATE TABLE {catalog}.db.new AS SELECT * FROM {catalog}.db.t")
        with pytest.raises(Py4JJavaError, match="Failed to create namespace"):
            ask(f"CREATE NAMESPACE {catalog}.fresh")
    assert lake.rows("new") is None


def test_a_failed_drop_is_logged(
    spark: SparkSession, ask: Ask, lake: Lake, catalog: str, caplog: pytest.LogCaptureFixture
) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        ask(f"DROP TABLE {catalog}.db.t")
        assert ask(f"SELECT count(*) FROM {catalog}.db.t") == [(10,)]
    assert "table db$t was not dropped, but Spark reports no error" in caplog.text
    assert lake.rows("t") == 10
