"""User code that must type-check; nothing runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_type

import pyarrow as pa
from lance_namespace import DescribeTableRequest, DescribeTableResponse, LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, BulkResult, Call, DirNamespace, Namespace, Policy, Table, TableId
from lance_ns_async.spark import LocationResolver


async def in_a_service(rows: pa.Table) -> BulkResult[Table]:
    """Calls the async namespace with dicts, models, ids and tuples."""
    async with AsyncNamespace.connect("dir", {"root": "lake"}, policy=Policy(max_in_flight=8)) as ns:
        await ns.create_namespace({"id": ["sales"], "mode": "exist_ok"})
        await ns.write(["sales", "orders"], rows, mode="append")
        response = await ns.describe_table(DescribeTableRequest(id=["sales", "orders"]))
        assert_type(response, DescribeTableResponse)
        assert_type(await ns.exists(("sales", "orders")), bool)
        async for id in ns.iter_tables(["sales"]):
            assert_type(id, TableId)
        described = await ns.describe_tables([["sales", "orders"], TableId(["sales", "customers"])])
        assert_type(described.tables, Mapping[TableId, Table])
        assert_type(described.errors, Mapping[TableId, LanceNamespaceError])
        return described.raise_for_errors()


def in_a_script() -> list[str]:
    """Calls the sync namespace."""
    with DirNamespace(root="lake") as ns:
        ids = [id for id in ns.iter_tables() if ns.exists(id)]
        assert_type(ids, list[TableId])
        return [table.location for table in ns.describe_tables(ids).raise_for_errors().tables.values()]


def other_libraries(ns: Namespace) -> LanceNamespace:
    """Passes the sync namespace to a library that accepts any namespace."""
    return ns


def time_calls(ns: Namespace, seconds: dict[str, float]) -> None:
    """Adds the time of each remote call to those of its operation."""

    def observe(call: Call) -> None:
        seconds[call.operation] = seconds.get(call.operation, 0.0) + call.seconds

    with ns.observe(observe):
        ns.list_tables({"id": []})


def on_the_driver() -> int:
    """Resolves tables for Spark."""
    with LocationResolver.connect("dir", {"root": "lake"}) as resolver:
        return len(resolver.prefetch("sales.orders_*"))
