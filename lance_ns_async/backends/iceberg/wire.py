"""What goes over the wire of an Iceberg REST catalog: paths, bodies and answers, all without a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.values import check_levels, text, texts
from lance_ns_async.errors import Code, not_lance
from lance_ns_async.model import NamespaceId, Page, Table, TableId

_PAGE_SIZE = 1000
"""Names a page, where neither the caller nor the catalog says how many."""

_REFERENCE = re.compile("[@#]|^`.*`$", re.DOTALL)
"""What Nessie takes for more than a name."""


@dataclass(frozen=True, slots=True)
class Routes:
    """What a catalog's `/v1/config` says about its paths; all parts are percent-encoded."""

    prefix: str
    separator: str
    page_size: int | None
    commits_together: bool = True
    """Whether several tables can be committed at once."""
    names_hold_references: bool = False
    """Whether a table's name may say which branch of the catalog is meant, as Nessie has it."""
    changes_locations: bool = True
    """Whether a table that exists can get another location; Nessie answers such a commit with 200 and ignores it."""

    def namespace(self, id: NamespaceId | TableId) -> str:
        """The levels of `id`, each encoded once, joined as this catalog wants them."""
        separator = unquote(self.separator)
        for level in id:
            if level in (".", "..") or (separator in level and isinstance(id, NamespaceId)):
                raise InvalidInputError(
                    f"{id.kind} id {list(id)!r}: this catalog cannot address a level named {level!r}, "
                    f"because {separator!r} separates levels and '.' and '..' are rewritten on the way"
                )
        return self.separator.join(quote(level, safe="") for level in id)

    def namespaces(self, id: NamespaceId | None = None) -> str:
        """The path of all namespaces, or of one."""
        return f"{self.prefix}/namespaces" + (f"/{self.namespace(id)}" if id else "")

    def tables(self, parent: NamespaceId) -> str:
        """The path of the tables in `parent`."""
        return f"{self.namespaces(parent)}/tables"

    def table(self, id: TableId) -> str:
        """The path of a table."""
        if id.name in (".", ".."):
            raise InvalidInputError(
                f"table id {list(id)!r}: the name {id.name!r} would be rewritten on the way; choose another"
            )
        if self.names_hold_references and _REFERENCE.search(id.name):
            raise InvalidInputError(
                f"table id {list(id)!r}: this catalog takes what follows '@' or '#' in a name for a branch or a time, "
                "and drops backticks around it, and so would reach another table; choose another name"
            )
        return f"{self.tables(id.parent)}/{quote(id.name, safe='')}"

    def page(self, token: str | None, limit: int | None) -> list[str]:
        """The query parameters that ask for a page of a listing."""
        size = limit or self.page_size
        if token is None and size is None:
            return []
        # Some servers ignore a token that comes without a size, and begin anew.
        return [f"pageToken={quote(token or '', safe='')}", f"pageSize={size or _PAGE_SIZE}"]


def explain(body: Any) -> tuple[tuple[Code, ...], str]:
    """The exception's type, where the server names one, and its message without the stack."""
    if "error" not in body:
        # What stands before the catalog answers in its own form.
        return (), text(body["message"])
    error = body["error"]
    kind = text(error.get("type") or "")
    message = text(error.get("message") or "")
    if kind == "NotFoundException":
        message += "; the catalog has lost its own metadata of the table: deregister_table frees the name"
    return ((kind,), f"{kind}: {message}") if kind else ((), message)


def routes(body: Any) -> Routes:
    """What the configuration says about paths, `overrides` before `defaults`."""
    config = {**(body.get("defaults") or {}), **(body.get("overrides") or {})}
    prefix = _encoded(config.get("prefix") or "")
    page_size = config.get("rest-page-size")
    endpoints = body.get("endpoints")
    is_nessie = config.get("nessie.is-nessie-catalog") == "true"
    return Routes(
        prefix=f"/{prefix}" if prefix else "",
        separator=_encoded(config.get("namespace-separator") or "%1F"),
        page_size=int(page_size) if page_size else None,
        # Where a server does not say what it offers, the API takes this for offered.
        commits_together=endpoints is None or "POST /v1/{prefix}/transactions/commit" in endpoints,
        names_hold_references=is_nessie,
        changes_locations=not is_nessie,
    )


