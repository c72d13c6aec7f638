"""Partitions: a directory is divided, and every other catalog says that it cannot be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError

from lance_ns_async import AsyncNamespace
from tests.contract.conftest import Home
from tests.contract.site import Site
from tests.support.lake import ROWS


async def test_a_catalog_has_partitions_or_says_that_it_has_none(ns: AsyncNamespace, site: Site, home: Home) -> None:
    await ns.write(home.table("t"), ROWS)
    # The directory has the home, so that it cannot be divided.
    kind: type[Exception] = UnsupportedOperationError
    message = "only a directory catalog has partitions; connect with 'dir'"
    if site.can.has_partitions:
        kind, message = InvalidInputError, "this directory has no partitions"
    with pytest.raises(kind, match=message):
        await ns.list_partitions("id = 1")
    with pytest.raises(kind, match=message):
        await ns.open_partitions()
    with pytest.raises(kind, match=message):
        await ns.write_partitions(ROWS)
    with pytest.raises(kind, match=message):
        async for _ in ns.scan_partitions():
            pass
    with pytest.raises(kind):
        await ns.partition_by(["id"], schema=pa.schema({"id": pa.int64()}))
    assert (await ns.open(home.table("t"))).count_rows() == ROWS.num_rows
