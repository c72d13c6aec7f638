"""Time under the control of tests: a loop that skips its timers, and a function that moves any loop's clock."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_QUIET, _LONG = 20, 200
"""Turns of the loop without other work after which it is idle, and the maximum number to wait for that. Data that was
sent to a socket of this machine arrives within a few turns. Threads are not waited for."""


class _Impatient(selectors.SelectSelector):
    """Waits for no timer, and returns the time that it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        ready = super().select(0)
        if not ready:
            self.skipped += max(timeout, 0.0)
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop that skips the time until the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._impatient = _Impatient()
        super().__init__(self._impatient)

    def time(self) -> float:
        return self._impatient.skipped


def run(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`, with its timers skipped; the time of the running loop includes the skipped time."""
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        return runner.run(work)


def skipping_timers(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs a test with its timers skipped."""
    return wraps(test)(lambda *args, **kwargs: run(test(*args, **kwargs)))


async def idle() -> None:
    """Returns when the running loop has no other work than timers."""
    ready = getattr(asyncio.get_running_loop(), "_ready")  # noqa: B009 - a private attribute of another's class
    quiet = 0
    for _ in range(_LONG):
        await asyncio.sleep(0)
        quiet = 0 if ready else quiet + 1
        if quiet == _QUIET:
            return


async def pass_time(seconds: float) -> None:
    """Moves the clock of the running loop by a number of seconds, as soon as no other work is in progress."""
    await idle()
    loop = asyncio.get_running_loop()
    if not isinstance(loop.time, _Ahead):
        setattr(loop, "time", _Ahead(loop.time))  # noqa: B010 - a method of another's class
    assert isinstance(loop.time, _Ahead)
    loop.time.seconds += seconds
    await asyncio.sleep(0)


async def run_past(work: Coroutine[Any, Any, T], is_waiting: Awaitable[object], seconds: float) -> T:
    """Returns the result of `work`, for which a number of seconds pass as soon as it waits for a server."""
    task = asyncio.create_task(work)
    await is_waiting
    await pass_time(seconds)
    return await task


class _Ahead:
    """A clock that is ahead of another by a number of seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._now() + self.seconds
