"""The error table of a Hive Metastore."""

from __future__ import annotations

import lance_namespace.errors as err

from lance_ns_async.errors import COMMON_ERRORS, ErrorTable

ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "unauthenticated": err.UnauthenticatedError,
    "UNKNOWN_METHOD": err.UnsupportedOperationError,
    "NoSuchDatabase": err.NamespaceNotFoundError,
    "NoSuchTable": err.TableNotFoundError,
    "TableExists": err.TableAlreadyExistsError,
    ("Duplicate", "namespace"): err.NamespaceAlreadyExistsError,
    ("Duplicate", "table"): err.TableAlreadyExistsError,
    "NotEmpty": err.NamespaceNotEmptyError,
    "Denied": err.PermissionDeniedError,
    "Unacceptable": err.InvalidInputError,
    "NotStored": err.InvalidInputError,
    "Replaced": err.ConcurrentModificationError,
    "Incomparable": err.InternalError,
    # The lengths were checked before the call, so another client removed the table during it.
    ("NotStored", "replace_table"): err.ConcurrentModificationError,
    "UnknownDBException": err.NamespaceNotFoundError,
    ("NoSuchObjectException", "namespace"): err.NamespaceNotFoundError,
    ("NoSuchObjectException", "declare_table"): err.NamespaceNotFoundError,
    ("AlreadyExistsException", "namespace"): err.NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "table"): err.TableAlreadyExistsError,
    "InvalidObjectException": err.InvalidInputError,
    "InvalidOperationException": err.InvalidInputError,
    "MetaException": err.InternalError,
}
