"""A watch sees each change of four processes, invents none, and goes on after it was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import LanceNamespaceError

from lance_ns_async import AsyncNamespace, Namespace, TableId
from lance_ns_async.lifecycle.manifests import find_latest
from tests.contract.sites import SITES
from tests.support.budget import rounds, thorough
from tests.support.processes import LOST_SECONDS, started

Seen = tuple[str, int | None]  # The location and the version of a table
ROWS = pa.table({"id": [1]})
WRITERS, NAMES = 4, 8  # Number of processes, and of names that each of them uses
EVERY = 0.05  # Seconds between two looks, at each of which every table is examined


@dataclass(frozen=True)
class Lake:
    """A namespace of a catalog."""

    impl: str
    properties: Mapping[str, str]
    parent: tuple[str, ...]

    def open(self) -> AsyncNamespace:
        return AsyncNamespace.connect(self.impl, self.properties)

    @property
    def pattern(self) -> str:
        return "$".join((*self.parent, "w*"))


@dataclass
class Step:
    """A change that a process makes."""

    kind: str
    names: tuple[str, ...]
    outcome: Seen | None = None  # The last table afterwards; None if it is gone
    done: bool = False
    begun_anew: bool = False  # Whether the watch has seen that the name belongs to another table


@dataclass
class History:
    """What was done, and what was seen of it."""

    tables: dict[str, Seen] = field(default_factory=dict)  # The tables that exist, by name
    view: dict[str, Seen] = field(default_factory=dict)  # The tables that exist according to the watch
    pending: dict[str, Step] = field(default_factory=dict)
    """The changes that were not seen yet, by the name of each table."""
    violations: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def choose(self, random: Random, writer: int) -> Step | None:
        """Returns a change of names that have no pending change; None if there are none."""
        names = [f"w{writer}n{number}" for number in range(NAMES)]
        free = [name for name in names if name not in self.pending and name not in self.tables]
        used = [name for name in names if name not in self.pending and name in self.tables]
        kinds = [*["create", "declare"] * bool(free), *["append", "drop", "recreate"] * bool(used)]
        kinds += ["move"] * bool(free and used)
        if not kinds:
            return None
        kind = random.choice(kinds)
        name, other = random.choice(used or [""]), random.choice(free or [""])
        step = Step(kind, {"create": (other,), "declare": (other,), "move": (name, other)}.get(kind, (name,)))
        self.pending.update(dict.fromkeys(step.names, step))
        return step

    def finish(self, step: Step, outcome: Seen | None) -> None:
        step.outcome, step.done = outcome, True
        for name in step.names:
            self.tables.pop(name, None)
        if outcome is not None:
            self.tables[step.names[-1]] = outcome
        self._settle(step)

    def see(self, change: Mapping[str, Any]) -> None:
        kind, name = change["change"], change["id"][-1]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == "renamed":
            self.view.pop(change["old_id"][-1], None)
        if kind == "dropped":
            self.view.pop(name, None)
        else:
            self.view[name] = (change.get("location", ""), change.get("version"))
        if (step := self.pending.get(name)) is None:
            self.violations.append(f"nothing has happened to {name}: {change}")
        else:
            step.begun_anew = step.begun_anew or kind in ("created", "replaced")
            self._settle(step)

    def _settle(self, step: Step) -> None:
        *gone, last = step.names
        is_seen = self.view.get(last) == step.outcome and not any(name in self.view for name in gone)
        if step.done and is_seen and (step.kind != "recreate" or step.begun_anew):
            for name in step.names:
                del self.pending[name]


def run(lake: Lake, changes: int, kills: int, seed: int) -> History:
    """Makes changes with several processes, and watches them; returns the history, in which nothing is pending."""
    random, history = Random(seed), History()
    with ExitStack() as stack:
        writers = [stack.enter_context(started(_write, lake))[1] for _ in range(WRITERS)]
        under_way: dict[Connection, Step] = {}
        token = asyncio.run(_begin(lake))
        made = 0
        while made < changes or history.pending:
            stop = min(changes, made + changes // kills)
            with started(_watch, lake, token) as (_, watch):
                while made < stop or (stop == changes and history.pending):
                    for number, writer in enumerate(writers):
                        if writer not in under_way and made < stop and (step := history.choose(random, number)):
                            under_way[writer] = step
                            made += 1
                            writer.send((step.kind, step.names))
                    ready = wait([watch, *under_way], LOST_SECONDS)
                    if not ready:
                        raise TimeoutError(f"not seen after {LOST_SECONDS:g} s: {history.pending}")
                    for connection in ready:
                        assert isinstance(connection, Connection)
                        message = connection.recv()
                        if connection is watch:
                            change, token = message
                            history.see(change)
                        else:
                            history.finish(under_way.pop(connection), message)
                # Here the watch is killed, whatever it is doing.
    return history


async def _begin(lake: Lake) -> str:
    async with lake.open() as ns:
        return await ns.watch_token([lake.pattern])


def _watch(connection: Connection, lake: Lake, since: str) -> None:
    async def main() -> None:
        async with lake.open() as ns:
            async for change in ns.watch([lake.pattern], since=since, every=EVERY, examine_every=EVERY):
                connection.send((change.to_dict(), change.token))

    asyncio.run(main())


def _write(connection: Connection, lake: Lake) -> None:
    async def main() -> None:
        async with lake.open() as ns:
            while True:
                kind, names = await asyncio.to_thread(connection.recv)
                connection.send(await _change(ns, kind, [TableId((*lake.parent, name)) for name in names]))

    asyncio.run(main())


async def _change(ns: AsyncNamespace, kind: str, ids: list[TableId]) -> Seen | None:
    id, last = list(ids[0]), list(ids[-1])
    match kind:
        case "create":
            await ns.write(id, ROWS)
        case "declare":
            await ns.declare_table(id)
        case "append":
            await ns.write(id, ROWS, mode="append")
        case "recreate":
            await ns.drop_table(id)
            await ns.write(id, ROWS)
        case "move":
            location = (await ns.describe_table(id)).location
            await ns.deregister_table(id)
            await ns.register_table(last, location=location)
        case "drop":
            await ns.drop_table(id)
            return None
    table = (await ns.describe_tables([last]))[last]
    version = table.version if table.managed_versioning else (await find_latest([table]))[table.id]
    assert not isinstance(version, LanceNamespaceError)
    return table.location, version


PARAMS = [
    "dir",
    *(pytest.param(name, marks=[pytest.mark.integration, thorough]) for name in ("hive-3.1.3", "iceberg-1.11.0")),
]


@pytest.mark.timeout(1200)  # 2,000 changes take minutes.
@pytest.mark.parametrize("name", PARAMS)
def test_each_change_is_seen(name: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    with SITES[name](tmp_path) as site:
        parent = (*site.above, "watched")
        with Namespace.connect(site.impl, site.properties) as ns:
            ns.create_namespace(list(parent))
        changes, kills = rounds(120, 2000), rounds(4, 20)
        history = run(Lake(site.impl, site.properties, parent), changes, kills, seed=1)
        with Namespace.connect(site.impl, site.properties) as ns:
            assert {id.name for id in ns.iter_tables(parent)} == history.tables.keys()
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(history.counts.items()))
    record_property("figures", f"{name}: {changes} changes, {kills} kills of the watch, seen: {counts}")
    assert not history.violations and history.view == history.tables and len(history.counts) >= 4
