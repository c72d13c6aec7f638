"""Unity Catalog's error table."""

from __future__ import annotations

import lance_namespace.errors as err

from lance_ns_async.backends.unity import wire
from lance_ns_async.errors import COMMON_ERRORS, ErrorTable

ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "CATALOG_NOT_FOUND": err.NamespaceNotFoundError,
    "SCHEMA_NOT_FOUND": err.NamespaceNotFoundError,
    ("TABLE_NOT_FOUND", "table"): err.TableNotFoundError,
    "SCHEMA_ALREADY_EXISTS": err.NamespaceAlreadyExistsError,
    "TABLE_ALREADY_EXISTS": err.TableAlreadyExistsError,
    ("ALREADY_EXISTS", "create_namespace"): err.NamespaceAlreadyExistsError,
    ("ALREADY_EXISTS", "declare_table"): err.TableAlreadyExistsError,
    ("FAILED_PRECONDITION", "drop_namespace"): err.NamespaceNotEmptyError,
    "INVALID_ARGUMENT": err.InvalidInputError,
    "UNAUTHENTICATED": err.UnauthenticatedError,
    "PERMISSION_DENIED": err.PermissionDeniedError,
    "RESOURCE_EXHAUSTED": err.ThrottlingError,
    "REQUEST_LIMIT_EXCEEDED": err.ThrottlingError,
    wire.DUPLICATE: err.InternalError,
    ("DELTA_ONLY", "declare_table"): err.UnsupportedOperationError,
    # There is no 404: without an error code, it means a wrong path and not a missing table.
    400: err.InvalidInputError,
    401: err.UnauthenticatedError,
    403: err.PermissionDeniedError,
    # A proxy requires credentials.
    407: err.UnauthenticatedError,
    408: err.ServiceUnavailableError,
    429: err.ThrottlingError,
    501: err.UnsupportedOperationError,
    502: err.ServiceUnavailableError,
    503: err.ServiceUnavailableError,
    504: err.ServiceUnavailableError,
}
