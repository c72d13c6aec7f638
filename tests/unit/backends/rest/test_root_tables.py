"""Tables at the root of pylance's own server, which spells their locations in two ways."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance.namespace import RestAdapter

from lance_ns_async import AsyncNamespace

ROWS = pa.table({"x": [1, 2]})


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    root = tmp_path / "with space"
    root.mkdir()
    with RestAdapter("dir", {"root": str(root)}, port=0) as server:
        async with AsyncNamespace.connect("rest", {"uri": f"http://127.0.0.1:{server.port}"}) as ns:
            yield ns


async def test_a_table_at_the_root_is_created_and_replaced(namespace: AsyncNamespace) -> None:
    """The server declares it at `file:///x/t.lance`, and describes it at `/x/t.lance`."""
    await namespace.write(["t"], ROWS)
    await namespace.write(["t"], ROWS, mode="append")
    await namespace.write(["t"], ROWS, mode="overwrite")
    assert (await namespace.open(["t"])).to_table().equals(ROWS)
    await namespace.drop_table({"id": ["t"]})
    assert not await namespace.exists(["t"])
