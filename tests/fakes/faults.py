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
"""Whether a fault occurs before the operation is performed, or after it but before the response."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it was received."""

    method: str
    path: str
    """Path and query, undecoded."""
    headers: CIMultiDictProxy[str]
    body: bytes
    arrived: int = field(default=0, compare=False)
    """Number of requests that the server had performed when this one arrived."""

    @property
    def json(self) -> Any:
        """The JSON value of the body; None if there is no body."""
        return json.loads(self.body) if self.body else None

    def __str__(self) -> str:
        # One S3 request can delete many objects, which its body names.
        keys = re.findall("<Key>(.*?)</Key>", self.body.decode()) if self.path.endswith("?delete") else []
        return " ".join([self.method, self.path, *keys])


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Any, status: int = 200) -> Answer:
        """Returns a response with bytes or text as HTML, or another value as JSON."""
        match body:
            case bytes():
                return cls(status, body, {"Content-Type": "text/html"})
            case str():
                return cls(status, body.encode(), {"Content-Type": "text/html;charset=utf-8"})
            case _:
                return cls(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def with_headers(self, headers: Mapping[str, str]) -> Answer:
        """Returns the same response with some headers added or replaced."""
        return replace(self, headers={**self.headers, **headers})


@dataclass(slots=True)
class Rule:
    """Selects the requests whose `METHOD raw_path` matches the regular expression `match`."""

    match: str
    times: int | None
    """Remaining number of requests that it applies to; None for all."""

    def takes(self, request: Received) -> bool:
        """Returns whether the rule applies to this request, which is then counted."""
        if self.times == 0 or not re.search(self.match, str(request)):
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class Fault(Rule):
    """Sends a response other than that of the server."""

    when: When
    answer: Answer | None
    """None to reset the connection."""


class RateLimit(Fault):
    """A token bucket, which is full at first: requests that find it empty get the response."""

    def __init__(self, rate: float, burst: float, match: str, answer: Answer) -> None:
        super().__init__(match, None, "before", answer)
        self._rate, self._burst = rate, burst
        self._tokens, self._filled_at = burst, monotonic()
        self.refusals = 0

    def takes(self, request: Received) -> bool:
        # In a subclass of a dataclass with slots, super() does not work without arguments.
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
    """Delays a request before it is performed."""

    seconds: float


class Hold:
    """Makes matching requests wait until `release`."""

    def __init__(self, match: str) -> None:
        self._match = match
        self._changed = threading.Condition()
        self._waiting: set[asyncio.Future[None]] = set()
        self._released = False

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def wait_for(self, count: int = 1, within: float = 10.0) -> None:
        """Blocks the calling thread until `count` requests wait; raises TimeoutError after `within` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.waiting >= count, within):
                raise TimeoutError(f"{self.waiting} of {count} requests came to wait at {self._match!r}")

    async def reached(self, count: int = 1, within: float = 10.0) -> None:
        """Like `wait_for`, in a coroutine."""
        await asyncio.to_thread(self.wait_for, count, within)

    def release(self) -> None:
        """Lets the waiting requests continue, and later ones pass."""
        with self._changed:
            self._released = True
            for turn in self._waiting:
                turn.get_loop().call_soon_threadsafe(_wake, turn)

    async def pass_by(self, request: Received) -> None:
        """Returns when the request may continue; awaited in the server's own loop."""
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
