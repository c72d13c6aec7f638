"""What servers of the Iceberg REST API share: their configuration and paths, errors, namespaces, lists of tables."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import time_ns
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from lance_namespace.errors import InvalidInputError

from lance_ns_async.backends.shared.response_checks import check_levels, text, texts
from lance_ns_async.errors import Code
from lance_ns_async.model import NamespaceId, Page, TableId

IN_PROGRESS = "request_in_progress"
"""Subtype of an error if the server still works on an earlier attempt of the same call."""


_ADVICE: Mapping[Code, str] = {  # Advice in messages, by the type of the server's exception.
    "NotFoundException": "the catalog has lost its own metadata of the table: deregister_table frees the name"
}


def read_error(body: Any, advice: Mapping[Code, str] = _ADVICE) -> tuple[tuple[Code, ...], str]:
    """Returns the type of the server's exception, if the response names one, and its message without the stack."""
    if "error" not in body:
        # A proxy in front of the catalog has its own format of errors.
        return (), text(body["message"])
    error = body["error"]
    kind = text(error.get("type") or "")
    if error.get("subtype") == IN_PROGRESS:
        return (IN_PROGRESS, kind), f"{kind}: {text(error.get('message') or '')}"
    message = text(error.get("message") or "")
    if kind in advice:
        message += f"; {advice[kind]}"
    return ((kind,), f"{kind}: {message}") if kind else ((), message)


def namespace_names(body: Any) -> Page[str]:
    """Returns a page with the last level of each listed namespace."""
    return Page([text(levels[-1]) for levels in body["namespaces"]], page_token(body))


def table_names(levels: Sequence[str], body: Any) -> Page[str]:
    """Returns a page of the names of the listed tables, of all formats.

    Args:
        levels: The levels of the requested namespace.
    """
    for identifier in body["identifiers"]:
        check_levels(levels, identifier.get("namespace"))
    return Page([text(identifier["name"]) for identifier in body["identifiers"]], page_token(body))


def namespace_properties(id: NamespaceId, body: Any) -> Mapping[str, str]:
    """Returns the properties of a namespace; raises AnotherAnswerError if the response describes another one."""
    check_levels(id, body.get("namespace"))
    return texts(body.get("properties"))


def identifier(id: TableId) -> dict[str, Any]:
    """Returns the id of a table in the form of Iceberg REST."""
    return {"namespace": list(id[:-1]), "name": id[-1]}


def new_key() -> str:
    """Returns a new UUID of version 7, the form that the API recommends for keys of changes; see RFC 9562."""
    millis, chance = time_ns() // 1_000_000, secrets.randbits(74)
    return str(UUID(int=millis << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1))


def page_token(body: Any) -> str | None:
    """Returns the token of the next page; None on the last page."""
    return text(body.get("next-page-token") or "") or None


PAGE_SIZE = 1000
"""Names per page, if neither the caller nor the catalog sets a number."""

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
        return [f"pageToken={quote(token or '', safe='')}", f"pageSize={size or PAGE_SIZE}"]


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
