"""The error table of a Shelf."""

from lance_namespace.errors import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.errors import HTTP_ERRORS, ErrorTable

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    ("EXISTS", "namespace"): NamespaceAlreadyExistsError,
    ("EXISTS", "table"): TableAlreadyExistsError,
    "NOT_EMPTY": NamespaceNotEmptyError,
    "NO_NAMESPACE": NamespaceNotFoundError,
    "NO_TABLE": TableNotFoundError,
}
