"""Bearer tokens that expire: got by OAuth2 client credentials, renewed by one caller for all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from lance_ns_async.calls.concurrency import SingleFlight

_USED = 0.8
"""The part of its life for which a token is used: the rest is time to renew it, and for clocks that differ."""


class Tokens(Protocol):
    """Gives the bearer token of the next request."""

    async def current(self) -> str:
        """A token that is believed to be good."""
        ...

    async def renewed(self, refused: str) -> str:
        """A token other than the one a server refused."""
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and how many seconds it lives, infinity being until it is refused."""

    value: str = field(repr=False)
    lifetime: float


class RenewedTokens:
    """Tokens from `fetch`, asked once for all who wait for one."""

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._renewal = SingleFlight(self._renew)
        self._value = ""
        self._until = 0.0

    async def current(self) -> str:
        """The present token, or a new one where it is about to end; raises what the token endpoint answered."""
        return self._living() or await self._renewal.outcome(self._living)

    async def renewed(self, refused: str) -> str:
        """The token that replaces `refused`; fetched only if nobody replaced it meanwhile."""
        return await self._renewal.outcome(lambda: None if self._value == refused else self._living())

    def _living(self) -> str | None:
        return self._value if monotonic() < self._until else None

    async def _renew(self) -> str:
        token = await self._fetch()
        self._value = token.value
        self._until = monotonic() + _USED * token.lifetime
        return self._value
