"""Steps: remote calls and work in the storage, between which other clients may act.

A scheduler of tests holds a client before each of its steps, and so tries the orders in which clients can meet.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import anyio


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a client."""

    name: str
    """The operation of a remote call, or the kind of a worker thread."""
    subject: str
    """The id of a remote call's subject, or the location that work accesses."""
    changes: bool
    """Whether the step may change something."""
    remote: bool
    """Whether it is a remote call; otherwise it is work in the storage."""
    continues: bool = False
    """Whether it is the rest of a step that has begun."""


class Scheduler(Protocol):
    """Decides when steps begin."""

    def __call__(self, step: Step) -> AbstractAsyncContextManager[None]:
        """Returns a context that begins when the step may, and ends with the step."""


scheduler: ContextVar[Scheduler | None] = ContextVar("scheduler", default=None)
"""The scheduler of the current client; None, as outside of tests, lets each step begin at once."""


def begin_step(
    name: str, subject: str, *, changes: bool = False, remote: bool = False
) -> AbstractAsyncContextManager[None]:
    """Returns the context of a step; see `Step` for the arguments."""
    hold = scheduler.get()
    return nullcontext() if hold is None else hold(Step(name, subject, changes, remote))


def next_step(name: str, subject: str) -> None:
    """Divides work in a worker thread: the work so far is one step, and what follows is another, which changes data."""
    if (hold := scheduler.get()) is not None:
        anyio.from_thread.run(_wait, hold, Step(name, subject, changes=True, remote=False, continues=True))


async def _wait(hold: Scheduler, step: Step) -> None:
    async with hold(step):
        pass
