"""The error table of Iceberg REST catalogs."""

from __future__ import annotations

from lance_namespace.errors import (
    ConcurrentModificationError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)

from lance_ns_async.backends.shared.iceberg_wire import IN_PROGRESS
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable, UnreadableRegistrationError
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    **SIGNING_ERRORS,
    "NoSuchNamespaceException": NamespaceNotFoundError,
    # The parent was checked before the call, so another client dropped the namespace right after its creation.
    ("NoSuchNamespaceException", "create_namespace"): ConcurrentModificationError,
    "NoSuchTableException": TableNotFoundError,
    # A metadata file of the table is missing. The name is in use, but the table can be neither loaded nor changed.
    "NotFoundException": UnreadableRegistrationError,
    ("NotFoundException", "declare_table"): TableAlreadyExistsError,
    "NamespaceNotEmptyException": NamespaceNotEmptyError,
    IN_PROGRESS: ServiceUnavailableError,
    406: UnsupportedOperationError,
    (404, "declare_table"): NamespaceNotFoundError,
    (405, "vend_credentials"): UnsupportedOperationError,
    (409, "create_namespace"): NamespaceAlreadyExistsError,
    (409, "drop_namespace"): NamespaceNotEmptyError,
    (409, "declare_table"): TableAlreadyExistsError,
    # Nessie, if another client removes the table at the same time.
    (409, "deregister_table"): ConcurrentModificationError,
    (409, "rename_table"): TableAlreadyExistsError,
    (409, "replace_table"): ConcurrentModificationError,
    (409, "create_table_version"): ConcurrentModificationError,
    (409, "batch_create_table_versions"): ConcurrentModificationError,
    (409, "batch_delete_table_versions"): ConcurrentModificationError,
}
