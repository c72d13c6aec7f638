"""The measured clients, async namespace and peer: each describes and lists the tables of one site."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from benchmarks.catalogs.sites import Site


class Client(Protocol):
    """The interface of a measured client."""

    calls: int
    """Number of remote calls so far; 0 if the client does not count them."""

    async def describe(self, names: Sequence[str]) -> dict[str, str]:
        """Returns the locations of tables by their names."""
        ...

    async def list(self) -> list[str]:
        """Returns the names of all Lance tables."""
        ...


class Ours:
    """The bulk calls of `AsyncNamespace`."""

    def __init__(self, namespace: Any, site: Site) -> None:
        self._namespace = namespace
        self._parent = site.extent.namespace
        self.calls = 0

    def note(self, _: object) -> None:
        """Counts a call at its end."""
        self.calls += 1

    async def describe(self, names: Sequence[str]) -> dict[str, str]:
        """Makes one call of `describe_tables`; raises if a table fails."""
        described = await self._namespace.describe_tables([(*self._parent, name) for name in names])
        tables = described.raise_for_errors().tables
        return {id.name: table.location for id, table in tables.items()}

    async def list(self) -> list[str]:
        """Makes one call of `list_tables`."""
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
        """Counts a call at its beginning."""
        self.calls += 1

    async def describe(self, names: Sequence[str]) -> dict[str, str]:
        """Makes one call of `describe_table` for each table."""
        from lance_namespace import DescribeTableRequest

        describe = self._namespace.describe_table
        return {name: describe(DescribeTableRequest(id=[*self._parent, name])).location for name in names}

    async def list(self) -> list[str]:
        """Calls `list_tables`."""
        from lance_namespace import ListTablesRequest

        return list(self._namespace.list_tables(ListTablesRequest(id=list(self._parent))).tables)


@asynccontextmanager
async def ours(site: Site) -> AsyncIterator[Client]:
    """Returns our client, with a count of its calls."""
    from lance_ns_async import AsyncNamespace

    async with AsyncNamespace.connect(site.impl, site.properties) as namespace:
        client = Ours(namespace, site)
        with namespace.observe(client.note):
            yield client


@asynccontextmanager
async def peer(site: Site) -> AsyncIterator[Client]:
    """Returns the peer. Only its calls of a Hive Metastore are counted here, because the fakes count other calls."""
    client = Peer(PEERS[site.impl](**site.peer_properties), site)
    if site.impl == "hive3":
        count_thrift_calls(client.note)
    yield client


def peer_hive3(**properties: str) -> Any:
    """Returns the peer for the Hive Metastore."""
    from lance_namespace_impls.hive3 import Hive3Namespace

    return Hive3Namespace(**properties)


def peer_glue(**properties: str) -> Any:
    """Returns the peer for Glue."""
    from lance_namespace_impls.glue import GlueNamespace

    return GlueNamespace(**properties)


def peer_polaris(**properties: str) -> Any:
    """Returns the peer for Polaris."""
    from lance_namespace_impls.polaris import PolarisNamespace

    return PolarisNamespace(**properties)


def peer_unity(**properties: str) -> Any:
    """Returns the peer for Unity Catalog."""
    from lance_namespace_impls.unity import UnityNamespace

    return UnityNamespace(**properties)


def count_thrift_calls(note: Callable[[], None]) -> None:
    """Counts every call of the peer's Thrift client from now on."""
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
