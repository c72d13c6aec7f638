"""Credentials that an Iceberg REST catalog vends for a table's storage, requested by a header when it is loaded.

The server may vend none, vend them only at an endpoint of their own, or return old ones with the table. That endpoint
is then called, if the server lists it.

Spec: `X-Iceberg-Access-Delegation`, LoadTableResult and LoadCredentialsResponse in Iceberg's REST API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.backends.iceberg.wire import table
from lance_ns_async.backends.shared import vended_credentials
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.options import ends_soon, merge_options

DELEGATION: Mapping[str, str] = {"x-iceberg-access-delegation": "vended-credentials"}
"""The header that requests credentials."""

_NONE_VENDED = (InvalidInputError, TableNotFoundError, UnsupportedOperationError)
"""Errors of a server that vends no credentials for a table."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table, and the properties with which clients access its storage."""

    plain: Table
    """The table with the configured storage options alone."""
    properties: Mapping[str, Any]
    """The properties in the response, including credentials if the server vends any with the table."""
    table: Table
    """The table with the storage options in these properties."""

    @property
    def has_credentials(self) -> bool:
        """Whether the table came with credentials."""
        return self.table.storage_options != self.plain.storage_options


def loaded_table(id: TableId, options: Mapping[str, str] | None, body: Any) -> LoadedTable:
    """Returns the Lance table in a load response."""
    plain = table(id, options, body)
    properties = vended_credentials.combine(body.get("config") or {}, _entry(plain, body))
    return LoadedTable(plain, properties, _with_options(plain, properties))


def table_with_credentials(id: TableId, options: Mapping[str, str] | None, body: Any) -> Table:
    """Returns the Lance table in a load response, with the credentials in that response; see `loaded_table`."""
    return loaded_table(id, options, body).table


def renewed_table(load_result: LoadedTable, body: Any) -> Table:
    """Returns a loaded table with the credentials in a response of the endpoint for credentials."""
    return _with_options(
        load_result.plain, vended_credentials.combine(load_result.properties, _entry(load_result.plain, body))
    )


async def with_credentials(load_result: LoadedTable, renew: Callable[[], Awaitable[Table]] | None) -> Table:
    """Returns a loaded table with credentials that last until Lance requests new ones, if the server vends credentials.

    Args:
        renew: Returns the table with credentials from the endpoint for them; None if the server has none.

    Cost: none if the table came with credentials that do not end soon; otherwise one call.
    """
    if renew is None or (load_result.has_credentials and not ends_soon(load_result.table.storage_options)):
        return load_result.table
    try:
        return await renew()
    except LanceNamespaceError as e:
        if load_result.has_credentials or isinstance(e, _NONE_VENDED):
            return load_result.table
        raise


def _with_options(plain: Table, properties: Mapping[str, Any]) -> Table:
    if not properties:
        return plain
    vended_options = vended_credentials.storage_options(properties, plain.location)
    options = merge_options(plain.storage_options, vended_options)
    return replace(plain, storage_options=options or None)


def _entry(plain: Table, body: Any) -> Mapping[str, Any]:
    return vended_credentials.nearest(body.get("storage-credentials") or (), plain.location)
