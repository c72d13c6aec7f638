"""Bearer tokens that expire, of which concurrent callers share one renewal; and the interface of signers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import httpx

from lance_ns_async.calls.concurrency import SingleFlight

_USED = 0.8
"""Fraction of its lifetime for which a token is used; the rest allows for the renewal and for clock differences."""


class Tokens(Protocol):
    """Source of the bearer token for the next request."""

    async def current(self) -> str:
        """Returns a token that is expected to be valid."""
        ...

    async def renewed(self, refused: str) -> str:
        """Returns a token other than `refused`, which the server rejected."""
        ...


class Signer(Protocol):
    """Signs each attempt of a request anew; the keys are opaque to the transport."""

    async def current(self) -> Any:
        """Returns keys that are expected to be valid."""
        ...

    async def replace(self, old: Any) -> Any | None:
        """Returns keys other than `old`, which the server rejected; None if there are no others."""
        ...

    def signed(self, keys: Any, method: str, url: str, headers: httpx.Headers, content: bytes | None) -> httpx.Headers:
        """Returns the headers of a request with its signature.

        Args:
            url: The percent-encoded URL, exactly as it is sent.
        """
        ...

    def secrets(self, headers: Mapping[str, str]) -> Sequence[str]:
        """Returns the secrets in the headers of a signed request."""
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and its lifetime in seconds; infinity means until the server rejects it."""

    value: str = field(repr=False)
    lifetime: float


class RenewedTokens:
    """Tokens from `fetch`; concurrent callers share one fetch."""

    def __init__(self, fetch: Callable[[], Awaitable[Token]]) -> None:
        self._fetch = fetch
        self._renewal = SingleFlight(self._renew)
        self._value = ""
        self._until = 0.0

    async def current(self) -> str:
        """Returns the current token, or a new one if it is about to expire.

        Raises:
            LanceNamespaceError: The error of `fetch`.
        """
        return self._living() or await self._renewal.outcome(self._living)

    async def renewed(self, refused: str) -> str:
        """Returns the token that replaces `refused`; fetches it unless another caller has already done so.

        Raises:
            LanceNamespaceError: The error of `fetch`.
        """
        return await self._renewal.outcome(lambda: None if self._value == refused else self._living())

    def _living(self) -> str | None:
        return self._value if monotonic() < self._until else None

    async def _renew(self) -> str:
        token = await self._fetch()
        self._value = token.value
        self._until = monotonic() + _USED * token.lifetime
        return self._value
