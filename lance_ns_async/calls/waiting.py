"""A queue of calls, in any thread and event loop, that wait for a turn or a slot."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Waiter:
    """A call that waits for its turn in an event loop, or has it."""

    turn: asyncio.Future[None]
    has_turn: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether its event loop was closed, so that it can neither take nor end a turn."""
        return self.turn.get_loop().is_closed()


class WaiterQueue(deque[Waiter]):
    """Waiters in the order of their requests. Its owner locks it."""

    def join(self) -> Waiter:
        """Adds a waiter of the running event loop, and returns it."""
        # A lost waiter may keep alive a call that has a turn.
        while self and self[0].is_lost:
            self.popleft()
        waiter = Waiter(asyncio.get_running_loop().create_future())
        self.append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Removes a waiter that has no turn; a lost one may be removed already."""
        with suppress(ValueError):
            super().remove(waiter)

    def advance(self) -> Waiter | None:
        """Gives the turn to the first waiter that can take it, and returns it; None if there is none."""
        while self:
            waiter = self.popleft()
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


def _running_loop() -> asyncio.AbstractEventLoop | None:
    # There may be none while a coroutine is collected.
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
