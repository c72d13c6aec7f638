"""The HTTP headers that a request of the spec brings: credentials of its own, and headers in its context.

A context variable holds them for the time of one operation, so that no method of a backend needs a parameter for them.
Spec: `identity` and `context` of requests, https://lance.org/format/namespace/rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from lance_namespace.errors import InvalidInputError

from lance_ns_async.masked import MaskedText, bearer_token

_ENTRY = re.compile(r"headers?\.(.*)", re.DOTALL)
"""A context entry that is a header; the spec has the prefix `header.`, and pylance also `headers.`."""

_FORBIDDEN = frozenset(  # Headers of the connection, and those that the transport sets because it depends on them.
    {
        *("connection", "expect", "host", "keep-alive", "trailer", "transfer-encoding", "upgrade"),
        *("proxy-connection", "te"),  # codespell:ignore te
        *("proxy-authenticate", "proxy-authorization"),
        *("accept", "accept-encoding", "content-encoding", "content-length", "content-type", "idempotency-key"),
    }
)

headers: ContextVar[dict[str, MaskedText] | None] = ContextVar("request_headers", default=None)
"""Headers of the current operation by their names in lower case; None if the operation may have none."""


@contextmanager
def scope(*, allowed: bool) -> Iterator[None]:
    """Limits the headers of a request to one operation; with `allowed`, it may have some."""
    token = headers.set({} if allowed else None)
    try:
        yield
    finally:
        headers.reset(token)


def current() -> Mapping[str, MaskedText]:
    """Returns the headers of the current operation, by their names in lower case."""
    return headers.get() or {}


def use(auth_token: str | None, api_key: str | None, context: Mapping[str, str] | None) -> bool:
    """Adds the headers of a request to those of the current operation; returns whether it may have headers."""
    if (used := headers.get()) is None:
        return False
    entries = [(f"context {it!r}", _ENTRY.fullmatch(it), value) for it, value in (context or {}).items()]
    added: dict[str, MaskedText] = {}
    for field, name, value in (
        ("identity.auth_token", "authorization", f"Bearer {bearer_token(auth_token)}" if auth_token else ""),
        ("identity.api_key", "x-api-key", api_key or ""),
        *((field, entry[1].lower(), value) for field, entry, value in entries if entry is not None),
    ):
        if name in _FORBIDDEN or not re.fullmatch(r"[a-z0-9!#$%&'*+.^_`|~-]+", name):
            raise InvalidInputError(f"{field}: not a header that a request may set")
        if not (value.isascii() and value.isprintable()):
            raise InvalidInputError(f"{field}: a header cannot contain it; use printable ASCII on one line")
        if value and name in added:
            raise InvalidInputError(f"{field}: the header {name} is given twice; set it once")
        if value:
            added[name] = MaskedText(value)
    used.update(added)
    return True
