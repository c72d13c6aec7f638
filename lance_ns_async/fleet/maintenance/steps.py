"""The steps of one run of maintenance: each table is examined, compacted by an engine, committed and cleaned up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any

import anyio
import lance_namespace.errors as err

from lance_ns_async.calls.tasks import each
from lance_ns_async.fleet.maintenance.engine import Engine, Job, JobResult
from lance_ns_async.fleet.maintenance.plan import (
    CLEAN_UP,
    COMPACT,
    INDEX,
    LEFT,
    CompactOptions,
    IndexOptions,
    MaintenanceOptions,
    TablePlan,
    by_worth,
    tables_to_leave,
)
from lance_ns_async.fleet.maintenance.policies import TablePolicy
from lance_ns_async.fleet.reading import read_tables
from lance_ns_async.fleet.run import Run, failure_row
from lance_ns_async.lifecycle import commits, concurrent_changes
from lance_ns_async.many import search
from lance_ns_async.many.patterns import Selection
from lance_ns_async.model import Table, TableId, local_path
from lance_ns_async.operations import maintaining
from lance_ns_async.operations.maintaining import DatasetState, Examination, Kind, RewriteTask
from lance_ns_async.rendering import size_text
from lance_ns_async.session import Session
from lance_ns_async.storage.datasets import remove_files
from lance_ns_async.storage.threads import THREADS, in_thread
from lance_ns_async.tabular import Row

MAINTAINED = "maintained"
UNCHANGED = "unchanged"
WITHOUT_DATA = "without data"
OFF = "off"

_NO_VERSION = "the location has no version: nothing was written, or the data was removed; audit says which"

ATTEMPTS = 3
"""Number of times a table is planned and compacted, if other writers change it in conflict with that."""


@dataclass(slots=True)
class Candidate:
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

    why_left: str = ""
    """Why it is left."""

    def leave(self, why: str) -> None:
        self.is_left, self.why_left, self.tasks = True, why, ()
        self.plan = replace(self.plan, is_left=True)


@dataclass(slots=True)
class Maintenance:
    """The steps of one run."""

    session: Session
    policy_of: Callable[[TableId], TablePolicy]
    run: Run
    engine: Engine
    timeout: float | None = None
    """Maximum seconds of a step for one table; None if the tables are only examined, and not changed."""
    stops: Callable[[], bool] | None = None
    """Returns whether no table may be begun any more; None for no such condition."""
    attempt: int = 1
    again: list[Candidate] = field(default_factory=list)
    """The tables to try again because of a conflict."""

    async def select(self, selection: Selection) -> Sequence[Candidate]:
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
                candidates.append(Candidate(table, policy.options, policy.priority))
        return candidates

    async def examine(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Looks at the tables concurrently; returns those without a failure."""
        examined: list[Candidate] = []

        async def look(candidate: Candidate, results: Sequence[JobResult]) -> None:
            table = candidate.table
            if self._is_stopped():
                self._leave(candidate)
                return
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

        def jobs(candidate: Candidate) -> Sequence[Job]:
            if not self._is_for_engine("examine", candidate):
                return []
            return [Job(candidate.table, "examine", candidate.options.examination().encoded())]

        await self._work(await self._with_credentials(candidates), jobs, look)
        return examined

    def keep_within(self, budget: int | None, candidates: Sequence[Candidate]) -> None:
        """Leaves the tables that are beyond a budget, in bytes, for a later run; None for no limit."""
        if budget is not None:
            left = tables_to_leave([it.plan for it in candidates], budget)
            for candidate in candidates:
                if candidate.table.id in left:
                    cost = candidate.plan.cost
                    limit = "the budget" if cost > budget else "the other tables leave of the budget"
                    candidate.leave(f"left: costs {size_text(cost)}, more than {limit} of {size_text(budget)}")

    async def take_steps(self, candidates: Sequence[Candidate], end: float | None) -> Sequence[Candidate]:
        """Takes the steps for all candidates; returns the tables to try again because of a conflict.

        Args:
            candidates: The tables that were examined.
            end: The time at which no table begins to be rewritten any more; None for no limit.
        """
        if end is None and self.stops is None:
            return await self._finish(await self._prepare_all(candidates))
        order = {plan.id: place for place, plan in enumerate(by_worth(it.plan for it in candidates))}
        candidates = sorted(candidates, key=lambda it: order[it.table.id])
        again: list[Candidate] = []
        for first in range(0, len(candidates), self.engine.at_once):
            batch = candidates[first : first + self.engine.at_once]
            if self._is_stopped():
                for candidate in batch:
                    self._leave(candidate)
                continue
            if end is not None and monotonic() >= end:
                for candidate in batch:
                    candidate.leave("left: the time of this run is over")
            again += await self._finish(await self._prepare_all(batch))
        return again

    def _is_stopped(self) -> bool:
        return self.stops is not None and self.stops()

    def _leave(self, candidate: Candidate) -> None:
        """Adds the row of a table that is not begun."""
        self.run.finish(Row(candidate.table.id, LEFT, "the run was stopped before", candidate.table.location))

    async def _prepare_all(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Prepares the tables for their compaction; returns those without a failure."""
        prepared: list[Candidate] = []

        async def prepare(candidate: Candidate) -> None:
            try:
                with self._step(candidate):
                    await self._prepare(candidate)
            except err.LanceNamespaceError as e:
                self._fail(candidate, e)
            else:
                prepared.append(candidate)

        await each(prepare, candidates, max_in_flight=THREADS)
        return prepared

    async def _finish(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Takes the steps after the preparation; returns the tables to try again because of a conflict."""
        to_clean: list[Candidate] = []

        def rewrites(candidate: Candidate) -> Sequence[Job]:
            # The version is published at the location; see `_prepare`.
            table, version = replace(candidate.table, managed_versioning=False), candidate.plan.state.version
            return [
                Job(table, "rewrite", task.content, version, number, task.size)
                for number, task in enumerate(candidate.tasks)
            ]

        async def complete(candidate: Candidate, results: Sequence[JobResult]) -> None:
            try:
                with self._step(candidate):
                    await self._complete(candidate, results)
                    limits = candidate.options.cleanup_limits()
                    # Without a minimum age, the versions before this run's own changes are old, too.
                    if limits and (candidate.plan.cleans_up or (candidate.done and not limits.min_age)):
                        if self._is_for_engine("clean up", candidate):
                            to_clean.append(candidate)
                            return
                        work = partial(
                            maintaining.clean_up, candidate.table, limits=limits, renew=self.session.opener.renew
                        )
                        self._note_removed(candidate, await self._change(candidate.table, work))
            except err.LanceNamespaceError as e:
                self._fail(candidate, e)
            else:
                self._succeed(candidate)
            finally:
                # They may be large, and the candidate lives as long as the run.
                candidate.tasks = ()

        async def note(candidate: Candidate, results: Sequence[JobResult]) -> None:
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

        def cleanups(candidate: Candidate) -> Sequence[Job]:
            limits = candidate.options.cleanup_limits()
            return [] if limits is None else [Job(candidate.table, "clean up", limits.encoded())]

        await self._work(to_clean, cleanups, note)
        again, self.again = self.again, []
        return again

    async def _work(
        self,
        candidates: Sequence[Candidate],
        jobs_of: Callable[[Candidate], Sequence[Job]],
        then: Callable[[Candidate, Sequence[JobResult]], Awaitable[None]],
    ) -> None:
        """Lets the engine execute the jobs of all tables; `then` follows for each as soon as its own jobs ended."""
        waiting: dict[TableId, tuple[Candidate, int, list[JobResult]]] = {}
        jobs: list[Job] = []
        limiter = anyio.CapacityLimiter(THREADS)

        async def proceed(candidate: Candidate, results: Sequence[JobResult]) -> None:
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
                    await self.engine.run(jobs, settle, self.session.vend)
            except Exception as e:  # an error of the engine itself; what has been settled is committed first
                problem = e
        if problem is not None:
            raise problem

    def _is_for_engine(self, kind: Kind, candidate: Candidate) -> bool:
        """Returns whether the engine does this work, which needs the catalog if it commits the table's versions."""
        return kind in self.engine.kinds and not candidate.table.managed_versioning

    def _note_removed(self, candidate: Candidate, removed: tuple[int, int]) -> None:
        candidate.removed = removed
        if any(removed):
            candidate.done.append(CLEAN_UP)

    @contextmanager
    def _step(self, candidate: Candidate) -> Iterator[None]:
        """Limits the time of a step, and adds it to that of the table."""
        started = monotonic()
        try:
            with self.session.within(self.timeout):
                yield
        finally:
            candidate.seconds += monotonic() - started

    async def _with_credentials(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
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

    async def _look(self, candidate: Candidate, results: Sequence[JobResult] = (), *, is_before_refresh: bool) -> None:
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
            candidate.leave(candidate.why_left)

    async def _prepare(self, candidate: Candidate) -> None:
        """Refreshes stale indexes, and makes the version readable for tasks."""
        if candidate.is_left:
            return
        if stale := candidate.plan.state.stale_indexes:
            await self._refresh(candidate, stale)
            await self._look(candidate, is_before_refresh=False)
        if candidate.tasks and candidate.table.managed_versioning:
            # Tasks read this version from the storage; this publishes its manifest there.
            await commits.one(self.session.backend, candidate.table.id, candidate.plan.state.version)

    async def _refresh(self, candidate: Candidate, indexes: Mapping[str, int]) -> None:
        options = (candidate.options.index or IndexOptions()).for_pylance()
        candidate.version = await self._change(
            candidate.table, lambda dataset: maintaining.refresh_indexes(dataset, indexes, options)
        )
        if INDEX not in candidate.done:
            candidate.done.append(INDEX)

    async def _complete(self, candidate: Candidate, results: Sequence[JobResult]) -> None:
        """Commits the compaction of a table, if there is any, and refreshes the indexes that it made stale."""
        if not results:
            return
        await self._commit(candidate, results)
        candidate.done.append(COMPACT)
        after = candidate.after
        # Some kinds of indexes lose the fragments that were rewritten.
        if after is not None and after.stale_indexes:
            await self._refresh(candidate, after.stale_indexes)

    async def _commit(self, candidate: Candidate, results: Sequence[JobResult]) -> None:
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

    def _fail(self, candidate: Candidate, error: err.LanceNamespaceError) -> None:
        """Adds the row of a table, unless it is planned again: another writer or clean-up has changed it."""
        has_changed = isinstance(error, err.ConcurrentModificationError | err.TableVersionNotFoundError)
        if self.timeout is not None and has_changed and self.attempt < ATTEMPTS:
            self.again.append(candidate)
            return
        fields = {} if candidate.first is None else self._fields(candidate, candidate.first)
        row = failure_row(candidate.table.id, error, candidate.table.location, **fields)
        self.run.finish(replace(row, attempts=max(row.attempts, self.attempt)))

    def _succeed(self, candidate: Candidate) -> None:
        is_left = candidate.plan.is_left and not {*candidate.plan.steps} <= {CLEAN_UP}
        outcome = LEFT if is_left else MAINTAINED if candidate.done else UNCHANGED
        assert candidate.first is not None
        fields = self._fields(candidate, candidate.first)
        for name in ("fragments", "bytes"):
            self.run.counters[f"{name} before"] += fields[f"{name}_before"]
            self.run.counters[f"{name} after"] += fields[f"{name}_after"]
        self.run.counters["versions removed"] += candidate.removed[0]
        self.run.counters["bytes removed"] += candidate.removed[1]
        reason = ", ".join(dict.fromkeys([*candidate.done, *([candidate.why_left] if is_left else [])]))
        self.run.finish(Row(candidate.table.id, outcome, reason, candidate.table.location, self.attempt, fields))

    def _fields(self, candidate: Candidate, before: DatasetState) -> dict[str, Any]:
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
