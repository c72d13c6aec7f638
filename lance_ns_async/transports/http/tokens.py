"""Bearer tokens that expire, of which concurrent callers share one renewal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.tasks import SingleFlight
from lance_ns_async.errors import failure_of
from lance_ns_async.masked import MaskedText

LIFETIME = 3600.0
"""Default lifetime in seconds of a token of unknown lifetime."""

_USED = 0.8
"""Fraction of its lifetime for which a token is used; the rest allows for the renewal and for clock differences."""


class Tokens(Protocol):
    """Source of the bearer token for the next request."""

    async def current(self) -> str:
        """Returns a token that is expected to be valid."""
        ...

    async def replace(self, old: str) -> str:
        """Returns a token that replaces `old`, which the server rejected."""
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and its lifetime in seconds; infinity means until the server rejects it."""

    value: str = field(repr=False)
    lifetime: float
    refresh_token: str | None = field(default=None, repr=False)
    """The token of OAuth2's refresh grant that the server returned with it; None if it returned none."""


class RenewedTokens:
    """Tokens from `fetch`; concurrent callers share one fetch."""

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._renewal = SingleFlight(self._renew)
        self._value = MaskedText()
        self._until = 0.0

    async def current(self) -> str:
        """Returns the current token, or a new one if it is about to expire."""
        return self._valid_token() or await self._renewal.outcome(self._valid_token)

    async def replace(self, old: str) -> str:
        """Returns the token that replaces `old`; fetches it unless another caller has already done so."""
        return await self._renewal.outcome(lambda: None if self._value == old else self._valid_token())

    def _valid_token(self) -> str | None:
        return self._value if monotonic() < self._until else None

    async def _renew(self) -> str:
        try:
            token = await self._fetch()
        except LanceNamespaceError as e:
            # Whatever the result of the fetch, the call that needed the token was not sent.
            if (failure := failure_of(e)) is not None:
                failure.delivered = False
            raise
        self._value = MaskedText(token.value)
        self._until = monotonic() + _USED * token.lifetime
        return self._value
