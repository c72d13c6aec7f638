"""Location of tables, with the credentials that their catalog vends: concurrent requests share one call.

Lance requests new credentials from many threads at once, and after an error up to 16 times for each read. So outcomes
are remembered for a short time.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.backends.base import Backend
from lance_ns_async.calls import request_headers
from lance_ns_async.calls.deadline import remaining
from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import EXPIRY, Table, TableId
from lance_ns_async.storage.options import ends_soon

Vend: TypeAlias = Callable[[Table], Awaitable[Table]]
"""Returns a table with new credentials of its catalog. Cost: a call."""

REMEMBERED_SECONDS = 1.0
"""Seconds for which an outcome is reused without a call."""

REMEMBERED_TABLES = 1024
"""Maximum number of tables with a remembered outcome; the least recently requested ones are removed first."""

_MISSING = (NamespaceNotFoundError, TableNotFoundError)


async def locate(backend: Backend, id: TableId) -> Table:
    """Returns the table with the credentials that its catalog vends, as it is now.

    For work that changes the registration and must not see an earlier state; other work uses a `Locator`. A catalog may
    refuse to vend credentials; then the configured ones are used, which costs another call.
    """
    return await _with_or_without(backend, id, partial(backend.describe_table, id, vend=True))


class Locator:
    """Locates tables with the credentials that their catalog vends.

    Concurrent requests for a table share one call. An error, after the retries of the call, is raised again for all
    requests within `memory` seconds. The error of a missing table is not, because another client may create it
    meanwhile. Only `renew` reuses credentials. If the catalog vends none, each request is a call, and nothing is
    remembered.
    """

    def __init__(self, backend: Backend, *, memory: float = REMEMBERED_SECONDS, limit: int = REMEMBERED_TABLES) -> None:
        self._backend = backend
        self._memory = memory
        self._limit = limit
        self._requests: dict[TableId, _Request] = {}

    async def locate(self, id: TableId) -> Table:
        """Returns the table with new credentials; with the configured ones if the catalog refuses to vend any.

        Cost:
            One call, shared by concurrent requests, and another one after a refusal; none if an error is remembered.
        """
        return await _with_or_without(self._backend, id, partial(self._locate_with_credentials, id, renewing=False))

    async def renew(self, id: TableId) -> Table:
        """Returns the table with credentials with which Lance continues to use it; recent ones may be reused.

        Credentials are reused for `memory` seconds if they expire, but not so soon that Lance would request new ones.

        Cost:
            One call, shared by concurrent requests; none if the outcome is remembered.
        """
        return await self._locate_with_credentials(id, renewing=True)

    def forget(self, *ids: TableId) -> None:
        """Discards what is remembered about tables that were changed, successfully or not; no ids means all tables.

        Requests that already wait get the outcome of the call under way; later requests start a new call.
        """
        for id in ids or tuple(self._requests):
            self._requests.pop(id, None)

    async def _locate_with_credentials(self, id: TableId, *, renewing: bool) -> Table:
        if not self._backend.capabilities.vends or request_headers.current():
            # Credentials for one identity are neither shared with requests of others nor remembered for them.
            return await self._backend.describe_table(id, vend=True)
        request = self._requests.pop(id, None)
        if request is None:
            request = _Request(partial(self._backend.describe_table, id, vend=True), self._memory)
            if len(self._requests) >= self._limit:
                del self._requests[next(iter(self._requests))]
        # Inserted again, so that it becomes the most recent one.
        self._requests[id] = request
        return await request.outcome(renewing=renewing)


async def _with_or_without(
    backend: Backend, id: TableId, locate_with_credentials: Callable[[], Awaitable[Table]]
) -> Table:
    """Returns the table from `locate_with_credentials`, or described without credentials if the catalog has none."""
    if not backend.capabilities.vends:
        return await backend.describe_table(id)
    try:
        return await locate_with_credentials()
    except NotALanceTableError:
        raise
    except InvalidInputError:
        return await backend.describe_table(id)


class _Request:
    """The describe of one table with credentials: at most one call at a time, and its recent outcome."""

    def __init__(self, describe: Callable[[], Coroutine[Any, Any, Table]], memory: float) -> None:
        self._describe = describe
        self._memory = memory
        self._flight = SingleFlight(self._call)
        self._until = 0.0
        self._table: Table | None = None
        self._error: tuple[type[LanceNamespaceError], str] | None = None

    async def outcome(self, *, renewing: bool) -> Table:
        return await self._flight.outcome(partial(self._recent_outcome, renewing))

    async def _call(self) -> Table:
        self._table = self._error = None
        try:
            table = await self._describe()
        except LanceNamespaceError as e:
            left = remaining()
            # A deadline says nothing about the catalog, and another client may create a missing table at any time.
            if (left is None or left > 0) and not isinstance(e, _MISSING):
                # The error itself is not kept, because its traceback would keep the objects of the call alive.
                self._error = (type(e), str(e))
                self._until = get_running_loop().time() + self._memory
            raise
        self._table, self._until = table, get_running_loop().time() + self._memory
        return table

    def _recent_outcome(self, renewing: bool) -> Table | None:
        if get_running_loop().time() >= self._until:
            return None
        if self._error is not None:
            kind, message = self._error
            raise kind(message)
        return self._table if renewing and self._table is not None and _lasting(self._table) else None


def _lasting(table: Table) -> bool:
    """Returns whether the credentials expire, but not so soon that Lance would request new ones at once."""
    options = table.storage_options or {}
    return options.get(EXPIRY, "").isdecimal() and not ends_soon(options)
