"""Partitions in Spark: a condition leaves out partitions before planning, and no row that matches it."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import UnsupportedOperationError
from pyspark.sql import SparkSession

from lance_ns_async.spark import LocationResolver
from tests.support.spark_sessions import SPARK

pytestmark = SPARK

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
