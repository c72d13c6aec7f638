"""Rounds of writers, readers and instances of `maintain_forever` that are killed: nothing acknowledged is lost.

Some tables have one writer that does everything to them, and knows their rows at each moment; others have three that
append. Each instance notes when a compaction begins and ends, so that two on one table at the same time are seen.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from time import monotonic, perf_counter, sleep
from typing import Any
from unittest.mock import patch

import anyio
import lance
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace
from lance_ns_async.engine.locate import Vend
from lance_ns_async.fleet import CleanupOptions, CompactOptions, MaintenanceStatus, maintain_forever, plan_maintenance
from lance_ns_async.fleet.maintenance.engine import Job, LocalEngine, Settle
from lance_ns_async.operations import maintaining
from lance_ns_async.storage.opening import Opener
from tests.consistency.crash import Place
from tests.support.processes import receive, started

APPENDERS, INSTANCES = 3, 2
ACTED, APPENDED = ("acted0", "acted1"), ("appended0", "appended1")
OPTIONS: Mapping[str, Any] = {
    "compact": CompactOptions(max_small_fragments=3),
    "cleanup": CleanupOptions(older_than="0s"),
}


@dataclass(frozen=True)
class Stage:
    """Where a round takes place."""

    impl: str
    properties: Mapping[str, str]
    namespace: tuple[str, ...]
    state: str
    log: str
    storage_options: Mapping[str, str] | None = None
    every: float = 0.02
    """Seconds between two looks of an instance."""
    pace: float = 0.0
    """Seconds between two changes of a writer."""
    lease: float | None = None
    """Seconds of a lease; None ends that of a killed instance at once."""
    min_age: float = maintaining.MIN_AGE
    """Seconds for which versions stay; a writer that waits for longer between two steps may lose rows."""

    def id(self, name: str) -> list[str]:
        return [*self.namespace, name]

    def connect(self) -> Any:
        return AsyncNamespace.connect(self.impl, self.properties)


def stage(place: Place) -> Stage:
    """Returns the stage at a place of the crash suite."""
    folder = place.disk.parent / f"{place.disk.name}-maintenance"
    folder.mkdir()
    return Stage(place.impl, place.properties, place.namespaces[-1], str(folder / "state"), str(folder / "log"))


class NotingEngine(LocalEngine):
    """The local engine, which notes the jobs of this process in a file."""

    def __init__(self, opener: Opener, log: str) -> None:
        super().__init__(opener, timeout=60)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(self, jobs: Sequence[Job], settle: Settle, vend: Vend) -> None:
        tables = sorted({str(job.table.id) for job in jobs})
        self._note("begin", tables)
        await super().run(jobs, settle, vend)
        self._note("end", tables)

    def _note(self, what: str, tables: Sequence[str]) -> None:
        os.write(self._log, (json.dumps([what, os.getpid(), monotonic(), tables]) + "\n").encode())


def serve(connection: Connection, stage: Stage) -> None:
    """Is an instance, until it is killed."""
    asyncio.run(_serve(connection, stage, anyio.Event()))


async def _serve(connection: Connection | None, stage: Stage, stop: anyio.Event, **options: Any) -> None:
    with patch.object(maintaining, "MIN_AGE", stage.min_age):
        await _maintain(connection, stage, stop, **options)


async def _maintain(connection: Connection | None, stage: Stage, stop: anyio.Event, **options: Any) -> None:
    async with stage.connect() as ns:
        if connection is not None:
            connection.send(os.getpid())
        await maintain_forever(
            ns,
            [f"{'.'.join(stage.namespace)}.*"],
            state=stage.state,
            storage_options=stage.storage_options,
            every=stage.every,
            lease=stage.lease or 3600.0,
            engine=NotingEngine(ns.session.opener, stage.log),
            stop=stop,
            **OPTIONS,
            **options,
        )


def table(ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


async def read(dataset: Any) -> list[int]:
    rows: list[int] = await asyncio.to_thread(lambda: sorted(dataset.to_table()["id"].to_pylist()))
    return rows


@dataclass
class Actor:
    """The only writer of a table, which knows its rows."""

    ns: AsyncNamespace
    id: list[str]
    random: Random
    rows: list[int] = field(default_factory=list)
    versions: dict[int, list[int]] = field(default_factory=dict)
    """The rows of versions that were seen."""
    refs: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """The rows of tags and branches."""
    next: int = 0
    acknowledged: int = 0

    async def act(self) -> None:
        """Does something; a refusal is no acknowledgement."""
        kind = self.random.choice(["append"] * 4 + ["delete", "overwrite", "restore", "tag", "branch"])
        version = self.random.choice([*self.versions])
        name = f"r{len(self.refs)}"
        after: Collection[int] = self.rows
        try:
            match kind:
                case "append" | "overwrite":
                    new = [*range(self.next, self.next + self.random.randint(1, 20))]
                    self.next = new[-1] + 1
                    after = [*self.rows, *new] if kind == "append" else new
                    await self.ns.write(self.id, table(new), mode="append" if kind == "append" else "overwrite")
                case "delete":
                    after = [it for it in self.rows if it % 5]
                    await self.ns.delete_from_table({"id": self.id, "predicate": "id % 5 = 0"})
                case "restore":
                    after = self.versions[version]
                    await self.ns.restore_table({"id": self.id, "version": version})
                case "tag":
                    await self.ns.create_table_tag({"id": self.id, "tag": name, "version": version})
                case _:
                    await self.ns.create_table_branch({"id": self.id, "name": name, "from_version": version})
        except LanceNamespaceError:
            with suppress(LanceNamespaceError, OSError):
                seen = await read(await self.ns.open(self.id))
                self.rows = seen if seen in (self.rows, sorted(after)) else self.rows
            return
        self.acknowledged += 1
        self.rows = sorted(after)
        if kind in ("tag", "branch"):
            self.refs[kind, name] = self.versions[version]
        with suppress(LanceNamespaceError):
            # Compactions change no rows, so that any version since then has these.
            self.versions[(await self.ns.open(self.id)).version] = self.rows

    async def wrong(self) -> list[str]:
        """Returns what is not as it was acknowledged."""
        return await self._wrong([(("table", ""), self.rows), *self.refs.items()])

    async def wrong_refs(self, refs: Sequence[tuple[str, str]]) -> list[str]:
        """Returns which tags and branches are not as they were acknowledged."""
        return await self._wrong([(ref, self.refs[ref]) for ref in refs])

    async def _wrong(self, expected: Sequence[tuple[tuple[str, str], list[int]]]) -> list[str]:
        wrong = []
        for (kind, name), rows in expected:
            try:
                dataset: Any = await self.ns.open(self.id, branch=name if kind == "branch" else None)
                if kind == "tag":
                    dataset = await asyncio.to_thread(dataset.checkout_version, name)
                if (seen := await read(dataset)) != rows:
                    wrong.append(f"{self.id[-1]}: {kind} {name} has {len(seen)} rows, not {len(rows)}")
            except (LanceNamespaceError, OSError, ValueError) as e:
                wrong.append(f"{self.id[-1]}: {kind} {name} cannot be read: {e}")
        return wrong


def act(connection: Connection, stage: Stage, seed: int) -> None:
    """Writes to the tables with one writer each until it is told to end; then sends what is wrong."""
    asyncio.run(_act(connection, stage, seed))


async def _act(connection: Connection, stage: Stage, seed: int) -> None:
    async with stage.connect() as ns:
        actors = [Actor(ns, stage.id(name), Random(f"{seed} {name}"), [0], {1: [0]}, next=1) for name in ACTED]
        connection.send("ready")

        async def work(actor: Actor) -> None:
            while not connection.poll():
                await actor.act()
                # Tags and branches that were acknowledged stay readable at each moment.
                wrong.extend(await actor.wrong_refs([*actor.refs][-10:]))
                await asyncio.sleep(stage.pace)

        wrong: list[str] = []
        await asyncio.gather(*map(work, actors))
        connection.recv()
        # The instances go on until this asks again.
        connection.send((sum(it.acknowledged for it in actors), wrong))
        await asyncio.to_thread(connection.recv)
        connection.send([problem for actor in actors for problem in await actor.wrong()])


def append(connection: Connection, stage: Stage, number: int) -> None:
    """Appends to the tables with several writers until it is told to end; then sends the acknowledged rows."""
    asyncio.run(_append(connection, stage, number))


async def _append(connection: Connection, stage: Stage, number: int) -> None:
    known: dict[str, list[int]] = {name: [] for name in APPENDED}
    async with stage.connect() as ns:
        connection.send("ready")
        first = number + 1
        while not connection.poll():
            for name in APPENDED:
                with suppress(LanceNamespaceError):
                    await ns.write(stage.id(name), table([first]), mode="append")
                    known[name].append(first)
                first += APPENDERS
                await asyncio.sleep(stage.pace)
    connection.recv()
    connection.send(known)


@dataclass
class Round:
    """The result of a round."""

    seed: int
    acknowledged: int = 0
    kills: int = 0
    compactions: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n  ".join(
            [
                f"seed {self.seed}, {self.acknowledged} changes, {self.kills} kills:",
                *(f"!! {it}" for it in self.violations),
            ]
        )


def run(stage: Stage, seed: int, *, kills: int, pause: float = 0.3) -> Round:
    """Returns the result of a round.

    Args:
        stage: Where it takes place.
        seed: Chooses what the writers do, and who is killed when.
        kills: Number of kills of an instance, which is replaced by a new one.
        pause: Maximum seconds between two kills.
    """
    result, random, began = Round(seed), Random(seed), perf_counter()
    asyncio.run(_prepare(stage))
    ended: dict[int, float] = {}
    with ExitStack() as stack:
        actor, *appenders = (
            stack.enter_context(started(work, stage, number))[1]
            for work, number in [(act, seed), *((append, number) for number in range(APPENDERS))]
        )
        with ExitStack() as instances_stack:
            instances = [_start(instances_stack, stage) for _ in range(INSTANCES)]
            for connection in (actor, *appenders):
                assert receive(connection) == "ready"
            for _ in range(kills):
                sleep(random.uniform(0.0, pause))
                process, pid = instances.pop(random.randrange(INSTANCES))
                process.kill()
                process.join()
                ended[pid] = monotonic()
                _end_lease_of(stage, pid)
                instances.append(_start(instances_stack, stage))
                result.kills += 1
            sleep(random.uniform(0.0, pause))
            for connection in (actor, *appenders):
                connection.send("end")
            result.acknowledged, result.violations = receive(actor)
            rows: dict[str, list[int]] = {name: [0] for name in APPENDED}
            for connection in appenders:
                for name, ids in receive(connection).items():
                    rows[name] += ids
            result.acknowledged += sum(map(len, rows.values()))
        for _, pid in instances:
            ended.setdefault(pid, monotonic())
            _end_lease_of(stage, pid)
        asyncio.run(_finish(stage, rows, result))
        actor.send("end")
        result.violations += receive(actor)
    notes = [json.loads(line) for line in Path(stage.log).read_text().splitlines()]
    result.compactions = sum(what == "begin" for what, *_ in notes)
    result.violations += _overlaps(notes, ended)
    result.seconds = perf_counter() - began
    return result


def _start(stack: ExitStack, stage: Stage) -> tuple[BaseProcess, int]:
    process, connection = stack.enter_context(started(serve, stage))
    return process, receive(connection)


async def _prepare(stage: Stage) -> None:
    async with stage.connect() as ns:
        for depth in range(1, len(stage.namespace) + 1):
            await ns.create_namespace({"id": [*stage.namespace[:depth]], "mode": "exist_ok"})
        for name in (*ACTED, *APPENDED):
            await ns.write(stage.id(name), table([0]))


def _state(stage: Stage) -> Any:
    return lance.dataset(stage.state, storage_options=dict(stage.storage_options or {}) or None)


def _end_lease_of(stage: Stage, pid: int) -> None:
    """Lets the time of a dead instance's lease pass, unless it is short."""
    if stage.lease is not None:
        return
    with suppress(ValueError):
        state = _state(stage)
        if f" {pid} " in state.config().get("lance_ns_async.lease", ""):
            state.update_config({"lance_ns_async.lease": ""})