def namespace_names(body: Any) -> Page[str]:
    """The last level of each namespace listed."""
    return Page([text(levels[-1]) for levels in body["namespaces"]], _token(body))


def table_names(levels: Sequence[str], body: Any) -> Page[str]:
    """The names of the tables listed, of whatever format, which must be in the namespace of these levels."""
    for found in body["identifiers"]:
        check_levels(levels, found.get("namespace"))
    return Page([text(found["name"]) for found in body["identifiers"]], _token(body))


def properties_kept(id: NamespaceId, body: Any) -> Mapping[str, str]:
    """The properties of a namespace."""
    check_levels(id, body.get("namespace"))
    return texts(body.get("properties"))


def table(id: TableId, storage_options: Mapping[str, str] | None, body: Any) -> Table:
    """The Lance table of a load's answer."""
    metadata = body["metadata"]
    kept = texts(metadata.get("properties"))
    if (kind := kept.get("table_type", "iceberg")).lower() != "lance":
        raise not_lance(id, f"its table_type is {kind!r}")
    managed = kept.get("managed_by", "storage").lower() == "impl"
    return Table(
        id,
        text(metadata["location"]),
        kept,
        storage_options,
        managed_versioning=managed,
        version=current_snapshot(metadata) if managed else None,
        registration=text(metadata["table-uuid"]),
    )


def current_snapshot(metadata: Any) -> int | None:
    """The id of a table's current snapshot, None where it has none; how that is written depends on the format."""
    found = metadata.get("current-snapshot-id")
    return None if found is None or found == -1 else int(found)


def table_of_uuid(id: TableId, storage_options: Mapping[str, str] | None, uuid: str, body: Any) -> Table | None:
    """The table of a load's answer, or None where it is another one of the same name."""
    return table(id, storage_options, body) if body["metadata"]["table-uuid"] == uuid else None


def declaration(id: TableId, uuid: str, location: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """The one commit that makes a table which must not exist yet; every part is demanded by some server."""
    return {
        "identifier": identifier(id),
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": uuid},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "set-location", "location": location},
            {
                "action": "add-schema",
                "schema": {"type": "struct", "schema-id": 0, "fields": []},
                "last-column-id": 0,
            },
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-properties", "updates": dict(properties)},
        ],
    }


def replacement(old: Table, location: str, properties: Mapping[str, str]) -> dict[str, Any] | None:
    """Returns the commit that gives a registration that location and exactly those properties; None if it has them.

    It is refused where the name belongs to another registration by now. Snapshots are of the data at the old
    location: where that changes, or who commits versions, none of them stays the current one.
    """
    kept = old.properties or {}
    changed = {key: value for key, value in properties.items() if kept.get(key) != value}
    removed = sorted(kept.keys() - properties.keys())
    updates: list[dict[str, Any]] = []
    if location != old.location:
        updates.append({"action": "set-location", "location": location})
    if changed:
        updates.append({"action": "set-properties", "updates": changed})
    if removed:
        updates.append({"action": "remove-properties", "removals": removed})
    if old.version is not None and (location != old.location or "managed_by" in changed):
        updates.append({"action": "remove-snapshot-ref", "ref-name": "main"})
    if not updates:
        return None
    return {
        "identifier": identifier(old.id),
        "requirements": [{"type": "assert-table-uuid", "uuid": old.registration}],
        "updates": updates,
    }


def is_registered_as(table: Table, location: str, properties: Mapping[str, str]) -> bool:
    """Returns whether a table is at that location with those properties, whatever the catalog adds to them."""
    kept = table.properties or {}
    return table.location == location and all(kept.get(key) == value for key, value in properties.items())


def identifier(id: TableId) -> dict[str, Any]:
    return {"namespace": list(id.parent), "name": id.name}


def _encoded(part: Any) -> str:
    """A part of a path that was percent-encoded by the server, and is sent as it is."""
    if not (text(part).isascii() and part.isprintable() and " " not in part):
        raise ValueError(f"{part[:40]!r} where a percent-encoded text is wanted")
    return text(part)


def _token(body: Any) -> str | None:
    return text(body.get("next-page-token") or "") or None
