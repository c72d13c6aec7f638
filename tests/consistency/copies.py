"""Copies of a lake that are killed at random moments and resumed by new processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from time import perf_counter
from typing import Any

from lance_ns_async import AsyncNamespace, Call, NamespaceId, Policy, TableId
from lance_ns_async.fleet.copies import copy
from lance_ns_async.model import same_place
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
    arguments: Mapping[str, Any]
    """Further arguments of `copy`, including the journal."""


@dataclass(frozen=True)
class Finish:
    """The report of a run that was not killed."""

    counts: Mapping[str, int]
    targets: Mapping[str, int]
    """The number of rows of each copy by its id."""
    resumed: int
    changes: int
    """Remote calls of this run that changed the target."""
    problems: str


@dataclass
class Outcome:
    """The result of a copy and its kills."""

    finish: Finish
    kills: list[str] = field(default_factory=list)
    """The moment of each kill."""
    seconds: list[float] = field(default_factory=list)
    """The duration of each run, including the last one."""


def run(job: Job, *, changes: int, kills: int, seed: int) -> Outcome:
    """Copies, kills the process a number of times, and lets a last process finish.

    Args:
        job: The copy.
        changes: The number of changed tables; the kills are distributed over them.
        kills: The number of kills; before some of them, nothing is changed.
        seed: Determines the moments.
    """
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
    outcome.finish = finish(job, outcome)
    return outcome


def finish(job: Job, outcome: Outcome | None = None) -> Finish:
    """Runs the copy to its end in a separate process."""
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
    """Returns the number of tables in the target, and their differences from those of the source, by describe.

    Args:
        job: The copy; the property `i` of each table is compared, too.
        where: The namespace in the target.
    """
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
