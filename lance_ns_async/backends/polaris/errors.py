"""Polaris's error tables."""

from __future__ import annotations

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async.backends.polaris import wire
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable
from lance_ns_async.transports.http.oauth2 import OAUTH2_ERRORS
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

_OF_THE_SERVICE: ErrorTable = {
    "MissingOrInvalidRealm": InternalError,
    "NotAllowedException": InternalError,
    "NotFoundException": InternalError,
}
"""Errors for an unknown realm, path or method; they never mean that a table or a namespace is missing."""

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    **SIGNING_ERRORS,
    **_OF_THE_SERVICE,
    wire.LOCATION_TAKEN: InvalidInputError,
    "ForbiddenException": PermissionDeniedError,
    "IllegalArgumentException": InvalidInputError,
    "NamespaceNotEmptyException": NamespaceNotEmptyError,
    "NoSuchNamespaceException": NamespaceNotFoundError,
    "NoSuchTableException": TableNotFoundError,
    # A load cannot distinguish which level is missing, so a removal does not, either.
    ("NoSuchNamespaceException", "describe_table"): TableNotFoundError,
    ("NoSuchNamespaceException", "deregister_table"): TableNotFoundError,
    ("AlreadyExistsException", "create_namespace"): NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "declare_table"): TableAlreadyExistsError,
    (404, "declare_table"): NamespaceNotFoundError,
    (404, "list_catalogs"): InvalidInputError,
    (409, "create_namespace"): NamespaceAlreadyExistsError,
    (409, "declare_table"): TableAlreadyExistsError,
    (409, "drop_namespace"): NamespaceNotEmptyError,
    501: InternalError,
}

TOKEN_ERRORS: ErrorTable = {**OAUTH2_ERRORS, **_OF_THE_SERVICE}
