"""The common columns and the filter of many tables, checked before any Spark job; needs PySpark, but not Java."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from lance_ns_async import Namespace, TableId
from lance_ns_async.fleet import sync
from lance_ns_async.spark import Location, LocationResolver, Locations, PrefetchReport, SparkEngine
from lance_ns_async.spark.read.dataframe import common_columns
from lance_ns_async.storage.scanning import Condition
from tests.contract.rest_sites import rest_on_pylance
from tests.integration.spark_lake import Lake
from tests.support.budget import with_usual
from tests.support.gateway import served
from tests.support.spark import SPARK

pytestmark = SPARK


def locate(**schemas: dict[str, pa.DataType]) -> Locations:
    at = [
        Location(TableId(["db", name]), f"/{name}", 1, 1, 1, schema=pa.schema(list(columns.items())))
        for name, columns in schemas.items()
    ]
    return Locations(at, PrefetchReport(len(at)))


def read(locations: Locations, columns: list[str] | None = None, **options: Any) -> tuple[StructType, Condition | None]:
    schema, condition = common_columns(locations.values(), columns, **{"table_column": "_table", **options})
    return StructType([it for it in schema if it.name != "_table"]), condition


ONE = locate(t={"id": pa.int64(), "s": pa.string(), "at": pa.timestamp("us"), "Big": pa.float64(), "u": pa.uint32()})


@pytest.mark.parametrize(
    "filter",
    [
        "id > 1 AND s = 'x'",
        "ID > 1",
        "big > 1.5 and S like 'a%'",
        "at > timestamp '2024-01-01 00:00:00'",
        "u > 3",
        "true",
        "s = 'now() ; _table'",
        'id in (1, 2) or s = "x"',
    ],
)
def test_valid_filters_are_kept_as_they_are(filter: str) -> None:
    condition = read(ONE, ["s"], filter=filter)[1]
    assert condition is not None and (condition.sql, condition.types) == (filter, None)


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (
            "idd > 1",
            r"filter 'idd > 1': no column 'idd'; did you mean 'id'\? The columns are 'id', 's', 'at', 'Big', 'u'$",
        ),
        ("nix > 1", r"no column 'nix'; The columns are 'id', 's'"),
        ("_table = 'db$t'", r"'_table' is not a column of the tables; use locations.select\(...\) or locations.where"),
        ("_rowid > 1", "_rowid is not supported, because it is not a column"),
        ("random() < 0.5", "random has another value in each task; use a literal"),
        ("at < now()", "now has another value"),
        ("", "must not be empty"),
        (" -- all", "must not be empty"),
        ("id > 1; drop", "must be one condition, without ';'"),
        ("id >", "Expected: an expression"),
        ("id", "does not return a boolean"),
        ("id = 1.5", "could not convert to literal of type 'Int64'"),
        ("at > 'soon'", "could not convert"),
        ("sum(id) > 1", "(?i)aggregate"),
        ("id > ?", "not valid in Lance's SQL"),
        ("(" * 50 + "id > 1" + ")" * 50, "brackets are nested more than 40"),
        ("id = 1" + " OR id = 1" * 10_001, "more than 10000 AND and OR"),
        (7, "must be a string"),
    ],
)
def test_invalid_filters_are_refused(filter: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        read(ONE, ["id"], filter=filter)
    assert len(str(caught.value)) < 1_000 and "/lance/rust/" not in str(caught.value)


def test_a_column_of_the_filter_must_be_the_same_in_all_tables() -> None:
    tables = locate(
        a={"id": pa.int64(), "n": pa.int32()},
        b={"id": pa.int64(), "n": pa.int64()},
        c={"id": pa.int64(), "n": pa.int64()},
        d={"id": pa.int64(), "date": pa.binary(), "n": pa.int64()},
    )
    # `date` is not a column of this filter.
    assert read(tables, ["id"], filter="id > 1 AND date '2024-01-01' < date '2024-01-02'")[1] is not None
    with pytest.raises(InvalidInputError) as caught:
        read(tables, ["id"], filter="n > 1")
    assert str(caught.value) == (
        "filter 'n > 1': 1 of 4 tables differ from db$b and 1 more in columns of the filter: db$a: column 'n' is "
        "int32, not int64. To go on, use unify='by_name', or read each kind separately with locations.select(...)"
    )
    with pytest.raises(InvalidInputError, match=r"db\$d: column 'date' is extra"):
        read(tables, ["id"], filter="`date` is null or id = 1")
    condition = read(tables, ["id"], filter=f"n > {2**40}", unify="by_name")[1]
    assert condition is not None and condition.types is not None
    assert condition.types == pa.schema([("n", pa.int64())])
    # Types of text need no common type.
    condition = read(locate(a={"s": pa.string()}, b={"s": pa.large_string()}), filter="s = 'x'")[1]
    assert condition is not None and condition.types is None


I8, I16, I32, I64, F32, F64 = pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()


@pytest.mark.parametrize(
    ("types", "result"),
    [
        ([I32, I64], "bigint"),
        ([I8, I16], "smallint"),
        ([I8, I64, I32], "bigint"),
        ([F32, F64], "double"),
        ([I16, F32], "float"),
        ([I32, F32], "double"),
        ([I8, F64], "double"),
        ([pa.decimal128(10, 2), pa.decimal128(9, 4)], "decimal(12,4)"),
        ([pa.timestamp("ms"), pa.timestamp("us")], "timestamp_ntz"),
        ([pa.string(), pa.large_string(), pa.null()], "string"),
        ([pa.list_(I32), pa.large_list(I64)], "array<bigint>"),
        ([pa.list_(F32, 3), pa.list_(F64)], "array<double>"),
        ([pa.struct([("a", I32)]), pa.struct([("a", I64)])], "struct<a:bigint>"),
        ([pa.map_(pa.string(), I32), pa.map_(pa.string(), F32)], "map<string,double>"),
        ([I64, F64], None),
        ([I64, F32], None),
        ([I32, pa.string()], None),
        ([I64, pa.decimal128(30, 2)], None),
        ([pa.decimal128(38, 0), pa.decimal128(38, 38)], None),
        ([pa.timestamp("us"), pa.timestamp("us", "UTC")], None),
        ([pa.date32(), pa.timestamp("us")], None),
        ([pa.bool_(), I8], None),
        ([pa.struct([("a", I32)]), pa.struct([("b", I32)])], None),
        ([pa.binary(), pa.string()], None),
    ],
)
def test_types_are_widened_without_loss(types: list[pa.DataType], result: str | None) -> None:
    for order in permutations(types):
        tables = locate(**{f"t{n}": {"id": I64, "v": type} for n, type in enumerate(order)})
        if result is None:
            message = (
                r"by_name': no type holds all values of column 'v' without loss: .* in db\$t.; .* columns=\['id'\]"
            )
            with pytest.raises(InvalidInputError, match=message):
                read(tables, unify="by_name")
            with pytest.raises(InvalidInputError, match="no type holds all values of column 'v'"):
                read(tables, ["id"], filter="v is null", unify="by_name")
        else:
            assert read(tables, unify="by_name")[0]["v"].dataType.simpleString() == result


def test_columns_of_all_tables_are_read_by_name() -> None:
    tables = locate(
        a={"z": I64, "id": I32}, b={"id": I64, "s": pa.string()}, c={"id": I64, "s": pa.string()}, d={"y": I8}
    )
    assert read(tables, unify="by_name")[0].simpleString() == "struct<id:bigint,s:string,z:bigint,y:tinyint>"
    assert read(tables, ["y", "id"], unify="by_name")[0].names == ["y", "id"]
    assert read(tables, [], unify="by_name")[0] == StructType()
    with pytest.raises(InvalidInputError, match=r"columns: 'nix' is not in db\$a and 3 more"):
        read(tables, ["id", "nix"], unify="by_name")
    with pytest.raises(InvalidInputError, match=r"no column 'nix'; The columns are 'z', 'id', 's', 'y'"):
        read(tables, ["id"], unify="by_name", filter="nix = 1")
    with pytest.raises(InvalidInputError, match="unify 'names': must be one of 'strict', 'by_name'"):
        read(tables, unify="names")
    with pytest.raises(InvalidInputError, match="the columns 'ID' and 'id' differ only in case"):
        read(locate(a={"ID": I64}, b={"id": I64}), unify="by_name")


def test_types_spark_lacks_are_refused_in_each_mode() -> None:
    tables = locate(a={"id": I64, "u": pa.uint32()}, b={"id": I64, "u": I64})
    for unify in ("strict", "by_name"):
        with pytest.raises(InvalidInputError, match=r"Spark has no type for 'u' \(uint32\) of db\$a"):
            read(tables, unify=unify)


def test_differences_are_those_from_most_tables() -> None:
    tables = locate(
        a={"id": I64, "s": pa.string()},
        b={"s": pa.large_string(), "id": I64},
        less={"id": I64},
        more={"id": I64, "s": pa.string(), "u": pa.uint32()},
        other={"id": I32, "s": pa.string()},
    )
    result = tables.differences()
    assert {str(id): str(difference) for id, difference in result.items()} == {
        "db$less": "column 's' is missing",
        "db$more": "column 'u' is extra",
        "db$other": "column 'id' is int32, not int64",
    }
    assert result[TableId(["db", "other"])].types == {"id": (I32, I64)}
    assert list(tables.differences(["s"])) == [TableId(["db", "less"])]
    assert tables.select("db.?").differences() == Locations([], PrefetchReport(0)).differences() == {}


SCHEMA = pa.schema({"n": pa.int64(), "day": pa.date32(), "region": pa.string()})
START = date(2026, 1, 1)
ROWS = pa.table(
    [range(60), [START + timedelta(days=n // 6) for n in range(60)], ["EU", "US", None] * 20], schema=SCHEMA
)
WHERE = "day >= date '2026-01-03' AND day < date '2026-01-05' AND region = 'EU'"
EXPECTED = [n for n in range(12, 24) if n % 3 == 0]


def test_only_partitions_that_may_match_are_resolved(spark: SparkSession, tmp_path: Path) -> None:
    with LocationResolver.connect("dir", {"root": str(tmp_path)}) as resolver:
        resolver.namespace.partition_by(["day", "region"], schema=SCHEMA)
        resolver.namespace.write_partitions(ROWS)
        locations = resolver.prefetch("**", where=WHERE)
        assert len(locations) == 2 and not locations.report.problems
        assert [location.rows for location in locations.values()] == [2, 2]
        rows = locations.dataframe(spark, ["n"], table_column=None, filter=WHERE).collect()
        assert sorted(row.n for row in rows) == EXPECTED

        # New rows are divided in another way, and the old ones stay where they are.
        resolver.namespace.partition_by(["month(day)", "bucket(4, n)"])
        resolver.namespace.write_partitions(ROWS)
        locations = resolver.prefetch("v2.**", where=f"{WHERE} AND n = 15")
        assert [id[0] for id in locations] == ["v2"]
        locations = resolver.prefetch("**", where=WHERE)
        assert sorted({id[0] for id in locations}) == ["v1", "v2"]
        rows = locations.dataframe(spark, ["n"], table_column=None, filter=WHERE).collect()
        assert sorted(row.n for row in rows) == sorted(EXPECTED * 2)
        assert len(resolver.prefetch("v1.**", where="day > date '2027-01-01'")) == 0


def test_a_version_in_the_manifest_is_not_ignored(tmp_path: Path) -> None:
    with LocationResolver.connect("dir", {"root": str(tmp_path)}) as resolver:
        resolver.namespace.partition_by(["region"], schema=SCHEMA)
        resolver.namespace.write_partitions(ROWS)
        lance.dataset(tmp_path / "__manifest").add_columns({"read_version": "cast(1 as bigint unsigned)"})
        with pytest.raises(UnsupportedOperationError, match="the manifest sets the version to read"):
            resolver.prefetch("**", where="region = 'EU'")


@pytest.fixture(params=with_usual(["pylance", "gateway"], "gateway"))
def resolver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocationResolver]:
    if request.param == "pylance":
        with rest_on_pylance(tmp_path) as site, LocationResolver.connect("rest", site.properties) as resolver:
            yield resolver
        return
    with served("dir", {"root": str(tmp_path)}) as gateway:
        headers = {f"header.{name}": value for name, value in gateway.headers.items()}
        with LocationResolver.connect("rest", {"uri": gateway.url, **headers}) as resolver:
            yield resolver


def test_tables_of_a_rest_server_are_written_read_and_maintained(
    spark: SparkSession, resolver: LocationResolver
) -> None:
    resolver.namespace.create_namespace({"id": ["sales"]})
    df = spark.range(0, 60, 1, 3).withColumn("name", f.concat(f.lit("t"), f.col("id") % 6))
    for outcome in ("created", "appended"):
        assert resolver.write_many(df, by="name", into="sales", mode="append", progress=False).counts == {outcome: 6}
    resolver.write(df, "sales.all")
    locations = resolver.prefetch("sales.*", on_error="raise")
    assert len(locations) == 7
    frame = locations.dataframe(spark)
    assert (frame.count(), frame.where("_table = 'sales$t5'").count()) == (180, 20)
    driver = resolver.namespace
    assert isinstance(driver, Namespace)
    assert sync.maintain(driver, "sales.t*", engine=SparkEngine(spark)).counts == {"maintained": 6}
    resolver.forget("sales.t*")
    assert resolver.prefetch("sales.*").dataframe(spark, filter="id >= 30").count() == 90


def rows(number: int, **columns: Any) -> pa.Table:
    """Returns rows whose vectors have equal distances in several tables."""
    vectors = pa.array([[float(n % 4), float(number % 3)] for n in range(8)], pa.list_(pa.float32(), 2))
    words = [f"word{n % 3}" for n in range(8)]
    return pa.table({"id": range(8), "word": words, "vector": vectors, **columns})


def test_the_rows_are_those_of_a_search_in_this_process(spark: SparkSession, lake: Lake) -> None:
    for number in range(9):
        lake.write(f"t{number}", rows(number, **({"more": ["x"] * 8} if number == 4 else {})))
        lake.namespace.create_table_scalar_index({"id": ["db", f"t{number}"], "column": "word", "index_type": "FTS"})
    lake.write("other", pa.table({"id": [1]}))
    gone = lake.write("gone", rows(0))
    locations = lake.prefetch()
    shutil.rmtree(gone.removeprefix("file://"))
    both = {"vector": [1.0, 1.0], "full_text": "word2"}
    for arguments in ({"vector": [1.0, 1.0], "filter": "id > 1"}, {"full_text": "word2"}, both):
        here = lake.namespace.search_many("db.*", k=7, **arguments)
        there = locations.search(spark, k=7, partitions=3, **arguments)
        assert there.rows == here.rows and there.rows.num_rows == 7
        assert set(there.errors) == {TableId(["db", "other"]), TableId(["db", "gone"])}
        assert set(there.searched) == set(here.searched)
    few = locations.select("db.t1").search(spark, vector=[1.0, 1.0], k=2, columns=["id"], with_row_id=True)
    assert few.rows.column_names == ["id", "_rowid", "_distance", "_table"] and few.errors == {}
    lake.namespace.write(["db", "t2"], rows(2, more=[1] * 8), mode="overwrite")
    with pytest.raises(InvalidInputError, match=r"columns: .* no common type"):
        lake.prefetch("db.t2", "db.t4").search(spark, vector=[1.0, 1.0], k=20, partitions=1)


def test_invalid_arguments_are_refused_before_any_job(spark: SparkSession, lake: Lake) -> None:
    lake.write("t", rows(0))
    locations = lake.prefetch()
    invalid: dict[str, dict[str, Any]] = {
        "vector: pass a vector": {},
        "partitions 0": {"vector": [1.0], "partitions": 0},
        "k 0": {"vector": [1.0], "k": 0},
    }
    for message, arguments in invalid.items():
        with pytest.raises(InvalidInputError, match=message):
            locations.search(spark, **arguments)
