"""Faults of a fake server: actions instead of, before or after its own response."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal

from multidict import CIMultiDictProxy

When = Literal["before", "after"]
"""Whether a fault strikes before the operation is carried out, or after it but before the reply."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came over the wire."""

    method: str
    path: str
    """Path and query, undecoded."""
    headers: CIMultiDictProxy[str]
    body: bytes
    arrived: int = field(default=0, compare=False)
    """How many requests the server had carried out when this one came."""

    @property
    def json(self) -> Any:
        """The body's JSON value; None where there is no body."""
        return json.loads(self.body) if self.body else None

    def __str__(self) -> str:
        # S3 deletes many objects by one request, whose body names them.
        keys = re.findall("<Key>(.*?)</Key>", self.body.decode()) if self.path.endswith("?delete") else []
        return " ".join([self.method, self.path, *keys])


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back over the wire."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    missing: int = 0
    """Bytes that Content-Length promises and that never come."""

    @classmethod
    def of(cls, body: Any, status: int = 200) -> Answer:
        """Bytes and text as HTML, any other value as JSON."""
        match body:
            case bytes():
                return cls(status, body, {"Content-Type": "text/html"})
            case str():
                return cls(status, body.encode(), {"Content-Type": "text/html;charset=utf-8"})
            case _:
                return cls(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def with_headers(self, headers: Mapping[str, str]) -> Answer:
        """The same answer with some headers added or replaced."""
        return replace(self, headers={**self.headers, **headers})


@dataclass(slots=True)
class Rule:
    """Applies to the requests whose `METHOD raw_path` holds `match`, a regular expression."""

    match: str
    times: int | None
    """How many requests it still applies to; None: every one."""

    def takes(self, request: Received) -> bool:
        """Whether the rule applies to this request, which then counts."""
        if self.times == 0 or not re.search(self.match, str(request)):
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class Fault(Rule):
    """Gives the client something other than the server's own answer."""

    when: When
    answer: Answer | None
    """None: the connection is reset."""


class RateLimit(Fault):
    """A token bucket, which starts full: requests that find it empty get the answer."""

    def __init__(self, rate: float, burst: float, match: str, answer: Answer) -> None:
        super().__init__(match, None, "before", answer)
        self._rate, self._burst = rate, burst
        self._tokens, self._filled_at = burst, monotonic()
        self.refusals = 0

    def takes(self, request: Received) -> bool:
        # Without arguments, super() does not work in a subclass of a dataclass with slots.
        if not Fault.takes(self, request):
            return False
        now = monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return False
        self.refusals += 1
        return True


@dataclass(slots=True)
class Delay(Rule):
    """Makes a request wait before anything else is done with it."""

    seconds: float


class Hold:
    """Makes matching requests wait until it is released."""

    def __init__(self, match: str) -> None:
        self._match = match
        self._changed = threading.Condition()
        self._waiting: set[asyncio.Future[None]] = set()
        self._released = False

    @property
    def waiting(self) -> int:
        """How many requests wait now."""
        return len(self._waiting)

    def wait_for(self, count: int = 1, within: float = 10.0) -> None:
        """Blocks the calling thread until `count` requests wait; TimeoutError after `within` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.waiting >= count, within):
                raise TimeoutError(f"{self.waiting} of {count} requests came to wait at {self._match!r}")

    async def reached(self, count: int = 1, within: float = 10.0) -> None:
        """The same as `wait_for`, from a coroutine."""
        await asyncio.to_thread(self.wait_for, count, within)

    def release(self) -> None:
        """Lets the waiting requests go on, and later ones pass."""
        with self._changed:
            self._released = True
            for turn in self._waiting:
                turn.get_loop().call_soon_threadsafe(_wake, turn)

    async def pass_by(self, request: Received) -> None:
        """Returns when the request may go on; awaited on the server's own loop."""
        if not re.search(self._match, str(request)):
            return
        turn = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._released:
                return
            self._waiting.add(turn)
            self._changed.notify_all()
        try:
            await turn
        finally:
            with self._changed:
                self._waiting.discard(turn)


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
