"""Search of many tables by Spark: the rows and the errors of a search in this process."""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError
from pyspark.sql import SparkSession

from lance_ns_async import TableId
from tests.integration.spark_lake import Lake
from tests.support.spark_sessions import SPARK

pytestmark = SPARK


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "vector: pass a vector"),
        ({"vector": [1.0], "partitions": 0}, "partitions 0"),
        ({"vector": [1.0], "k": 0}, "k 0"),
    ],
)
def test_invalid_arguments_are_refused_before_any_job(
    spark: SparkSession, lake: Lake, arguments: dict[str, Any], message: str
) -> None:
    lake.write("t", rows(0))
    locations = lake.prefetch()
    with pytest.raises(InvalidInputError, match=message):
        locations.search(spark, **arguments)
