"""Calls that fail on demand, or wait until they are released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from lance_namespace.errors import ConcurrentModificationError

from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.policy import Policy
from lance_ns_async.errors import HTTP_ERRORS, ErrorTable, Failure
from lance_ns_async.model import TableId

ERRORS: ErrorTable = {**HTTP_ERRORS, "conflict": ConcurrentModificationError}
TABLE = TableId(["db", "t"])
EAGER = Policy(max_retries=3, backoff_initial=0.0, backoff_max=0.0)


class Script:
    """A call that fails with each of the given errors once, and then succeeds."""

    def __init__(self, *failures: Failure) -> None:
        self.failures = list(failures)
        self.sent = 0

    async def __call__(self) -> int:
        self.sent += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.sent


class Turnstile:
    """A call that waits until it is released, and counts the waiting calls."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.open = asyncio.Event()

    async def __call__(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.open.wait()
        finally:
            self.inside -= 1


def caller(policy: Policy = EAGER) -> Caller:
    return Caller(policy, ERRORS)


def call(
    to: Caller, send: Callable[[], Awaitable[Any]], *, operation: str = "describe_table", safe: bool = True
) -> Coroutine[Any, Any, Any]:
    return to.call(send, subject=TABLE, operation=operation, safe=safe)


def busy(**more: Any) -> Failure:
    return Failure(503, message="busy", **more)


async def settle() -> None:
    """Lets each task run until it waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)
