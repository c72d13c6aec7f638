"""Maintenance of many tables: each is examined, then compacted by an engine, committed, indexed and cleaned up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

import anyio
import lance_namespace.errors as err

from lance_ns_async.calls.tasks import each
from lance_ns_async.client import AsyncNamespace
from lance_ns_async.fleet.maintenance.engine import Engine, Job, JobResult, LocalEngine
from lance_ns_async.fleet.maintenance.plan import (
    CLEAN_UP,
    COMPACT,
    INDEX,
    LEFT,
    CleanupOptions,
    CompactOptions,
    IndexOptions,
    MaintenanceOptions,
    MaintenancePlan,
    TablePlan,
    by_worth,
    tables_to_leave,
)
from lance_ns_async.fleet.maintenance.policies import Policies, TablePolicy, read_policies
from lance_ns_async.fleet.reading import read_tables
from lance_ns_async.fleet.run import Report, Run, failure_row, for_async, start
from lance_ns_async.fleet.table_search import parse_size
from lance_ns_async.lifecycle import commits, concurrent_changes
from lance_ns_async.many import search
from lance_ns_async.many.patterns import Selection, What
from lance_ns_async.model import Table, TableId, local_path
from lance_ns_async.operations import maintaining
from lance_ns_async.operations.maintaining import DatasetState, Examination, Kind, RewriteTask
from lance_ns_async.progress import ProgressCallback
from lance_ns_async.session import Session
from lance_ns_async.settings import seconds
from lance_ns_async.storage.datasets import remove_files
from lance_ns_async.storage.threads import THREADS, in_thread
from lance_ns_async.tabular import Row

MAINTAINED = "maintained"
UNCHANGED = "unchanged"
WITHOUT_DATA = "without data"
OFF = "off"

_NO_VERSION = "the location has no version: nothing was written, or the data was removed; audit says which"

_AT_ONCE = 32  # Number of tables that are begun at once, before the next look at the end of `max_time`.

ATTEMPTS = 3
"""Number of times a table is planned and compacted, if other writers change it in conflict with that."""

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
        work = _Maintenance(namespace.session, policy_of, run, executor)
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
    policy_of, most = read_policies(policies, MaintenanceOptions.of(compact, index, cleanup)), _bytes(budget)
    end = None if max_time is None else monotonic() + seconds("max_time", max_time)
    if not timeout > 0:
        raise err.InvalidInputError(f"timeout {timeout}: must be a number of seconds above 0")
    selection = Selection.read(what)
    with start("maintain", namespace, progress=progress) as run:
        executor = engine or LocalEngine(namespace.session.opener, timeout=timeout)
        work = _Maintenance(namespace.session, policy_of, run, executor, timeout)
        candidates = await work.select(selection)
        while candidates:
            examined = await work.examine(candidates)
            if work.attempt == 1:
                work.keep_within(most, examined)
            candidates = await work.take_steps(examined, end)
            work.attempt += 1
        return run.report()


def _bytes(budget: int | str | None) -> int | None:
    most = parse_size("budget", budget) if isinstance(budget, str) else budget
    if most is not None and most < 0:
        raise err.InvalidInputError(f"budget {most}: must not be negative")
    return most


@dataclass(slots=True)
class _Candidate:
    """A table during a run."""

    table: Table
    options: MaintenanceOptions
    priority: int
    plan: TablePlan = field(init=False)
    """The plan of the last attempt; there is none until `first` is set."""
    tasks: Sequence[RewriteTask] = ()
    first: DatasetState | None = None
    """The state before this run; None if it was not read yet."""
    seconds: float = 0.0
    done: list[str] = field(default_factory=list)
    """The steps that were done, in all attempts."""
    version: int = 0
    """The newest version, as far as this run knows."""
    after: DatasetState | None = None
    """The state after a compaction."""
    removed: tuple[int, int] = (0, 0)
    """The versions and bytes that were cleaned up."""
    is_left: bool = False
    """Whether the compaction and the indexes are left for a later run."""

    def leave(self) -> None:
        self.is_left, self.tasks = True, ()
        self.plan = replace(self.plan, is_left=True)


@dataclass(slots=True)
class _Maintenance:
    """The steps of one run."""

    session: Session
    policy_of: Callable[[TableId], TablePolicy]
    run: Run
    engine: Engine
    timeout: float | None = None
    """Maximum seconds of a step for one table; None if the tables are only examined, and not changed."""
    attempt: int = 1
    again: list[_Candidate] = field(default_factory=list)
    """The tables to try again because of a conflict."""

    async def select(self, selection: Selection) -> Sequence[_Candidate]:
        """Returns the selected tables, and adds rows for those that cannot be read."""
        reading = await read_tables(self.session, selection)
        self.run.rows += reading.failure_rows()
        self.run.counters["tables"] = len(reading.tables)
        self.run.expect(len(reading.tables))
        candidates = []
        for table in reading.tables.values():
            policy = self.policy_of(table.id)
            if policy.options is None:
                self.run.finish(Row(table.id, OFF, f"by the policy for {policy.pattern}", table.location))
            else:
                candidates.append(_Candidate(table, policy.options, policy.priority))
        return candidates

    async def examine(self, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
        """Looks at the tables concurrently; returns those without a failure."""
        examined: list[_Candidate] = []

        async def look(candidate: _Candidate, results: Sequence[JobResult]) -> None:
            table = candidate.table
            try:
                with self._step(candidate):
                    await self._look(candidate, results, is_before_refresh=candidate.options.index is not None)
            except err.TableNotFoundError as e:
                if await self._is_registered(table):
                    self.run.finish(Row(table.id, WITHOUT_DATA, _NO_VERSION, table.location))
                else:
                    self.run.finish(failure_row(table.id, e, table.location))
            except err.LanceNamespaceError as e:
                self._fail(candidate, e)
            else:
                examined.append(candidate)
                if self.timeout is None:
                    self.run.advance()

        def jobs(candidate: _Candidate) -> Sequence[Job]:
            if not self._is_for_engine("examine", candidate):
                return []
            return [Job(candidate.table, "examine", candidate.options.examination().encoded())]

        await self._work(await self._with_credentials(candidates), jobs, look)
        return examined

    def keep_within(self, budget: int | None, candidates: Sequence[_Candidate]) -> None:
        """Leaves the tables that are beyond a budget, in bytes, for a later run; None for no limit."""
        if budget is not None:
            left = tables_to_leave([it.plan for it in candidates], budget)
            for candidate in candidates:
                if candidate.table.id in left:
                    candidate.leave()

    async def take_steps(self, candidates: Sequence[_Candidate], end: float | None) -> Sequence[_Candidate]:
        """Takes the steps for all candidates; returns the tables to try again because of a conflict.

        Args:
            candidates: The tables that were examined.
            end: The time at which no table begins to be rewritten any more; None for no limit.
        """
        if end is None:
            return await self._finish(await self._prepare_all(candidates))
        order = {plan.id: place for place, plan in enumerate(by_worth(it.plan for it in candidates))}
        candidates = sorted(candidates, key=lambda it: order[it.table.id])
        again: list[_Candidate] = []
        for first in range(0, len(candidates), _AT_ONCE):
            batch = candidates[first : first + _AT_ONCE]
            if monotonic() >= end:
                for candidate in batch:
                    candidate.leave()
            again += await self._finish(await self._prepare_all(batch))
        return again

    async def _prepare_all(self, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
        """Prepares the tables for their compaction; returns those without a failure."""
        prepared: list[_Candidate] = []

        async def prepare(candidate: _Candidate) -> None:
            try:
                with self._step(candidate):
                    await self._prepare(candidate)
            except err.LanceNamespaceError as e:
                self._fail(candidate, e)
            else:
                prepared.append(candidate)

        await each(prepare, candidates, max_in_flight=THREADS)
        return prepared

    async def _finish(self, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
        """Takes the steps after the preparation; returns the tables to try again because of a conflict."""
        to_clean: list[_Candidate] = []

        def rewrites(candidate: _Candidate) -> Sequence[Job]:
            # The version is published at the location; see `_prepare`.
            table, version = replace(candidate.table, managed_versioning=False), candidate.plan.state.version
            return [
                Job(table, "rewrite", task.content, version, number, task.size)
                for number, task in enumerate(candidate.tasks)
            ]

        async def complete(candidate: _Candidate, results: Sequence[JobResult]) -> None:
            try:
                with self._step(candidate):
                    await self._complete(candidate, results)
                    limits = candidate.options.cleanup_limits()
                    # Without a minimum age, the versions before this run's own changes are old, too.
                    if limits and (candidate.plan.cleans_up or (candidate.done and not limits.older_than)):
                        if self._is_for_engine("clean up", candidate):
                            to_clean.append(candidate)
                            return
                        work = partial(maintaining.clean_up, candidate.table, limits=limits)
                        self._note_removed(candidate, await self._change(candidate.table, work))
            except err.LanceNamespaceError as e:
                self._fail(candidate, e)
            else:
                self._succeed(candidate)
            finally:
                # They may be large, and the candidate lives as long as the run.
                candidate.tasks = ()

        async def note(candidate: _Candidate, results: Sequence[JobResult]) -> None:
            (result,) = results
            try:
                async with concurrent_changes.explain_conflict(self.session.backend, candidate.table):
                    if result.error is not None:
                        raise result.error
            except err.LanceNamespaceError as e:
                self._fail(candidate, e)
            else:
                self._note_removed(candidate, maintaining.parse_removed(result.content))
                self._succeed(candidate)

        await self._work(candidates, rewrites, complete)

        def cleanups(candidate: _Candidate) -> Sequence[Job]:
            limits = candidate.options.cleanup_limits()
            return [] if limits is None else [Job(candidate.table, "clean up", limits.encoded())]

        await self._work(to_clean, cleanups, note)
        again, self.again = self.again, []
        return again

    async def _work(
        self,
        candidates: Sequence[_Candidate],
        jobs_of: Callable[[_Candidate], Sequence[Job]],
        then: Callable[[_Candidate, Sequence[JobResult]], Awaitable[None]],
    ) -> None:
        """Lets the engine execute the jobs of all tables; `then` follows for each as soon as its own jobs ended."""
        waiting: dict[TableId, tuple[_Candidate, int, list[JobResult]]] = {}
        jobs: list[Job] = []
        limiter = anyio.CapacityLimiter(THREADS)

        async def proceed(candidate: _Candidate, results: Sequence[JobResult]) -> None:
            async with limiter:
                await then(candidate, results)

        async with anyio.create_task_group() as group:

            def settle(result: JobResult) -> None:
                candidate, number, results = waiting[result.id]
                candidate.seconds += result.seconds
                results.append(result)
                if len(results) == number:
                    del waiting[result.id]
                    group.start_soon(proceed, candidate, results)

            for candidate in candidates:
                if own := jobs_of(candidate):
                    waiting[candidate.table.id] = (candidate, len(own), [])
                    jobs += own
                else:
                    group.start_soon(proceed, candidate, ())
            problem: Exception | None = None
            try:
                if jobs:
                    await self.engine.run(jobs, settle)
            except Exception as e:  # an error of the engine itself; what has been settled is committed first
                problem = e
        if problem is not None:
            raise problem

    def _is_for_engine(self, kind: Kind, candidate: _Candidate) -> bool:
        """Returns whether the engine does this work, which needs the catalog if it commits the table's versions."""
        return kind in self.engine.kinds and not candidate.table.managed_versioning

    def _note_removed(self, candidate: _Candidate, removed: tuple[int, int]) -> None:
        candidate.removed = removed
        if any(removed):
            candidate.done.append(CLEAN_UP)

    @contextmanager
    def _step(self, candidate: _Candidate) -> Iterator[None]:
        """Limits the time of a step, and adds it to that of the table."""
        started = monotonic()
        try:
            with self.session.within(self.timeout):
                yield
        finally:
            candidate.seconds += monotonic() - started

    async def _with_credentials(self, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
        """Gives the tables the credentials that the catalog vends; adds rows for those that it refuses."""
        remote = [it.table.id for it in candidates if local_path(it.table.location) is None]
        if not (self.session.backend.capabilities.vends and remote):
            return candidates
        described = await search.describe_tables(self.session, remote, vend_credentials=True)
        for id, error in described.errors.items():
            self.run.finish(failure_row(id, error))
        for candidate in candidates:
            candidate.table = described.tables.get(candidate.table.id, candidate.table)
        return [it for it in candidates if it.table.id not in described.errors]

    async def _look(self, candidate: _Candidate, results: Sequence[JobResult] = (), *, is_before_refresh: bool) -> None:
        """Reads the state of a table, and plans its tasks, unless an engine has done so. Cost: one open."""
        table, examination = (
            candidate.table,
            replace(candidate.options.examination(), is_before_refresh=is_before_refresh),
        )

        async with concurrent_changes.explain_conflict(self.session.backend, table):
            for result in results:
                if result.error is not None:
                    raise result.error
                state, tasks = maintaining.parse_examination(result.content)
            if not results:
                state, tasks = await in_thread(
                    table, lambda: maintaining.examine(self.session.opener.open(table), examination)
                )
        candidate.plan = TablePlan(
            table.id,
            table.location,
            state,
            len(tasks),
            sum(task.fragments for task in tasks),
            sum(task.new_fragments for task in tasks),
            sum(task.size for task in tasks),
            sum(task.written for task in tasks),
            cleans_up=bool(state.old_versions or state.removable_bytes),
            priority=candidate.priority,
        )
        candidate.first = candidate.first or state
        candidate.version, candidate.after, candidate.tasks = state.version, None, tasks
        if candidate.is_left:
            candidate.leave()

    async def _prepare(self, candidate: _Candidate) -> None:
        """Refreshes stale indexes, and makes the version readable for tasks."""
        if candidate.is_left:
            return
        if stale := candidate.plan.state.stale_indexes:
            await self._refresh(candidate, stale)
            await self._look(candidate, is_before_refresh=False)
        if candidate.tasks and candidate.table.managed_versioning:
            # Tasks read this version from the storage; this publishes its manifest there.
            await commits.one(self.session.backend, candidate.table.id, candidate.plan.state.version)

    async def _refresh(self, candidate: _Candidate, indexes: Mapping[str, int]) -> None:
        options = (candidate.options.index or IndexOptions()).for_pylance()
        candidate.version = await self._change(
            candidate.table, lambda dataset: maintaining.refresh_indexes(dataset, indexes, options)
        )
        if INDEX not in candidate.done:
            candidate.done.append(INDEX)

    async def _complete(self, candidate: _Candidate, results: Sequence[JobResult]) -> None:
        """Commits the compaction of a table, if there is any, and refreshes the indexes that it made stale."""
        if not results:
            return
        await self._commit(candidate, results)
        candidate.done.append(COMPACT)
        after = candidate.after
        # Some kinds of indexes lose the fragments that were rewritten.
        if after is not None and after.stale_indexes:
            await self._refresh(candidate, after.stale_indexes)

    async def _commit(self, candidate: _Candidate, results: Sequence[JobResult]) -> None:
        table = candidate.table
        ordered = sorted(results, key=lambda it: it.number)
        contents = [it.content for it in ordered if it.error is None]
        for error in (it.error for it in ordered if it.error is not None):
            await self._discard(table, contents, error)
            async with concurrent_changes.explain_conflict(self.session.backend, table):
                raise error
        options = (candidate.options.compact or CompactOptions()).for_pylance()

        def work(dataset: Any) -> tuple[int, DatasetState]:
            version = maintaining.commit(dataset, contents, options)
            return version, maintaining.read_state(dataset, Examination(indexes=candidate.options.index is not None))

        try:
            candidate.version, candidate.after = await self._change(table, work)
        except err.ConcurrentModificationError as e:
            # After a conflict it is certain that no version has these files.
            await self._discard(table, contents, e)
            raise

    async def _discard(self, table: Table, contents: Sequence[str], error: err.LanceNamespaceError) -> None:
        """Deletes the files of tasks that are not committed; otherwise, a clean-up removes them after seven days."""
        try:
            table = await in_thread(table, lambda: self.session.opener.renew(table))
            await remove_files(table, maintaining.new_files(contents))
        except err.LanceNamespaceError as e:
            error.add_note(f"and unused files are left at {table.location} ({e})")

    async def _change(self, table: Table, work: Callable[[Any], Any]) -> Any:
        """Returns the result of work on the newest version."""
        async with concurrent_changes.explain_conflict(self.session.backend, table):
            return await in_thread(table, lambda: work(self.session.opener.open(table)), changes=True)

    async def _is_registered(self, table: Table) -> bool:
        """Returns whether the catalog still has a table whose location has no data."""
        try:
            with self.session.operation():
                await self.session.backend.describe_table(table.id)
        except err.LanceNamespaceError:
            return False
        return True

    def _fail(self, candidate: _Candidate, error: err.LanceNamespaceError) -> None:
        """Adds the row of a table, unless it is planned again: another writer or clean-up has changed it."""
        has_changed = isinstance(error, err.ConcurrentModificationError | err.TableVersionNotFoundError)
        if self.timeout is not None and has_changed and self.attempt < ATTEMPTS:
            self.again.append(candidate)
            return
        fields = {} if candidate.first is None else self._fields(candidate, candidate.first)
        row = failure_row(candidate.table.id, error, candidate.table.location, **fields)
        self.run.finish(replace(row, attempts=max(row.attempts, self.attempt)))

    def _succeed(self, candidate: _Candidate) -> None:
        is_left = candidate.plan.is_left and not {*candidate.plan.steps} <= {CLEAN_UP}
        outcome = LEFT if is_left else MAINTAINED if candidate.done else UNCHANGED
        assert candidate.first is not None
        fields = self._fields(candidate, candidate.first)
        for name in ("fragments", "bytes"):
            self.run.counters[f"{name} before"] += fields[f"{name}_before"]
            self.run.counters[f"{name} after"] += fields[f"{name}_after"]
        self.run.counters["versions removed"] += candidate.removed[0]
        self.run.counters["bytes removed"] += candidate.removed[1]
        reason = ", ".join(dict.fromkeys(candidate.done))
        self.run.finish(Row(candidate.table.id, outcome, reason, candidate.table.location, self.attempt, fields))

    def _fields(self, candidate: _Candidate, before: DatasetState) -> dict[str, Any]:
        after = candidate.after or candidate.plan.state
        return {
            "steps": list(dict.fromkeys(candidate.done)),
            "version_before": before.version,
            "version": candidate.version,
            "rows": after.rows,
            "fragments_before": before.fragments,
            "fragments_after": after.fragments,
            "bytes_before": before.size,
            "bytes_after": after.size,
            "deleted_rows_before": before.deleted_rows,
            "deleted_rows_after": after.deleted_rows,
            "versions_removed": candidate.removed[0],
            "bytes_removed": candidate.removed[1],
            "seconds": round(candidate.seconds, 3),
        }
