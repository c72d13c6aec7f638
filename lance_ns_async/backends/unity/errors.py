"""Unity Catalog's error table."""

from __future__ import annotations

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async.backends.unity import wire
from lance_ns_async.errors import COMMON_ERRORS, ErrorTable

ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "CATALOG_NOT_FOUND": NamespaceNotFoundError,
    "SCHEMA_NOT_FOUND": NamespaceNotFoundError,
    ("TABLE_NOT_FOUND", "table"): TableNotFoundError,
    "SCHEMA_ALREADY_EXISTS": NamespaceAlreadyExistsError,
    "TABLE_ALREADY_EXISTS": TableAlreadyExistsError,
    ("ALREADY_EXISTS", "create_namespace"): NamespaceAlreadyExistsError,
    ("ALREADY_EXISTS", "declare_table"): TableAlreadyExistsError,
    ("FAILED_PRECONDITION", "drop_namespace"): NamespaceNotEmptyError,
    "INVALID_ARGUMENT": InvalidInputError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": ThrottlingError,
    "REQUEST_LIMIT_EXCEEDED": ThrottlingError,
    wire.DUPLICATE: InternalError,
    ("DELTA_ONLY", "declare_table"): UnsupportedOperationError,
    # There is no 404: without an error code, it means a wrong path and not a missing table.
    400: InvalidInputError,
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    # A proxy requires credentials.
    407: UnauthenticatedError,
    408: ServiceUnavailableError,
    429: ThrottlingError,
    501: UnsupportedOperationError,
    502: ServiceUnavailableError,
    503: ServiceUnavailableError,
    504: ServiceUnavailableError,
}
