"""Declared tables without data, in contrast to written and dropped tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace

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
