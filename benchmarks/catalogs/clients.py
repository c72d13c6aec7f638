"""The measured clients, async namespace and peer: each describes and lists the tables of one site."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from benchmarks.catalogs.sites import Site


class Client(Protocol):
    """What is measured of a client."""

    calls: int
    """Remote calls so far; 0 where the client cannot tell."""

    async def describe(self, names: Sequence[str]) -> dict[str, str]:
        """The locations of tables by their names."""
        ...

    async def list(self) -> list[str]:
        """The names of all Lance tables."""
        ...


class Ours:
    """The bulk calls of `AsyncNamespace`."""

    def __init__(self, namespace: Any, site: Site) -> None:
        self._namespace = namespace
        self._parent = site.extent.namespace
        self.calls = 0

    def note(self, _: object) -> None:
        """Takes notice of a call as it ends."""
        self.calls += 1

    async def describe(self, names: Sequence[str]) -> dict[str, str]:
        """By one `describe_tables`; raises where a table fails."""
        described = await self._namespace.describe_tables([(*self._parent, name) for name in names])
        tables = described.raise_for_errors().tables
        return {id.name: table.location for id, table in tables.items()}

    async def list(self) -> list[str]:
        """By one `list_tables`."""
        from lance_namespace import ListTablesRequest

        response = await self._namespace.list_tables(ListTablesRequest(id=list(self._parent)))
        return list(response.tables)


class Peer:
    """lance-namespace-impls, one table after another."""

    def __init__(self, namespace: Any, site: Site) -> None:
        self._namespace = namespace
        self._parent = site.peer_namespace
        self.calls = 0

    def note(self) -> None:
        """Takes notice of a call as it begins."""
        self.calls += 1

    async def describe(self, names: Sequence[str]) -> dict[str, str]:
        """By one `describe_table` each."""
        from lance_namespace import DescribeTableRequest

        describe = self._namespace.describe_table
        return {name: describe(DescribeTableRequest(id=[*self._parent, name])).location for name in names}

    async def list(self) -> list[str]:
        """By `list_tables`."""
        from lance_namespace import ListTablesRequest

        return list(self._namespace.list_tables(ListTablesRequest(id=list(self._parent))).tables)


@asynccontextmanager
async def ours(site: Site) -> AsyncIterator[Client]:
    """Our client, its calls counted."""
    from lance_ns_async import AsyncNamespace

    async with AsyncNamespace.connect(site.impl, site.properties) as namespace:
        client = Ours(namespace, site)
        with namespace.observe(client.note):
            yield client


@asynccontextmanager
async def peer(site: Site) -> AsyncIterator[Client]:
    """The peer; of its calls only those to a Hive Metastore are counted, the fakes count the others themselves."""
    client = Peer(PEERS[site.impl](**site.peer_properties), site)
    if site.impl == "hive3":
        count_thrift_calls(client.note)
    yield client


def peer_hive3(**properties: str) -> Any:
    """The peer for the Hive Metastore."""
    from lance_namespace_impls.hive3 import Hive3Namespace

    return Hive3Namespace(**properties)


def peer_glue(**properties: str) -> Any:
    """The peer for Glue."""
    from lance_namespace_impls.glue import GlueNamespace

    return GlueNamespace(**properties)


def peer_polaris(**properties: str) -> Any:
    """The peer for Polaris."""
    from lance_namespace_impls.polaris import PolarisNamespace

    return PolarisNamespace(**properties)


def peer_unity(**properties: str) -> Any:
    """The peer for Unity Catalog."""
    from lance_namespace_impls.unity import UnityNamespace

    return UnityNamespace(**properties)


def count_thrift_calls(note: Callable[[], None]) -> None:
    """Has every call by the peer's Thrift noted, for as long as the process lives."""
    from thrift.protocol.TBinaryProtocol import TBinaryProtocol

    plain = TBinaryProtocol.writeMessageBegin

    def noted(self: Any, *arguments: Any) -> None:
        note()
        plain(self, *arguments)

    TBinaryProtocol.writeMessageBegin = noted


PEERS: dict[str, Callable[..., Any]] = {
    "hive3": peer_hive3,
    "glue": peer_glue,
    "polaris": peer_polaris,
    "unity": peer_unity,
}

CLIENTS: dict[str, Callable[[Site], AbstractAsyncContextManager[Client]]] = {"ours": ours, "peer": peer}
