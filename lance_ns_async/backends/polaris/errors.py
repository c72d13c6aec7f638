"""Polaris's error tables."""

from __future__ import annotations

import lance_namespace.errors as err

from lance_ns_async.backends.polaris import wire
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable
from lance_ns_async.transports.http.oauth2 import OAUTH2_ERRORS
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

_OF_THE_SERVICE: ErrorTable = {
    "MissingOrInvalidRealm": err.InternalError,
    "NotAllowedException": err.InternalError,
    "NotFoundException": err.InternalError,
}
"""Errors for an unknown realm, path or method; they never mean that a table or a namespace is missing."""

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    **SIGNING_ERRORS,
    **_OF_THE_SERVICE,
    wire.LOCATION_TAKEN: err.InvalidInputError,
    "ForbiddenException": err.PermissionDeniedError,
    "IllegalArgumentException": err.InvalidInputError,
    "NamespaceNotEmptyException": err.NamespaceNotEmptyError,
    "NoSuchNamespaceException": err.NamespaceNotFoundError,
    "NoSuchTableException": err.TableNotFoundError,
    # A load cannot distinguish which level is missing, so a removal does not, either.
    ("NoSuchNamespaceException", "describe_table"): err.TableNotFoundError,
    ("NoSuchNamespaceException", "deregister_table"): err.TableNotFoundError,
    ("AlreadyExistsException", "create_namespace"): err.NamespaceAlreadyExistsError,
    ("AlreadyExistsException", "declare_table"): err.TableAlreadyExistsError,
    (404, "declare_table"): err.NamespaceNotFoundError,
    (404, "list_catalogs"): err.InvalidInputError,
    (409, "create_namespace"): err.NamespaceAlreadyExistsError,
    (409, "declare_table"): err.TableAlreadyExistsError,
    (409, "drop_namespace"): err.NamespaceNotEmptyError,
    501: err.InternalError,
}

TOKEN_ERRORS: ErrorTable = {**OAUTH2_ERRORS, **_OF_THE_SERVICE}
