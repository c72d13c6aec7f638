"""A queue of calls, in any thread and event loop, that wait for a turn or a slot."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Waiter:
    """A call that waits for its turn in an event loop, or has it."""

    turn: asyncio.Future[None]
    client: str
    has_turn: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether its event loop was closed, so that it can neither take nor end a turn."""
        return self.turn.get_loop().is_closed()


def set_client(name: str) -> None:
    """Names the client for which this task calls from now on: a busy client does not delay the calls of others."""
    _client.set(name)


class WaiterQueue(dict[str, deque[Waiter]]):
    """Waiters by client in the order of their requests; the first client has the next turn. Its owner locks it."""

    def count(self) -> int:
        """Returns the number of waiters."""
        return sum(map(len, self.values()))

    def join(self) -> Waiter:
        """Adds a waiter of the running event loop, and returns it."""
        client = _client.get()
        line = self.setdefault(client, deque())
        # A lost waiter may keep alive a call that has a turn.
        while line and line[0].is_lost:
            line.popleft()
        waiter = Waiter(asyncio.get_running_loop().create_future(), client)
        line.append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Removes a waiter that has no turn; a lost one may be removed already."""
        if line := self.get(waiter.client):
            with suppress(ValueError):
                line.remove(waiter)
            if not line:
                del self[waiter.client]

    def advance(self) -> Waiter | None:
        """Gives the turn to the next waiter that can take it, and returns it; None if there is none."""
        while self:
            client = next(iter(self))
            line = self.pop(client)
            waiter = line.popleft()
            if line:
                self[client] = line
            loop = waiter.turn.get_loop()
            # A loop that was closed raises this error, and its waiter is lost.
            with suppress(RuntimeError):
                if loop is _running_loop():
                    _wake(waiter.turn)
                else:
                    loop.call_soon_threadsafe(_wake, waiter.turn)
                waiter.has_turn = True
                return waiter
        return None


_client: ContextVar[str] = ContextVar("client", default="")
"""The client of a gateway for which calls are made; empty for calls of the process itself."""


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # There may be none while a coroutine is collected.
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