async def _finish(stage: Stage, rows: Mapping[str, Sequence[int]], result: Round) -> None:
    """Lets an instance work until nothing is pending, and checks that nothing was forgotten."""
    stop, status = anyio.Event(), MaintenanceStatus()

    async def end_when_done() -> None:
        while not status.runs or status.pending:  # noqa: ASYNC110 - the status has no event
            await asyncio.sleep(stage.every)
        stop.set()

    await asyncio.gather(_serve(None, stage, stop, status=status), end_when_done())
    async with stage.connect() as ns:
        for name, expected in rows.items():
            if missing := {*expected}.difference(await read(await ns.open(stage.id(name)))):
                result.violations.append(f"{name}: acknowledged rows are missing: {sorted(missing)[:10]}")
        # Versions grow old at any time.
        plan = await plan_maintenance(ns, [f"{'.'.join(stage.namespace)}.*"], compact=OPTIONS["compact"], cleanup=False)
        forgotten = [f"{it.id}: forgotten: {it.describe()}" for it in plan.pending]
        result.violations += [*forgotten, *(f"{it.id}: {it.reason}" for it in plan.problems)]


def _overlaps(notes: Sequence[Sequence[Any]], ended: Mapping[int, float]) -> Iterator[str]:
    """Yields the tables on which two processes worked at the same time."""
    spans: list[tuple[int, float, float, Collection[str]]] = []
    open_spans: dict[int, tuple[float, Collection[str]]] = {}
    for what, pid, at, tables in notes:
        if what == "begin":
            open_spans[pid] = (at, tables)
        else:
            begin, names = open_spans.pop(pid)
            spans.append((pid, begin, at, names))
    spans += [(pid, begin, ended.get(pid, begin), names) for pid, (begin, names) in open_spans.items()]
    for pid, begin, end, names in spans:
        for other, other_begin, other_end, other_names in spans:
            if pid < other and begin < other_end and other_begin < end and (both := {*names} & {*other_names}):
                yield f"{sorted(both)}: two instances at {begin:.3f} and {other_begin:.3f}"
