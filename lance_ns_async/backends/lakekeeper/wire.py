"""Encoding of requests to Lakekeeper's generic-table API, decoding of its responses, and its error codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import lance_namespace.errors as err
from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.shared import iceberg_wire, vended_credentials
from lance_ns_async.backends.shared.generic_tables import lance_table
from lance_ns_async.backends.shared.iceberg_wire import IN_PROGRESS, Routes, table_names
from lance_ns_async.backends.shared.response_checks import text
from lance_ns_async.errors import HTTP_ERRORS, Code, ErrorTable
from lance_ns_async.model import Id, NamespaceId, Page, Table, TableId

API = "/lakekeeper/v1"
"""The path of the generic-table API."""

ICEBERG_API = "/catalog/v1"
"""The path of the Iceberg REST API, which has the namespaces."""

MANAGEMENT_API = "/management/v1/warehouse"
"""The path of the management API, which restores deleted tables."""


_DELETED = re.compile(r"([1-9]\d*) soft-deleted")
"""The number of deleted tables in the server's reason why a namespace is not empty."""


def decode_config(body: Any) -> Routes:
    """Returns the paths and options in a configuration; this server has the lifetime of keys among the overrides."""
    return iceberg_wire.routes({**(body.get("overrides") or {}), **body})


def read_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns the codes and the message of an error; see `iceberg_wire.read_error`.

    The message says how many deleted tables keep a namespace from being dropped, because listings omit them.
    """
    codes, message = iceberg_wire.read_error(body)
    if "NamespaceNotEmptyException" in codes:
        stack = " ".join(map(text, body["error"].get("stack") or ()))
        if (deleted := _DELETED.search(stack)) is not None:
            message += (
                f"; deleted tables that can still be restored are in it: {deleted[1]}; wait until they expire, or "
                "delete the namespace in Lakekeeper with recursive=true and force=true"
            )
    return codes, message


def check_values(subject: Id, properties: Mapping[str, str]) -> None:
    """Raises InvalidInputError for properties that the server cannot store."""
    for name, value in properties.items():
        if "\0" in name or "\0" in value:
            raise InvalidInputError(
                f"{subject.kind} {subject}: property {name!r}: Lakekeeper cannot store the character U+0000; remove it"
            )


def rename(routes: Routes) -> str:
    """Returns the path of renames."""
    return f"{API}{routes.prefix}/generic-tables/rename"


def tables(routes: Routes, parent: NamespaceId) -> str:
    """Returns the path of the generic tables in `parent`."""
    check_names(parent)
    return f"{API}{routes.namespaces(parent)}/generic-tables"


def table(routes: Routes, id: TableId) -> str:
    """Returns the path of a generic table."""
    check_names(id)
    # The last part is checked as that of an Iceberg table: proxies rewrite some names.
    routes.table(id)
    return f"{tables(routes, id.parent)}/{quote(id.name, safe='')}"


def check_names(id: Id) -> None:
    """Raises InvalidInputError for names that the server would read as other names, or that it cannot store."""
    levels = id.parent if isinstance(id, TableId) else id
    for level in levels:
        if "+" in level:
            raise InvalidInputError(
                f"{id.kind} id {list(id)!r}: Lakekeeper reads '+' in the name of a namespace, {level!r}, as a blank; "
                "choose another name"
            )
    for name in id:
        if "\0" in name:
            raise InvalidInputError(f"{id.kind} id {list(id)!r}: Lakekeeper cannot store the character U+0000")


def lance_names(parent: NamespaceId, body: Any) -> Page[str]:
    """Returns a page of the names of Lance tables; other formats are omitted, which the listing contains."""
    page = table_names(parent, body)
    formats = [identifier.get("format") for identifier in body["identifiers"]]
    names = [name for name, format in zip(page.items, formats, strict=True) if (format or "lance").lower() == "lance"]
    return Page(names, page.token)


def deleted_tables(routes: Routes) -> str:
    """Returns the path of the deleted tables of a warehouse, whose id is the prefix of its routes."""
    return f"{MANAGEMENT_API}{routes.prefix}/deleted-tabulars"


def ids_of_deleted(id: TableId, body: Any) -> Page[str]:
    """Returns a page of the UUIDs of deleted generic tables that had an id."""
    names = [it.casefold() for it in id]
    tables = (it for it in body["tabulars"] if it["typ"] == "generic-table")
    uuids = [text(it["id"]) for it in tables if [part.casefold() for part in (*it["namespace"], it["name"])] == names]
    return Page(uuids, iceberg_wire.page_token(body))


def decode_table(id: TableId, options: Mapping[str, str], vend: bool, body: Any) -> Table:
    """Returns the Lance table in a load response; see `generic_tables.lance_table`."""
    return lance_table(id, options, body, vend=_vended_options if vend else None, folds_names=True)


def _vended_options(body: Mapping[str, Any], location: str) -> Mapping[str, str]:
    entry = vended_credentials.nearest(body.get("storage-credentials") or (), location)
    return vended_credentials.storage_options(vended_credentials.combine(body.get("config") or {}, entry), location)


LOCATION_TAKEN = "LocationAlreadyTaken"

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    IN_PROGRESS: err.ServiceUnavailableError,
    LOCATION_TAKEN: err.InvalidInputError,
    "ConcurrentUpdateError": err.ConcurrentModificationError,
    "GenericTableNotFound": err.TableNotFoundError,
    "NamespaceNotEmptyException": err.NamespaceNotEmptyError,
    "NamespaceProtected": err.PermissionDeniedError,
    "NoSuchGenericTableException": err.TableNotFoundError,
    "NoSuchNamespaceException": err.NamespaceNotFoundError,
    "NoSuchWarehouseException": err.InternalError,
    "ProtectedTabularDeletionWithoutForce": err.PermissionDeniedError,
    ("NoSuchWarehouseException", "get_config"): err.InvalidInputError,
    # A load cannot distinguish which level is missing, so a removal does not, either.
    ("NoSuchNamespaceException", "describe_table"): err.TableNotFoundError,
    ("NoSuchNamespaceException", "deregister_table"): err.TableNotFoundError,
    (404, "declare_table"): err.NamespaceNotFoundError,
    # A proxy hides the management API.
    (404, "restore_table"): err.PermissionDeniedError,
    (409, "restore_table"): err.TableAlreadyExistsError,
    (409, "create_namespace"): err.NamespaceAlreadyExistsError,
    (409, "declare_table"): err.TableAlreadyExistsError,
    (409, "drop_namespace"): err.NamespaceNotEmptyError,
    (409, "rename_table"): err.TableAlreadyExistsError,
}
