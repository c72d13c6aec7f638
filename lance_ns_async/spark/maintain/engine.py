"""Execution of compaction tasks by Spark, in one job whose tasks have about the same number of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import heapify, heapreplace
from math import ceil
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
import anyio.to_thread
from lance_namespace import errors
from lance_namespace.errors import InternalError, InvalidInputError, LanceNamespaceError

from lance_ns_async.errors import one_line, shortened
from lance_ns_async.fleet.maintenance.engine import Job, JobResult, Settle
from lance_ns_async.model import TableId
from lance_ns_async.spark.maintain import tasks
from lance_ns_async.spark.session import context_of, default_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

JOBS_A_TASK = 50
"""Maximum number of jobs in a Spark task: their results reach the driver, and are committed, when the task ends."""

BYTES_A_TASK = 2 * 2**30
"""Number of bytes in a Spark task above which further tasks are made."""

OPENING = 2**20
"""Cost of a job without its data, as the number of bytes that take about the same time to rewrite."""

TRIES = 3
"""Number of Spark jobs that are started, if tasks fail as a whole, for example because a process ends."""

_LONGEST = 400
_POOL = "spark.scheduler.pool"
_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class SparkEngine:
    """Executes compaction tasks in Spark. The driver's process makes all calls to the catalog and all commits.

    Args:
        spark: The Spark session; its executors need this package, pylance and pyarrow.
        partitions: Maximum number of Spark tasks; None for at least four for each core, with at most 50 compaction
            tasks or 2 GiB each.
    """

    def __init__(self, spark: SparkSession, *, partitions: int | None = None) -> None:
        if partitions is not None and partitions < 1:
            raise InvalidInputError(f"partitions {partitions}: must be at least 1")
        self._spark = spark
        self._partitions = partitions
        self._context = context_of(spark)
        # The job runs in another thread, which would not inherit the pool of the caller.
        self._pool = None if self._context is None else self._context.getLocalProperty(_POOL)

    async def rewrite(self, jobs: Sequence[Job], settle: Settle) -> None:
        """Executes all jobs in one Spark job; those of failed Spark tasks in further ones, in smaller groups."""
        loop = asyncio.get_running_loop()
        waiting: dict[tuple[str, int], Job] = {(str(job.table.id), job.number): job for job in jobs}
        problem: Exception | None = None

        def receive(text: str) -> None:
            id, number, content, error, seconds = tasks.decode(text)
            # A Spark task may be executed more than once; the files of the second time are unused.
            if (job := waiting.pop((id, number), None)) is not None:
                settle(JobResult(job.table.id, number, content, None if error is None else _rebuild(error), seconds))

        def deliver(text: str) -> None:
            loop.call_soon_threadsafe(receive, text)

        for attempt in range(1, TRIES + 1):
            groups = self._group([*waiting.values()], attempt)
            try:
                await self._run(groups, deliver)
            except Exception as e:  # Spark has many classes of errors, and the jobs must be settled after any of them
                problem = e
            # Results that were delivered from Spark's threads are received before this task continues.
            await asyncio.sleep(0)
            if not waiting:
                return
        reason = "its result was not delivered" if problem is None else _message(problem)
        for job in waiting.values():
            error = InternalError(f"Internal error: {job.table.id} (the Spark task of its compaction failed: {reason})")
            error.__cause__ = problem
            settle(JobResult(job.table.id, job.number, error=error))

    async def _run(self, groups: Sequence[str], deliver: Callable[[str], None]) -> None:
        stopped = Event()
        name = f"lance-ns-{uuid4().hex}"

        def work() -> None:
            if not stopped.is_set():
                self._work(groups, deliver, name)

        try:
            await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        except BaseException:
            stopped.set()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._cancel, name, limiter=anyio.CapacityLimiter(1))
            raise

    def _work(self, groups: Sequence[str], deliver: Callable[[str], None], name: str) -> None:
        description = f"lance-ns: compact tables in {len(groups)} tasks"
        if self._context is None:
            frame = self._spark.createDataFrame([(n, text) for n, text in enumerate(groups)], "n int, jobs string")
            # Other kinds of partitioning would put two groups into one task and none into another.
            frame = frame.repartitionByRange(len(groups), "n").select("jobs")
            self._spark.addTag(name)
            try:
                for row in frame.mapInArrow(tasks.batch_executor(), f"{tasks.COLUMN} string").toLocalIterator():
                    deliver(row[0])
            finally:
                self._spark.removeTag(name)
            return
        # Accumulators need PySpark with a JVM; Spark Connect has none.
        from lance_ns_async.spark.maintain.delivery import Delivery

        delivery = Delivery(deliver)
        results = self._context.accumulator([], delivery)
        try:
            with _label_jobs(self._context, name, description, self._pool):
                self._context.parallelize(groups, len(groups)).foreach(tasks.executor(results))
        finally:
            # Spark keeps the accumulator for the lifetime of the process.
            delivery.receive = None

    def _cancel(self, name: str) -> None:
        with suppress(Exception):  # the session may have ended
            if self._context is None:
                self._spark.interruptTag(name)
            else:
                self._context.cancelJobGroup(name)

    def _group(self, jobs: Sequence[Job], attempt: int) -> Sequence[str]:
        """Returns the jobs of each Spark task; after a failure, one table each, finally in reverse order.

        If one table makes its process end, the Spark job fails; then only the tables that were executed at the same
        time fail with it.
        """
        if attempt == 1:
            size = sum(job.task.size for job in jobs)
            number = max(default_tasks(self._spark), ceil(len(jobs) / JOBS_A_TASK), ceil(size / BYTES_A_TASK))
            return [tasks.encode(group) for group in balance(jobs, self._partitions or number)]
        by_table: dict[TableId, list[Job]] = {}
        for job in jobs:
            by_table.setdefault(job.table.id, []).append(job)
        groups = [tasks.encode(group) for group in by_table.values()]
        return groups[::-1] if attempt == TRIES else groups


def balance(jobs: Sequence[Job], groups: int) -> list[list[Job]]:
    """Distributes jobs among at most `groups` groups of about equal cost, each in the order of the jobs."""
    loads = [(0, n) for n in range(max(1, min(groups, len(jobs))))]
    heapify(loads)
    result: list[list[int]] = [[] for _ in loads]
    # Each job goes to the lightest group, heaviest jobs first, so groups differ by at most one job.
    for i in sorted(range(len(jobs)), key=lambda i: -jobs[i].task.size):
        load, lightest = loads[0]
        result[lightest].append(i)
        heapreplace(loads, (load + jobs[i].task.size + OPENING, lightest))
    return [[jobs[i] for i in sorted(group)] for group in result]


@contextmanager
def _label_jobs(context: SparkContext, name: str, description: str, pool: str | None) -> Iterator[None]:
    """Gives the Spark jobs of this thread a group, by which they can be cancelled, and a description."""
    names = (*_PROPERTIES, _POOL)
    before = {key: context.getLocalProperty(key) for key in names}
    context.setJobGroup(name, description, interruptOnCancel=True)
    context.setLocalProperty(_POOL, pool)  # type: ignore[arg-type]  # None removes it
    try:
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None removes it


def _rebuild(error: Sequence[Any]) -> LanceNamespaceError:
    name, message = error
    classes: Mapping[str, Any] = vars(errors)
    cls = classes.get(name)
    if isinstance(cls, type) and issubclass(cls, LanceNamespaceError):
        return cls(message)
    return InternalError(message)


def _message(error: Exception) -> str:
    return shortened(one_line(str(error)), _LONGEST)
