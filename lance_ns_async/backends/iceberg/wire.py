"""The tables of Iceberg REST catalogs: request bodies, decoders of responses, credentials and error codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import lance_namespace.errors as err
from lance_namespace.errors import InvalidInputError, LanceNamespaceError, TableNotFoundError, UnsupportedOperationError

from lance_ns_async.backends.shared import vended_credentials
from lance_ns_async.backends.shared.iceberg_wire import IN_PROGRESS, identifier
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable, UnreadableRegistrationError, not_lance
from lance_ns_async.model import Table, TableId
from lance_ns_async.storage.options import ends_soon, has_credentials, merge_options
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS


def table(id: TableId, storage_options: Mapping[str, str] | None, body: Any) -> Table:
    """Returns the Lance table in a load response; raises NotALanceTableError if it has another format."""
    metadata = body["metadata"]
    properties = metadata.get("properties") or {}
    if (kind := properties.get("table_type", "iceberg")).lower() != "lance":
        raise not_lance(id, f"its table_type is {kind!r}")
    is_managed = properties.get("managed_by", "storage").lower() == "impl"
    return Table(
        id,
        metadata["location"],
        properties,
        storage_options,
        managed_versioning=is_managed,
        version=current_snapshot(metadata) if is_managed else None,
        registration=metadata["table-uuid"],
    )


def current_snapshot(metadata: Any) -> int | None:
    """Returns the id of a table's current snapshot; None if it has none, which is -1 or no value in the metadata."""
    snapshot = metadata.get("current-snapshot-id")
    return None if snapshot is None or snapshot == -1 else int(snapshot)


def table_of_uuid(id: TableId, storage_options: Mapping[str, str] | None, uuid: str, body: Any) -> Table | None:
    """Returns the table in a load response; None if it is another table with the same name."""
    return table(id, storage_options, body) if body["metadata"]["table-uuid"] == uuid else None


def declaration(id: TableId, uuid: str, location: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the commit that creates a table, which must not exist yet; each part is required by some server."""
    return {
        "identifier": identifier(id),
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": uuid},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "set-location", "location": location},
            {"action": "add-schema", "schema": {"type": "struct", "schema-id": 0, "fields": []}, "last-column-id": 0},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-properties", "updates": dict(properties)},
        ],
    }


def replacement(old: Table, location: str, properties: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns the commit that sets a registration's location and properties; None if it has exactly these.

    The server rejects the commit if the name belongs to another registration. Snapshots refer to the data at the old
    location. If the location or `managed_by` changes, the commit therefore removes the reference to the current one.
    """
    current = old.properties or {}
    changes = {key: value for key, value in properties.items() if current.get(key) != value}
    removals = sorted(current.keys() - properties.keys())
    updates: list[dict[str, Any]] = []
    if location != old.location:
        updates.append({"action": "set-location", "location": location})
    if changes:
        updates.append({"action": "set-properties", "updates": changes})
    if removals:
        updates.append({"action": "remove-properties", "removals": removals})
    if old.version is not None and (location != old.location or "managed_by" in changes):
        updates.append({"action": "remove-snapshot-ref", "ref-name": "main"})
    if not updates:
        return None
    return {
        "identifier": identifier(old.id),
        "requirements": [{"type": "assert-table-uuid", "uuid": old.registration}],
        "updates": updates,
    }


def is_registered_as(table: Table, location: str, properties: Mapping[str, str]) -> bool:
    """Returns whether a table has this location and these properties; properties added by the catalog are ignored."""
    current = table.properties or {}
    return table.location == location and all(current.get(key) == value for key, value in properties.items())


ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    **SIGNING_ERRORS,
    "NoSuchNamespaceException": err.NamespaceNotFoundError,
    # The parent was checked before the call, so another client dropped the namespace right after its creation.
    ("NoSuchNamespaceException", "create_namespace"): err.ConcurrentModificationError,
    "NoSuchTableException": err.TableNotFoundError,
    # A metadata file of the table is missing. The name is in use, but the table can be neither loaded nor changed.
    "NotFoundException": UnreadableRegistrationError,
    ("NotFoundException", "declare_table"): err.TableAlreadyExistsError,
    "NamespaceNotEmptyException": err.NamespaceNotEmptyError,
    IN_PROGRESS: err.ServiceUnavailableError,
    406: err.UnsupportedOperationError,
    (404, "declare_table"): err.NamespaceNotFoundError,
    (405, "vend_credentials"): err.UnsupportedOperationError,
    (409, "create_namespace"): err.NamespaceAlreadyExistsError,
    (409, "drop_namespace"): err.NamespaceNotEmptyError,
    (409, "declare_table"): err.TableAlreadyExistsError,
    # Nessie, if another client removes the table at the same time.
    (409, "deregister_table"): err.ConcurrentModificationError,
    (409, "rename_table"): err.TableAlreadyExistsError,
    (409, "replace_table"): err.ConcurrentModificationError,
    (409, "create_table_version"): err.ConcurrentModificationError,
    (409, "batch_create_table_versions"): err.ConcurrentModificationError,
    (409, "batch_delete_table_versions"): err.ConcurrentModificationError,
}


DELEGATION: Mapping[str, str] = {"x-iceberg-access-delegation": "vended-credentials"}
"""The header that requests credentials."""

_REMOTE_SIGNING = "s3.remote-signing-enabled"

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
    signs_remotely = str(properties.get(_REMOTE_SIGNING)).lower() == "true" and not has_credentials(options)
    return replace(plain, storage_options=options or None, signs_remotely=signs_remotely)


def _entry(plain: Table, body: Any) -> Mapping[str, Any]:
    return vended_credentials.nearest(body.get("storage-credentials") or (), plain.location)
