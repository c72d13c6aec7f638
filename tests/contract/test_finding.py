"""`find` gives the same results on every catalog."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet import Conditions
from lance_ns_async.fleet.table_search import find
from tests.contract.conftest import Parent
from tests.contract.site import Site


@pytest.fixture
async def namespace(ns: AsyncNamespace, site: Site) -> AsyncNamespace:
    if not isinstance(ns, AsyncNamespace):
        pytest.skip("the functions take an AsyncNamespace")
    return ns


async def test_tables_are_found_by_their_content(namespace: AsyncNamespace, parent: Parent) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.0] * 24, pa.float32()), 8)
    await namespace.write(parent.table("vectors"), pa.table({"id": range(3), "vec": vectors}))
    await namespace.write(parent.table("rows"), pa.table({"id": range(5)}))
    await namespace.declare_table({"id": parent.table("declared")})
    everything = [*parent.id, "*"]
    for where, names in (
        (None, ["rows", "vectors"]),
        (Conditions(columns=["vec:vector[8]"]), ["vectors"]),
        (Conditions(columns=["id:int64"], min_rows=4), ["rows"]),
        (Conditions(no_index=["id"], older_than="1d"), []),
    ):
        report = await find(namespace, ".".join(everything), where, sort="id")
        assert [row.id for row in report.having("match")] == parent.tables(*names) and not report.problems
    assert report.counters["without data"] == 1
