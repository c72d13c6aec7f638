"""Endpoints from which the workers of a job get the credentials of its tables, and renew them when they expire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from ipaddress import ip_address
from math import inf
from ssl import SSLContext
from time import time
from typing import Any, NoReturn

import lance_namespace as spec
from lance_namespace.errors import (
    InvalidInputError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
    UnsupportedOperationError,
)

from lance_ns_async.calls.tasks import SingleFlights
from lance_ns_async.engine.locate import Vend
from lance_ns_async.errors import shortened
from lance_ns_async.facade.background_loop import BackgroundLoop
from lance_ns_async.gateway.server import Gateway, serving
from lance_ns_async.many.patterns import What, in_memory
from lance_ns_async.model import Table, TableId, same_place
from lance_ns_async.operations import requests
from lance_ns_async.storage.options import LEAD, expiry
from lance_ns_async.sync import Namespace

MAX_CONNECTIONS = 10_000
"""Maximum number of connections of workers, of which many may share one address."""

MAX_LEAD = 300.0
"""Seconds before their expiry at which credentials are renewed, unless a tenth of their lifetime is shorter."""

GRACE = 5.0
"""Seconds that open requests have to finish when an endpoint ends."""


def serving_renewals(
    tables: Iterable[Table], vend: Vend, host: str, tls: SSLContext | None = None
) -> AbstractAsyncContextManager[Gateway]:
    """Serves tables with credentials that are renewed; see `RenewedTables`."""
    return serving(RenewedTables(tables, vend), host=host, tls=tls, grace=GRACE, max_connections=MAX_CONNECTIONS)


class RenewedTables:
    """Some tables, for `serving`: each is described with credentials, which the catalog renews once a lifetime."""

    def __init__(self, tables: Iterable[Table], vend: Vend) -> None:
        """Makes no call.

        Args:
            tables: The tables, with their present credentials.
            vend: Asks the catalog.
        """
        self._tables = {table.id: table for table in tables}
        self._fresh_until = {
            id: min(_fresh_until(table, time()), _expiry(table) - LEAD) for id, table in self._tables.items()
        }
        self._vend = vend
        self._flights = SingleFlights(self._renew)

    async def describe_table(self, request: spec.DescribeTableRequest) -> spec.DescribeTableResponse:
        """Describes a table; the requested version is not checked, because the reader opens it or fails."""
        id = TableId(request.id or ())
        if id not in self._tables:
            _refuse(id, "`renewing` did not include it; add it to the tables there")
        if request.load_detailed_metadata or request.check_declared or request.tag or request.branch:
            _refuse(id, "this endpoint gives locations and credentials alone; ask the catalog")
        table = self._tables[id] if time() < self._fresh_until[id] else await self._flights.outcome(id)
        return requests.description(table, with_uri=request.with_table_uri)

    async def declare_table(self, request: spec.DeclareTableRequest) -> NoReturn:
        """Refuses new tables, which the callers would write without the rollback of a failed write."""
        _refuse(TableId(request.id or ()), "declare it in the catalog before the endpoint is opened, then overwrite it")

    async def _renew(self, id: TableId) -> Table:
        began, before = time(), self._tables[id]
        try:
            table = await self._vend(before)
        except (ServiceUnavailableError, ThrottlingError):
            if time() < _expiry(before):
                return before
            raise
        if not same_place(table.location, before.location):
            raise TableNotFoundError(f"Table not found: {id} (it is at another location now)")
        self._tables[id] = table
        self._fresh_until[id] = _fresh_until(table, began)
        return table


def _expiry(table: Table) -> float:
    """Returns when the credentials of the table expire, in seconds since 1970; infinity for never."""
    moment = expiry(table.storage_options)
    return inf if moment is None else moment


def _fresh_until(table: Table, since: float) -> float:
    """Returns until when workers get the same credentials; some commit with those with which a write began."""
    end = _expiry(table)
    return end - min(0.1 * (end - since), MAX_LEAD)


def _refuse(id: TableId, why: str) -> NoReturn:
    raise UnsupportedOperationError(f"table {id}: {why}")


def _check_host(host: str) -> None:
    try:
        is_usable = not ip_address(host).is_unspecified
    except ValueError:
        is_usable = re.fullmatch(r"[\w.-]*[^\W\d][\w.-]*", host) is not None
    if not is_usable:
        raise InvalidInputError(
            f"host {host!r}: must be a host name or an address only, at which the workers reach this process, "
            "such as ray.util.get_node_ip_address()"
        )


class _Properties(dict[str, str]):
    """Properties whose `repr` shows no values; their pickle is one of ordinary properties, for workers without us."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def vend_by(namespace: Namespace) -> Vend:
    """Returns what asks a catalog for new credentials, from any event loop."""

    async def vend(table: Table) -> Table:
        return await namespace.arun(lambda client: client.session.vend(table))

    return vend


@contextmanager
def renewing(namespace: Namespace, what: What, *, host: str = "127.0.0.1") -> Iterator[Mapping[str, Any]]:
    """Gives workers of Ray or Daft the credentials of tables, and renews them, while the context is open.

    Workers ask an endpoint in this process, with a token that is good for these tables alone. It asks the catalog for
    them, so that no secret of the catalog leaves this process. There is no TLS: the network must be trusted.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables, which exist.
        host: The address of this process, at which the workers reach it, and on which it listens.

    Yields:
        The arguments `namespace_impl` and `namespace_properties` of lance-ray and daft-lance. They contain the token.

    Raises:
        LanceNamespaceError: A table cannot be described, or a namespace not listed.
        TableNotFoundError: A table does not exist, or no table matches.
        UnsupportedOperationError: The catalog commits the versions of a table, which workers must tell it.
        InvalidInputError: The address is not one of this machine, or the namespace is not a `Namespace`.

    Cost:
        One describe for each table with credentials, and later, if workers ask, one for each table and lifetime.
    """
    if not isinstance(namespace, Namespace):
        kind = f"{type(namespace).__module__}.{type(namespace).__qualname__}"
        raise InvalidInputError(f"namespace: must be what lance_ns_async.Namespace.connect returns, not of type {kind}")
    _check_host(host)
    what = in_memory(what)
    tables = namespace.describe_tables(what, vend_credentials=True).raise_for_errors().tables.values()
    if not tables:
        raise TableNotFoundError(f"Table not found: renewing: no table matches {shortened(str(what), 80)}")
    for table in tables:
        if table.managed_versioning:
            _refuse(table.id, "the catalog commits its versions; give the workers the class path of the catalog")

    loop = BackgroundLoop.separate()
    try:
        with loop.keep_open(serving_renewals(tables, vend_by(namespace), host)) as gateway:
            yield {"namespace_impl": "rest", "namespace_properties": _Properties(gateway.properties)}
    finally:
        loop.release()
