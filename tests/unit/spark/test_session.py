"""Names of scans and jobs for Spark's user interface."""

from __future__ import annotations

import pytest

from lance_ns_async.model import TableId
from lance_ns_async.spark.session import label


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        ([("sales", "day1")], "lance-ns: read sales.day1"),
        ([("sales", f"day{n}") for n in range(1000)], "lance-ns: read 1,000 tables of sales.*"),
        ([("a", "b", "t"), ("a", "c", "t")], "lance-ns: read 2 tables of a.**"),
        ([("a", "b", "t"), ("a", "b", "c", "t")], "lance-ns: read 2 tables of a.b.**"),
        ([("a", "t"), ("b", "t")], "lance-ns: read 2 tables of **"),
        ([("t",), ("u",)], "lance-ns: read 2 tables of *"),
        ([("a/b\n", 'é "x"')], "lance-ns: read a_b_.é _x_"),
        ([("x" * 200, "t")], f"lance-ns: read {'x' * 100}..."),
    ],
)
def test_tables_are_named_by_their_namespace(ids: list[tuple[str, ...]], name: str) -> None:
    assert label("read", [TableId(id) for id in ids]) == name
