"""Bearer tokens that expire: got by OAuth2 client credentials, renewed by one caller for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from lance_namespace.errors import LanceNamespaceError

_LEAD = 30.0
"""Seconds before its end at which a token is no longer used."""


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
    """A bearer token and how many seconds it lives."""

    value: str = field(repr=False)
    lifetime: float


class RenewedTokens:
    """Tokens from `fetch`, which is under way at most once whatever the number of callers.

    Whoever waited for a fetch shares its outcome, failures included, so that a broken token endpoint is
    asked once and not by every caller in turn; the next caller asks again.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._lock = asyncio.Lock()
        self._rounds = 0
        self._error: LanceNamespaceError | None = None
        self._value = ""
        self._until = 0.0

    async def current(self) -> str:
        """The present token, or a new one where it is about to end; raises what the token endpoint answered."""
        if monotonic() < self._until:
            return self._value
        return await self._renew(lambda: monotonic() < self._until)

    async def renewed(self, refused: str) -> str:
        """The token that replaces `refused`; fetched only if nobody replaced it meanwhile."""
        return await self._renew(lambda: self._value != refused and monotonic() < self._until)

    async def _renew(self, is_done: Callable[[], bool]) -> str:
        seen = self._rounds
        async with self._lock:
            if is_done():
                return self._value
            if self._rounds != seen:
                if self._error is None:
                    return self._value
                raise type(self._error)(str(self._error)) from self._error
            try:
                token = await self._fetch()
            except LanceNamespaceError as e:
                self._rounds, self._error = self._rounds + 1, e
                raise
            self._rounds, self._error = self._rounds + 1, None
            self._value = token.value
            self._until = monotonic() + max(token.lifetime - _LEAD, token.lifetime / 2)
            return self._value
