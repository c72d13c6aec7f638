"""Maintenance that never ends: tables are looked at when they change, by one instance at a time."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Unpack

import anyio
import lance_namespace.errors as err

from lance_ns_async.client import AsyncNamespace
from lance_ns_async.errors import with_notes
from lance_ns_async.fleet.maintenance.plan import LEFT
from lance_ns_async.fleet.maintenance.run import RunOptions, maintainer
from lance_ns_async.fleet.maintenance.shared_state import LEASE, MaintenanceState, OwnState, SharedState, StatePlace
from lance_ns_async.fleet.maintenance.steps import MAINTAINED
from lance_ns_async.fleet.run import Report, failure_row, for_async
from lance_ns_async.many.changes import Change, ChangeKind
from lance_ns_async.many.patterns import Selection, What, in_memory
from lance_ns_async.many.watching import Watch
from lance_ns_async.model import NamespaceId, TableId
from lance_ns_async.rendering import MISSING, counted
from lance_ns_async.settings import seconds
from lance_ns_async.storage.threads import aside
from lance_ns_async.tabular import ERRORS, Row

log: logging.Logger = logging.getLogger(__name__)

EVERY = "10m"
"""Default time between two looks."""

ALL_EVERY = "1d"
"""Default time after which all tables are looked at, changed or not."""

_UNFINISHED = frozenset({MAINTAINED, LEFT, *ERRORS}) - {MISSING}
"""The outcomes of tables that the next run looks at again. A table is done when a run finds nothing to do."""

_PATIENCE = 5.0  # Maximum seconds in which the lease is given back.


@dataclass(slots=True)
class MaintenanceStatus:
    """What `maintain_forever` does, which keeps this object up to date."""

    is_leader: bool = False
    """Whether this instance maintains the tables; otherwise it waits for another one's end."""
    tables: int = 0
    """Number of tables that are watched."""
    pending: int = 0
    """Number of tables to look at."""
    runs: int = 0
    """Number of runs of this instance."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """The outcomes of tables in all runs."""
    last: Report | None = field(default=None, repr=False)
    """The report of the last run."""
    problem: str | None = None
    """Why the last look or run failed as a whole; None if it did not."""
    has_begun: bool = False
    """Whether the state was read once."""

    @property
    def is_ready(self) -> bool:
        """Whether this instance works, or waits for another one, without a problem."""
        return self.has_begun and self.problem is None


@for_async
async def maintain_forever(
    namespace: AsyncNamespace,
    what: What,
    *,
    every: float | str | timedelta = EVERY,
    all_every: float | str | timedelta = ALL_EVERY,
    state: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    lease: float | str | timedelta = LEASE,
    on_report: Callable[[Report], object] | None = None,
    status: MaintenanceStatus | None = None,
    stop: anyio.Event | None = None,
    **options: Unpack[RunOptions],
) -> None:
    """Maintains tables again and again: those that were created or changed, and from time to time all.

    A table is looked at until a run finds nothing to do. If the process is killed, the next one goes on where it was:
    finished tables are looked at once more, and unfinished work is done anew.

    Args:
        namespace: The catalog.
        what: Ids and patterns of tables. A table need not exist.
        every: Time between two looks, such as `10m` or seconds.
        all_every: Time after which all tables are looked at, so that versions which became old are removed.
        state: A folder, as a path or a URI, for a Lance table with the state of the work. Of several instances with the
            same folder, one works, and another one takes over after its death. None keeps the state in memory, for the
            only instance, which begins with all tables.
        storage_options: Options for the storage of the state; None uses those of the catalog's properties, and the
            environment.
        lease: Time after which another instance takes over from one that was killed.
        on_report: Receives the report of each run, without tables that do not exist any more.
        status: Is kept up to date.
        stop: Ends the work when it is set, after the tables that were begun. A cancellation ends it at once.
        options: The further arguments of `maintain`; `budget` and `max_time` apply to each run.

    Raises:
        InvalidInputError: An argument is invalid, or the state is of other tables.

    Cost:
        At each look that of `AsyncNamespace.watch`; for the tables with changes that of `maintain`. With `state`, an
        open and a commit in a third of the lease.
    """
    session = namespace.session
    requested = in_memory(what)
    stop = stop or anyio.Event()
    place: StatePlace = OwnState()
    if state is not None:
        own = session.backend.configured_options if storage_options is None else storage_options
        place = SharedState(session.opener, os.fspath(state), own, lease=_positive("lease", lease))
    daemon = _Daemon(
        partial(Watch, session, requested, versions=True),
        maintainer(namespace, stops=lambda: stop.is_set() or not place.is_held, **options),
        place,
        _positive("every", every),
        seconds("all_every", all_every),
        on_report or (lambda _: None),
        status or MaintenanceStatus(),
        stop,
    )
    daemon.new_watch()  # Raises for an invalid selection.
    await daemon.run()


def _positive(name: str, value: float | str | timedelta) -> float:
    if not (duration := seconds(name, value)) > 0:
        raise err.InvalidInputError(f"{name} {value}: must be above 0")
    return duration


@dataclass(slots=True)
class _Daemon:
    """One instance of `maintain_forever`."""

    new_watch: Callable[[], Watch]
    maintain: Callable[[Selection], Awaitable[Report]]
    place: StatePlace
    every: float
    all_every: float
    on_report: Callable[[Report], object]
    status: MaintenanceStatus
    stop: anyio.Event
    pending: dict[TableId, None] = field(default_factory=dict)
    """The tables to look at; a dict, because their order stays."""
    all_at: float = 0.0
    stored: MaintenanceState = field(default_factory=MaintenanceState)

    async def run(self) -> None:
        """Works whenever this instance has the lease, until it is stopped."""
        waits_for = ""
        try:
            while not self.stop.is_set():
                has_lease = False
                with self._noting_problems():
                    has_lease = await self.place.take()
                    self.status.has_begun = True
                if has_lease:
                    if waits_for:
                        log.warning("maintain_forever: this instance works now")
                        waits_for = ""
                    await self._lead()
                else:
                    if (holder := self.place.other_holder) not in ("", waits_for):
                        waits_for = holder
                        log.warning(
                            "maintain_forever: another instance has the lease (%s); "
                            "this one waits until it is not renewed for %g s",
                            holder,
                            self.place.lease,
                        )
                    await self._wait(min(self.place.lease / 3, self.every))
        finally:
            # Otherwise the lease ends by itself.
            with anyio.move_on_after(_PATIENCE, shield=True), suppress(err.LanceNamespaceError):
                await self.place.release()

    async def _lead(self) -> None:
        """Works until the lease is lost or the work is stopped."""
        problem: Exception | None = None
        self.status.is_leader = True
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_lease, group.cancel_scope)
                try:
                    await self._work()
                except Exception as e:  # raised below, without the group of errors around it
                    problem = e
                group.cancel_scope.cancel()
        finally:
            self.status.is_leader = False
        if problem is not None:
            raise problem

    async def _keep_lease(self, scope: anyio.CancelScope) -> None:
        """Renews the lease; cancels the scope when it is lost."""
        while self.place.is_held:
            await anyio.sleep(self.place.lease / 3)
            # A failure is repeated for as long as the lease lasts.
            with anyio.move_on_after(self.place.lease / 3), suppress(err.LanceNamespaceError):
                await self.place.take()
        scope.cancel()

    async def _work(self) -> None:
        """Looks and maintains again and again, from the stored state on, until it is stopped."""
        watch: Watch | None = None
        while not self.stop.is_set():
            began = anyio.current_time()
            with self._noting_problems():
                if watch is None:
                    watch = await self._resume()
                await self._look_and_maintain(watch)
            await self._wait(began + self.every - anyio.current_time())

    async def _resume(self) -> Watch:
        """Returns a watch that goes on from the stored state."""
        watch, state = self.new_watch(), await self.place.read()
        if state.token:
            try:
                watch.resume(state.token)
            except err.InvalidInputError as e:
                raise err.InvalidInputError(
                    "state: it belongs to another catalog or other tables, or is damaged; use a folder for each set"
                    " of tables"
                ) from e
        self.pending, self.all_at, self.stored = dict.fromkeys(state.pending), state.all_at, state
        return watch

    async def _look_and_maintain(self, watch: Watch) -> None:
        rows = self._note(await watch.look())
        if (now := time.time()) - self.all_at >= self.all_every:
            self.pending |= dict.fromkeys(watch.state.tables)
            self.all_at = now
        await self._store(watch)
        report = await self.maintain(Selection(tuple(self.pending), ()))
        for row in report.rows:
            if row.outcome not in _UNFINISHED:
                self.pending.pop(TableId(row.id), None)
        await self._store(watch)
        # A table may have been dropped since the look.
        report = replace(report, rows=[*rows, *(row for row in report.rows if row.outcome != MISSING)])
        self.status.runs += 1
        self.status.outcomes.update(row.outcome for row in report.rows)
        self.status.last = report
        if report.rows:
            self.on_report(report)
        if watch.unlisted:
            first = min(watch.unlisted)
            raise err.ServiceUnavailableError(
                f"Service unavailable: {counted(len(watch.unlisted), 'namespaces')} cannot be listed, such as {first}"
            )

    def _note(self, changes: Iterable[Change]) -> Sequence[Row]:
        """Adds changed tables to the pending ones, because the watch will not tell these changes again.

        Returns:
            Rows for the namespaces that cannot be listed.
        """
        rows = []
        for change in changes:
            if change.error is not None and isinstance(change.id, NamespaceId):
                rows.append(failure_row(change.id, change.error))
                continue
            id = TableId(change.id)
            if change.old_id is not None:
                self.pending.pop(change.old_id, None)
            if change.kind is ChangeKind.DROPPED:
                self.pending.pop(id, None)
            else:
                self.pending[id] = None
        return rows

    async def _store(self, watch: Watch) -> None:
        """Stores the state, if it has changed."""
        self.status.tables, self.status.pending = len(watch.state.tables), len(self.pending)
        token = await aside(watch.state.token, "states")
        state = MaintenanceState(token, tuple(self.pending), self.all_at)
        if state != self.stored:
            await self.place.write(state)
            self.stored = state

    @contextmanager
    def _noting_problems(self) -> Iterator[None]:
        """Keeps a failure of the catalog or of the storage as the problem, until the next time."""
        try:
            yield
        except err.InvalidInputError:
            raise
        except err.LanceNamespaceError as e:
            if self.status.problem != (problem := with_notes(e)):
                log.warning("maintain_forever: %s", problem)
            self.status.problem = problem
        else:
            self.status.problem = None

    async def _wait(self, seconds: float) -> None:
        """Waits, but not longer than until the work is stopped."""
        with anyio.move_on_after(max(seconds, 0.0)):
            await self.stop.wait()
