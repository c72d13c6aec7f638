"""One order of steps: clients run until their next step, and a choice releases one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from lance_ns_async.calls.steps import Step, scheduler

_TURNS = 30
"""Turns of the event loop within which a client gets from one step to the next, as only steps wait for others."""

_GRACE = 0.2  # Seconds after which a client that is at no step counts as one that waits for another client

_LONGEST = 60  # Seconds after which a step without an end fails the run


class Dead(BaseException):
    """Ends a client as a kill does: nothing of it runs any more."""


@dataclass(frozen=True)
class Death:
    """The end of a client instead of one of its steps."""

    client: int
    before: int  # The number of its steps that are still performed


@dataclass(eq=False)
class _Gate:
    client: int
    step: Step
    opened: asyncio.Future[None]


Choose = Callable[[Mapping[int, Step]], int | None]
"""Returns the client whose step is next, of those that wait; None ends the run early."""


@dataclass
class Run:
    """The run of some clients by a schedule."""

    choose: Choose
    death: Death | None = None
    trace: list[tuple[int, Step]] = field(default_factory=list)  # The steps in order, with their clients
    has_death: bool = False  # Whether the death occurred
    dead: set[int] = field(default_factory=set)  # The clients of which nothing runs any more
    _waiting: list[_Gate] = field(default_factory=list)
    _buried: list[_Gate] = field(default_factory=list)  # The steps before which a client was killed
    _busy: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def now(self) -> int:
        return len(self.trace)

    async def perform(self, clients: Sequence[Callable[[], Awaitable[None]]]) -> bool:
        """Runs the clients to their ends; returns whether the schedule let them."""
        tasks = []
        for client, program in enumerate(clients):
            token = scheduler.set(partial(self._hold, client))
            tasks.append(asyncio.create_task(self._run(program)))
            scheduler.reset(token)
        try:
            while not await self._settle(tasks):
                options: dict[int, _Gate] = {}
                for gate in self._waiting:
                    options.setdefault(gate.client, gate)
                chosen = self.choose({client: options[client].step for client in sorted(options)})
                if chosen is None:
                    return False
                self._release(options[chosen], tasks)
            return True
        finally:
            self.dead |= set(range(len(clients)))
            for gate in [*self._waiting, *self._buried]:
                gate.opened.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _release(self, gate: _Gate, tasks: Sequence[asyncio.Task[None]]) -> None:
        client = gate.client
        if self.death is not None and self.death.client == client:
            if sum(by == client for by, _ in self.trace) >= self.death.before:
                self.dead.add(client)
                self.has_death = True
                self._buried = [it for it in self._waiting if it.client == client]
                self._waiting = [it for it in self._waiting if it.client != client]
                for it in self._buried:
                    if not it.step.continues:
                        # What clients share in this process would otherwise wait for it; in the storage, a worker
                        # thread does nothing more until the end of the run.
                        it.opened.cancel()
                return
        self.trace.append((client, gate.step))
        self._waiting.remove(gate)
        self._busy += 1
        gate.opened.set_result(None)

    async def _run(self, program: Callable[[], Awaitable[None]]) -> None:
        try:
            with suppress(Dead):
                await program()
        finally:
            self._changed.set()

    @asynccontextmanager
    async def _hold(self, client: int, step: Step) -> AsyncIterator[None]:
        if client in self.dead:
            raise Dead
        if step.continues:
            self._busy -= 1
        gate = _Gate(client, step, asyncio.get_running_loop().create_future())
        self._waiting.append(gate)
        self._changed.set()
        try:
            await gate.opened
        except asyncio.CancelledError:
            if gate in self._waiting:
                self._waiting.remove(gate)
            if client in self.dead:
                raise Dead from None
            raise
        try:
            yield
        finally:
            if not step.continues:
                self._busy -= 1
                self._changed.set()

    async def _settle(self, tasks: Sequence[asyncio.Task[None]]) -> bool:
        """Waits until each client is at a step, waits for another client, or is over; returns whether all are over."""
        while True:
            self._changed.clear()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._changed.is_set():
                continue
            if not self._busy:
                if all(task.done() for client, task in enumerate(tasks) if client not in self.dead):
                    return True
                if self._waiting:
                    left = {it for it, task in enumerate(tasks) if not task.done()} - self.dead
                    if left <= {gate.client for gate in self._waiting} or not await self._changes(_GRACE):
                        return False
                    continue
            if not await self._changes(_LONGEST):
                raise TimeoutError("a step has no end")

    async def _changes(self, seconds: float) -> bool:
        """Waits until a client has begun to wait for a step, has ended one, or is over; returns whether one has."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True
