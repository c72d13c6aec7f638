"""SQL with the usual table names, planned from prefetched locations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from lance_namespace import CreateNamespaceRequest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lance_ns_async.model import TableId
from lance_ns_async.spark import Locations
from lance_ns_async.spark.local import local_spark
from tests.connector.lake import MARKS, Ask, Lake

pytestmark = MARKS
TABLES = 10


def test_a_union_of_many_tables_makes_no_calls(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    for n in range(TABLES):
        lake.write(f"t{n}", rows=n)
    with lake.prefetch().serve(spark, catalog, resolver=lake.resolver) as served:
        union = " UNION ALL ".join(f"SELECT * FROM {catalog}.db.t{n}" for n in range(TABLES))
        assert ask(f"SELECT count(*) FROM ({union})") == [(sum(range(TABLES)),)]
    assert lake.calls == []
    assert served.answered >= 2 * TABLES
    assert (
        repr(served) == f"catalog {catalog}: {served.answered:,} requests answered from the prefetch, 0 by the catalog"
    )


def test_what_was_not_prefetched_is_requested_once(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    lake.write("late", rows=3)
    with lake.prefetch("db.t").serve(spark, catalog, resolver=lake.resolver) as served:
        for _ in range(2):
            both = ask(f"SELECT count(*) FROM {catalog}.db.t UNION ALL SELECT count(*) FROM {catalog}.db.late")
            assert sorted(both) == [(3,), (10,)]
    assert [(call.operation, str(call.subject)) for call in lake.calls] == [("describe_table", "db$late")]
    assert served.misses == 1
    assert ", 1 by the catalog" in repr(served)


def test_without_a_resolver_what_was_not_prefetched_says_so(
    spark: SparkSession, ask: Ask, lake: Lake, catalog: str
) -> None:
    lake.write("t")
    lake.write("late")
    with lake.prefetch("db.t").serve(spark, catalog) as served:
        for missing in ("db.late", "other.t"):
            id = missing.replace(".", "$")
            with pytest.raises(Py4JJavaError, match=rf"table {id}: was not prefetched.+resolver=".replace("$", r"\$")):
                ask(f"SELECT * FROM {catalog}.{missing}")
    assert (lake.calls, served.misses) == ([], 0)


def test_what_the_catalog_has_not_is_no_table(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("t")
    for name, resolver in ((catalog, lake.resolver), (f"{catalog}_alone", None)):
        with lake.prefetch("db.t", "db.nope").serve(spark, name, resolver=resolver):
            with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
                ask(f"SELECT * FROM {name}.db.nope")


ODD = ("Upper", "a b", "a+b", "é", "a.b", "a/b", "a$b", "50%", "a?b#c", "it's", "`")
IDS = [*(["db", name] for name in ODD), ["é ü", "t"], ["a", "b", "c", "t"], ["root"]]


@pytest.mark.parametrize("id", IDS, ids="$".join)
def test_names_may_be_odd_and_deep(spark: SparkSession, ask: Ask, lake: Lake, catalog: str, id: list[str]) -> None:
    lake.write("t")
    result = lake.prefetch("db.t")
    named = Locations([replace(result["db.t"], id=TableId(id))], result.report)
    quoted = ".".join("`{}`".format(name.replace("`", "``")) for name in id)
    with named.serve(spark, catalog) as served:
        assert ask(f"SELECT count(*) FROM {catalog}.{quoted}") == [(10,)]
    assert served.answered > 0


def test_a_version_is_chosen_in_sql_and_the_latest_read_without(
    spark: SparkSession, ask: Ask, lake: Lake, catalog: str
) -> None:
    lake.write("t")
    pinned = lake.resolver.prefetch("db.t", pin_versions=True)
    lake.write("t", rows=5, mode="append")
    assert pinned["db.t"].version == 1
    with pinned.serve(spark, catalog):
        assert ask(f"SELECT count(*) FROM {catalog}.db.t") == [(15,)]
        assert ask(f"SELECT id FROM {catalog}.db.t WHERE id > 7 ORDER BY id") == [(8,), (9,)]
        assert ask(f"SELECT count(*) FROM {catalog}.db.t VERSION AS OF 1") == [(10,)]
        assert spark.read.option("version", 1).table(f"{catalog}.db.t").count() == 10


def test_without_a_resolver_the_catalog_is_what_was_prefetched(
    spark: SparkSession, ask: Ask, lake: Lake, catalog: str
) -> None:
    for name in ("a", "b", "c"):
        lake.write(name)
    with lake.prefetch("db.[ab]").serve(spark, catalog):
        assert ask(f"SHOW NAMESPACES IN {catalog}") == [("db",)]
        assert ask(f"SHOW TABLES IN {catalog}.db") == [("db", "a", False), ("db", "b", False)]
        assert ask(f"USE {catalog}.db") == []
        assert ask("SELECT count(*) FROM a") == [(10,)]
        assert ask("USE spark_catalog.default") == []
        with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
            ask(f"USE {catalog}.other")
        with pytest.raises(Py4JJavaError, match="namespace other: contains no prefetched table"):
            ask(f"SHOW TABLES IN {catalog}.other")
    assert lake.calls == []


def test_with_a_resolver_listings_are_the_catalogs(spark: SparkSession, ask: Ask, lake: Lake, catalog: str) -> None:
    lake.write("a")
    lake.write("b")
    lake.namespace.create_namespace(CreateNamespaceRequest(id=["empty"]))
    with lake.prefetch("db.a").serve(spark, catalog, resolver=lake.resolver) as served:
        assert ask(f"SHOW NAMESPACES IN {catalog}") == [("db",), ("empty",)]
        assert ask(f"SHOW TABLES IN {catalog}.db") == [("db", "a", False), ("db", "b", False)]
        assert ask(f"SHOW TABLES IN {catalog}.empty") == []
        with pytest.raises(Py4JJavaError, match="Namespace not found: other"):
            ask(f"SHOW TABLES IN {catalog}.other")
    assert served.passed == 4
    assert repr(served).endswith("4 other requests")


@pytest.fixture
def cluster() -> Iterator[SparkSession]:
    if running := SparkSession.getActiveSession():
        running.stop()
    session = local_spark("tests", cores=1, config={"spark.master": "local-cluster[1,1,1024]"}, connector=True)
    yield session
    session.stop()


def test_executors_make_no_calls(cluster: SparkSession, lake: Lake, catalog: str) -> None:
    for n in range(3):
        lake.write(f"t{n}")
    with lake.prefetch().serve(cluster, catalog, resolver=lake.resolver) as served:
        frame = cluster.sql(" UNION ALL ".join(f"SELECT * FROM {catalog}.db.t{n}" for n in range(3)))
        frame._jdf.queryExecution().executedPlan()
        planned = served.answered
        assert planned > 0
        assert sum(frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()) == 30
        assert len(frame.collect()) == 30
        assert served.answered == planned
        assert lake.calls == []


def test_spark_may_stop_inside(spark: SparkSession, lake: Lake, catalog: str) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        assert spark.table(f"{catalog}.db.t").count() == 10
        spark.stop()


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


def test_without_a_resolver_rows_are_added_but_nothing_is_made(
    spark: SparkSession, ask: Ask, lake: Lake, catalog: str
) -> None:
    lake.write("t")
    with lake.prefetch().serve(spark, catalog):
        ask(f"INSERT INTO {catalog}.db.t VALUES (10), (11)")
        assert ask(f"SELECT count(*) FROM {catalog}.db.t") == [(12,)]
        assert (lake.calls, lake.rows("t")) == ([], 12)
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
