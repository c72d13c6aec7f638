"""The configuration that an Iceberg REST server returns: its paths, page size and optional features."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.shared.response_checks import text
from lance_ns_async.model import NamespaceId, TableId

_PAGE_SIZE = 1000  # Names per page, if neither the caller nor the catalog sets a number.

_CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"

_DURATION = re.compile(r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.[0-9]+)?S)?)?")

_REFERENCE = re.compile("[@#]|^`.*`$", re.DOTALL)
"""Names in which Nessie finds a reference to a branch or a time, or backticks that it removes."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The paths and options in a catalog's `/v1/config` response; all parts of paths are percent-encoded."""

    prefix: str
    separator: str
    page_size: int | None
    commits_together: bool = True
    """Whether one request can commit several tables."""
    vends_separately: bool = False
    """Whether the server has an endpoint for the credentials of a table."""
    names_hold_references: bool = False
    """Whether a table's name can contain a reference to a branch of the catalog, as in Nessie."""
    key_lifetime: float | None = None
    """Seconds for which the server recognizes a change by its key; None if it does not support keys."""
    changes_locations: bool = True
    """Whether an existing table's location can change; Nessie returns 200 for such a commit and ignores it."""

    def namespace(self, id: NamespaceId) -> str:
        """Returns the levels of `id`, each percent-encoded once, joined by the catalog's separator."""
        return _encode_levels(self.separator, id)

    def namespaces(self, id: NamespaceId | None = None) -> str:
        """Returns the path of all namespaces, or of one."""
        return _namespaces_path(self.prefix, self.separator, id or ())

    def tables(self, parent: NamespaceId) -> str:
        """Returns the path of the tables in `parent`."""
        return f"{self.namespaces(parent)}/tables"

    def table(self, id: TableId) -> str:
        """Returns the path of a table."""
        name = id[-1]
        if name in (".", ".."):
            raise InvalidInputError(
                f"table id {list(id)!r}: the name {name!r} would be rewritten by proxies; choose another"
            )
        if self.names_hold_references and _REFERENCE.search(name):
            raise InvalidInputError(
                f"table id {list(id)!r}: this catalog reads text after '@' or '#' in a name as a branch or a time, "
                "and removes backticks around it, so it would find another table; choose another name"
            )
        return f"{_namespaces_path(self.prefix, self.separator, id[:-1])}/tables/{quote(name, safe='')}"

    def page(self, token: str | None, limit: int | None) -> list[str]:
        """Returns the query parameters that request a page of a listing."""
        size = limit or self.page_size
        if token is None and size is None:
            return []
        # Some servers ignore a token without a size, and return the first page again.
        return [f"pageToken={quote(token or '', safe='')}", f"pageSize={size or _PAGE_SIZE}"]


@lru_cache
def _namespaces_path(prefix: str, separator: str, levels: tuple[str, ...]) -> str:
    return f"{prefix}/namespaces" + (f"/{_encode_levels(separator, levels)}" if levels else "")


def _encode_levels(separator: str, levels: tuple[str, ...]) -> str:
    decoded = unquote(separator)
    for level in levels:
        if level in (".", "..") or decoded in level:
            raise InvalidInputError(
                f"namespace id {list(levels)!r}: this catalog cannot address a level named {level!r}, "
                f"because {decoded!r} separates levels and proxies rewrite '.' and '..'"
            )
    return separator.join(quote(level, safe="") for level in levels)


def routes(body: Any) -> Routes:
    """Returns the paths and options in a configuration; `overrides` take precedence over `defaults`."""
    config = {**(body.get("defaults") or {}), **(body.get("overrides") or {})}
    prefix = _check_encoded(config.get("prefix") or "")
    page_size = config.get("rest-page-size")
    endpoints = body.get("endpoints")
    is_nessie = config.get("nessie.is-nessie-catalog") == "true"
    return Routes(
        prefix=f"/{prefix}" if prefix else "",
        separator=_check_encoded(config.get("namespace-separator") or "%1F"),
        page_size=int(page_size) if page_size else None,
        # Without a list of endpoints, the API defines that this one is supported.
        commits_together=endpoints is None or "POST /v1/{prefix}/transactions/commit" in endpoints,
        vends_separately=_CREDENTIALS in (endpoints or ()),
        names_hold_references=is_nessie,
        changes_locations=not is_nessie,
        key_lifetime=_seconds(body.get("idempotency-key-lifetime")),
    )


def _seconds(duration: Any) -> float | None:
    """Returns an ISO 8601 duration in seconds; None if it is none, or in months or years."""
    match = _DURATION.fullmatch(duration) if isinstance(duration, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _check_encoded(part: Any) -> str:
    """Returns a part of a path that the server has percent-encoded; raises ValueError if it needs encoding."""
    if not (text(part).isascii() and part.isprintable() and " " not in part):
        raise ValueError(f"{part[:40]!r} instead of percent-encoded text")
    return text(part)
