"""Lakekeeper's error table."""

from __future__ import annotations

import lance_namespace.errors as err

from lance_ns_async.backends.shared.iceberg_wire import IN_PROGRESS
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable

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
    (409, "create_namespace"): err.NamespaceAlreadyExistsError,
    (409, "declare_table"): err.TableAlreadyExistsError,
    (409, "drop_namespace"): err.NamespaceNotEmptyError,
    (409, "rename_table"): err.TableAlreadyExistsError,
}
