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
from lance_ns_async.fleet.run import Report

ID = ["n", "t"]

ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "text": ["red apple", "green pear", None],
        "v": pa.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], pa.list_(pa.float32(), 2)),
    }
)


def stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())


def in_file(data: object) -> list[dict[str, Any]]:
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
        return sorted((await self.dataset(version=version)).to_table()[column].to_pylist())

    def left(self) -> list[str]:
        """Returns the content of the directory, except for the catalog's own manifest."""
        return sorted(path.name for path in self.root.iterdir() if path.name != "__manifest")


@asynccontextmanager
async def lake(root: Path, properties: Mapping[str, str] | None = None) -> AsyncIterator[Lake]:
    async with AsyncNamespace.connect("dir", {"root": str(root), **(properties or {})}) as ns:
        await ns.create_namespace(CreateNamespaceRequest(id=["n"]))
        yield Lake(ns, root)


def make_file(root: Path, path: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def make_table(root: Path, path: str, manifest: str = "18446744073709551614.manifest") -> None:
    """Creates a folder with the files of a table, whose manifest and data are empty."""
    for name in (f"_versions/{manifest}", "_transactions/0-1.txn", "data/1.lance"):
        make_file(root, f"{path}/{name}")


def make_traps(root: Path) -> None:
    """Creates folders that a discovery must not treat as tables."""
    make_table(root, "traps/outer.lance")
    make_table(root, "traps/outer.lance/inner.lance")
    make_table(root, "traps/outer.lance/tree/branch")
    make_file(root, "traps/outer.lance/_indices/1/_versions/1.manifest")
    (root / "traps/empty.lance/_versions").mkdir(parents=True)
    (root / "traps/nothing.lance").mkdir()
    make_file(root, "traps/staged/_versions/1.manifest-8f14")
    make_file(root, "traps/detached/_versions/d1.manifest")
    make_file(root, "traps/detached/tree/branch/_versions/1.manifest")
    make_table(root, "traps/.lance-ns-dropped-1/t.lance")
    make_table(root, "traps/_temporary/t.lance")
    make_file(root, "traps/parquet/day=1/part-0.parquet")
    (root / "traps/link").symlink_to(root / "traps/outer.lance", target_is_directory=True)


def table_counts(report: Report) -> dict[str, int]:
    """Returns the number of tables by outcome, without the rows about what a target does not keep."""
    return {outcome: count for outcome, count in report.counts.items() if outcome != "not kept"}
