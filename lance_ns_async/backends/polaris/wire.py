"""What goes over the wire of Apache Polaris: paths, bodies and answers, all without a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends import registrations, vended
from lance_ns_async.backends.iceberg import wire
from lance_ns_async.backends.values import check_levels, text
from lance_ns_async.errors import AnotherAnswerError, Code, not_lance
from lance_ns_async.model import NamespaceId, Page, Table, TableId
from lance_ns_async.storage import locations
from lance_ns_async.storage.locations import segment
from lance_ns_async.transports.http import oauth2

CATALOGS = "/management/v1/catalogs"
"""The path of all catalogs."""

LOCATION_TAKEN = "location taken"
"""Our code for a namespace that would share its place with another: the server's type says it is forbidden."""

_SEPARATOR = "\x1f"
_REWRITTEN = (".", "..")
"""Names that are removed from a path on the way, or by the server even where they are percent-encoded."""

_TYPE_KEY = "table_type"
_AMBIGUOUS = "/?#%"
"""What means something else in a URI than in a name, though the server puts names into locations as they are."""


def namespaces(parent: NamespaceId) -> str:
    """The path of the namespaces of the catalog that `parent` is in."""
    return f"/catalog/v1/{_segment(parent, parent[0])}/namespaces"


def namespace(id: NamespaceId) -> str:
    """The path of a namespace."""
    return f"{namespaces(id)}/{levels(id)}"


def tables(parent: NamespaceId) -> str:
    """The path of the generic tables in `parent`."""
    return f"/catalog/polaris/v1/{_segment(parent, parent[0])}/namespaces/{levels(parent)}/generic-tables"


def table(id: TableId) -> str:
    """The path of a generic table."""
    return f"{tables(id.parent)}/{_segment(id, id.name)}"


def levels(id: NamespaceId) -> str:
    """The levels below the catalog, each encoded once, joined; also the value of `parent=`."""
    for level in id:
        if _SEPARATOR in level:
            raise InvalidInputError(
                f"namespace id {list(id)!r}: Polaris cannot address {level!r}, for {_SEPARATOR!r} separates levels"
            )
    return "%1F".join(_segment(id, level) for level in id[1:])


def is_addressable(name: str) -> bool:
    """Whether a table of that name can be asked for at all."""
    return bool(name) and name not in _REWRITTEN


_MISTAKES: Mapping[Code, str] = {
    "MissingOrInvalidRealm": "is the property realm right?",
    "NotFoundException": "is the endpoint right? It is the server's root",
}
"""What to look at where the server does not know what it was asked for."""


def explain(body: Any) -> tuple[tuple[Code, ...], str]:
    """The exception's type and message, as Iceberg's catalogs tell them; OAuth2's form has a message alone."""
    if isinstance(body.get("error"), str):
        return oauth2.explain(body)
    codes, message = wire.explain(body)
    # Of what is missing the message holds the name, which can say anything.
    if "ForbiddenException" in codes and "conflicts with existing table or namespace at" in message:
        return (LOCATION_TAKEN, *codes), message
    if codes and codes[0] in _MISTAKES:
        return codes, f"{message}; {_MISTAKES[codes[0]]}"
    return codes, message


def catalog_names(body: Any) -> Sequence[str]:
    """The names of the catalogs listed."""
    return [text(found["name"]) for found in body["catalogs"]]


def children(parent: NamespaceId, body: Any) -> Page[str]:
    """The last level of each namespace listed, which must be directly below `parent`."""
    page = wire.namespace_names(body)
    above = list(parent[1:])
    if any(levels[:-1] != above for levels in body["namespaces"]):
        # Who takes them for children walks down for ever.
        raise ValueError("namespaces of another parent")
    return page


def namespace_properties(id: NamespaceId, body: Any) -> Mapping[str, str]:
    """The properties of a namespace."""
    check_levels(id[1:], body.get("namespace"))
    return _kept(body)


def lance_table(id: TableId, options: Mapping[str, str], vend: bool, body: Any) -> Table:
    """The Lance table of an answer; its storage options are `options`, its properties, and what is vended."""
    found = body["table"]
    if (name := text(found.get("name", id.name))) != id.name:
        # What rewrites paths on the way may have asked for another one.
        raise AnotherAnswerError(f"an answer about the table {name!r}")
    if (format := found.get("format") or "").lower() != "lance":
        raise not_lance(id, f"its format is {format!r}")
    if not (location := found.get("base-location")):
        raise not_lance(id, "it has no base-location")
    kept = _kept(found)
    properties = registrations.unmarked(kept)
    merged = {**options, **properties}
    merged.pop(_TYPE_KEY, None)
    if vend:
        entries = body.get("storage-access-configs") or ()
        merged = vended.over(merged, vended.storage_options(vended.nearest(entries, location), location))
    return Table(id, text(location), properties, merged or None, registration=registrations.identity(kept))


def declared_table(id: TableId, options: Mapping[str, str], declared: Mapping[str, Any], body: Any) -> Table | None:
    """The table of an answer, or None where it is another one than was declared."""
    found = body["table"]
    same = all(found.get(key) == declared.get(key) for key in ("format", "base-location", "doc", "properties"))
    return lance_table(id, options, False, body) if same else None


def declaration(name: str, location: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """What is sent to declare a Lance table."""
    body = {
        "name": name,
        "format": "lance",
        "base-location": location,
        "properties": registrations.marked({**properties, _TYPE_KEY: "lance"}),
    }
    return body | ({"doc": properties["doc"]} if "doc" in properties else {})


_LOCAL = re.compile(r"(file:|/)", re.IGNORECASE)
_NO_URI = re.compile(r"""[\s"<>\\^`{|}\[\]]|%(?![0-9A-Fa-f]{2})""")


def check_location(id: TableId, location: str) -> None:
    """Raises InvalidInputError for a local place that Polaris takes, and then fails over.

    Once a table is at such a one, its namespace takes neither namespaces nor Iceberg tables: the server reads every
    local place in it as a URI.
    """
    if _LOCAL.match(location) and (found := _NO_URI.search(location)):
        raise InvalidInputError(
            f"table {id}: its location {location!r} has {found[0]!r}, with which Polaris would refuse whatever else is "
            "made in the namespace; give it as a file URI and percent-encoded, a blank as %20"
        )


def location_inside(id: TableId, namespace: Mapping[str, str]) -> str:
    """Where the table goes in a namespace of such properties, which hold the namespace's own location."""
    if not (base := namespace.get("location")):
        raise InvalidInputError(f"table {id}: its namespace has no location; give one for the table, or set root")
    for level in id.parent[1:]:
        if any(character in level for character in _AMBIGUOUS):
            raise InvalidInputError(
                f"table {id}: its namespace's location {base} may be another's too, for as a URI it does not tell "
                f"{level!r} from other levels; give a location for the table, or set root"
            )
    place = f"{base.rstrip('/')}/{segment(id.name)}"
    try:
        locations.check_location(f"table {id}", place)
    except InvalidInputError as e:
        raise InvalidInputError(
            f"{e}; it comes of its namespace's location, so give one for the table, or set root"
        ) from e
    return place


def _segment(id: NamespaceId | TableId, name: str) -> str:
    if not is_addressable(name):
        raise InvalidInputError(
            f"{id.kind} id {list(id)!r}: Polaris cannot address {name!r}, which is rewritten on the way"
        )
    return quote(name, safe="")


def _kept(found: Mapping[str, Any]) -> dict[str, str]:
    # The server keeps null for a value, which our maps cannot say.
    properties: Mapping[str, Any] = found.get("properties") or {}
    return {key: text(value) for key, value in properties.items() if value is not None}
