"""The error table of Iceberg REST catalogs."""

from __future__ import annotations

import lance_namespace.errors as err

from lance_ns_async.backends.shared.iceberg_wire import IN_PROGRESS
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable, UnreadableRegistrationError
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

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
