"""The measured catalogs, filled with tables: a real Hive Metastore, and fakes of the other services."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.catalogs.extent import IN_FLIGHT, LATENCY, Extent
from benchmarks.catalogs.process import Served, served

if TYPE_CHECKING:
    from tests.fakes.glue import FakeGlue
    from tests.servers.hive import Hive

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


class Counter(Protocol):
    """The number of requests that a service received."""

    def clear(self) -> None:
        """Sets the number to 0."""

    def count(self) -> int:
        """The number of requests since the last `clear`."""
        ...


@dataclass(frozen=True, slots=True)
class GlueCounter:
    """The number of requests that a fake Glue server received."""

    server: FakeGlue

    def clear(self) -> None:
        """Sets the number to 0."""
        self.server.clear()

    def count(self) -> int:
        """The number of requests since the last `clear`."""
        return len(self.server.calls)


@contextmanager
def hive3(tables: int, others: int) -> Iterator[tuple[Site, Hive]]:
    """Provides a real Hive Metastore 3.1.3 with the tables in a catalog other than its default one."""
    from benchmarks.catalogs.hive_seed import seed
    from tests.servers.hive import hive

    with tempfile.TemporaryDirectory(prefix="lance-ns-bench-") as directory, hive(Path(directory)) as server:
        lake = f"file:{server.warehouse}/lakecat"
        extent = Extent(("lakecat", "big"), tables, others, f"{lake}/big.db")
        seed(server.uri, extent, lake)
        properties = {"uri": server.uri, "client.pool-size": str(HIVE_CONNECTIONS)}
        # The peer ignores the catalog of an id, but the metastore itself accepts it in the name of the database.
        yield Site("hive3", properties, extent, {"uri": server.uri}, ("lakecat", "@lakecat#big")), server


@contextmanager
def glue(tables: int, others: int) -> Iterator[tuple[Site, FakeGlue]]:
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
        yield Site("glue", server.properties, extent, peer, ("big",)), server


@contextmanager
def polaris(tables: int, others: int) -> Iterator[tuple[Site, Served]]:
    """Provides our fake of Apache Polaris, with the latency of a network."""
    extent = Extent(("lake", "big"), tables, others, f"{LAKE}/big")
    with served("polaris", extent) as server:
        told = server.properties
        peer = {"polaris.endpoint": told["endpoint"], "polaris.auth_token": server.ask("token")}
        yield Site("polaris", {**told, **AT_ONCE}, extent, peer, extent.namespace), server


@contextmanager
def unity(tables: int, others: int) -> Iterator[tuple[Site, Served]]:
    """Provides our fake of Unity Catalog, with the latency of a network."""
    extent = Extent(("main", "big"), tables, others, f"{LAKE}/big")
    with served("unity", extent) as server:
        told = server.properties
        yield Site("unity", {**told, **AT_ONCE}, extent, {"unity.endpoint": told["endpoint"]}, extent.namespace), server


@contextmanager
def opened(impl: str, tables: int, others: int) -> Iterator[tuple[Site, Counter | None]]:
    """Provides a catalog by its name, with a counter of its requests if there is one."""
    match impl:
        case "hive3":
            with hive3(tables, others) as (site, _):
                yield site, None
        case "glue":
            with glue(tables, others) as (site, fake):
                yield site, GlueCounter(fake)
        case _:
            with {"polaris": polaris, "unity": unity}[impl](tables, others) as (site, counter):
                yield site, counter
