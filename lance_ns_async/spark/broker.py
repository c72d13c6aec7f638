"""The endpoint in the driver from which tasks renew the credentials of their tables, for jobs that outlast these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from time import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lance_namespace.errors import InvalidInputError, TableNotFoundError

from lance_ns_async.calls.tasks import SingleFlights
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.gateway import serving
from lance_ns_async.model import Table, TableId, same_place
from lance_ns_async.spark.renewal import Renewal
from lance_ns_async.spark.resolve.location import LEAD, Location
from lance_ns_async.spark.serve import GRACE, PrefetchNamespace
from lance_ns_async.spark.session import context_of
from lance_ns_async.sync import Namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RenewedTables(PrefetchNamespace):
    """Some tables, whose credentials are renewed by the catalog once in each of their lifetimes."""

    def __init__(self, locations: Mapping[TableId, Location], namespace: Namespace) -> None:
        super().__init__(locations, {})
        self._namespace = namespace
        self._fresh_until = {id: (at.expires_at or 0.0) - LEAD for id, at in locations.items()}
        self._flights = SingleFlights(self._renew)

    async def _locate(self, id: TableId) -> Location:
        at = await super()._locate(id)
        if at.expires_at is None or time() < self._fresh_until[id]:
            return at
        return await self._flights.outcome(id)

    async def _renew(self, id: TableId) -> Location:
        began, before = time(), self._locations[id]
        self.misses += 1
        table = await self._namespace.arun(lambda client: _describe(client, id))
        if not same_place(table.location, before.location):
            raise TableNotFoundError(f"Table not found: {id} (it is at another location now)")
        now = self._locations[id] = before.renewed(table)
        # Credentials may live for less than a minute.
        lifetime = (now.expires_at or began) - began
        self._fresh_until[id] = began + lifetime - min(LEAD, lifetime / 4)
        return now


async def _describe(client: AsyncNamespace, id: TableId) -> Table:
    """Returns the table with new credentials. Cost: a call."""
    with client.session.operation():
        return await client.session.locator.locate(id)


class Brokers:
    """The endpoints of one catalog: one for each set of tables, with a token of its own."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._stack = ExitStack()
        self._by_tables: dict[tuple[str, frozenset[tuple[TableId, str]]], Renewal] = {}

    def renewal(self, locations: Collection[Location], spark: SparkSession) -> Renewal:
        """Returns the endpoint for these tables, which is open until `close`.

        Raises:
            InvalidInputError: The executors cannot reach this process, or it cannot listen at the driver's address.
        """
        host, address = _hosts(spark)
        key = (host, frozenset((at.id, at.location) for at in locations))
        if (known := self._by_tables.get(key)) is not None:
            return known
        loop = BackgroundLoop.lease()
        self._stack.callback(loop.release)
        tables = RenewedTables({at.id: at for at in locations}, self._namespace)
        server = serving(tables, host=host, read_only=True, grace=GRACE)
        gateway = self._stack.enter_context(loop.keep_open(server))
        port = urlsplit(gateway.url).port
        self._by_tables[key] = Renewal(f"http://{address}:{port}", gateway.token)
        return self._by_tables[key]

    def close(self) -> None:
        """Ends the endpoints."""
        self._by_tables.clear()
        self._stack.close()


def _hosts(spark: SparkSession) -> tuple[str, str]:
    """Returns the address to listen on, and the one at which executors reach it."""
    context = context_of(spark)
    if context is None:
        raise InvalidInputError(
            "renew: this is a Spark Connect session, whose executors cannot reach an endpoint in this process; build "
            "the DataFrame again from the result of `LocationResolver.refresh` before the credentials expire"
        )
    if str(context.master).startswith("local"):
        return "127.0.0.1", "127.0.0.1"
    address = spark.conf.get("spark.driver.host")
    assert address is not None  # Spark sets it.
    host = spark.conf.get("spark.driver.bindAddress", None) or address
    return host, f"[{address}]" if ":" in address else address
