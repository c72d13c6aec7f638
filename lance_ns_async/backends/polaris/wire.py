"""Encoding of requests to Apache Polaris, decoding of its responses, and its error codes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import lance_namespace.errors as err
from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.shared import iceberg_wire, vended_credentials
from lance_ns_async.backends.shared.generic_tables import present_properties
from lance_ns_async.backends.shared.lost_responses import LOST_RACE
from lance_ns_async.backends.shared.response_checks import check_levels, text
from lance_ns_async.errors import HTTP_ERRORS, Code, ErrorTable
from lance_ns_async.model import NamespaceId, Page, TableId, as_s3
from lance_ns_async.storage import locations
from lance_ns_async.storage.locations import segment
from lance_ns_async.transports.http import oauth2
from lance_ns_async.transports.http.oauth2 import OAUTH2_ERRORS
from lance_ns_async.transports.http.signatures import SIGNING_ERRORS

CATALOGS = "/management/v1/catalogs"
"""The path of the list of catalogs."""

LOCATION_TAKEN = "location taken"
"""Code of this package for a location that overlaps another object's; the server's type is ForbiddenException."""

_RACES = ("Unable to resolve sibling entities", "getRawLeafEntity()")
"""Parts of messages of calls that lost a race; they changed nothing."""

_SEPARATOR = "\x1f"
_REWRITTEN = (".", "..")  # Path segments that proxies or the server remove, even if they are percent-encoded.

_AMBIGUOUS = "/?#%"
"""Characters with a meaning in a URI; the server puts names into locations without encoding them."""


def namespaces(parent: NamespaceId) -> str:
    """Returns the path of the namespaces of the catalog that contains `parent`."""
    return f"/catalog/v1/{_segment(parent, parent[0])}/namespaces"


def namespace(id: NamespaceId) -> str:
    """Returns the path of a namespace."""
    return f"{namespaces(id)}/{levels(id)}"


def tables(parent: NamespaceId) -> str:
    """Returns the path of the generic tables in `parent`."""
    return f"/catalog/polaris/v1/{_segment(parent, parent[0])}/namespaces/{levels(parent)}/generic-tables"


def table(id: TableId) -> str:
    """Returns the path of a generic table."""
    return f"{tables(id.parent)}/{_segment(id, id.name)}"


def levels(id: NamespaceId) -> str:
    """Returns the levels below the catalog, each percent-encoded and then joined; also the value of `parent=`."""
    for level in id:
        if _SEPARATOR in level:
            raise InvalidInputError(
                f"namespace id {list(id)!r}: Polaris cannot address {level!r}, because {_SEPARATOR!r} separates levels"
            )
    return "%1F".join(_segment(id, level) for level in id[1:])


def is_addressable(name: str) -> bool:
    """Returns whether a URL path can contain this name."""
    return bool(name) and name not in _REWRITTEN


_REJECTED_LATER = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|#+`]|^\s|\s$")
"""Parts of names that Polaris 1.4.1 accepts, and later servers do not."""


def name_advice(name: str) -> str | None:
    """Returns advice for a name that the server has rejected; None if no known server rejects it.

    The server's version is unknown: neither its configuration nor a header contains it.
    """
    if (match := _REJECTED_LATER.search(name)) is None:
        return None
    return (
        f"the name {name!r} contains {match[0]!r}: Polaris from 1.5 on accepts no '/' and no blank at an end of a new "
        'name, and from 1.6 on no control characters and none of \\ : * ? " < > | # + `; choose another name'
    )


_ADVICE: Mapping[Code, str] = {  # Advice in messages about an unknown realm or path.
    "MissingOrInvalidRealm": "is the property realm right?",
    "NotFoundException": "is the endpoint right? It is the server's root",
}


def read_error(body: Any) -> tuple[tuple[Code, ...], str]:
    """Returns codes and message of an error in the Iceberg REST format; in OAuth2's format, only a message."""
    if isinstance(body.get("error"), str):
        return oauth2.read_error(body)
    codes, message = iceberg_wire.read_error(body, _ADVICE)
    # Messages about missing objects contain names, which can be any text, so the type is checked first.
    if "ForbiddenException" in codes and "conflicts with existing table or namespace at" in message:
        return (LOCATION_TAKEN, *codes), message
    if any(part in message for part in _RACES) and (
        "IllegalStateException" in codes or "NullPointerException" in codes
    ):
        return (LOST_RACE, *codes), message
    return codes, message


def catalog_names(body: Any) -> Sequence[str]:
    """Returns the names in a list of catalogs."""
    return [text(catalog["name"]) for catalog in body["catalogs"]]


def children(parent: NamespaceId, body: Any) -> Page[str]:
    """Returns the last level of each namespace in a listing."""
    page = iceberg_wire.namespace_names(body)
    above = list(parent[1:])
    if any(levels[:-1] != above for levels in body["namespaces"]):
        # A recursive listing would never end if it treated them as children.
        raise ValueError("namespaces of another parent")
    return page


def namespace_properties(id: NamespaceId, body: Any) -> Mapping[str, str]:
    """Returns the properties of a namespace."""
    check_levels(id[1:], body.get("namespace"))
    return present_properties(body)


def vended_options(body: Mapping[str, Any], location: str) -> Mapping[str, str]:
    """Returns the storage options in the credentials that a response vends for a location."""
    entries = body.get("storage-access-configs") or ()
    return vended_credentials.storage_options(vended_credentials.nearest(entries, location), location)


_LOCAL = re.compile(r"(file:|/)", re.IGNORECASE)
_NO_URI = re.compile(r"""[\s"<>\\^`{|}\[\]]|%(?![0-9A-Fa-f]{2})""")


def check_location(id: TableId, location: str) -> None:
    """Raises InvalidInputError for a local location that Polaris accepts, but that later causes failures.

    Polaris parses every local location in a namespace as a URI. If a table's location is not a valid URI, no namespace
    and no Iceberg table can be created in the table's namespace.
    """
    if _LOCAL.match(location) and (match := _NO_URI.search(location)):
        raise InvalidInputError(
            f"table {id}: its location {location!r} contains {match[0]!r}, and Polaris would then reject everything "
            "else in the namespace; give a percent-encoded file URI, with a space as %20"
        )


def location_inside(id: TableId, namespace: Mapping[str, str]) -> str:
    """Returns the default location of a table, below the location in its namespace's properties."""
    if not (base := namespace.get("location")):
        raise InvalidInputError(f"table {id}: its namespace has no location; give one for the table, or set root")
    for level in id.parent[1:]:
        if any(character in level for character in _AMBIGUOUS):
            raise InvalidInputError(
                f"table {id}: its namespace's location {base} may also be that of another namespace, because a URI "
                f"cannot tell {level!r} from other levels; give a location for the table, or set root"
            )
    place = f"{as_s3(base.rstrip('/'))}/{segment(id.name)}"
    try:
        locations.check_location(f"table {id}", place)
    except InvalidInputError as e:
        raise InvalidInputError(
            f"{e}; it is derived from its namespace's location; give a location for the table, or set root"
        ) from e
    return place


def _segment(id: NamespaceId | TableId, name: str) -> str:
    if not is_addressable(name):
        raise InvalidInputError(
            f"{id.kind} id {list(id)!r}: Polaris cannot address {name!r}, which proxies or the server rewrite"
        )
    return quote(name, safe="")


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
    LOCATION_TAKEN: err.InvalidInputError,
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
