"""Execution of maintenance by Spark, in jobs whose tasks have about the same number of bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from math import ceil
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio
import anyio.to_thread
from lance_namespace.errors import InternalError

from lance_ns_async.engine.locate import Vend
from lance_ns_async.errors import error_about, one_line, shortened
from lance_ns_async.fleet.maintenance.engine import Job, JobResult, Settle
from lance_ns_async.model import EXPIRY, TableId
from lance_ns_async.operations.maintaining import Kind
from lance_ns_async.spark import session, tasks
from lance_ns_async.spark.broker import check_addresses, renewal_endpoint
from lance_ns_async.spark.renewal import Renewal
from lance_ns_async.spark.resolve.location import without_expiry

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
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


class SparkEngine:
    """Examines, compacts and cleans up tables in Spark. The driver makes all calls to the catalog and all commits.

    Tables whose versions the catalog commits are examined and cleaned up by the driver, because that needs the catalog.

    Args:
        spark: The Spark session; its executors need this package, pylance and pyarrow.
        partitions: Maximum number of Spark tasks; None for at least four for each core, with at most 50 compaction
            tasks or 2 GiB each.
        renew: Whether tasks renew credentials that expire, by an endpoint in the driver, which asks the catalog.

    Raises:
        InvalidInputError: `partitions` is below 1; or `renew` with Spark Connect, whose executors cannot reach it.
    """

    kinds: frozenset[Kind] = frozenset({"examine", "rewrite", "clean up"})
    at_once: int = 1_024

    def __init__(self, spark: SparkSession, *, partitions: int | None = None, renew: bool = False) -> None:
        session.check_partitions(partitions)
        self._spark = spark
        self._partitions = partitions
        self._addresses = check_addresses(spark) if renew else None
        self._context = session.context_of(spark)
        # The job runs in another thread, which would not inherit the pool of the caller.
        self._pool = None if self._context is None else self._context.getLocalProperty(_POOL)

    async def run(self, jobs: Sequence[Job], settle: Settle, vend: Vend) -> None:
        """Executes all jobs in one Spark job; those of failed Spark tasks in further ones, in smaller groups.

        Args:
            jobs: The jobs, of any number of tables.
            settle: Receives the result of each job, in the event loop.
            vend: Returns a table with new credentials.
        """
        expiring = {job.table.id: job.table for job in jobs if EXPIRY in (job.table.storage_options or {})}
        if self._addresses is None or not expiring:
            await self._run_all(jobs, settle, None)
            return
        async with renewal_endpoint(expiring.values(), vend, self._addresses) as renewal:
            await self._run_all(jobs, settle, renewal)

    async def _run_all(self, jobs: Sequence[Job], settle: Settle, renewal: Renewal | None) -> None:
        loop = asyncio.get_running_loop()
        waiting: dict[tuple[str, int], Job] = {(str(job.table.id), job.number): job for job in jobs}
        problem: Exception | None = None

        def receive(text: str) -> None:
            id, number, content, error, seconds = json.loads(text)
            # A Spark task may be executed more than once; the files of the second time are unused.
            if (job := waiting.pop((id, number), None)) is not None:
                settle(
                    JobResult(job.table.id, number, content, None if error is None else tasks.rebuild(*error), seconds)
                )

        def deliver(text: str) -> None:
            loop.call_soon_threadsafe(receive, text)

        for attempt in range(1, TRIES + 1):
            groups = [encode(group, renewal) for group in self._group([*waiting.values()], attempt)]
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
            error = error_about(InternalError, job.table.id, f"its Spark task ({job.kind}) failed: {reason}")
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
        description = f"lance-ns: maintain tables in {len(groups)} tasks"
        if self._context is None:
            frame = session.one_task_each(self._spark, groups)
            self._spark.addTag(name)
            try:
                for row in frame.mapInArrow(tasks.for_each_text(_result_batch), f"{COLUMN} string").toLocalIterator():
                    deliver(row[0])
            finally:
                self._spark.removeTag(name)
            return
        delivery = tasks.Delivery(deliver)
        results = self._context.accumulator([], delivery)
        try:
            # Jobs can be cancelled by their group.
            properties = {
                session.GROUP: name,
                session.DESCRIPTION: description,
                session.INTERRUPT: "true",
                _POOL: self._pool,
            }
            with session.local_properties(self._context, properties):
                self._context.parallelize(groups, len(groups)).foreach(executor(results))
        finally:
            # Spark keeps the accumulator for the lifetime of the process.
            delivery.receive = None

    def _cancel(self, name: str) -> None:
        with suppress(Exception):  # the session may have ended
            if self._context is None:
                self._spark.interruptTag(name)
            else:
                self._context.cancelJobGroup(name)

    def _group(self, jobs: Sequence[Job], attempt: int) -> Sequence[Sequence[Job]]:
        """Returns the jobs of each Spark task; after a failure, one table each, finally in reverse order.

        If one table makes its process end, the Spark job fails; then only the tables that were executed at the same
        time fail with it.
        """
        if attempt == 1:
            size = sum(job.size for job in jobs)
            number = max(session.default_tasks(self._spark), ceil(len(jobs) / JOBS_A_TASK), ceil(size / BYTES_A_TASK))
            return tasks.distribute(jobs, lambda job: job.size + OPENING, self._partitions or number)
        by_table: dict[TableId, list[Job]] = {}
        for job in jobs:
            by_table.setdefault(job.table.id, []).append(job)
        groups = [*by_table.values()]
        return groups[::-1] if attempt == TRIES else groups


def _message(error: Exception) -> str:
    return shortened(one_line(str(error)), _LONGEST)


COLUMN = "result"
"""The only column of the results with Spark Connect."""


def encode(jobs: Iterable[Job], renewal: Renewal | None = None) -> str:
    """Returns the jobs of one task as text, including the storage options, and what renews those that expire."""
    rows = []
    for job in jobs:
        options = job.table.storage_options if renewal else without_expiry(job.table.storage_options)
        rows.append((str(job.table.id), job.table.location, options, job.version, job.number, job.kind, job.content))
    return tasks.encode((rows, renewal and astuple(renewal)))


def execute(text: str) -> Iterator[str]:
    """Executes the encoded jobs one after the other, and yields a result for each; a failure does not end the task.

    A result is a JSON array: the table, the number, the content, the error's class and message or null, the seconds.
    """
    from lance_ns_async.model import Table
    from lance_ns_async.operations import maintaining
    from lance_ns_async.storage.datasets import Snapshot
    from lance_ns_async.storage.opening import Opener
    from lance_ns_async.storage.pylance_errors import translate_errors

    # Jobs of one table follow each other and share its dataset.
    key, dataset = None, None
    rows, endpoint = tasks.decode(text)
    opener = Renewal(*endpoint).opener() if endpoint else Opener()
    for id, location, options, version, number, kind, content in rows:
        started = monotonic()
        result, error = "", None
        table = Table(TableId(id), location, storage_options=options)
        try:
            with translate_errors(table):
                if dataset is None or key != (id, version):
                    key, dataset = (id, version), opener.open(table, Snapshot(version))
                result = maintaining.execute(table, dataset, kind, content, opener.renew)
        except Exception as e:  # an error of one table must not end the Spark task, which has further ones
            dataset, error = None, tasks.describe_error(e)
        yield json.dumps((id, number, result, error, monotonic() - started))


def executor(results: Accumulator[list[str]]) -> Callable[[str], None]:
    """Returns a function for `RDD.foreach` that adds the results of encoded jobs to an accumulator."""

    def work(text: str) -> None:
        results.add(list(execute(text)))

    return work


def _result_batch(text: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    yield pa.RecordBatch.from_arrays([pa.array(list(execute(text)), pa.string())], [COLUMN])
