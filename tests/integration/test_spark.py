"""Reading many tables in a real Spark session, from prefetch to rows."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import DeclareTableRequest
from lance_namespace.errors import InvalidInputError, InvalidTableStateError
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.gateway import serving
from lance_ns_async.gateway.explorer.snippets import snippets
from lance_ns_async.spark import LocationResolver, Locations, PrefetchReport
from lance_ns_async.spark.read.dataframe import by_map_in_arrow
from lance_ns_async.spark.read.reading import Entry, Plan
from tests.integration.spark_lake import TABLES, Lake, partitions, rows
from tests.support.budget import thorough
from tests.support.spark import SPARK

pytestmark = SPARK


def test_many_tables_are_one_dataframe(spark: SparkSession, many: Locations) -> None:
    frame = many.dataframe(spark)
    assert frame.columns == ["id", "s", "x", "_table"]
    assert partitions(frame) == 8
    for requested, chosen in ((1, 1), (3, 3), (500, TABLES)):
        assert partitions(many.dataframe(spark, partitions=requested)) == chosen
    with pytest.raises(InvalidInputError, match="partitions 0"):
        many.dataframe(spark, partitions=0)
    (result,) = frame.agg(
        f.count("*").alias("rows"),
        f.count("s").alias("texts"),
        f.sum("id").alias("sum"),
        f.count_distinct("_table").alias("tables"),
    ).collect()
    count = TABLES * 10
    assert result.asDict() == {"rows": count, "texts": TABLES * 9, "sum": count * (count - 1) // 2, "tables": TABLES}


def test_each_row_names_its_table(spark: SparkSession, many: Locations) -> None:
    again = Locations.from_json(many.select("db.t1?").to_json())
    result = again.dataframe(spark).where("s is null").orderBy("id").collect()
    assert [(row["_table"], row["id"]) for row in result] == [(f"db$t{n}", n * 10) for n in range(10, 20)]


def test_a_table_of_many_fragments_is_read_by_many_tasks(spark: SparkSession, lake: Lake) -> None:
    lake.write("big", pa.table({"id": range(400_000)}), max_rows_per_file=20_000)
    lake.write("small", pa.table({"id": range(400_000, 400_010)}))
    frame = lake.prefetch().dataframe(spark)
    tasks = frame.groupBy(f.spark_partition_id()).agg(f.count("*").alias("n")).collect()
    assert len(tasks) == 8
    assert max(task["n"] for task in tasks) < 100_000
    assert frame.agg(f.count_distinct("id")).collect()[0][0] == 400_010


@thorough
def test_older_sparks_read_the_same_by_map_in_arrow(spark: SparkSession, many: Locations) -> None:
    entries = [Entry(str(id), at.location, 1, 10, 1) for id, at in many.items()]
    schema = many.dataframe(spark, ["x", "id"]).schema
    frame = by_map_in_arrow(spark, Plan(entries, 8, "_table"), schema, "read all")
    assert (frame.columns, partitions(frame)) == (["x", "id", "_table"], 8)
    per_task = frame.groupBy(f.spark_partition_id()).count().collect()
    assert [row["count"] for row in per_task] == [TABLES * 10 / 8] * 8
    by_source = many.dataframe(spark, ["x", "id"])
    assert sorted(frame.collect()) == sorted(by_source.collect())
    assert frame.where("_table = 'db$t7' and id > 75").count() == 4


def test_scans_are_named_by_their_tables(spark: SparkSession, many: Locations) -> None:
    frame = many.dataframe(spark)
    assert frame.count() == TABLES * 10
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    rendered = str(executions.apply(executions.size() - 1).physicalPlanDescription())
    assert f"BatchScan lance-ns: read {TABLES} tables of db.*" in rendered
    older = by_map_in_arrow(spark, Plan([], 1, "_table"), frame.schema, f"lance-ns: read {TABLES} tables of db.*")
    assert f"lance-ns: read {TABLES} tables of db.*(text#" in str(older._jdf.queryExecution().toString())


@thorough
def test_a_session_keeps_few_names_of_scans(spark: SparkSession, many: Locations) -> None:
    ids = [TableId(["db", f"name{n}"]) for n in range(120)]
    few = [replace(at, id=id) for id, at in zip(ids, cycle(many.values()), strict=False)]
    frames = [Locations([at], many.report).dataframe(spark) for at in few]
    plans = [str(frame._jdf.queryExecution().toString()) for frame in frames]
    names = {match[0] for plan in plans if (match := re.search(r"lance(_ns|-ns: read db\.name\d+)", plan)) is not None}
    assert "lance_ns" in names and len(names) <= 101
    assert frames[-1].count() == 10


def test_versions_stay_pinned(spark: SparkSession, lake: Lake) -> None:
    location = lake.write("t0", rows(0))
    lake.write("t1", rows(1))
    locations = lake.prefetch()
    before, used = locations.dataframe(spark), locations.dataframe(spark)
    assert used.count() == 20
    lance.write_dataset(rows(2), location, mode="append")
    lance.write_dataset(rows(3), location, mode="overwrite")
    assert before.count() == used.count() == 20
    # Each session of an application reads.
    sessions = [spark, spark.newSession(), spark.newSession()]
    assert [locations.dataframe(session).count() for session in [*sessions, *sessions]] == [20] * 6
    assert lake.prefetch().dataframe(spark).where("_table = 'db$t0'").agg(f.min("id")).collect()[0][0] == 30


def test_a_table_appended_to_while_the_job_runs_stays_pinned(spark: SparkSession, lake: Lake) -> None:
    first, last = lake.write("a", rows(0)), lake.write("z", rows(1))
    arriving = lake.prefetch().dataframe(spark, partitions=1).toLocalIterator()
    result = [next(arriving)]
    for location in (first, last):
        lance.write_dataset(rows(2), location, mode="append")
    result += arriving
    assert sorted(row["id"] for row in result) == list(range(20))


def test_tables_that_were_not_pinned_are_when_the_frame_is_made(spark: SparkSession, lake: Lake) -> None:
    location = lake.write("t", rows(0))
    locations = lake.prefetch(pin_versions=False)
    assert locations["db.t"].version is None
    frame = locations.dataframe(spark)
    lance.write_dataset(rows(1), location, mode="append")
    assert frame.count() == 10
    lake.namespace.declare_table(DeclareTableRequest(id=["db", "empty"]))
    with pytest.raises(InvalidTableStateError, match=r"1 of 2 could not be resolved: .*db\$empty .declared, nothing"):
        lake.prefetch(pin_versions=False).dataframe(spark)


def test_an_empty_table_and_deleted_rows_give_no_row(spark: SparkSession, lake: Lake) -> None:
    lake.write("none", rows(0).slice(0, 0))
    assert lake.prefetch().dataframe(spark).collect() == []
    lance.dataset(lake.write("some", rows(0))).delete("id < 4")
    assert lake.prefetch().dataframe(spark).count() == 6
    with pytest.raises(InvalidInputError, match="no tables, and therefore no columns; resolved 0/0"):
        Locations([], PrefetchReport(0)).dataframe(spark)


def test_secrets_reach_only_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, aws_secret_access_key="hush")
    lake.write("t", rows(0))
    locations = lake.prefetch()
    at = locations["db.t"]
    assert at.version is not None and at.rows is not None and at.fragments is not None
    entry = Entry(str(at.id), at.location, at.version, at.rows, at.fragments, at.storage_options)
    frame = locations.dataframe(spark)
    # A plan begins with its tables, so what hides them hides all of it.
    packed = Plan([entry], 1, "_table").encode()[:40]
    frame.createOrReplaceTempView("secretly")
    assert spark.sql("select * from secretly where id > 4").count() == 5
    rendered = [str(frame._jdf.queryExecution().toString()), repr(frame)]
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    rendered += [str(executions.apply(n).physicalPlanDescription()) for n in range(executions.size())]
    assert any("redacted" in text for text in rendered)
    for text in rendered:
        assert "hush" not in text and packed not in text
    spark.catalog.dropTempView("secretly")


@pytest.mark.parametrize(("seconds", "message"), [(120, r"of 1 tables expire in 1\d\d s"), (-5, "have expired")])
def test_storage_options_about_to_expire_are_warned_of(
    spark: SparkSession, tmp_path: Path, seconds: float, message: str
) -> None:
    lake = Lake(tmp_path, expires_at_millis=str(int((time.time() + seconds) * 1000)))
    lake.write("t", rows(0))
    with pytest.warns(UserWarning, match=message) as caught:
        frame = lake.prefetch().dataframe(spark)
    assert caught[0].filename == __file__
    assert frame.count() == 10


def test_locations_themselves_are_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path, region="eu", expires_at_millis="4000000000000")
    lake.write("t", rows(0))
    locations = lake.prefetch()
    frame = locations.to_dataframe(spark)
    assert frame.columns == locations.to_arrow().column_names
    (row,) = frame.withColumn("expires_at", f.unix_millis("expires_at")).collect()
    assert (row["names"], row["version"], row["rows"], row["expires_at"]) == (["db", "t"], 1, 10, 4000000000000)
    (row,) = locations.to_dataframe(spark, secrets=True).collect()
    assert row["storage_options"] == {"region": "eu", "expires_at_millis": "4000000000000"}


def test_a_frame_reads_where_a_table_is_now(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    old = lake.write("t", rows(0))
    new = shutil.copytree(old.removeprefix("file://"), tmp_path / "moved")
    locations = lake.prefetch()
    moved = [replace(at, location=str(new)) for at in locations.values()]
    shutil.rmtree(old.removeprefix("file://"))
    assert Locations(moved, locations.report).dataframe(spark).count() == 10


def test_wrong_uses_of_spark_name_the_right_call(spark: SparkSession, tmp_path: Path) -> None:
    with Namespace.connect("dir", {"root": str(tmp_path)}) as ns:
        ns.write("t", pa.table({"id": [1]}))
        locations = LocationResolver(ns).prefetch("t")
        wrong: Any = "a session"
        for use in (locations.dataframe, locations.to_dataframe):
            with pytest.raises(InvalidInputError, match=r"^spark: must be a SparkSession, not str; use "):
                use(wrong)
        # The first one registers the data source.
        assert locations.dataframe(spark).count() == 1
        with pytest.raises(AnalysisException, match=r"use LocationResolver.prefetch\(...\).dataframe\(spark\)"):
            spark.read.format("lance_ns").load().count()
        with pytest.raises(AnalysisException, match=r"use LocationResolver.write\(df, id, mode=...\)"):
            spark.range(1).write.format("lance_ns").mode("append").save()


def test_columns_are_chosen_and_ordered(spark: SparkSession, many: Locations) -> None:
    few = many.select(["db.t0", "db.t1"])
    assert few.dataframe(spark, columns=["x", "id"], table_column="from").columns == ["x", "id", "from"]
    for none in (None, ""):
        frame = few.dataframe(spark, columns=["id"], table_column=none)
        assert [row.asDict() for row in frame.where("id = 13").collect()] == [{"id": 13}]
    only_tables = few.dataframe(spark, columns=[])
    assert sorted(map(tuple, only_tables.groupBy("_table").count().collect())) == [("db$t0", 10), ("db$t1", 10)]


@pytest.mark.parametrize(
    ("columns", "table_column", "message"),
    [
        (["id", "nix"], "_table", r"columns: 'nix' is not in db\$t0 and 1 more; its columns are 'id', 's', 'x'"),
        (["id", "id"], "_table", "'id' is a duplicate"),
        ("id", "_table", r"use columns=\['id'\]"),
        ([], None, "must not be empty without a table_column"),
        (None, "ID", r"table_column 'ID': the tables have a column 'id'"),
    ],
)
def test_columns_that_cannot_be_are_refused(
    spark: SparkSession, many: Locations, columns: Any, table_column: str | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        many.select(["db.t0", "db.t1"]).dataframe(spark, columns=columns, table_column=table_column)


def test_tables_that_differ_are_named_before_any_job(spark: SparkSession, lake: Lake) -> None:
    for n in range(5):
        lake.write(f"t{n}", rows(n))
    lake.write("less", rows(5).drop_columns(["x"]))
    lake.write("more", rows(6).append_column("y", pa.array([True] * 10)))
    lake.write("other", rows(7).set_column(1, "s", pa.array(range(10), pa.int32())))
    locations = lake.prefetch()
    with pytest.raises(InvalidInputError) as caught:
        locations.dataframe(spark)
    assert str(caught.value) == (
        "3 of 8 tables differ from db$t0 and 4 more: db$less: column 'x' is missing; "
        "db$more: column 'y' is extra; db$other: column 's' is int32, not string. "
        "To go on, read the common columns with columns=['id'], read all columns with "
        "unify='by_name', or read each kind separately with locations.select(...)"
    )
    assert locations.dataframe(spark, columns=["id"]).count() == 80
    assert locations.select("db.t?").dataframe(spark).count() == 50


def test_different_tables_are_read_by_name(spark: SparkSession, lake: Lake) -> None:
    lake.write(
        "a", pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array([[1.0, 0.1]] * 2, pa.list_(pa.float32(), 2))})
    )
    lake.write(
        "b", pa.table({"x": [0.5], "id": pa.array([2**40], pa.int64()), "v": pa.array([[0.1]], pa.list_(pa.float64()))})
    )
    lake.write("c", pa.table({"id": [3], "d": pa.array([{"a": 1}], pa.struct([("a", pa.int8())]))}))
    lake.write("d", pa.table({"id": [4], "d": pa.array([{"a": 1000}], pa.struct([("a", pa.int64())]))}))
    locations = lake.prefetch()
    assert {id[1]: str(difference) for id, difference in locations.differences(["id", "x"]).items()} == {
        "a": "column 'id' is int32, not int64",
        "b": "column 'x' is extra",
    }
    frame = locations.dataframe(spark, unify="by_name", table_column=None)
    assert dict(frame.dtypes) == {"id": "bigint", "v": "array<double>", "x": "double", "d": "struct<a:bigint>"}
    rounded = pa.scalar(0.1, pa.float32()).as_py()
    expected = [
        (1, [1.0, rounded], None, None),
        (2, [1.0, rounded], None, None),
        (3, None, None, (1,)),
        (4, None, None, (1000,)),
        (2**40, [0.1], 0.5, None),
    ]
    assert frame.select("id", "v", "x", "d").orderBy("id").collect() == expected
    for filter, ids in (
        (f"id > 1 and id < {2**40}", [2, 3, 4]),
        ("x IS NULL and id <> 2", [1, 3, 4]),
        ("x = 0.5 or id = 1", [1, 2**40]),
        ("d.a = 1000", [4]),
        ("array_length(v) = 2", [1, 2]),
    ):
        frame = locations.dataframe(spark, ["id"], filter=filter, unify="by_name", table_column=None)
        assert [row["id"] for row in frame.orderBy("id").collect()] == ids
    with pytest.raises(InvalidInputError, match=r"use locations.select\(...\) or locations.where"):
        locations.dataframe(spark, ["id"], filter="_table = 'db$a'", unify="by_name")
    with pytest.raises(InvalidInputError, match="no type holds all values of column 's'"):
        lake.write("e", pa.table({"s": [1]}))
        lake.write("f", pa.table({"s": ["x"]}))
        lake.prefetch().dataframe(spark, unify="by_name")
    lake.write("g", pa.table({"ID": [1]}))
    with pytest.raises(InvalidInputError, match=r"the columns 'id' of .* and 'ID' of .* differ only in case"):
        lake.prefetch("db.a", "db.g").dataframe(spark, unify="by_name")


def test_tables_may_differ_in_what_spark_does_not_tell_apart(spark: SparkSession, lake: Lake) -> None:
    lake.write("a", pa.table({"id": [1], "s": pa.array(["x"]), "at": pa.array([0], pa.timestamp("us"))}))
    schema = pa.schema(
        [
            pa.field("at", pa.timestamp("ms"), nullable=False),
            pa.field("s", pa.large_string()),
            pa.field("id", pa.int64(), nullable=False),
        ],
        metadata={"from": "elsewhere"},
    )
    lake.write("b", pa.table([[1000], ["y"], [2]], schema=schema))
    locations = lake.prefetch().dataframe(spark, table_column=None).orderBy("id").collect()
    assert locations == [(1, "x", datetime(1970, 1, 1)), (2, "y", datetime(1970, 1, 1, 0, 0, 1))]


def test_types_spark_does_not_have_are_named(spark: SparkSession, lake: Lake) -> None:
    unfit = {"u": pa.array([1], pa.uint32()), "half": pa.array([[1.0]], pa.list_(pa.float16(), 1))}
    for n in range(2):
        lake.write(f"t{n}", pa.table({"id": [1], **unfit, "s": ["a"]}))
    locations = lake.prefetch()
    message = r"'u' \(uint32\), 'half' \(fixed_size_list.*halffloat.*\) of db\$t0 and 1 more: .* columns=\['id', 's'\]"
    with pytest.raises(InvalidInputError, match=message):
        locations.dataframe(spark)
    assert locations.dataframe(spark, columns=["id", "s"]).count() == 2


def test_values_arrive_as_they_were(spark: SparkSession, lake: Lake) -> None:
    day, moment = date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 0, 123456)
    utc = moment.replace(tzinfo=UTC)
    types: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
        "bool": (pa.bool_(), [True, False]),
        "tiny": (pa.int8(), [-128, 127]),
        "int": (pa.int32(), [-(2**31), 2**31 - 1]),
        "long": (pa.int64(), [-(2**63), 2**63 - 1]),
        "float": (pa.float32(), [0.5, float("inf")]),
        "double": (pa.float64(), [-0.0, 1e300]),
        "decimal": (pa.decimal128(20, 2), [Decimal("-123456789012345678.90"), Decimal("0.01")]),
        "text": (pa.string(), ["", "é\U0001f600"]),
        "large text": (pa.large_string(), ["a", "b"]),
        "code": (pa.dictionary(pa.int16(), pa.string()), ["red", "green"]),
        "bytes": (pa.large_binary(), [b"", b"\x00\xff"]),
        "fixed": (pa.binary(2), [b"ab", b"cd"]),
        "day": (pa.date32(), [day, date(1, 1, 1)]),
        "naive": (pa.timestamp("ns"), [moment, datetime(1969, 12, 31)]),
        "aware": (pa.timestamp("us", "UTC"), [utc, utc - timedelta(days=36500)]),
        "vector": (pa.list_(pa.float32(), 3), [[1.0, 2.0, 3.0], [0.0, -1.0, 0.5]]),
        "list": (pa.list_(pa.field("item", pa.string())), [["a", None], []]),
        "struct": (
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))]),
            [{"a": 1, "b": [2]}, {"a": 3, "b": []}],
        ),
    }
    for n in range(2):
        columns = {name: pa.array([values[n], None], type) for name, (type, values) in types.items()}
        lake.write(f"t{n}", pa.table(columns))
    frame = lake.prefetch().dataframe(spark, table_column="from")
    assert [field.dataType.simpleString() for field in frame.schema][13:16] == [
        "timestamp_ntz",
        "timestamp",
        "array<float>",
    ]
    # Spark's own Python side converts aware times to the machine's zone and drops the zone.
    frame = frame.withColumn("aware", f.unix_micros("aware"))
    result = {row["from"]: row.asDict(recursive=True) for row in frame.where("tiny is not null").collect()}
    for n in range(2):
        expected = {name: values[n] for name, (_, values) in types.items()}
        expected["aware"] = (expected["aware"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        actual = {name: bytes(v) if isinstance(v, bytearray) else v for name, v in result[f"db$t{n}"].items()}
        assert actual == {**expected, "from": f"db$t{n}"}
    nulls = frame.where("tiny is null").drop("from").collect()
    assert [set(row) for row in nulls] == [{None}, {None}]


def test_blobs_are_read_as_bytes_and_too_fine_times_are_not_truncated(spark: SparkSession, lake: Lake) -> None:
    schema = pa.schema([pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    lake.write("blobs", pa.table([[b"x" * 1000, b"y"]], schema=schema), data_storage_version="2.1")
    blobs = lake.prefetch().dataframe(spark, table_column=None).collect()
    assert sorted(bytes(row["b"]) for row in blobs) == [b"x" * 1000, b"y"]
    lake.write("t", pa.table({"at": pa.array([1_000_001], pa.timestamp("ns"))}))
    frame = lake.prefetch("db.t").dataframe(spark)
    with pytest.raises(PythonException, match=r"db\$t, version 1 .*column 'at' cannot be cast to timestamp\[us\]"):
        frame.collect()


def test_columns_of_any_name_are_read_and_filtered_if_lance_can(spark: SparkSession, lake: Lake) -> None:
    names = ["a b", "select", "é", "a/b", 'say "x"']
    lake.write("t", pa.table({**{name: [1, 2, 3] for name in names}, "s": ["a", "b", "b"]}))
    locations = lake.prefetch()
    for name in names:
        assert locations.dataframe(spark, filter=f"`{name}` > 1 and s = 'b'").count() == 2
        assert locations.dataframe(spark).where("s = 'a'").select(f"`{name}`").collect() == [(1,)]
    lake.write("tick", pa.table({"tick`": [1, 2], "s": ["a", "b"]}))
    locations = lake.prefetch("db.tick")
    with pytest.raises(InvalidInputError, match=r"'tick`' of db\$tick, because of the backtick .* columns=\['s'\]"):
        locations.dataframe(spark)
    assert locations.dataframe(spark, columns=["s"], filter="s = 'a'").count() == 1


async def test_code_of_the_explorer_reads_a_table(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write("t", rows(0))
    names: dict[str, Any] = {}
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns, serving(ns) as gateway:
        monkeypatch.setenv("LANCE_NS_TOKEN", gateway.token)
        await asyncio.to_thread(exec, snippets(["db", "t"], gateway.url)["Spark"], names)
        assert await asyncio.to_thread(names["rows"].count) == 10
