"""The HTTP headers that a request of the spec brings: credentials of its own, and headers in its context.

A context variable holds them for the time of one operation, so that no method of a backend needs a parameter for them.
Spec: `identity` and `context` of requests, https://lance.org/format/namespace/rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from lance_namespace.errors import InvalidInputError

from lance_ns_async.errors import shortened
from lance_ns_async.masked import MaskedText

_PREFIXES = ("header.", "headers.")
"""Prefixes of context entries that are headers; the spec has the first, and pylance also the second."""

_FORBIDDEN = frozenset(
    {
        *(
            "connection",
            "expect",
            "host",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
        ),
        *("te", "trailer", "transfer-encoding", "upgrade"),  # codespell:ignore te
        *("accept", "accept-encoding", "content-encoding", "content-length", "content-type", "idempotency-key"),
    }
)
"""Headers of the connection, and those that the transport sets because it depends on them."""

_LONGEST_NAME = 100
"""Maximum number of characters of a name in a message."""


@dataclass(slots=True)
class _Scope:
    """One operation whose request may bring headers."""

    headers: Mapping[str, MaskedText] = field(default_factory=dict)


_scope: ContextVar[_Scope | None] = ContextVar("lance_ns_async_request_headers", default=None)


@contextmanager
def scope(*, allowed: bool) -> Iterator[None]:
    """Limits the headers of a request to one operation; with `allowed`, it may have some."""
    token = _scope.set(_Scope() if allowed else None)
    try:
        yield
    finally:
        _scope.reset(token)


def are_allowed() -> bool:
    """Returns whether the current operation may have headers of its own."""
    return _scope.get() is not None


def current() -> Mapping[str, MaskedText]:
    """Returns the headers of the current operation, by their names in lower case; empty if it has none."""
    own = _scope.get()
    return {} if own is None else own.headers


def use(*, auth_token: str | None, api_key: str | None, context: Mapping[str, str] | None) -> None:
    """Uses the headers of a request for the current operation, if they are allowed and there are any.

    Raises:
        InvalidInputError: A header is not allowed, or is given twice.
    """
    if (own := _scope.get()) is None:
        return
    headers: dict[str, MaskedText] = {}
    for field_name, name, value in (
        ("identity.auth_token", "authorization", f"Bearer {auth_token}" if auth_token else None),
        ("identity.api_key", "x-api-key", api_key),
        *((f"context {shortened(it, _LONGEST_NAME)!r}", _name(it), value) for it, value in (context or {}).items()),
    ):
        if name is None or not value:
            continue
        # The value is in no message.
        if name in _FORBIDDEN or not re.fullmatch(r"[a-z0-9!#$%&'*+.^_`|~-]+", name):
            raise InvalidInputError(f"{field_name}: not a header that a request may set")
        if name in headers:
            raise InvalidInputError(f"{field_name}: the header {name} is given twice; set it once")
        if not (value.isascii() and value.isprintable()):
            raise InvalidInputError(f"{field_name}: a header cannot contain it; use printable ASCII on one line")
        headers[name] = MaskedText(value)
    if headers:
        own.headers = headers


def _name(entry: str) -> str | None:
    """Returns the name of the header in the name of a context entry; None if it is no header."""
    prefix = next((it for it in _PREFIXES if entry.startswith(it)), None)
    return None if prefix is None else entry.removeprefix(prefix).lower()
