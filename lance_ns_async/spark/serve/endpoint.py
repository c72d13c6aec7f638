"""Catalog endpoint inside the driver, which serves prefetched tables to Spark's Lance connector."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from lance_namespace.errors import InvalidInputError

from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.gateway import Gateway, serving
from lance_ns_async.model import TableId
from lance_ns_async.spark.resolve.location import Location, warn_of_expiry
from lance_ns_async.spark.resolve.report import PrefetchReport
from lance_ns_async.spark.serve.catalog import CatalogNamespace, PrefetchNamespace, Resolver
from lance_ns_async.spark.session import CATALOG, check_session, has_connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: logging.Logger = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds that open requests have to finish when the context ends."""

_NAME = re.compile(r"\w[\w-]*")


@dataclass(frozen=True, slots=True)
class _Address:
    """The port of an endpoint and the token that it requires."""

    port: int
    token: str = field(repr=False)


_addresses: WeakKeyDictionary[SparkSession, dict[str, _Address]] = WeakKeyDictionary()
"""Addresses of served catalogs by session: Spark keeps a catalog's first configuration until the session ends."""


class CatalogService:
    """A catalog that is served to Spark, with its request counts. Its representation is one line."""

    def __init__(self, catalog: str, namespace: PrefetchNamespace) -> None:
        self.catalog = catalog
        """The name of the catalog in SQL."""
        self._namespace = namespace

    @property
    def answered(self) -> int:
        """Number of requests about a table that needed no call to the real catalog."""
        return self._namespace.hits

    @property
    def misses(self) -> int:
        """Number of requests for a table to the real catalog."""
        return self._namespace.misses

    @property
    def passed(self) -> int:
        """Number of other requests that the real catalog handled: listings and changes."""
        return self._namespace.passed

    def __repr__(self) -> str:
        counts = f"{self.answered:,} requests answered from the prefetch, {self.misses:,} by the catalog"
        line = f"catalog {self.catalog}: {counts}"
        return f"{line}, {self.passed:,} other requests" if self.passed else line


@contextmanager
def serve(
    locations: Mapping[TableId, Location],
    report: PrefetchReport,
    spark: SparkSession,
    catalog: str,
    resolver: Resolver | None,
) -> Iterator[CatalogService]:
    """Serves a catalog to Spark; see `Locations.serve`."""
    if resolver is None:
        namespace = PrefetchNamespace(locations, {problem.subject: problem.reason for problem in report.missing})
    else:
        namespace = CatalogNamespace(locations, resolver)
    _check_session(spark, catalog)
    address = _choose_address(spark, catalog)
    warn_of_expiry(locations.values(), stacklevel=3)
    service = CatalogService(catalog, namespace)
    with ExitStack() as stack:
        # All leases in a process share one loop, so this is also the loop of the namespace.
        loop = BackgroundLoop.lease()
        stack.callback(loop.release)
        # Spark has the rights of this process, and may name any location.
        server = serving(namespace, port=address.port, token=address.token, allow_locations=None, grace=GRACE)
        try:
            gateway = stack.enter_context(loop.keep_open(server))
        except InvalidInputError as e:
            if not isinstance(e.__cause__, OSError):
                raise
            raise InvalidInputError(f"catalog {catalog!r}: {e}; set another name with catalog=...") from e
        stack.callback(log.info, "%r", service)
        for key, value in _settings(catalog, gateway).items():
            spark.conf.set(key, value)
            stack.callback(spark.conf.unset, key)
        _addresses.setdefault(spark, {})[catalog] = _Address(urlsplit(gateway.url).port or 0, address.token)
        yield service


def _settings(catalog: str, gateway: Gateway) -> Mapping[str, str]:
    prefix = f"spark.sql.catalog.{catalog}"
    # The keys contain "token", so Spark redacts the values wherever it shows settings.
    headers = {f"{prefix}.headers.{name}": value for name, value in gateway.headers.items()}
    return {
        **headers,
        f"{prefix}.impl": "rest",
        f"{prefix}.uri": gateway.url,
        # Otherwise the connector makes a call to guess whether ids begin with a namespace.
        f"{prefix}.single_level_ns": "false",
        # Executors cannot reach this endpoint.
        f"{prefix}.executor_credential_refresh": "false",
        prefix: CATALOG,
    }


def _check_session(spark: SparkSession, catalog: str) -> None:
    check_session(spark)
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidInputError(
            "serve: this is a Spark Connect session, whose server cannot reach an endpoint in this process; "
            "use `dataframe` there, which needs no catalog"
        )
    if not _NAME.fullmatch(catalog):
        raise InvalidInputError(f"catalog {catalog!r}: not a valid catalog name; use letters, digits, '_' and '-'")
    if not has_connector(spark):
        raise InvalidInputError(
            f"serve: the Lance connector is not on Spark's class path, there is no {CATALOG}; start Spark with "
            "local_spark(connector=True), or with its jars in spark.driver.extraClassPath and "
            "spark.executor.extraClassPath"
        )


def _choose_address(spark: SparkSession, catalog: str) -> _Address:
    """Returns the address to serve the catalog at: any port, unless the session has loaded the catalog before."""
    if (there := spark.conf.get(f"spark.sql.catalog.{catalog}", None)) is not None:
        raise InvalidInputError(
            f"catalog {catalog!r}: the session already has a catalog of this name, {there}; "
            "set another name with catalog=..."
        )
    # SQL is used, because the Python API runs a job for the same list.
    if catalog not in {row["catalog"] for row in spark.sql("SHOW CATALOGS").collect()}:
        return _Address(0, secrets.token_urlsafe(32))
    try:
        return _addresses[spark][catalog]
    except KeyError:
        raise InvalidInputError(
            f"catalog {catalog!r}: Spark has loaded a catalog of this name, and keeps it for this session; "
            "set another name with catalog=..."
        ) from None
