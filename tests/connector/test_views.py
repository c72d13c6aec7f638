"""SQL views that the connector reads, with each table at its pinned version."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lance_ns_async.spark import Locations
from lance_ns_async.spark.read.sql import views
from tests.connector.lake import MARKS, Ask, Lake
from tests.documentation.pages import Page
from tests.support.reader import Reader, comparable

pytestmark = MARKS
TABLES = 10


def pinned(lake: Lake, *what: str) -> Locations:
    result = lake.resolver.prefetch(what or "db.*", on_error="raise")
    lake.calls.clear()
    return result


def test_views_read_the_versions_that_were_pinned_side_by_side(spark: SparkSession, ask: Ask, lake: Lake) -> None:
    lake.write("t")
    with views(spark, pinned(lake)) as made:
        assert made.connector
        lake.write("t", rows=5, mode="append")
        assert ask("SELECT count(*), max(id) FROM db_t WHERE id > 3") == [(6, 9)]
        assert spark.table("db_t").columns == ["id"]
        lake.resolver.forget()
        with views(spark, pinned(lake), name=lambda id: f"{id.name}_now"):
            assert ask("SELECT count(*) FROM t_now") == [(15,)]
            assert ask("SELECT count(*) FROM t_now LEFT ANTI JOIN db_t USING (id)") == [(0,)]
            assert ask("SELECT (SELECT count(*) FROM t_now) - (SELECT count(*) FROM db_t)") == [(5,)]


def test_the_union_of_many_views_costs_no_call(spark: SparkSession, ask: Ask, lake: Lake) -> None:
    for n in range(TABLES):
        lake.write(f"t{n}", rows=n)
    with views(spark, pinned(lake)) as made:
        made.union().createOrReplaceTempView("everything")
        assert ask("SELECT count(*), count(DISTINCT _table) FROM everything") == [(sum(range(TABLES)), TABLES - 1)]
        assert ask("SELECT count(*) FROM everything WHERE _table = 'db$t7'") == [(7,)]
        assert made.union(table_column=None).columns == ["id"]
        spark.catalog.dropTempView("everything")
    assert lake.calls == []
    assert spark.catalog.listTables() == []


def test_odd_names_and_places_are_read(spark: SparkSession, ask: Ask, lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "it's a place"
    lance.write_dataset(pa.table({"id": [1]}), str(place))
    lake.write("t")
    result = pinned(lake)
    (at,) = result.values()
    with views(spark, Locations([replace(at, location=str(place))], result.report), name=lambda id: "a`b.c'd") as made:
        assert ask(f"SELECT id FROM {made['db.t']}") == [(1,)]


# Spark 3.5 reads the version of pandas by a deprecated module.
@pytest.mark.filterwarnings("ignore:distutils Version:DeprecationWarning")
def test_our_own_data_source_gives_the_same_rows(spark: SparkSession, ask: Ask, lake: Lake) -> None:
    lake.write("t")
    with views(spark, pinned(lake), connector=False) as made:
        assert not made.connector
        assert ask("SELECT count(*), sum(id) FROM db_t") == [(10, 45)]


def test_no_plan_shows_secrets(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Lake(tmp_path / "vault", aws_secret_access_key="hush-key", aws_session_token="hush-token")
    with lake.namespace:
        lake.write("t")
        with views(spark, pinned(lake)) as made:
            frame = made.sql("SELECT * FROM db_t WHERE id > 3")
            assert frame.count() == 6
            frame.explain(extended=True)
            shown = capsys.readouterr().out + str(frame._jdf.queryExecution().logical().toJSON()) + repr(made)
            shown += "".join(map(str, spark.sql("DESCRIBE EXTENDED db_t").collect()))
    assert "hush" not in shown


PAGE = Page("spark-sql.md")


async def test_the_code_of_the_page_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(PAGE, {})
    run = 0
    for block, following in pairwise([*PAGE.blocks(), None]):
        if block is not None and block.language == "python":
            printed = await reader.printed(replace(block, not_run=None))
            shown = following.source if following is not None and following.title == "Prints" else ""
            assert printed == comparable(shown), f"{PAGE.name}:{block.line}"
            run += 1
    assert run > 3
