"""Engines that execute tasks of maintenance; the local one uses the threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol, TypeAlias

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.tasks import each
from lance_ns_async.engine.locate import Vend
from lance_ns_async.model import Table, TableId
from lance_ns_async.operations import maintaining
from lance_ns_async.operations.maintaining import Kind
from lance_ns_async.storage.datasets import Snapshot
from lance_ns_async.storage.opening import Opener
from lance_ns_async.storage.threads import in_thread

TASKS = 8
"""Minimum default of the tasks at once: small tables mostly wait for the storage."""


@dataclass(frozen=True, slots=True)
class Job:
    """One task of one table."""

    table: Table
    """The table, with the storage options for the storage."""
    kind: Kind
    content: str = field(repr=False)
    """See `maintaining.execute`."""
    version: int | None = None
    """The version that the task was planned for; None for the newest."""
    number: int = 0
    """Position of the task among those of its table."""
    size: int = 0
    """Bytes of data to read."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """The outcome of a job: its result, or its error."""

    id: TableId
    number: int
    content: str = field(default="", repr=False)
    error: LanceNamespaceError | None = None
    seconds: float = 0.0
    """Duration of the task, without waiting for its turn."""


Settle: TypeAlias = Callable[[JobResult], None]
"""Receives the result of a job, in the event loop."""


class Engine(Protocol):
    """Executes tasks somewhere. The commits are not its work."""

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of jobs for this engine; compactions are always for it, other work is done in this process."""

    @property
    def at_once(self) -> int:
        """The number of tables that are begun together, if a run may have to end before all are done."""

    async def run(self, jobs: Sequence[Job], settle: Settle, vend: Vend) -> None:
        """Executes all jobs; each of them is settled once, also if it fails, and soon after it has ended.

        Args:
            jobs: The jobs, of any number of tables.
            settle: Receives the result of each job, in the event loop.
            vend: Returns a table with new credentials, for engines whose tasks cannot ask the catalog.
        """


class LocalEngine:
    """Executes compaction tasks in threads of this process, where Lance uses all processors.

    Examinations and clean-ups are no jobs here, because each follows the other steps of its table without a wait for
    those of other tables.

    Args:
        opener: Opens the datasets.
        timeout: Maximum duration of a task in seconds.
        tasks: Number of tasks at once; None for one for each processor, at least 8.
    """

    kinds: frozenset[Kind] = frozenset({"rewrite"})
    at_once: int = 32

    def __init__(self, opener: Opener, *, timeout: float, tasks: int | None = None) -> None:
        self._opener = opener
        self._timeout = timeout
        self._tasks = tasks or max(TASKS, os.cpu_count() or 1)

    async def run(self, jobs: Sequence[Job], settle: Settle, vend: Vend) -> None:
        """Executes all jobs in threads, which renew credentials themselves."""

        async def execute(job: Job) -> None:
            started = monotonic()
            try:
                with deadline(self._timeout):
                    content = await in_thread(job.table, lambda: self._execute(job), changes=True)
            except LanceNamespaceError as e:
                settle(JobResult(job.table.id, job.number, error=e, seconds=monotonic() - started))
            else:
                settle(JobResult(job.table.id, job.number, content, seconds=monotonic() - started))

        await each(execute, jobs, max_in_flight=self._tasks)

    def _execute(self, job: Job) -> str:
        dataset = self._opener.open(job.table, Snapshot(job.version))
        return maintaining.execute(job.table, dataset, job.kind, job.content, self._opener.renew)
