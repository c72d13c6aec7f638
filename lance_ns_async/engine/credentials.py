"""Vended credentials of tables: concurrent requests share one call, and errors are remembered for a short time.

Lance requests new credentials from many threads at once, and after an error up to 16 times for each read.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, NoReturn

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async.backends.base import Backend, Capabilities, Prepare, Version, Versions
from lance_ns_async.calls.concurrency import SingleFlight
from lance_ns_async.calls.policy import Caller, remaining
from lance_ns_async.model import EXPIRY, NamespaceId, Page, Table, TableId

if TYPE_CHECKING:
    import pyarrow as pa

REMEMBERED_SECONDS = 1.0
"""Seconds for which an outcome is reused without a call."""

REMEMBERED_TABLES = 1024
"""Maximum number of tables with a remembered outcome; the least recently requested ones are removed first."""

_MISSING = (NamespaceNotFoundError, TableNotFoundError)

_LEAD = "refresh_offset_millis"
"""The storage option with the milliseconds before expiry at which Lance requests new credentials."""

_USUAL_LEAD_MILLIS = 60_000


class SharedCredentials(Backend):
    """A backend that shares one call among all concurrent requests for a table's credentials.

    An error, after the retries of the call, is raised again for all requests within `memory` seconds. The error of a
    missing table is not, because another client may create it meanwhile. Only `renewed` reuses credentials. Any change
    of a table through this backend, successful or not, discards what is remembered about the table.
    """

    def __init__(self, backend: Backend, *, memory: float = REMEMBERED_SECONDS, limit: int = REMEMBERED_TABLES) -> None:
        self._backend = backend
        self._memory = memory
        self._limit = limit
        self._requests: dict[TableId, _Request] = {}

    @property
    def capabilities(self) -> Capabilities:
        return self._backend.capabilities

    @property
    def configured_options(self) -> Mapping[str, str] | None:  # type: ignore[override]  # of the wrapped backend
        return self._backend.configured_options

    @classmethod
    def open(cls, settings: Any, caller: Caller) -> NoReturn:
        raise AssertionError("it is made of an open backend")

    async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
        if not vend:
            return await self._backend.describe_table(id)
        return await self._described(id, renewing=False)

    async def renewed(self, id: TableId) -> Table:
        """Returns the table with credentials with which Lance continues to use it; recent ones may be reused.

        Credentials are reused for `memory` seconds if they expire, but not so soon that Lance would request new ones.

        Raises:
            LanceNamespaceError: The call failed, now or within the last `memory` seconds.

        Cost:
            One call, shared by concurrent requests; none if the outcome is remembered.
        """
        return await self._described(id, renewing=True)

    async def declare_table(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        with self._changing(id):
            return await self._backend.declare_table(id, location, properties, schema)

    async def deregister_table(self, id: TableId) -> None:
        with self._changing(id):
            await self._backend.deregister_table(id)

    async def drop_table(self, table: Table) -> None:
        with self._changing(table.id):
            await self._backend.drop_table(table)

    async def rename_table(self, id: TableId, to: TableId) -> None:
        with self._changing(id, to):
            await self._backend.rename_table(id, to)

    async def replace_table(
        self, old: Table, location: str, properties: Mapping[str, str], schema: pa.Schema | None = None
    ) -> Table:
        with self._changing(old.id):
            return await self._backend.replace_table(old, location, properties, schema)

    async def protect_table(self, table: Table) -> bool:
        with self._changing(table.id):
            return await self._backend.protect_table(table)

    async def layout_location(self, id: TableId) -> str | None:
        return await self._backend.layout_location(id)

    async def default_location(self, id: TableId) -> str | None:
        return await self._backend.default_location(id)

    async def drop_namespace(self, id: NamespaceId, *, cascade: bool) -> None:
        try:
            await self._backend.drop_namespace(id, cascade=cascade)
        finally:
            self._requests.clear()

    async def aclose(self) -> None:
        self._requests.clear()
        await self._backend.aclose()

    async def _described(self, id: TableId, *, renewing: bool) -> Table:
        if not self.capabilities.vends:
            return await self._backend.describe_table(id, vend=True)
        request = self._requests.pop(id, None)
        if request is None:
            request = _Request(partial(self._backend.describe_table, id, vend=True), self._memory)
            if len(self._requests) >= self._limit:
                del self._requests[next(iter(self._requests))]
        # Inserted again, so that it becomes the most recent one.
        self._requests[id] = request
        return await request.outcome(renewing=renewing)

    @contextmanager
    def _changing(self, *ids: TableId) -> Iterator[None]:
        try:
            yield
        finally:
            # Requests that already wait get the outcome of the call under way; later requests start a new call.
            for id in ids:
                self._requests.pop(id, None)

    async def list_namespaces(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._backend.list_namespaces(parent, token, limit)

    async def describe_namespace(self, id: NamespaceId) -> Mapping[str, str]:
        return await self._backend.describe_namespace(id)

    async def create_namespace(self, id: NamespaceId, properties: Mapping[str, str]) -> Mapping[str, str]:
        return await self._backend.create_namespace(id, properties)

    async def list_tables(self, parent: NamespaceId, token: str | None, limit: int | None) -> Page[str]:
        return await self._backend.list_tables(parent, token, limit)

    def check_declaration(self, id: TableId, location: str | None, properties: Mapping[str, str]) -> None:
        self._backend.check_declaration(id, location, properties)

    def listed_name(self, id: NamespaceId) -> str:
        return self._backend.listed_name(id)

    async def scan_tables(self, parent: NamespaceId, token: str | None) -> Page[Table]:
        return await self._backend.scan_tables(parent, token)

    async def describe_tables(self, parent: NamespaceId, names: Sequence[str]) -> Mapping[str, Table]:
        return await self._backend.describe_tables(parent, names)

    async def table_versions(self, id: TableId, *, all: bool) -> Versions:
        return await self._backend.table_versions(id, all=all)

    async def commit_versions(self, wanted: Mapping[TableId, Version], prepare: Prepare) -> Mapping[TableId, Versions]:
        with self._changing(*wanted):
            return await self._backend.commit_versions(wanted, prepare)

    async def forget_versions(self, id: TableId, numbers: Sequence[int]) -> None:
        await self._backend.forget_versions(id, numbers)


class _Request:
    """The describe of one table with credentials: at most one call at a time, and its recent outcome."""

    def __init__(self, describe: Callable[[], Coroutine[Any, Any, Table]], memory: float) -> None:
        self._describe = describe
        self._memory = memory
        self._flight = SingleFlight(self._ask)
        self._until = 0.0
        self._table: Table | None = None
        self._error: tuple[type[LanceNamespaceError], str] | None = None

    async def outcome(self, *, renewing: bool) -> Table:
        return await self._flight.outcome(partial(self._known, renewing))

    async def _ask(self) -> Table:
        self._table = self._error = None
        try:
            table = await self._describe()
        except LanceNamespaceError as e:
            left = remaining()
            # A deadline says nothing about the catalog, and another client may create a missing table at any time.
            if (left is None or left > 0) and not isinstance(e, _MISSING):
                # Not the error itself: its traceback would keep the objects of the call alive.
                self._error = (type(e), str(e))
                self._until = get_running_loop().time() + self._memory
            raise
        self._table, self._until = table, get_running_loop().time() + self._memory
        return table

    def _known(self, renewing: bool) -> Table | None:
        if get_running_loop().time() >= self._until:
            return None
        if self._error is not None:
            kind, message = self._error
            raise kind(message)
        return self._table if renewing and self._table is not None and _lasting(self._table) else None


def _lasting(table: Table) -> bool:
    """Returns whether the credentials expire, but not so soon that Lance would request new ones at once."""
    options = table.storage_options or {}
    ends, lead = options.get(EXPIRY, ""), options.get(_LEAD, "")
    lead_millis = int(lead) if lead.isdecimal() else _USUAL_LEAD_MILLIS
    return ends.isdecimal() and int(ends) > time() * 1000 + lead_millis
