"""Filters that Lance applies in each scan: the same rows as with Spark's filters, in every query of a DataFrame."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError
from pyspark.sql import SparkSession

from lance_ns_async.spark import Locations, views
from lance_ns_async.spark.read.dataframe import by_map_in_arrow, common_columns
from lance_ns_async.spark.read.reading import Entry, Plan, batches
from lance_ns_async.storage.scanning import Condition
from tests.integration.spark_lake import TABLES, Lake, partitions, rows
from tests.support.budget import rounds, with_usual
from tests.support.spark import SPARK

pytestmark = SPARK
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module", params=with_usual(["true", "false"], "true"))
def spark(request: pytest.FixtureRequest, shared_spark: SparkSession) -> Iterator[SparkSession]:
    """Provides a session that offers filters to data sources, and one that does not."""
    shared_spark.conf.set(PUSHDOWN, request.param)
    yield shared_spark
    shared_spark.conf.unset(PUSHDOWN)


def test_a_dataframe_that_is_planned_twice_keeps_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for n in range(10):
        lake.write(f"t{n}", pa.table({"id": range(n * 1000, n * 1000 + 1000)}))
    everything = lake.prefetch().dataframe(spark, partitions=2)
    few, last = everything.where("id < 1000"), everything.where("id >= 9990")
    assert (few.count(), everything.count(), last.count(), everything.count()) == (1_000, 10_000, 10, 10_000)
    assert few.union(last).count() == 1_010
    assert everything.where("_table = 'db$t3'").union(everything).count() == 11_000
    assert few.alias("a").join(everything.alias("b"), "id").count() == 1_000
    assert everything.alias("a").join(last.alias("b"), "id").count() == 10
    filtered = lake.prefetch().dataframe(spark, filter="id % 10 = 3", partitions=2)
    part = filtered.where("id < 1000")
    assert (part.count(), filtered.count(), part.count()) == (100, 1_000, 100)
    assert part.union(filtered).count() == 1_100
    assert part.alias("a").join(filtered.alias("b"), "id").count() == 100
    assert filtered.where("id % 10 = 4").count() == 0


def test_a_filter_may_use_columns_that_are_not_read(spark: SparkSession, many: Locations) -> None:
    frame = many.dataframe(spark, columns=["s"], filter="x > 3.9 AND `id` < 30")
    assert frame.columns == ["s", "_table"]
    assert sorted(tuple(row) for row in frame.collect()) == [
        (f"it's {n}", f"db$t{table}") for n in (8, 9) for table in range(3)
    ]
    assert many.dataframe(spark, columns=[], filter="x > 3.9").groupBy("_table").count().count() == TABLES
    assert many.dataframe(spark, columns=["id"], table_column=None, filter="s IS NULL").count() == TABLES


def test_the_filter_is_part_of_the_pinned_read(spark: SparkSession, lake: Lake) -> None:
    location = lake.write("t", rows(0))
    frame = lake.prefetch().dataframe(spark, filter="x >= 2.0")
    assert frame.count() == 6
    lance.write_dataset(rows(1), location, mode="append")
    lance.dataset(location).delete("x > 3")
    assert frame.count() == 6
    assert lake.prefetch().dataframe(spark, filter="x >= 2.0").count() == 6


def test_an_invalid_filter_is_refused_before_any_job(spark: SparkSession, many: Locations) -> None:
    for filter, message in (("nix > 1", "no column 'nix'; The columns are 'id', 's', 'x'"), ("id >", "an expression")):
        with pytest.raises(InvalidInputError, match=message):
            many.dataframe(spark, filter=filter)


def test_older_sparks_apply_the_filter_by_map_in_arrow(spark: SparkSession, many: Locations) -> None:
    entries = [Entry(str(id), at.location, 1, 10, 1) for id, at in many.items()]
    schema = many.dataframe(spark, ["s"]).schema
    frame = by_map_in_arrow(spark, Plan(entries, 8, "_table", Condition("id % 10 = 4")), schema, "read all")
    assert (frame.count(), frame.where("_table = 'db$t7'").collect()) == (TABLES, [("it's 4", "db$t7")])


def test_selected_tables_are_the_only_ones_to_be_read(spark: SparkSession, lake: Lake) -> None:
    gone = [lake.write(f"t{n}", rows(n)) for n in range(1, 4)]
    lake.write("t0", rows(0).slice(0, 9))
    locations = lake.prefetch()
    for location in gone:
        shutil.rmtree(location.removeprefix("file://"))
    small = locations.where(lambda at: (at.rows or 0) < 10)
    assert (list(small), small.report) == ([("db", "t0")], locations.report)
    frame = small.dataframe(spark, filter="id > 3")
    assert (frame.count(), partitions(frame)) == (5, 1)


def test_views_are_not_filtered(spark: SparkSession, many: Locations) -> None:
    with views(spark, many.select(["db.t1", "db.t2"]), connector=False) as made:
        where = made.sql(f"SELECT a.id FROM {made['db.t1']} a, {made['db.t1']} b WHERE a.id = b.id AND b.x > 3.9")
        assert (where.count(), made.union().count()) == (2, 20)


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [-(2**62), -1, 0, 7, 2**62, None]),
    "small int": (pa.int8(), [-128, -1, 0, 7, 127, None]),
    "s": (pa.string(), ["", "a", "B", "it's", "%", "a_", "é\u0301", "\U0001f600", "日本", None]),
    "Select": (pa.large_string(), ["a", "ab", "b", None]),
    "ok": (pa.bool_(), [True, False, None]),
    "d": (pa.date32(), [date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31), None]),
    "x": (pa.float64(), [-1.5, 0.0, -0.0, 0.1, 1e300, float("inf"), float("-inf"), float("nan"), None]),
}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Locations:
    """Two tables with columns whose values repeat, with different periods."""
    lake = Lake(tmp_path_factory.mktemp("values"))
    for n in range(2):
        columns = {
            name: pa.array([them[(row + n) % len(them)] for row in range(40)], type)
            for name, (type, them) in VALUES.items()
        }
        lake.write(f"t{n}", pa.table({"row": range(n * 40, n * 40 + 40), **columns}), max_rows_per_file=17)
    return lake.prefetch()


def literal(value: Any) -> str:
    match value:
        case bool() | int():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case date():
            return f"date '{value}'"
        case _:
            return repr(value)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """A comparison that both Lance and Spark can parse."""
    name = draw(st.sampled_from(sorted(VALUES)))
    column, (type, them) = f"`{name}`", VALUES[name]
    finite = [literal(it) for it in them if it is not None and repr(it) not in ("inf", "-inf", "nan", "1e+300")]
    values = st.sampled_from(finite)
    choices = [
        st.builds("{} {} {}".format, st.just(column), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), values),
        st.lists(values, min_size=1, max_size=3).map(lambda them: f"{column} IN ({', '.join(them)})"),
        st.sampled_from([f"{column} IS NULL", f"{column} IS NOT NULL"]),
    ]
    if name != "ok":
        choices.append(st.builds(f"{column} BETWEEN {{}} AND {{}}".format, values, values))
    if type in (pa.string(), pa.large_string()):
        patterns = st.sampled_from(["a%", "%'%", "%s", "_", "", "%", "日%"])
        choices.append(patterns.map(lambda pattern: f"{column} LIKE {literal(pattern)}"))
    condition = draw(st.one_of(choices))
    return f"NOT ({condition})" if draw(st.booleans()) else condition


FILTERS = st.recursive(
    conditions(), lambda part: st.builds("({} {} {})".format, part, st.sampled_from(["AND", "OR"]), part), max_leaves=4
)


def read_each(locations: Locations, filters: list[str]) -> list[list[int]]:
    """Returns the rows that the tasks of `dataframe(filter=...)` read, for each filter and without a job."""
    want = pa.schema([("row", pa.int64())])
    entries = [Entry(str(id), at.location, 1, at.rows or 0, at.fragments or 0) for id, at in locations.items()]
    conditions = [common_columns(locations.values(), ["row"], filter=it)[1] for it in filters]
    scans = [batches(Plan(entries, 1, None, it), want) for it in conditions]
    return [[row for batch in scan for row in batch["row"].to_pylist()] for scan in scans]


@settings(max_examples=rounds(2, 20), deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.lists(FILTERS, min_size=60, max_size=60))
def test_lance_and_spark_keep_the_same_rows(shared_spark: SparkSession, values: Locations, filters: list[str]) -> None:
    everything = values.dataframe(shared_spark, columns=["row", *sorted(VALUES)])
    # One query for all filters, because a query takes tenths of a second.
    judged = sorted(everything.selectExpr("row", *(f"{it} AS f{n}" for n, it in enumerate(filters))).collect())
    expected = [[row["row"] for row in judged if row[f"f{n}"]] for n in range(len(filters))]
    assert dict(zip(filters, read_each(values, filters), strict=True)) == dict(zip(filters, expected, strict=True))
    framed = values.dataframe(shared_spark, columns=["row"], filter=filters[0])
    assert sorted(row["row"] for row in framed.collect()) == expected[0]
    assert everything.where(filters[0]).count() == len(expected[0])
