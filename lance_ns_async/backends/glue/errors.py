"""Glue's error table."""

from __future__ import annotations

from lance_namespace.errors import (
    ConcurrentModificationError,
    NamespaceAlreadyExistsError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.errors import ErrorTable
from lance_ns_async.transports.aws.failures import AWS_ERRORS

ERRORS: ErrorTable = {
    **AWS_ERRORS,
    ("EntityNotFoundException", "namespace"): NamespaceNotFoundError,
    ("EntityNotFoundException", "table"): TableNotFoundError,
    # A declaration fails with this code if the table's database is missing.
    ("EntityNotFoundException", "declare_table"): NamespaceNotFoundError,
    ("AlreadyExistsException", "namespace"): NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "table"): TableAlreadyExistsError,
    ("FederatedResourceAlreadyExistsException", "namespace"): NamespaceAlreadyExistsError,
    ("FederatedResourceAlreadyExistsException", "table"): TableAlreadyExistsError,
    ("ConcurrentModificationException", "replace_table"): ConcurrentModificationError,
    # Lake Formation has filters of rows or cells for the table, which Lance cannot apply.
    "PermissionTypeMismatchException": PermissionDeniedError,
}
