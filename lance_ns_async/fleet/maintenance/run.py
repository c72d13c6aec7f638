"""Maintenance of many tables: each is examined, then compacted by an engine, committed, indexed and cleaned up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from time import monotonic
from typing import Any, TypedDict, Unpack

import lance_namespace.errors as err

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.fleet.maintenance.engine import Engine, LocalEngine
from lance_ns_async.fleet.maintenance.plan import (
    CleanupOptions,
    CompactOptions,
    IndexOptions,
    MaintenanceOptions,
    MaintenancePlan,
)
from lance_ns_async.fleet.maintenance.policies import Policies, read_policies
from lance_ns_async.fleet.maintenance.steps import WITHOUT_DATA, Maintenance
from lance_ns_async.fleet.run import Report, for_async, start
from lance_ns_async.fleet.table_search import parse_size
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.settings import seconds

TIMEOUT = 3600.0
"""Default maximum duration of one step for one table, in seconds."""


@for_async
async def plan_maintenance(
    namespace: AsyncNamespace,
    what: What,
    *,
    compact: bool | CompactOptions = True,
    index: bool | IndexOptions = True,
    cleanup: bool | CleanupOptions = True,
    engine: Engine | None = None,
    policies: Policies | None = None,
    budget: int | str | None = None,
    progress: bool | ProgressCallback = False,
) -> MaintenancePlan:
    """Returns what `maintain` would do with the same arguments. Changes nothing.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables.
        compact: Whether small fragments and deleted rows are examined, or the options for that.
        index: Whether indexes that lack rows are examined, or the options for that.
        cleanup: Whether old versions and unused files are examined, or the options for that.
        engine: Examines the tables, for example `SparkEngine`; None for the threads of this process.
        policies: As in `maintain`.
        budget: As in `maintain`; the other tables are marked as left.
        progress: Shows a bar in a terminal or notebook, or receives the number of completed tables and the total.

    Returns:
        The plan, with each table's state, and the tables that could not be examined.

    Raises:
        InvalidInputError: An argument or an id is invalid; nothing was called.

    Cost:
        The listings, a bulk describe, one call for each namespace, and one open for each table. With `cleanup`, also
        a listing of the table's files and a read of each of its versions.
    """
    policy_of, most = read_policies(policies, MaintenanceOptions.of(compact, index, cleanup)), _bytes(budget)
    selection = Selection.read(what)
    with start("maintain", namespace, progress=progress) as run:
        executor = engine or LocalEngine(namespace.session.opener, timeout=TIMEOUT)
        work = Maintenance(namespace.session, policy_of, run, executor)
        candidates = await work.examine(await work.select(selection))
        work.keep_within(most, candidates)
        report = run.report()
        return MaintenancePlan(
            sorted((it.plan for it in candidates), key=lambda plan: (-plan.task_bytes, -plan.task_fragments, plan.id)),
            report.problems,
            report.having(WITHOUT_DATA),
            report.seconds,
            report.calls,
        )


@for_async
async def maintain(
    namespace: AsyncNamespace,
    what: What,
    *,
    compact: bool | CompactOptions = True,
    index: bool | IndexOptions = True,
    cleanup: bool | CleanupOptions = True,
    engine: Engine | None = None,
    policies: Policies | None = None,
    budget: int | str | None = None,
    max_time: float | str | timedelta | None = None,
    timeout: float = TIMEOUT,
    progress: bool | ProgressCallback = False,
) -> Report:
    """Compacts tables, prepares their indexes, and removes old versions. Tables without need are not changed.

    All tables are examined first. An index that lacks rows is refreshed before the compaction of its table, so that
    old and new fragments can be merged. A compaction is one commit, as soon as all tasks of the table have ended; if
    another writer changed the same rows meanwhile, it is planned again, up to three times. A failure does not affect
    the other tables, and a stopped run can be repeated: it leaves finished tables, and tables that are unchanged but
    for unused files.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables.
        compact: Whether small fragments are merged and deleted rows removed, or the options for that.
        index: Whether indexes that lack rows are refreshed, or the options for that.
        cleanup: Whether old versions and unused files are removed, or the options for that; by default versions older
            than 14 days. Tagged versions stay.
        engine: Does the work that needs no catalog, for example `SparkEngine`; None for the threads of this process.
        policies: Options that differ between tables, and priorities, by patterns; see `maintenance.policies`. The other
            arguments apply where they have none. None for none.
        budget: Maximum bytes that compactions read and write, and that indexes read, such as `10GB`. The tables with
            the largest gain for each byte are first; the compaction and the indexes of the others are left for a later
            run. None for no limit.
        max_time: Duration, such as `20m`, after which no compaction and no refresh of indexes begins; the tables with
            the largest gain for each byte are first. None for no limit.
        timeout: Maximum duration of one step for one table, in seconds.
        progress: Shows a bar in a terminal or notebook, or receives the number of completed tables and the total.

    Returns:
        A row for each table: "maintained", "unchanged", "left" for a later run, "off" by a policy, "without data", or
            "missing", "denied" or "failed" for errors. Its fields are the state before and after; the counters have
            the totals.

    Raises:
        InvalidInputError: An argument or an id is invalid; nothing was called.

    Cost:
        As `plan_maintenance`; one describe more for each table whose catalog vends credentials. For each version that
        the catalog commits, its calls for a commit.
    """
    run_once = maintainer(
        namespace,
        compact=compact,
        index=index,
        cleanup=cleanup,
        engine=engine,
        policies=policies,
        budget=budget,
        max_time=max_time,
        timeout=timeout,
        progress=progress,
    )
    return await run_once(Selection.read(what))


class RunOptions(TypedDict, total=False):
    """The arguments of `maintain` but the tables."""

    compact: bool | CompactOptions
    index: bool | IndexOptions
    cleanup: bool | CleanupOptions
    engine: Engine | None
    policies: Policies | None
    budget: int | str | None
    max_time: float | str | timedelta | None
    timeout: float
    progress: bool | ProgressCallback


def maintainer(
    namespace: AsyncNamespace, *, stops: Callable[[], bool] | None = None, **options: Unpack[RunOptions]
) -> Callable[[Selection], Coroutine[Any, Any, Report]]:
    """Returns a function that maintains tables, and may be called again and again.

    Args:
        namespace: The catalog.
        stops: Returns whether no table may be begun any more; None for no such condition.
        options: As in `maintain`.

    Raises:
        InvalidInputError: An option is invalid.
    """
    steps = MaintenanceOptions.of(
        options.get("compact", True), options.get("index", True), options.get("cleanup", True)
    )
    policy_of, most = read_policies(options.get("policies"), steps), _bytes(options.get("budget"))
    max_time, timeout = options.get("max_time"), options.get("timeout", TIMEOUT)
    longest = None if max_time is None else seconds("max_time", max_time)
    if not timeout > 0:
        raise err.InvalidInputError(f"timeout {timeout}: must be a number of seconds above 0")

    async def run_once(selection: Selection) -> Report:
        end = None if longest is None else monotonic() + longest
        with start("maintain", namespace, progress=options.get("progress", False)) as run:
            engine = options.get("engine") or LocalEngine(namespace.session.opener, timeout=timeout)
            work = Maintenance(namespace.session, policy_of, run, engine, timeout, stops)
            candidates = await work.select(selection)
            while candidates:
                examined = await work.examine(candidates)
                if work.attempt == 1:
                    work.keep_within(most, examined)
                candidates = await work.take_steps(examined, end)
                work.attempt += 1
            return run.report()

    return run_once


def _bytes(budget: int | str | None) -> int | None:
    most = parse_size("budget", budget) if isinstance(budget, str) else budget
    if most is not None and most < 0:
        raise err.InvalidInputError(f"budget {most}: must not be negative")
    return most
