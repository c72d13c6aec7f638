"""Lakekeeper's error table."""

from __future__ import annotations

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.backends.shared.iceberg_wire import IN_PROGRESS
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable

LOCATION_TAKEN = "LocationAlreadyTaken"

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    IN_PROGRESS: ServiceUnavailableError,
    LOCATION_TAKEN: InvalidInputError,
    "ConcurrentUpdateError": ConcurrentModificationError,
    "GenericTableNotFound": TableNotFoundError,
    "NamespaceNotEmptyException": NamespaceNotEmptyError,
    "NamespaceProtected": PermissionDeniedError,
    "NoSuchGenericTableException": TableNotFoundError,
    "NoSuchNamespaceException": NamespaceNotFoundError,
    "NoSuchWarehouseException": InternalError,
    "ProtectedTabularDeletionWithoutForce": PermissionDeniedError,
    ("NoSuchWarehouseException", "get_config"): InvalidInputError,
    # A load cannot distinguish which level is missing, so a removal does not, either.
    ("NoSuchNamespaceException", "describe_table"): TableNotFoundError,
    ("NoSuchNamespaceException", "deregister_table"): TableNotFoundError,
    (404, "declare_table"): NamespaceNotFoundError,
    (409, "create_namespace"): NamespaceAlreadyExistsError,
    (409, "declare_table"): TableAlreadyExistsError,
    (409, "drop_namespace"): NamespaceNotEmptyError,
    (409, "rename_table"): TableAlreadyExistsError,
}
