"""Glue's error table."""

from __future__ import annotations

import lance_namespace.errors as err

from lance_ns_async.errors import ErrorTable
from lance_ns_async.transports.aws.failures import AWS_ERRORS

ERRORS: ErrorTable = {
    **AWS_ERRORS,
    ("EntityNotFoundException", "namespace"): err.NamespaceNotFoundError,
    ("EntityNotFoundException", "table"): err.TableNotFoundError,
    # A declaration fails with this code if the table's database is missing.
    ("EntityNotFoundException", "declare_table"): err.NamespaceNotFoundError,
    ("AlreadyExistsException", "namespace"): err.NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "table"): err.TableAlreadyExistsError,
    ("FederatedResourceAlreadyExistsException", "namespace"): err.NamespaceAlreadyExistsError,
    ("FederatedResourceAlreadyExistsException", "table"): err.TableAlreadyExistsError,
    ("ConcurrentModificationException", "replace_table"): err.ConcurrentModificationError,
    # Lake Formation has filters of rows or cells for the table, which Lance cannot apply.
    "PermissionTypeMismatchException": err.PermissionDeniedError,
}
