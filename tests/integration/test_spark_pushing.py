"""Filters in a real Spark session: the same results with and without pushdown, and less work with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from lance_ns_async.spark import Locations
from lance_ns_async.spark.local import local_spark
from tests.integration.spark_lake import TABLES, Lake, partitions, rows

# Spark starts its JVM by a fork, which pylance warns of; the JVM does not care.
pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = local_spark("tests", cores=2)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Locations:
    lake = Lake(tmp_path_factory.mktemp("many"))
    for n in range(TABLES):
        lake.write(f"t{n}", rows(n))
    return lake.prefetch()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


CONDITIONS: Sequence[tuple[str, int]] = [
    ("id between 5 and 24", 20),
    ('s = "it\'s 3"', TABLES),
    ("s is null", TABLES),
    ("s is not null and id < 20", 18),
    ('s <> "it\'s 3"', TABLES * 8),
    ("s in (\"it's 1\", \"it's 2\", 'none')", TABLES * 2),
    ('not (s in ("it\'s 1", "it\'s 2"))', TABLES * 7),
    ('s like "it\'s%"', TABLES * 9),
    ("s like \"%'s 1%\" and s like '%1'", TABLES),
    ("s <=> null or id = 3", TABLES + 1),
    ("id % 10 = 4", TABLES),
    ("x > 3.9", TABLES * 2),
    ("x = 'NaN'", 0),
    ("_table = 'db$t7' and id > 75", 4),
    ("_table <> 'db$t7'", TABLES * 10 - 10),
    ("_table in ('db$t7', 'db$t8', 'db$nix')", 20),
    ("_table like 'db$t1__'", 1000),
    ("_table > 'db$t98'", 10),
    ("_table = 'db$nix'", 0),
    ("_table is null", 0),
    ("_table = s", 0),
]


@pytest.mark.parametrize("pushing", [True, False])
def test_filters_have_the_same_result_in_spark_and_lance(spark: SparkSession, many: Locations, pushing: bool) -> None:
    found = [(c, many.dataframe(spark, push_filters=pushing).where(c).count()) for c, _ in CONDITIONS]
    assert found == list(CONDITIONS)


def test_whether_spark_pushes_filters_is_left_as_it_is(spark: SparkSession, many: Locations) -> None:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, False)
    try:
        assert many.dataframe(spark).where("id = 3").count() == 1
        with pytest.raises(InvalidInputError, match=f"requires that {PUSHDOWN} is true"):
            many.dataframe(spark, push_filters=True)
        assert spark.conf.get(PUSHDOWN) == "false"
    finally:
        spark.conf.set(PUSHDOWN, str(before))


@pytest.mark.parametrize(
    ("condition", "tasks"),
    [
        ("_table = 'db$t7' and id > 75", 1),
        ("_table in ('db$t7', 'db$t8', 'db$nix')", 2),
        ("_table like 'db$t1__'", 8),
        ("_table = 'db$nix'", 1),
    ],
)
def test_a_filter_on_the_table_leaves_tasks_out(
    spark: SparkSession, many: Locations, condition: str, tasks: int
) -> None:
    assert partitions(many.dataframe(spark, push_filters=True).where(condition)) == tasks


def test_a_filter_on_the_table_leaves_other_tables_unread(spark: SparkSession, lake: Lake) -> None:
    gone = [lake.write(f"t{n}", rows(n)) for n in range(4)][1:]
    locations = lake.prefetch()
    for location in gone:
        shutil.rmtree(location.removeprefix("file://"))
    assert locations.dataframe(spark, push_filters=True).where("_table like '%t0'").count() == 10
    with pytest.raises(PythonException, match=r"table db\$t[123], version 1 at "):
        locations.dataframe(spark).where("_table like '%t0'").count()


def test_filters_that_lance_applies_are_not_applied_again(spark: SparkSession, many: Locations) -> None:
    def filters(condition: str) -> list[str]:
        shown = plan(many.dataframe(spark, push_filters=True).where(condition))
        return [line for line in shown.splitlines() if "Filter (" in line]

    assert filters("id > 3 and s = 'a' and _table like 'db%'") == []
    (left,) = filters("id > 3 and x > 1.5")
    assert "x#" in left and "id#" not in left
