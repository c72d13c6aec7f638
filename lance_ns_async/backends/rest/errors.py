"""The error table of the Lance REST Namespace protocol."""

from __future__ import annotations

import lance_namespace.errors as err

from lance_ns_async.backends.rest import wire
from lance_ns_async.errors import HTTP_ERRORS, PHRASES, ErrorTable, NotALanceTableError
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

_NO_OPERATION = (404, 405, 406, 501)
"""Statuses of a server, or of a proxy, that does not have the path of an operation."""

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    **SIGNING_ERRORS,
    **{cls.code.name: cls for cls in PHRASES},
    wire.NOT_LANCE: NotALanceTableError,
    (wire.NOT_EMPTY, "namespace"): err.NamespaceNotEmptyError,
    # Without a code of the protocol, these do not mean that an object is missing.
    **{(status, kind): err.UnsupportedOperationError for status in _NO_OPERATION for kind in ("namespace", "table")},
    # The first versions of the protocol, and the exceptions of Gravitino.
    "ForbiddenException": err.PermissionDeniedError,
    "IllegalArgumentException": err.InvalidInputError,
    "NoSuchCatalogException": err.NamespaceNotFoundError,
    "NoSuchSchemaException": err.NamespaceNotFoundError,
    "NoSuchTableException": err.TableNotFoundError,
    "NonEmptyCatalogException": err.NamespaceNotEmptyError,
    "NonEmptySchemaException": err.NamespaceNotEmptyError,
    "SchemaAlreadyExistsException": err.NamespaceAlreadyExistsError,
    "TableAlreadyExistsException": err.TableAlreadyExistsError,
    "UnauthorizedException": err.UnauthenticatedError,
    "UnsupportedOperationException": err.UnsupportedOperationError,
    (wire.OLD_NOT_FOUND, "namespace"): err.NamespaceNotFoundError,
    (wire.OLD_NOT_FOUND, "table"): err.TableNotFoundError,
    (wire.OLD_CONFLICT, "create_namespace"): err.NamespaceAlreadyExistsError,
    (wire.OLD_CONFLICT, "drop_namespace"): err.NamespaceNotEmptyError,
    (wire.OLD_CONFLICT, "table"): err.TableAlreadyExistsError,
}
