"""Sign-in of browsers: sessions, protection of forms, and a limit of attempts."""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

LIFETIME = 8 * 3600
"""Seconds after which a session ends."""

_MAX_SESSIONS = 1_000

_MAX_ATTEMPTS = 3  # Maximum number of attempts from one address in one second.


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A signed-in browser, which acts with the token that it signed in with."""

    token: str = field(repr=False)
    expires: float


class BrowserSessions:
    """The sessions of signed-in browsers, in memory; beyond the maximum number, the oldest one ends.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, BrowserSession] = {}

    def open(self, token: str) -> str:
        """Returns the random id of a new session for a token, which was checked."""
        now = self._clock()
        self._sessions = {id: it for id, it in self._sessions.items() if it.expires > now}
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        id = secrets.token_urlsafe(32)
        self._sessions[id] = BrowserSession(token, now + LIFETIME)
        return id

    def find(self, id: str) -> BrowserSession | None:
        """Returns the session; None if there is none or it has expired."""
        session = self._sessions.get(id)
        return session if session is not None and session.expires > self._clock() else None

    def close(self, id: str) -> None:
        """Ends a session; does nothing if there is none."""
        self._sessions.pop(id, None)


class FormTokens:
    """Tokens that forms contain, each bound to a cookie, so that pages of other origins cannot send the forms."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, cookie: str) -> str:
        """Returns the token of forms for the browser with this cookie."""
        return hmac.digest(self._key, cookie.encode(errors="replace"), "sha256").hex()

    def is_right(self, cookie: str, token: str) -> bool:
        """Returns whether the token belongs to a cookie, which must not be empty."""
        return bool(cookie) and hmac.compare_digest(self.token(cookie).encode(), token.encode(errors="replace"))


class Attempts:
    """The number of attempts to sign in from each address in the current second.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._counts: Counter[str] = Counter()

    def count(self, address: str) -> bool:
        """Counts an attempt; returns whether it is allowed."""
        if (second := int(self._clock())) != self._second:
            self._second = second
            self._counts.clear()
        self._counts[address] += 1
        return self._counts[address] <= _MAX_ATTEMPTS
