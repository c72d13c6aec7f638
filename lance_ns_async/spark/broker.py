"""The endpoints in the driver from which tasks renew the credentials of their tables, for jobs that outlast these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lance_namespace.errors import InvalidInputError

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.engine.locate import Vend
from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.gateway.certificates import new_certificate
from lance_ns_async.gateway.renewals import serving_renewals, vend_by
from lance_ns_async.model import Table, TableId
from lance_ns_async.spark.renewal import Renewal
from lance_ns_async.spark.resolve.location import Location
from lance_ns_async.spark.session import context_of
from lance_ns_async.sync import Namespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ENCRYPTION = ("spark.ssl.enabled", "spark.ssl.rpc.enabled", "spark.network.crypto.enabled")
"""Settings by which Spark encrypts what driver and executors exchange."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where endpoints in the driver are."""

    host: str
    """The address to listen on."""
    driver: str
    """The address at which executors reach it."""
    is_encrypted: bool = False
    """Whether it has TLS, because Spark encrypts, too."""


class Brokers:
    """The endpoints of one catalog: one for each set of tables, with a token of its own."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._stack = ExitStack()
        self._by_tables: dict[tuple[Addresses, frozenset[tuple[TableId, str]]], Renewal] = {}

    def renewal(self, locations: Collection[Location], spark: SparkSession) -> Renewal:
        """Returns the endpoint for these tables, which is open until `close`.

        Raises:
            InvalidInputError: The executors cannot reach this process, or it cannot listen at the driver's address.
        """
        addresses = check_addresses(spark)
        key = (addresses, frozenset((at.id, at.location) for at in locations))
        if (known := self._by_tables.get(key)) is not None:
            return known
        # Otherwise, an error of a task would say so.
        self._namespace.run(_check_open)
        loop = BackgroundLoop.separate()
        self._stack.callback(loop.release)
        endpoint = renewal_endpoint([at.table() for at in locations], vend_by(self._namespace), addresses)
        self._by_tables[key] = self._stack.enter_context(loop.keep_open(endpoint))
        return self._by_tables[key]

    def close(self) -> None:
        """Ends the endpoints."""
        self._by_tables.clear()
        self._stack.close()


async def _check_open(client: AsyncNamespace) -> None:
    client.session.check_open()


@asynccontextmanager
async def renewal_endpoint(tables: Collection[Table], vend: Vend, addresses: Addresses) -> AsyncIterator[Renewal]:
    """Opens an endpoint for tables, with a token of its own.

    Args:
        tables: The tables, with their present credentials.
        vend: Asks the catalog.
        addresses: Where it is.
    """
    tls, authority = new_certificate(addresses.driver) if addresses.is_encrypted else (None, "")
    async with serving_renewals(tables, vend, addresses.host, tls) as gateway:
        port, name = urlsplit(gateway.url).port, addresses.driver
        name = f"[{name}]" if ":" in name else name
        yield Renewal(f"http{'s' if tls else ''}://{name}:{port}", gateway.token, authority)


def check_addresses(spark: SparkSession) -> Addresses:
    """Returns the addresses of endpoints in the driver.

    Raises:
        InvalidInputError: The executors cannot reach this process.
    """
    context = context_of(spark)
    if context is None:
        raise InvalidInputError(
            "renew: this is a Spark Connect session, whose executors cannot reach an endpoint in this process; "
            "leave renew out, and begin long jobs with new credentials, for example by `LocationResolver.refresh`"
        )
    if str(context.master).startswith("local"):
        return Addresses("127.0.0.1", "127.0.0.1")
    driver = spark.conf.get("spark.driver.host")
    assert driver is not None  # Spark sets it.
    host = spark.conf.get("spark.driver.bindAddress", None) or driver
    return Addresses(host, driver, any((spark.conf.get(it, "") or "").lower() == "true" for it in _ENCRYPTION))
