"""Declared tables without data, in contrast to written and dropped tables."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import PermissionDeniedError, TableNotFoundError

from lance_ns_async import AsyncNamespace
from tests.fakes.s3 import FakeS3

ROWS = pa.table({"id": [1]})


@pytest.fixture
async def ns(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """Provides a namespace with a declared and a written table in two namespaces and at the root."""
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as opened:
        for home in ([], ["a"], ["a", "b"]):
            if home:
                await opened.create_namespace({"id": home})
            await opened.declare_table({"id": [*home, "declared"]})
            await opened.write([*home, "written"], ROWS)
        yield opened


async def test_a_listing_of_all_can_exclude_them(ns: AsyncNamespace) -> None:
    every = ["declared", "written", "a$declared", "a$written", "a$b$declared", "a$b$written"]
    assert (await ns.list_all_tables({"id": []})).tables == every
    assert (await ns.list_all_tables({"id": [], "include_declared": True})).tables == every
    assert (await ns.list_all_tables({"id": [], "include_declared": False})).tables == every[1::2]
    first = await ns.list_all_tables({"id": [], "include_declared": False, "limit": 2})
    rest = {"id": [], "include_declared": False, "limit": 2, "page_token": first.page_token}
    assert [*first.tables, *(await ns.list_all_tables(rest)).tables] == every[1::2]
    assert (await ns.list_tables({"id": ["a"], "include_declared": False})).tables == ["written"]


@pytest.mark.parametrize("detailed", [None, False, True])
async def test_a_describe_says_which_it_is(ns: AsyncNamespace, detailed: bool | None) -> None:
    async def describe(name: str) -> tuple[bool | None, int | None]:
        request = DescribeTableRequest(id=["a", name], check_declared=True, load_detailed_metadata=detailed)
        response = await ns.describe_table(request)
        return response.is_only_declared, response.version

    assert await describe("declared") == (True, None)
    assert await describe("written") == (False, 1 if detailed else None)


async def test_operations_on_rows_say_why_there_are_none(ns: AsyncNamespace) -> None:
    message = (
        r"^Table not found: a\$declared \(at .*: there is no version: nothing was written, or the data was removed\)$"
    )
    with pytest.raises(TableNotFoundError, match=message):
        await ns.count_table_rows({"id": ["a", "declared"]})


async def test_a_drop_that_the_storage_refuses_says_where_the_data_is() -> None:
    with FakeS3() as server:
        storage = {f"storage.{key}": value for key, value in server.options.items()}
        async with AsyncNamespace.connect("dir", {"root": "s3://lake/x", **storage}) as ns:
            await ns.create_namespace({"id": ["a"]})
            location = (await ns.write(["a", "written"], ROWS)).uri
            server.fail(403, times=None, match=r"POST /lake\?delete")
            message = rf"no longer registered; its remaining data is at {re.escape(location)}"
            with pytest.raises(PermissionDeniedError, match=message):
                await ns.drop_table({"id": ["a", "written"]})
            assert not await ns.exists(["a", "written"])
