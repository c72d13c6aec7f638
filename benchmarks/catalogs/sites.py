"""The measured catalogs, filled with tables: a real Hive Metastore, and fakes of the other services in processes."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection
from operator import itemgetter
from pathlib import Path
from typing import Any

LATENCY = 0.02
"""Latency of the fakes of Polaris and Unity Catalog, in seconds."""

IN_FLIGHT = 64
"""Maximum number of our client's concurrent requests to them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """One namespace full of tables, those of other formats spread evenly among the Lance tables."""

    namespace: tuple[str, ...]
    tables: int
    others: int
    root: str
    """The root of the tables' locations."""

    def names(self) -> Iterator[tuple[str, bool]]:
        """Yields the name of each table, in order, and whether it is a Lance table."""
        total = self.tables + self.others
        for number in range(total):
            is_lance = number * self.tables // total != (number + 1) * self.tables // total
            yield f"table_{number:06}", is_lance

    def lance(self) -> list[str]:
        """Returns the names of the Lance tables, in order."""
        return [name for name, is_lance in self.names() if is_lance]

    def some(self, count: int) -> list[str]:
        """Returns a number of Lance tables, evenly distributed."""
        names = self.lance()
        return [names[number * len(names) // count] for number in range(min(count, len(names)))]

    def location(self, name: str) -> str:
        """Returns the location of a table."""
        return f"{self.root}/{name}.lance"


LAKE = "s3://bench-lake/warehouse"
HIVE_CONNECTIONS = 4
UNITY_PAGE = 100
AT_ONCE = {"max_in_flight": str(IN_FLIGHT)}


@dataclass(frozen=True, slots=True)
class Site:
    """The access to one catalog full of tables, for our client and for the peer."""

    impl: str
    properties: Mapping[str, str]
    extent: Extent
    peer_properties: Mapping[str, str]
    peer_namespace: tuple[str, ...]

    def ideal(self, task: str) -> float | None:
        """Returns the seconds that the latency alone takes; None if there is no latency or it is unknown."""
        match self.impl, task:
            case "polaris", "describe all":
                return self.extent.tables * LATENCY / IN_FLIGHT
            case "unity", "describe all" | "list":
                return (self.extent.tables + self.extent.others) / UNITY_PAGE * LATENCY
        return None


class Served:
    """A fake service in another process, controlled by a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.properties: dict[str, str] = self._answer()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Returns the value of a method or a property of the fake."""
        self._pipe.send((name, arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise RuntimeError("the process of the fake service has ended; its output contains the reason") from None


@contextmanager
def served(impl: str, extent: Extent) -> Iterator[Served]:
    """Runs the fake of a catalog with its tables while the context is open."""
    context = multiprocessing.get_context("spawn")
    ours, other = context.Pipe()
    process = context.Process(target=serve, args=(other, impl, extent))
    process.start()
    other.close()
    try:
        with ours:
            yield Served(ours)
    finally:
        process.join()


def serve(pipe: Connection, impl: str, extent: Extent) -> None:
    """Serves a fake, with a latency for each request, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_fast_loop()
    server: Any = {"polaris": fill_polaris, "unity": fill_unity}[impl](extent)
    with server:
        server.delay(LATENCY)
        pipe.send(server.properties)
        while True:
            try:
                name, arguments = pipe.recv()
            except EOFError:
                return
            found = getattr(server, name)
            pipe.send(found(*arguments) if callable(found) else found)


def fill_polaris(extent: Extent) -> Any:
    """Returns a fake of Apache Polaris with the tables; the others are generic tables of another format."""
    from tests.fakes.polaris import FakePolaris

    server = FakePolaris()
    catalog, *levels = extent.namespace
    for name, is_lance in extent.names():
        other: dict[str, Any] = {} if is_lance else {"format": "csv", "properties": {}}
        server.add_table(catalog, levels, name, base_location=extent.location(name), **other)
    return server


def fill_unity(extent: Extent) -> Any:
    """Returns a fake of Unity Catalog with the tables."""
    from tests.fakes.unity import FakeUnity

    catalog, schema = extent.namespace
    server = FakeUnity(catalog=catalog)
    for name, is_lance in extent.names():
        other: dict[str, Any] = {} if is_lance else {"data_source_format": "CSV", "properties": {}}
        server.add_table(catalog, schema, name, location=extent.location(name), **other)
    return server


def prefer_fast_loop() -> None:
    """Uses uvloop for the fake if it is installed, so that the server's speed does not limit the client."""
    if importlib.util.find_spec("uvloop"):
        asyncio.set_event_loop_policy(importlib.import_module("uvloop").EventLoopPolicy())


@contextmanager
def hive3(tables: int, others: int) -> Iterator[Site]:
    """Provides a real Hive Metastore 3.1.3 with the tables in a catalog other than its default one."""
    from benchmarks.catalogs.hive_seed import seed
    from tests.servers.hive import hive

    with tempfile.TemporaryDirectory(prefix="lance-ns-bench-") as directory, hive(Path(directory)) as server:
        lake = f"file:{server.warehouse}/lakecat"
        extent = Extent(("lakecat", "big"), tables, others, f"{lake}/big.db")
        seed(server.uri, extent, lake)
        properties = {"uri": server.uri, "client.pool-size": str(HIVE_CONNECTIONS)}
        # The peer ignores the catalog of an id, but the metastore itself accepts it in the name of the database.
        yield Site("hive3", properties, extent, {"uri": server.uri}, ("lakecat", "@lakecat#big"))


@contextmanager
def glue(tables: int, others: int) -> Iterator[Site]:
    """Provides moto with Glue's catalogs and pages, in a separate process."""
    from tests.fakes.glue import LANCE, FakeGlue

    columns = {"id": "bigint", "text": "string", "vector": "array<float>"}
    extent = Extent(("big",), tables, others, "s3://bucket/big")
    with FakeGlue() as server:
        server.add_database("", "big")
        # moto lists tables in the order of their creation, so the other tables must be created among the Lance tables.
        for is_lance, some in groupby(extent.names(), itemgetter(1)):
            parameters = LANCE if is_lance else {"classification": "csv"}
            server.add_tables("", "big", [name for name, _ in some], parameters=parameters, columns=columns)
        peer = {key: value for key, value in server.properties.items() if key != "sts_endpoint"}
        yield Site("glue", server.properties, extent, peer, ("big",))


@contextmanager
def polaris(tables: int, others: int) -> Iterator[Site]:
    """Provides our fake of Apache Polaris, with the latency of a network."""
    extent = Extent(("lake", "big"), tables, others, f"{LAKE}/big")
    with served("polaris", extent) as server:
        told = server.properties
        peer = {"polaris.endpoint": told["endpoint"], "polaris.auth_token": server.ask("token")}
        yield Site("polaris", {**told, **AT_ONCE}, extent, peer, extent.namespace)


@contextmanager
def unity(tables: int, others: int) -> Iterator[Site]:
    """Provides our fake of Unity Catalog, with the latency of a network."""
    extent = Extent(("main", "big"), tables, others, f"{LAKE}/big")
    with served("unity", extent) as server:
        told = server.properties
        yield Site("unity", {**told, **AT_ONCE}, extent, {"unity.endpoint": told["endpoint"]}, extent.namespace)


SITES: dict[str, Callable[[int, int], AbstractContextManager[Site]]] = {
    "glue": glue,
    "hive3": hive3,
    "polaris": polaris,
    "unity": unity,
}
"""The catalogs by name; each is filled with a number of Lance tables and of tables of other formats."""
