"""Encoding of requests of the Lance REST Namespace protocol, decoding of its responses, and its error codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import lance_namespace.errors as err
from lance_namespace.errors import ErrorCode, InvalidInputError, ServiceUnavailableError, UnsupportedOperationError

from lance_ns_async.backends.shared import registrations
from lance_ns_async.backends.shared.lost_responses import LOST_RACE
from lance_ns_async.backends.shared.response_checks import check_levels, check_name, text, texts
from lance_ns_async.errors import (
    HTTP_ERRORS,
    PHRASES,
    AnotherAnswerError,
    Code,
    ErrorTable,
    NotALanceTableError,
    failure_of,
    without_source,
)
from lance_ns_async.model import Id, NamespaceId, Page, Table, TableId
from lance_ns_async.spec.extensions import UNAVAILABLE
from lance_ns_async.storage.options import merge_options
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

NOT_LANCE = "not a Lance table"
"""Code of this package for a table of another format, which the protocol reports as an invalid input."""

NOT_EMPTY = "not empty"
"""Code of this package for a namespace with content, which Gravitino reports as an invalid input."""

OLD_NOT_FOUND, OLD_CONFLICT = "status 404", "status 409"
"""Codes of this package for servers of the first protocol versions, whose error codes are HTTP statuses."""

NO_OPERATION = "no operation"
"""Code of this package for a path that a Java server does not have, whatever the status of its response."""

_LISTINGS = {"namespaces", "table", "tables"}
"""Fields of listings and descriptions, which responses to removals never have."""

_REWRITTEN = (".", "..")  # Path segments that proxies or servers remove, even if they are percent-encoded.

_RACES = ("CatalogAlreadyExistsException", "SchemaAlreadyExistsException")
"""Parts of Gravitino's internal errors of calls that lost a race for the name of a namespace."""

_TRACE = "\n\tat "  # The beginning of a stack trace of a Java server, after the message.

_NO_ROUTE = ("HTTP 404 ", "HTTP 405 ")
"""Beginnings of messages of a Java server (Gravitino) about a path or a method that it does not have."""


def path_segment(id: Id, delimiter: str) -> str:
    """Returns the names of an id, joined and percent-encoded; the root is the delimiter alone."""
    segment = delimiter.join(id)
    if id and segment.split(delimiter) != list(id):
        raise InvalidInputError(
            f"{id.kind} id {list(id)!r}: the delimiter {delimiter!r} separates names in paths, so no name can contain "
            "it; set the property delimiter to a text that no name contains"
        )
    if segment in _REWRITTEN:
        raise InvalidInputError(
            f"{id.kind} id {list(id)!r}: {segment!r} alone cannot be a part of a path, because proxies rewrite it"
        )
    return quote(segment or delimiter, safe="")


