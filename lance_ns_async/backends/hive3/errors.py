"""The error table of a Hive Metastore."""

from __future__ import annotations

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from lance_ns_async.errors import COMMON_ERRORS, ErrorTable

ERRORS: ErrorTable = {
    **COMMON_ERRORS,
    "unauthenticated": UnauthenticatedError,
    "UNKNOWN_METHOD": UnsupportedOperationError,
    "NoSuchDatabase": NamespaceNotFoundError,
    "NoSuchTable": TableNotFoundError,
    "TableExists": TableAlreadyExistsError,
    ("Duplicate", "namespace"): NamespaceAlreadyExistsError,
    ("Duplicate", "table"): TableAlreadyExistsError,
    "NotEmpty": NamespaceNotEmptyError,
    "Denied": PermissionDeniedError,
    "Unacceptable": InvalidInputError,
    "NotStored": InvalidInputError,
    "Replaced": ConcurrentModificationError,
    "Incomparable": InternalError,
    # The lengths were checked before the call, so another client removed the table during it.
    ("NotStored", "replace_table"): ConcurrentModificationError,
    "UnknownDBException": NamespaceNotFoundError,
    ("NoSuchObjectException", "namespace"): NamespaceNotFoundError,
    ("NoSuchObjectException", "declare_table"): NamespaceNotFoundError,
    ("AlreadyExistsException", "namespace"): NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "table"): TableAlreadyExistsError,
    "InvalidObjectException": InvalidInputError,
    "InvalidOperationException": InvalidInputError,
    "MetaException": InternalError,
}
