"""Cleanup after a process that was killed during its first write to a name."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from lance_namespace import (
    CountTableRowsRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    ListTablesRequest,
)
from lance_namespace.errors import TableAlreadyExistsError, TableNotFoundError

from lance_ns_async import AsyncNamespace
from tests.contract.conftest import Home

LOST, ROWS = pa.table({"id": [1, 2]}), pa.table({"id": [7, 8, 9]})


@pytest.fixture
async def killed(ns: AsyncNamespace, home: Home) -> list[str]:
    """A declared table with data files that belong to no version."""
    id = home.table("t")
    location = (await ns.declare_table(DeclareTableRequest(id=id))).location
    assert location is not None
    write_fragments(LOST, location, mode="create")
    return id


async def test_the_table_is_there_and_has_no_rows(ns: AsyncNamespace, home: Home, killed: list[str]) -> None:
    assert (await ns.list_tables(ListTablesRequest(id=list(home.id)))).tables == ["t"]
    assert await ns.exists(killed)
    assert (await ns.describe_table(DescribeTableRequest(id=killed))).location
    with pytest.raises(TableNotFoundError, match="there is no version: nothing was written, or the data was removed"):
        await ns.count_table_rows(CountTableRowsRequest(id=killed))
    with pytest.raises(TableNotFoundError, match="there is no version: nothing was written, or the data was removed"):
        await ns.open(killed)
    with pytest.raises(TableAlreadyExistsError):
        await ns.write(killed, ROWS)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
async def test_the_rows_are_written_again(ns: AsyncNamespace, killed: list[str], mode: Any) -> None:
    written = await ns.write(killed, ROWS, mode=mode)
    assert (written.version, written.to_table()) == (1, ROWS)


async def test_the_name_is_free_after_a_drop(ns: AsyncNamespace, killed: list[str]) -> None:
    await ns.drop_table(DropTableRequest(id=killed))
    assert not await ns.exists(killed)
    written = await ns.write(killed, ROWS)
    assert lance.dataset(written.uri).to_table() == ROWS
