"""Filters that Spark hands over and Lance could not bear: Spark applies them itself."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import EqualTo, Filter, In, Not

from lance_ns_async.spark.read.filters import sql
from lance_ns_async.tables.sql_bounds import Texts

pytestmark = pytest.mark.integration

ID = ("id",)


def test_long_lists_are_passed_to_lance_up_to_its_limits() -> None:
    condition = sql(In(ID, tuple(range(100_000))), ["id"])
    assert condition is not None
    Texts({"filter": condition}).check()
    assert sql(In(ID, tuple(range(100_001))), ["id"]) is None
    assert sql(In(ID, tuple("x" * 1_000 for _ in range(2_000))), ["id"]) is None
    assert sql(EqualTo(ID, "x" * (1 << 20)), ["id"]) is None


def test_nested_not_is_passed_to_lance_up_to_its_limits() -> None:
    filter: Filter = EqualTo(ID, 1)
    conditions = []
    for _ in range(20):
        conditions.append(sql(filter, ["id"]))
        filter = Not(filter)
    for condition in conditions[:9]:
        assert condition is not None
        Texts({"filter": condition}).check()
    assert conditions[9:] == [None] * 11
