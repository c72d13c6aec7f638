"""Catalogs for the watch: fakes in a separate process, and tables with data on the local disk."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import lance
import pyarrow as pa

from benchmarks.catalogs.sites import prefer_fast_loop
from benchmarks.support.progress import progress
from lance_ns_async import AsyncNamespace, NamespaceId, TableId

CATALOGS = ("dir", "iceberg", "hive3", "glue", "polaris", "unity")
NAMESPACES = 10
"""Number of namespaces over which the tables are distributed."""
_IN_CATALOGS = {"hive3", "polaris", "unity"}
"""Implementations whose namespaces of tables are in a catalog."""
_AT_ONCE = 5_000


@contextmanager
def opened(impl: str, folder: Path, endpoint: str | None) -> Iterator[Mapping[str, str]]:
    """Provides the properties of a catalog: of the one at the endpoint, or of a fake in another process."""
    if impl == "dir":
        yield {"root": str(folder)}
        return
    if endpoint is not None:
        yield {"uri" if impl == "hive3" else "endpoint": endpoint, "root": folder.as_uri()}
        return
    context = multiprocessing.get_context("spawn")
    ours, other = context.Pipe()
    process = context.Process(target=_serve, args=(other, impl, folder))
    process.start()
    other.close()
    try:
        with ours:
            yield ours.recv()
    finally:
        process.join()


def _serve(pipe: Connection, impl: str, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_fast_loop()
    with _fake(impl, folder) as properties:
        pipe.send({"root": folder.as_uri(), **properties})
        with suppress(EOFError):
            pipe.recv()


@contextmanager
def _fake(impl: str, folder: Path) -> Iterator[Mapping[str, str]]:
    from tests.fakes.hive3 import FakeHive
    from tests.fakes.iceberg import FakeIceberg
    from tests.servers.catalogs import CATALOGS as SERVERS

    match impl:
        case "iceberg":
            with FakeIceberg() as iceberg:
                yield {"endpoint": iceberg.endpoint}
        case "hive3":
            with FakeHive(folder / "hive") as hive:
                yield {"uri": hive.uri}
        case _:
            with SERVERS[impl](folder) as properties:
                yield properties


async def fill(ns: AsyncNamespace, impl: str, folder: Path, tables: int) -> Sequence[NamespaceId]:
    """Registers tables of one version; returns their namespaces."""
    parent = NamespaceId(["lake"] if impl in _IN_CATALOGS else [])
    if impl == "hive3":
        await ns.create_namespace({"id": list(parent)}, mode="ExistOk")
    namespaces = [parent.child(f"watch_{number}") for number in range(NAMESPACES)]
    for namespace in namespaces:
        await ns.create_namespace({"id": list(namespace)})
    lance.write_dataset(pa.table({"id": [1]}), folder / "first")
    ids = [namespaces[number % NAMESPACES].table(f"t{number:06}") for number in range(tables)]
    for start in range(0, tables, _AT_ONCE):
        progress(f"{impl}: register {start:,}/{tables:,}")
        requests = [{"id": list(id), "location": _copy(folder, id, impl)} for id in ids[start : start + _AT_ONCE]]
        (await ns.register_tables(requests)).raise_for_errors()
    return namespaces


async def clear(ns: AsyncNamespace, namespaces: Sequence[NamespaceId]) -> None:
    """Deregisters all tables of the namespaces, and drops these."""
    for namespace in namespaces:
        async for id in ns.iter_tables(namespace):
            await ns.deregister_table({"id": list(id)})
        await ns.drop_namespace({"id": list(namespace)})


def _copy(folder: Path, id: TableId, impl: str) -> str:
    """Creates the files of a table as links to those of the first one; returns the location."""
    place = Path("data", id.parent.name, id.name)
    shutil.copytree(folder / "first", folder / place, copy_function=os.link)
    return str(place) if impl == "dir" else (folder / place).as_uri()