def read_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns the codes and the message of an error.

    The code is the name of the spec's error code. Servers of the first protocol versions have the HTTP status as the
    code, and the name of an exception as the type.
    """
    code = body["code"]
    message, _, _ = without_source(text(body.get("error") or body.get("detail") or "")).partition(_TRACE)
    if isinstance(code, bool) or not isinstance(code, int):
        raise TypeError("a code is a number")
    kind = text(body.get("type") or "")
    if code == ErrorCode.INTERNAL and message.startswith("Not supported"):
        # pylance's server reports operations that its catalog does not have as its own fault.
        return (ErrorCode.UNSUPPORTED.name,), message
    if kind and message.startswith(_NO_ROUTE):
        return (NO_OPERATION, ErrorCode.UNSUPPORTED.name), message
    if code == ErrorCode.INVALID_INPUT and "is no Lance table" in message:
        return (NOT_LANCE,), message
    if code == ErrorCode.INVALID_INPUT and message.removesuffix(".").endswith(" is not empty"):
        return (NOT_EMPTY, _NAMES[code]), message
    if code == ErrorCode.INTERNAL and any(it in message for it in _RACES):
        return (LOST_RACE, _NAMES[code]), message
    if code in _NAMES:
        return (_NAMES[code],), message
    own = (OLD_NOT_FOUND,) if code == 404 else (OLD_CONFLICT,) if code == 409 else ()
    return (*([kind] if kind else []), *own), f"{kind}: {message}" if kind else message


def shows_missing_operation(error: UnsupportedOperationError) -> bool:
    """Returns whether a response shows that the server has done nothing, because it does not have the operation.

    Other errors of this class may come from the middle of an operation, such as those with the status 500.
    """
    failure = failure_of(error)
    return failure is not None and (failure.delivered is False or NO_OPERATION in failure.codes)


_NAMES: Mapping[int, str] = {int(code): code.name for code in ErrorCode}


def names(field: str, parent: NamespaceId, delimiter: str, body: Any) -> Page[str]:
    """Returns a page of a listing, sorted, because some servers return each page in another order.

    Some servers return whole ids; the part that names the parent is removed.

    Args:
        field: The field of the response that holds the names.
        parent: The listed namespace.
        delimiter: Joins the names of an id.
    """
    if missing := (body.get("context") or {}).get(UNAVAILABLE):
        raise ServiceUnavailableError(f"Service unavailable: the listing lacks {text(missing)}, which failed")
    above = f"{delimiter.join(parent)}{delimiter}" if parent else ""
    token = body.get("page_token") or None
    items = sorted(text(name).removeprefix(above) for name in body[field] or ())
    return Page(items, None if token is None else text(token))


def check_removed(id: Id, body: Any) -> None:
    """Checks the response to a removal or a rename; raises AnotherAnswerError if it describes another object."""
    if not isinstance(body, dict):
        return
    if keys := _LISTINGS & body.keys():
        raise AnotherAnswerError(f"an answer with {', '.join(sorted(keys))}, to a change")
    check_levels(id, body.get("id"))


def namespace_properties(body: Any) -> Mapping[str, str]:
    """Returns the properties of a namespace; no properties if the response has none."""
    return texts((body or {}).get("properties"))


def table(id: TableId, options: Mapping[str, str] | None, body: Any) -> Table:
    """Returns the table in the response to a describe, a declaration or a registration.

    Args:
        options: Configured storage options; those in the response override them, see `merge_options`.
    """
    if (name := body.get("table")) is not None:
        check_name(id.name, name)
        if isinstance(above := body.get("namespace"), list):
            check_levels(id.parent, above)
    response_properties = body.get("properties")
    properties = None if response_properties is None else texts(response_properties)
    # Some catalogs repeat the properties of a table in its storage options.
    response_options = registrations.remove_identity(texts(body.get("storage_options")), key=registrations.REST_KEY)
    is_managed = bool(body.get("managed_versioning"))
    return Table(
        id,
        _without_slash(text(body["location"])),
        None if properties is None else registrations.remove_identity(properties, key=registrations.REST_KEY),
        merge_options(options, response_options) or None,
        managed_versioning=is_managed,
        version=body.get("version") if is_managed else None,
        registration=None if properties is None else registrations.identity(properties, key=registrations.REST_KEY),
    )


def _without_slash(location: str) -> str:
    """Returns a location without the slash at its end, which some servers add."""
    return re.sub(r"(?<=[^/:])/$", "", location)


def tables(parent: NamespaceId, options: Mapping[str, str] | None, body: Any) -> Mapping[str, Table]:
    """Returns the tables in the response to a describe of several tables, by name; see `table`."""
    return {name: table(parent.table(name), options, fields) for name, fields in body["tables"].items()}


def own_table(id: TableId, options: Mapping[str, str] | None, identity: str | None, body: Any) -> Table | None:
    """Returns the table in a response if its registration has this identity; None if another client registered it."""
    own = table(id, options, body)
    if identity is None or own.registration is None:
        raise ValueError("it is unknown who registered the table")
    return own if own.registration == identity else None


_NO_OPERATION = (404, 405, 406, 501)
"""Statuses of a server, or of a proxy, that does not have the path of an operation."""

ERRORS: ErrorTable = {
    **HTTP_ERRORS,
    **SIGNING_ERRORS,
    **{cls.code.name: cls for cls in PHRASES},
    NOT_LANCE: NotALanceTableError,
    (NOT_EMPTY, "namespace"): err.NamespaceNotEmptyError,
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
    (OLD_NOT_FOUND, "namespace"): err.NamespaceNotFoundError,
    (OLD_NOT_FOUND, "table"): err.TableNotFoundError,
    (OLD_CONFLICT, "create_namespace"): err.NamespaceAlreadyExistsError,
    (OLD_CONFLICT, "drop_namespace"): err.NamespaceNotEmptyError,
    (OLD_CONFLICT, "table"): err.TableAlreadyExistsError,
}
