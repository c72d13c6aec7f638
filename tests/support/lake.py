"""A directory catalog with one namespace, for tests of operations on rows; and rows in the formats of the spec."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import CreateNamespaceRequest, CreateTableRequest, DescribeTableRequest

from lance_ns_async import AsyncNamespace

ID = ["n", "t"]

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "text": ["red apple", "green pear", None],
        "v": pa.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], pa.list_(pa.float32(), 2)),
    }
)


def stream(rows: pa.Table) -> bytes:
    """Returns the rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def in_file(data: object) -> list[dict[str, Any]]:
    """Returns the rows of an Arrow IPC file."""
    assert isinstance(data, bytes)
    with pa.ipc.open_file(data) as reader:
        result: list[dict[str, Any]] = reader.read_all().to_pylist()
    return result


@dataclass
class Lake:
    """An open namespace, with tables in `n`."""

    ns: AsyncNamespace
    root: Path

    async def create(self, id: Sequence[str] = ID, rows: pa.Table = ROWS, **fields: Any) -> None:
        await self.ns.create_table(CreateTableRequest(id=list(id), **fields), stream(rows))

    async def location(self, id: Sequence[str] = ID) -> str:
        result = (await self.ns.describe_table(DescribeTableRequest(id=list(id)))).location
        assert result is not None
        return result

    async def dataset(self, id: Sequence[str] = ID, version: int | str | None = None) -> Any:
        """Opens the dataset without this package."""
        return lance.dataset(await self.location(id), version=version)

    async def values(self, column: str, version: int | str | None = None) -> list[Any]:
        """Returns the sorted values of a column."""
        result: list[Any] = (await self.dataset(version=version)).to_table()[column].to_pylist()
        return sorted(result)

    def left(self) -> list[str]:
        """Returns the content of the directory, except for the catalog's own manifest."""
        return sorted(path.name for path in self.root.iterdir() if path.name != "__manifest")


@asynccontextmanager
async def lake(root: Path, properties: Mapping[str, str] | None = None) -> AsyncIterator[Lake]:
    """Provides an empty lake."""
    async with AsyncNamespace.connect("dir", {"root": str(root), **(properties or {})}) as ns:
        await ns.create_namespace(CreateNamespaceRequest(id=["n"]))
        yield Lake(ns, root)
