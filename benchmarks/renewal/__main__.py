"""Spark jobs that outlast their credentials: `python -m benchmarks.renewal`, on a cluster of two executors.

An S3 in another process refuses keys from the moment at which they expire, and answers so slowly that a read takes
about a minute. Executors are killed meanwhile. A line for each job says what failed, and how many keys the catalog has
issued, against the number of tables by the number of lifetimes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, sleep

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.renewal.server import ROWS, serve
from lance_ns_async import Namespace
from lance_ns_async.fleet import CompactOptions, sync
from lance_ns_async.spark import LocationResolver, Locations, SparkEngine
from lance_ns_async.spark.local import local_spark

BATCHES, WRITERS = 10, 100


@contextmanager
def killing(period: float) -> Iterator[list[int]]:
    """Kills an executor after `period` seconds, and another after as many again; 0 for none."""
    killed: list[int] = []
    over = Event()

    def kill() -> None:
        while len(killed) < 2 and not over.wait(period):
            found = subprocess.run(("pgrep", "-f", "CoarseGrainedExecutorBackend.*--app-id"), capture_output=True)
            executors = sorted(map(int, found.stdout.split()))
            if executors:
                killed.append(executors[0])
                os.kill(executors[0], signal.SIGKILL)

    thread = Thread(target=kill)
    if period:
        thread.start()
    try:
        yield killed
    finally:
        over.set()
        if period:
            thread.join()


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields rows one by one, in about three seconds."""
    for batch in batches:
        for n in range(batch.num_rows):
            sleep(0.3)
            yield batch.slice(n, 1)


class Benchmark:
    """The jobs, with one session and one catalog."""

    def __init__(self, spark: SparkSession, connection: Connection, arguments: argparse.Namespace) -> None:
        self._spark, self._connection, self._arguments = spark, connection, arguments
        self._properties: dict[str, str] = connection.recv()

    def set(self, lasts: float, delay: float = 0.0) -> tuple[int, int]:
        """Sets the lifetime of keys and the delay; returns the number of keys issued, and of requests refused."""
        self._connection.send((lasts, delay))
        counts: tuple[int, int] = self._connection.recv()
        return counts

    def measure(self, name: str, job: Callable[[], object], delay: float, expected: object, tables: int) -> None:
        lifetime, period = self._arguments.lifetime, self._arguments.kill
        issued, refused = self.set(lifetime, delay)
        started, problem = perf_counter(), ""
        with killing(period) as killed:
            try:
                if (result := job()) != expected:
                    problem = f"WRONG: {result} instead of {expected}"
            except Exception as e:  # any failure is a result of this benchmark
                problem = f"FAILED: {str(e)[:300]}"
        seconds = perf_counter() - started
        now, now_refused = self.set(lifetime)
        most = tables * ceil(seconds / lifetime)
        print(
            f"{name:24} {seconds:6.1f} s  {len(killed):2} executors killed  {now - issued:6,} keys of "
            f"{tables} x {ceil(seconds / lifetime)} = {most:,}  {now_refused - refused} refused  {problem or 'ok'}",
            flush=True,
        )

    def run(self) -> None:
        tables, spark = self._arguments.tables, self._spark
        with LocationResolver.connect("polaris", self._properties, vend_credentials=True) as resolver:
            self.set(45.0)
            locations = resolver.prefetch("c.db.*", on_error="raise", progress=False)
            for tasks, seconds in zip(self._arguments.tasks, self._arguments.seconds, strict=True):
                frame = locations.dataframe(spark, partitions=tasks, renew=True)
                # Each table is opened, and its fragments are read; eight tasks run at once.
                delay = seconds * min(tasks, 8) / (tables * 4)
                self.measure(f"read, {tasks} tasks", frame.count, delay, tables * ROWS, tables)
            self.jobs(resolver, locations, tables)

    def jobs(self, resolver: LocationResolver, locations: Locations, tables: int) -> None:
        spark = self._spark
        rows = spark.range(0, WRITERS * 10, 1, WRITERS).mapInArrow(slowly, "id long")

        def write() -> int:
            return resolver.write(rows, "c.db.new", renew=True).rows

        self.measure(f"write, {WRITERS} partitions", write, 0.05, WRITERS * 10, 1)

        def write_many() -> int:
            by_name = rows.withColumn("name", f.concat(f.lit("m"), f.col("id") % 50))
            report = resolver.write_many(by_name, by="name", into="c.db", renew=True, progress=False)
            return len(report.rows) - len(report.failed)

        self.measure("write_many, 50 tables", write_many, 0.05, 50, 50)
        namespace = resolver.namespace
        assert isinstance(namespace, Namespace)

        def maintain() -> dict[str, int]:
            engine = SparkEngine(spark, renew=True)
            report = sync.maintain(namespace, "c.db.t*", compact=CompactOptions(max_small_fragments=1), engine=engine)
            return dict(report.counts)

        self.measure("maintain", maintain, 0.05, {"maintained": tables}, tables)
        some = locations.select([id for n, id in enumerate(locations) if n < 20])
        frame = some.dataframe(spark, renew=True)
        counts: list[int] = []

        def batch(number: DataFrame, _: int) -> None:
            counts.append(number.crossJoin(frame).count())

        def stream() -> int:
            with tempfile.TemporaryDirectory() as folder:
                source = Path(folder, "source")
                source.mkdir()
                for n in range(BATCHES):
                    (source / f"{n}.json").write_text(f'{{"n": {n}}}')
                read = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(source))
                query = read.writeStream.foreachBatch(batch).trigger(availableNow=True)
                query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
            return sum(counts)

        self.measure(f"stream, {BATCHES} batches", stream, 0.2, BATCHES * 20 * ROWS, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, nargs="*", default=[60, 60, 60])
    parser.add_argument("--lifetime", type=float, default=2.0)
    parser.add_argument("--kill", type=float, default=20.0, help="seconds after which an executor is killed")
    arguments = parser.parse_args()
    here, there = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=serve, args=(there, arguments.tables), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as home:
        for part in Path(pyspark.__file__).parent.iterdir():
            Path(home, part.name).symlink_to(part)
        # Executors work in this folder.
        os.environ["SPARK_HOME"] = home
        config = {"spark.master": "local-cluster[2,4,1024]", "spark.executor.memory": "1g"}
        spark = local_spark("renewal", config={**config, "spark.task.maxFailures": "8"})
        print(f"Spark {spark.version}, keys that live for {arguments.lifetime:g} s", flush=True)
        try:
            Benchmark(spark, here, arguments).run()
        finally:
            spark.stop()
            here.send(None)
    server.join(10)


if __name__ == "__main__":
    main()
