"""Rounds of the crash suite: a process that is killed, and one that examines the state that it left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from time import perf_counter

import lance
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from tests.consistency.model import Answer, Model, Name, Operation, Terms, operations, path, perform, read, table
from tests.support.processes import receive, started, wait_until_quiet

SPARE: tuple[int, ...] = (1, 2, 3)  # Number of rows of a dataset that exists before a round, and can be registered


@dataclass(frozen=True)
class Place:
    """The catalog of one round."""

    impl: str
    properties: Mapping[str, str]
    disk: Path  # The folder of all data of the round
    terms: Terms
    namespaces: tuple[Name, ...]  # The namespaces that contain the round's tables, outermost first

    @property
    def spare(self) -> str:
        """Returns the location of a dataset that no catalog knows."""
        return str(self.disk / "spare")

    def model(self) -> Model:
        return Model(self.terms, data={self.spare: frozenset(SPARE)})


@dataclass(frozen=True)
class Kill:
    """The moment of a kill: after a number of remote calls, or a time after the beginning of an operation."""

    calls: int | None
    begun: int
    seconds: float

    @classmethod
    def chosen(cls, random: Random) -> Kill:
        calls = random.randint(4, 50) if random.random() < 0.5 else None
        return cls(calls, random.randint(3, 16), random.choice((0.002, 0.01, 0.03)) * random.random())

    def __str__(self) -> str:
        if self.calls is not None:
            return f"after {self.calls} remote calls"
        return f"{self.seconds * 1e3:.2f} ms after operation {self.begun} began"


@dataclass
class Round:
    """The result of a round."""

    seed: int
    kill: str
    log: list[str] = field(default_factory=list)  # The operations and their responses; the last one may have none
    violations: list[str] = field(default_factory=list)
    cut: str = ""  # The kind of operation that was in progress; None if there was none
    orphans: int = 0  # Number of folders without a registration when the process was killed
    seconds: float = 0.0

    def __str__(self) -> str:
        return "\n  ".join(
            [f"seed {self.seed}, killed {self.kill}:", *self.log, *(f"!! {it}" for it in self.violations)]
        )


def run(place: Place, seed: int) -> Round:
    """Lets a process perform operations, kills it, and examines the state that it left."""
    kill = Kill.chosen(Random(seed))
    round, began = Round(seed, str(kill)), perf_counter()
    model, under_way = _until_killed(place, seed, kill, round)
    round.cut = under_way.kind if under_way else ""
    candidates = model.after_a_kill(under_way)
    wait_until_quiet(place.properties)
    with started(_inspect, place, candidates, seed) as (_, connection):
        result, round.orphans = receive(connection)
    round.violations += result
    round.seconds = perf_counter() - began
    return round


def _until_killed(place: Place, seed: int, kill: Kill, round: Round) -> tuple[Model, Operation | None]:
    """Returns the state after the acknowledged operations, and the operation without a response."""
    model, under_way = place.model(), None
    with started(_work, place, seed, kill.calls) as (process, connection):
        assert process.pid is not None
        for number in count():
            try:
                message = receive(connection)
            except (EOFError, ConnectionResetError):
                break
            if isinstance(message, Operation):
                under_way = message
                round.log.append(str(message))
                if kill.calls is None and number // 2 == kill.begun:
                    until = perf_counter() + kill.seconds
                    while perf_counter() < until:
                        pass
                    os.kill(process.pid, signal.SIGKILL)
            else:
                assert under_way is not None and isinstance(message, Answer)
                round.log[-1] += f" -> {message}"
                _acknowledge(model, under_way, message, round)
                under_way = None
        process.join()
        if process.exitcode != -signal.SIGKILL:
            round.violations.append(f"the process was not killed: it ended with {process.exitcode}")
    return model, under_way


def _acknowledge(model: Model, it: Operation, answer: Answer, round: Round) -> None:
    expected = model.may_succeed(it)
    if expected is not None and expected != answer.ok:
        round.violations.append(
            f"{it} {'succeeded' if answer.ok else 'was refused'} where the other was right: {answer}"
        )
    if answer.ok:
        model.apply(it, answer.location)


def _work(connection: Connection, place: Place, seed: int, calls: int | None) -> None:
    asyncio.run(_working(connection, place, seed, calls))


async def _working(connection: Connection, place: Place, seed: int, calls: int | None) -> None:
    lance.write_dataset(table(SPARE), place.spare)
    async with AsyncNamespace.connect(place.impl, place.properties) as ns:
        for name in place.namespaces:
            await ns.create_namespace({"id": list(name)})
        model, left = place.model(), calls

        def count_down(_: object) -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        with ns.observe(count_down):
            for it in operations(Random(seed), model):
                connection.send(it)
                answer = await perform(ns, it)
                connection.send(answer)
                if answer.ok:
                    model.apply(it, answer.location)


def _inspect(connection: Connection, place: Place, candidates: list[Model], seed: int) -> None:
    """Sends the problems in the state that a killed process left, and the number of orphans."""
    connection.send(asyncio.run(_inspected(place, candidates, seed)))


async def _inspected(place: Place, candidates: list[Model], seed: int) -> tuple[list[str], int]:
    async with AsyncNamespace.connect(place.impl, place.properties) as ns:
        result = Found()
        await _look(ns, place, result)
        wrong, model = min(((result.differences(it), it) for it in candidates), key=lambda it: len(it[0]))
        result.wrong += wrong
        for kept, rows in model.kept().items():
            result.wrong += _lost(kept, rows)
        folders = _orphans(place, {*result.places.values(), *model.kept(), *model.left})
        if len(folders) > 1:
            result.wrong.append(f"after one kill, {len(folders)} folders belong to no table: {folders}")
        await _use_every_name(ns, place, result, model, Random(seed))
        # A drop that was killed leaves its data without a registration.
        gone = {*model.left, *(str(place.disk / it) for it in folders)}
        files = (it for it in _files(place) if not any(str(it).startswith(f"{folder}/") for folder in gone))
        left = sorted(str(it.relative_to(place.disk)) for it in files)
        if left:
            result.wrong.append(f"after every table was dropped there are {len(left)} files, such as {left[:3]}")
        return result.wrong, len(folders)


@dataclass
class Found:
    """The tables as a new process sees them."""

    places: dict[Name, str] = field(default_factory=dict)
    rows: dict[Name, tuple[int, ...] | None] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def differences(self, model: Model) -> list[str]:
        wrong = []
        for name in model.terms.names:
            shown = ".".join(name)
            if (name in self.places) != (name in model.tables):
                wrong.append(f"{shown} is {'there' if name in self.places else 'missing'}, and should not be")
            elif name in self.places:
                rows, expected = self.rows[name], model.rows(name)
                if Counter(rows or ()) != Counter(expected or ()) or (rows is None) != (expected is None):
                    wrong.append(f"{shown} has the rows {_shown(rows)}, and should have {_shown(expected)}")
                place = model.tables[name]
                if place.startswith("/") and place != self.places[name]:
                    wrong.append(f"{shown} is at {self.places[name]}, and should be at {place}")
        return wrong


def _shown(rows: object) -> str:
    return "none" if rows is None else str(sorted(rows))  # type: ignore[call-overload]  # they are rows


async def _look(ns: AsyncNamespace, place: Place, state: Found) -> None:
    listed: set[Name] = set()
    for parent in {name[:-1] for name in place.terms.names}:
        try:
            tables = (await ns.list_tables({"id": list(parent)})).tables
        except LanceNamespaceError as e:
            # The process may have been killed before it created the namespace.
            state.wrong.append(f"listing {parent} fails: {e}")
            continue
        if len(set(tables)) != len(tables):
            state.wrong.append(f"{parent} lists a table twice: {sorted(tables)}")
        listed |= {(*parent, it) for it in tables}
    state.wrong += [f"{name} is listed, and nobody made it" for name in listed - {*place.terms.names}]
    bulk = await ns.describe_tables([list(name) for name in place.terms.names])
    for name in place.terms.names:
        shown, one = ".".join(name), await perform(ns, Operation("describe", name))
        many = bulk.tables.get(TableId(name))
        if many is None and not isinstance(bulk.errors[TableId(name)], TableNotFoundError):
            state.wrong.append(f"bulk describe of {shown} fails: {bulk.errors[TableId(name)]!r}")
        if one.error not in (None, "TableNotFoundError"):
            state.wrong.append(f"describe of {shown} fails: {one}")
        if (None if many is None else path(many.location)) != one.location:
            state.wrong.append(f"{shown}: bulk describe says {many}, describe says {one.location} {one}")
        if (name in listed) != one.ok:
            state.wrong.append(f"{shown} is {'' if name in listed else 'not '}listed, and describe says {one}")
        if one.ok:
            assert one.location is not None
            state.places[name] = one.location
            rows = await perform(ns, Operation("read", name))
            if rows.error not in (None, "TableNotFoundError"):
                state.wrong.append(f"{shown} cannot be read: {rows}")
            state.rows[name] = rows.rows


def _lost(kept: str, rows: frozenset[int]) -> list[str]:
    try:
        result = sorted(lance.dataset(kept).to_table()["id"].to_pylist())
    except (OSError, ValueError) as e:
        return [f"the rows {sorted(rows)} of a table that was deregistered are gone from {kept}: {e}"]
    return [] if result == sorted(rows) else [f"{kept} has the rows {result}, and should have {sorted(rows)}"]


async def _use_every_name(ns: AsyncNamespace, place: Place, state: Found, model: Model, random: Random) -> None:
    """Registers, writes, reads and drops all tables by ordinary calls, and records each failure."""
    kept = dict(model.kept())

    async def must(kind: str, name: Name, *rows: int, location: str | None = None) -> bool:
        it = Operation(kind, name, rows, location)
        answer = await perform(ns, it)
        if not answer.ok:
            state.wrong.append(f"stuck: {it} -> {answer}")
        return answer.ok

    async def must_hold(name: Name, expected: tuple[int, ...]) -> None:
        try:
            rows = await read(ns, name)
        except LanceNamespaceError as e:
            state.wrong.append(f"stuck: read {'.'.join(name)} -> {e!r}")
            return
        if rows != tuple(sorted(expected)):
            state.wrong.append(f"{'.'.join(name)} was given the rows {sorted(expected)}, and has {list(rows)}")

    shared = {name for name in state.places if list(state.places.values()).count(state.places[name]) > 1}
    for name in sorted(shared)[1:]:
        # Its data also belongs to the other table.
        await must("deregister", name)
    for name in place.terms.names:
        if name in shared:
            if name == min(shared):
                await must("drop", name)
        elif name in state.places:
            if await must("insert", name, 9001):
                await must_hold(name, (*(state.rows[name] or ()), 9001))
            await must("drop", name)
    for name in place.terms.names:
        home = model.homes.get(name)
        if home in kept and name not in place.terms.bare:
            await must("register", name, location=home)
            await must_hold(name, tuple(kept.pop(home)))
            await must("drop", name)
        elif home not in kept:
            kind = random.choice(("write", "create", "overwrite", "declare"))
            if await must(kind, name, 9002) and (kind != "declare" or await must("insert", name, 9002)):
                await must_hold(name, (9002,))
            await must("drop", name)
    name = next(it for it in place.terms.names if it not in place.terms.bare)
    for location, rows in kept.items():
        if location not in (model.homes.get(it) for it in place.terms.bare):
            await must("register", name, location=location)
            await must_hold(name, tuple(rows))
            await must("drop", name)
    for parent in {name[:-1] for name in place.terms.names}:
        if tables := (await ns.list_tables({"id": list(parent)})).tables:
            state.wrong.append(f"after every table was dropped {parent} lists {tables}")


def _files(place: Place) -> list[Path]:
    """Returns the data files below the round's folder. Metadata of an Iceberg server is not included: it stays after a
    registration was removed or moved."""
    files = (it for it in place.disk.rglob("*") if it.is_file() and "__manifest" not in it.parts)
    files = (it for it in files if not it.name.endswith(".metadata.json"))
    hidden = {it.parent for it in place.disk.rglob(".lance-deregistered")}
    return [it for it in files if not any(folder in hidden for folder in it.parents)]


def _orphans(place: Place, known: set[str]) -> list[str]:
    folders = set()
    for file in _files(place):
        if not any(str(file).startswith(f"{it}/") for it in known):
            below = file.relative_to(place.disk).parts
            kinds = ("data", "_versions", "_transactions", "metadata")
            folders.add("/".join(below[: next((i for i, part in enumerate(below) if part in kinds), len(below) - 1)]))
    return sorted(folders)
