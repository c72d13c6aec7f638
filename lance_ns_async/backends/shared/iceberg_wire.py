"""The wire format that servers of the Iceberg REST API share: errors, namespaces, and lists of tables."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from time import time_ns
from typing import Any
from uuid import UUID

from lance_ns_async.backends.shared.response_checks import check_levels, text, texts
from lance_ns_async.errors import Code
from lance_ns_async.model import NamespaceId, Page, TableId

IN_PROGRESS = "request_in_progress"
"""Subtype of an error if the server still works on an earlier attempt of the same call."""


_ADVICE: Mapping[Code, str] = {  # Advice in messages, by the type of the server's exception.
    "NotFoundException": "the catalog has lost its own metadata of the table: deregister_table frees the name"
}


def explain(body: Any, advice: Mapping[Code, str] = _ADVICE) -> tuple[tuple[Code, ...], str]:
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
    return Page([text(levels[-1]) for levels in body["namespaces"]], _token(body))


def table_names(levels: Sequence[str], body: Any) -> Page[str]:
    """Returns a page of the names of the listed tables, of all formats.

    Args:
        levels: The levels of the requested namespace.
    """
    for identifier in body["identifiers"]:
        check_levels(levels, identifier.get("namespace"))
    return Page([text(identifier["name"]) for identifier in body["identifiers"]], _token(body))


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


def _token(body: Any) -> str | None:
    return text(body.get("next-page-token") or "") or None
