"""A copy is killed five times and resumed: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_ns_async import AsyncNamespace, Call, NamespaceId, Policy, TableId
from lance_ns_async.fleet.copies import copy
from lance_ns_async.model import same_place
from tests.contract.real_sites import hive_site
from tests.fakes.hive3 import FakeHive
from tests.fakes.iceberg import FakeIceberg
from tests.support.budget import rounds, with_usual
from tests.support.processes import receive, started, wait_until_quiet

CHANGES = frozenset({"create_namespace", "declare_table", "deregister_table", "replace_table", "create_table"})
IN_FLIGHT = 8
"""Calls in flight to each catalog, and so the maximum number of changes without a journal entry after a kill."""


@dataclass(frozen=True)
class Job:
    """A copy between two catalogs."""

    source: tuple[str, Mapping[str, str]]
    target: tuple[str, Mapping[str, str]]
    what: str
    arguments: Mapping[str, Any]  # Further arguments of `copy`, including the journal


@dataclass(frozen=True)
class Finish:
    """The report of a run that was not killed."""

    counts: Mapping[str, int]
    targets: Mapping[str, int]  # The number of rows of each copy by its id
    resumed: int
    changes: int  # Remote calls of this run that changed the target
    problems: str


@dataclass
class Outcome:
    """The result of a copy and its kills."""

    finish: Finish
    kills: list[str] = field(default_factory=list)  # The moment of each kill
    seconds: list[float] = field(default_factory=list)  # The duration of each run, including the last one


def run(job: Job, *, changes: int, kills: int, seed: int) -> Outcome:
    """Copies, kills the process a number of times, and lets a last process finish. The kills are distributed over the
    changed tables, at moments of the seed; before some of them, nothing is changed."""
    random = Random(seed)
    # Changes in flight take effect although their process is killed.
    points = sorted(random.sample(range(1, changes - 2 * IN_FLIGHT * kills), kills))
    outcome = Outcome(Finish({}, {}, 0, 0, ""))
    last = 0
    for point in points:
        early = random.random() < 0.2
        count = random.randint(1, 4) if early else point - last
        last = last if early else point
        outcome.kills.append(f"after {count} {'calls' if early else 'changes'}")
        began = perf_counter()
        with started(_copy, job, count, early) as (process, connection):
            try:
                receive(connection)
            except (EOFError, ConnectionResetError):
                process.join()
        outcome.seconds.append(perf_counter() - began)
        assert process.exitcode == -signal.SIGKILL, f"not killed {outcome.kills}: it ended with {process.exitcode}"
        for _, properties in (job.source, job.target):
            wait_until_quiet(properties)
    outcome.finish = finish_copy(job, outcome)
    return outcome


def finish_copy(job: Job, outcome: Outcome | None = None) -> Finish:
    began = perf_counter()
    with started(_copy, job, None, False) as (_, connection):
        finish: Finish = receive(connection)
    if outcome is not None:
        outcome.seconds.append(perf_counter() - began)
    return finish


def _copy(connection: Connection, job: Job, count: int | None, early: bool) -> None:
    connection.send(asyncio.run(_copied(job, count, early)))


async def _copied(job: Job, count: int | None, early: bool) -> Finish:
    """Copies; kills this process after `count` calls of any kind with `early`, otherwise after that many changes."""
    left, changes = count, 0

    def count_down(call: Call) -> None:
        nonlocal left, changes
        changes += call.operation in CHANGES
        if left is not None and (early or call.operation in CHANGES - {"create_namespace"}):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    policy = Policy(max_in_flight=IN_FLIGHT)
    async with (
        AsyncNamespace.connect(*job.source, policy=policy) as source,
        AsyncNamespace.connect(*job.target, policy=policy) as target,
    ):
        with source.observe(count_down), target.observe(count_down):
            report = await copy(source, target, job.what, **job.arguments)
    rows = [row for row in report.rows if isinstance(row.id, TableId) and row.outcome != "not kept"]
    return Finish(
        Counter(row.outcome for row in rows),
        Counter(row.fields["target"] for row in rows),
        report.resumed,
        changes,
        str(report) if report.problems else "",
    )


async def differences(job: Job, where: str) -> tuple[int, list[str]]:
    """Returns the number of tables in the namespace `where` of the target, and their differences from those of the
    source, by describe and by the property `i`."""
    async with AsyncNamespace.connect(*job.source) as source, AsyncNamespace.connect(*job.target) as target:
        originals = {id.name: table for id, table in (await _describe(source, job.what)).items()}
        copies = {id.name: table for id, table in (await _describe(target, where)).items()}
    wrong = [f"{name} is missing" for name in originals.keys() - copies.keys()]
    wrong += [f"{name} is extra" for name in copies.keys() - originals.keys()]
    for name in originals.keys() & copies.keys():
        one, other = originals[name], copies[name]
        if not job.arguments.get("data") and not same_place(one.location, other.location):
            wrong.append(f"{name} is at {other.location}, and should be at {one.location}")
        if (one.properties or {}).get("i") != (other.properties or {}).get("i"):
            wrong.append(f"{name} has the properties {other.properties}, and should have {one.properties}")
    return len(copies), wrong


async def _describe(ns: AsyncNamespace, namespace: str) -> Mapping[TableId, Any]:
    ids = [id async for id in ns.iter_tables(NamespaceId(namespace.removesuffix("$*")))]
    assert len(ids) == len(set(ids)), "a table is listed twice"
    return (await ns.describe_tables(ids)).raise_for_errors().tables


pytestmark = pytest.mark.long
COUNT = rounds(90, 300)
KILLS = 5


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[tuple[str, dict[str, str], NamespaceId]]:
    (tmp_path / "hive").mkdir()
    with FakeHive(tmp_path / "hive") as server:
        site = hive_site(server.uri, tmp_path)
        yield site.impl, {**site.properties}, site.above.child("home")


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[FakeIceberg]:
    with FakeIceberg() as server:
        yield server


def properties(server: FakeIceberg, tmp_path: Path) -> dict[str, str]:
    return {"endpoint": server.endpoint, "root": (tmp_path / "iceberg").as_uri()}


async def add_other_table(impl: str, properties: dict[str, str], home: NamespaceId, count: int, tmp_path: Path) -> None:
    async with AsyncNamespace.connect(impl, properties) as ns:
        await ns.create_namespace({"id": list(home), "mode": "exist_ok"})
        for i in range(count):
            location = (tmp_path / "data" / f"t{i}").as_uri()
            await ns.declare_table({"id": [*home, f"t{i}"], "location": location, "properties": {"i": str(i)}})


@pytest.mark.parametrize("seed", with_usual(range(3), 0))
async def test_a_copy_that_is_killed_goes_on(
    seed: int, hive: tuple[str, dict[str, str], NamespaceId], iceberg: FakeIceberg, tmp_path: Path
) -> None:
    impl, where, home = hive
    await add_other_table(impl, where, home, COUNT, tmp_path)
    arguments = {"to": {str(home): "lake"}, "journal": str(tmp_path / "journal")}
    job = Job((impl, where), ("iceberg", properties(iceberg, tmp_path)), f"{home}$*", arguments)
    outcome = run(job, changes=COUNT, kills=KILLS, seed=seed)
    finish = outcome.finish
    assert not finish.problems and finish.counts == {"created": COUNT}, outcome.kills
    assert set(finish.targets.values()) == {1} and len(finish.targets) == COUNT
    assert await differences(job, "lake") == (COUNT, [])
    declarations = [it for it in iceberg.requests if it.method == "POST" and "/namespaces/lake/" in it.path]
    assert len(declarations) == COUNT, "a table was declared twice"
    again = finish_copy(job)
    assert again.counts == {"unchanged": COUNT} and not again.changes and not again.resumed


async def test_a_sync_that_is_killed_goes_on(
    hive: tuple[str, dict[str, str], NamespaceId], iceberg: FakeIceberg, tmp_path: Path
) -> None:
    impl, where, home = hive
    await add_other_table(impl, where, home, COUNT, tmp_path)
    target = properties(iceberg, tmp_path)
    # A third is extra, a third differs, and a third is missing.
    third = COUNT // 3
    for i in range(third):
        table_properties = {"table_type": "lance", "i": "old"}
        iceberg.add_table(["lake"], f"t{i}", properties=table_properties, location=f"file:///old/t{i}")
        iceberg.add_table(["lake"], f"extra{i}", properties=table_properties, location=f"file:///old/extra{i}")
    arguments = {"to": {str(home): "lake"}, "mode": "sync", "delete": True, "journal": str(tmp_path / "journal")}
    job = Job((impl, where), ("iceberg", target), f"{home}$*", arguments)
    outcome = run(job, changes=COUNT + third, kills=KILLS, seed=1)
    finish = outcome.finish
    expected = {"created": COUNT - third, "changed": third, "deregistered": third}
    assert not finish.problems and finish.counts == expected, (outcome.kills, finish)
    assert set(finish.targets.values()) == {1}
    assert await differences(job, "lake") == (COUNT, [])
    again = finish_copy(job)
    assert again.counts == {"unchanged": COUNT} and not again.changes


async def test_a_clone_that_is_killed_goes_on(tmp_path: Path) -> None:
    count = 120
    source, target = {"root": str(tmp_path / "source")}, {"root": str(tmp_path / "target")}
    rows = pa.table({"id": [1, 2, 3]})
    async with AsyncNamespace.connect("dir", source) as ns:
        await ns.create_namespace({"id": ["home"]})
        for i in range(count):
            made = await ns.declare_table({"id": ["home", f"t{i}"], "properties": {"i": str(i)}})
            lance.write_dataset(rows, made.location)
    job = Job(("dir", source), ("dir", target), "home$*", {"data": True, "journal": str(tmp_path / "journal")})
    outcome = run(job, changes=count, kills=KILLS, seed=2)
    finish = outcome.finish
    assert not finish.problems and finish.counts == {"created": count}, (outcome.kills, finish)
    assert await differences(job, "home") == (count, [])
    async with AsyncNamespace.connect("dir", target) as ns:
        tables = (await ns.describe_tables([["home", f"t{i}"] for i in range(count)])).raise_for_errors().tables
    assert all(lance.dataset(table.location).to_table() == rows for table in tables.values())
    folders = {it.parent for it in (tmp_path / "target").rglob("_versions") if "__manifest" not in str(it)}
    assert len(folders) == count, "a clone was left without a table"
