"""Rounds of races: four processes with four tasks each, and checks of the resulting state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from time import monotonic, perf_counter

from lance_ns_async import AsyncNamespace
from tests.consistency.history import Event, Rules, TooTangled, check, stray
from tests.consistency.model import Name, Operation, perform
from tests.support.processes import receive, started

PROCESSES, TASKS = 4, 4
_AHEAD = 0.004  # Seconds between the request for a round and its beginning, which is the same in all processes
Tasks = Sequence[Sequence[Operation]]  # The operations of each task of a process


@dataclass(frozen=True)
class Track:
    """The catalog on which processes race."""

    impl: str
    properties: Mapping[str, str]
    namespace: Name  # The namespace of the tables
    rules: Rules
    replaces: bool  # Whether the catalog can change a table's properties


@dataclass
class Race:
    """The result of a round."""

    plan: str
    seed: int
    events: list[Event] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    about: set[Name] = field(default_factory=set)  # The tables with violations
    tangled: int = 0  # Histories of one table whose search was abandoned
    seconds: float = 0.0

    def __str__(self) -> str:
        events = sorted((it for it in self.events if it.operation.name in self.about), key=lambda it: it.begun)
        return "\n  ".join(
            [f"{self.plan}, seed {self.seed}:", *map(str, events), *(f"!! {it}" for it in self.violations)]
        )


class Racers:
    """Processes that wait for rounds."""

    def __init__(self, track: Track, workers: Sequence[Connection], judge: Connection) -> None:
        self._track = track
        self._workers = workers
        self._judge = judge

    def run(self, plan: str, seed: int) -> Race:
        race, began = Race(plan, seed), perf_counter()
        names = [(*self._track.namespace, f"{plan[0]}{seed}{letter}") for letter in "abcde"]
        before, tasks = PLANS[plan](Random(seed), names, self._track.replaces)
        race.events += _asked(self._judge, [before])
        start = monotonic() + _AHEAD
        for worker, its in zip(self._workers, tasks, strict=True):
            worker.send((start, its))
        for worker in self._workers:
            race.events += receive(worker)
        used = {it.operation.name for it in race.events}
        race.events += _asked(self._judge, [_verdict(name) for name in sorted(used)])
        for name in sorted(used):
            events = [it for it in race.events if it.operation.name == name]
            wrong = stray(events, self._track.rules)
            try:
                if (unexplained := check(events, self._track.rules)) is not None:
                    wrong.append(f"no order of steps explains {unexplained}")
            except TooTangled:
                race.tangled += 1
            if wrong:
                race.violations += wrong
                race.about.add(name)
        race.seconds = perf_counter() - began
        return race


def _asked(process: Connection, tasks: Tasks) -> list[Event]:
    process.send((0.0, tasks))
    return list(receive(process))


@contextmanager
def racers(track: Track) -> Iterator[Racers]:
    with ExitStack() as stack:
        connections = []
        for number in range(PROCESSES + 1):
            _, connection = stack.enter_context(started(_race, track, number))
            connections.append(connection)
        *workers, judge = connections
        for connection in connections:
            receive(connection)
        yield Racers(track, workers, judge)


def _race(connection: Connection, track: Track, number: int) -> None:
    asyncio.run(_racing(connection, track, number))


async def _racing(connection: Connection, track: Track, number: int) -> None:
    async with AsyncNamespace.connect(track.impl, track.properties) as ns:
        # Modules that the first call loads are loaded before the first round.
        await ns.describe_namespace({"id": list(track.namespace)})
        connection.send("ready")
        while True:
            start, tasks = await asyncio.to_thread(connection.recv)
            while monotonic() < start:
                pass
            events = await asyncio.gather(
                *(_perform(ns, f"{number}.{task}", operations) for task, operations in enumerate(tasks))
            )
            connection.send([event for its in events for event in its])


async def _perform(ns: AsyncNamespace, task: str, operations: Sequence[Operation]) -> list[Event]:
    events = []
    for it in operations:
        begun = monotonic()
        events.append(Event(task, it, await perform(ns, it), begun, monotonic()))
    return events


def _verdict(name: Name) -> list[Operation]:
    """Returns events that show the final state of a name, and that the name can be used."""
    look = [Operation("describe", name), Operation("read", name), Operation("drop", name)]
    again = [Operation("write", name, (9001,)), Operation("append", name, (9002,)), Operation("read", name)]
    return [*look, *again, Operation("drop", name), Operation("describe", name)]


Planned = tuple[list[Operation], list[Tasks]]  # The operations before a round, and those of each process in it


def _mixed(random: Random, names: Sequence[Name], replaces: bool) -> Planned:
    """Each task performs random operations on all names."""
    kinds = ["describe", "read", "read", "declare", "create", "write", "overwrite", "overwrite"]
    kinds += ["append", "append", "insert", "drop", "drop", "deregister"] + ["replace"] * replaces
    number = 0

    def operation() -> Operation:
        nonlocal number
        number += 10
        kind, name = random.choice(kinds), random.choice(names)
        properties = {"number": str(number)} if kind == "replace" else None
        return Operation(kind, name, (number, number + 1) if (kind in CHANGES) else (), properties=properties)

    return [], [[[operation() for _ in range(3)] for _ in range(TASKS)] for _ in range(PROCESSES)]


CHANGES = {"create", "write", "overwrite", "replace", "append", "insert"}  # Operations that write rows


def _overwrites(random: Random, names: Sequence[Name], replaces: bool) -> Planned:
    """Each process overwrites one table that does not exist yet."""
    return [], [[[Operation("overwrite", names[0], (number,))]] for number in range(PROCESSES)]


def _creates(random: Random, names: Sequence[Name], replaces: bool) -> Planned:
    """Each task declares or creates one table that does not exist yet."""
    kinds = ("declare", "declare", "create", "write")
    tasks = [
        [[Operation(random.choice(kinds), names[0], (10 * process + task,))] for task in range(TASKS)]
        for process in range(PROCESSES)
    ]
    return [], list(tasks)


def _removals(random: Random, names: Sequence[Name], replaces: bool) -> Planned:
    """Each process drops or deregisters two tables that exist."""
    before = [Operation("write", name, (1, 2)) for name in names[:2]]
    kinds = ("drop", "deregister") if random.random() < 0.5 else ("drop",)
    return before, [[[Operation(random.choice(kinds), name)] for name in names[:2]] for _ in range(PROCESSES)]


PLANS = {"mixed": _mixed, "overwrites": _overwrites, "creates": _creates, "removals": _removals}
