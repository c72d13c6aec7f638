"""One Spark job that reads all tables of the demo."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from time import perf_counter
from typing import TYPE_CHECKING

from lance_ns_async.cli.errors import Misuse
from lance_ns_async.cli.progress import progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from lance_ns_async.spark import Locations

_LOOK_EVERY = 0.2
"""Seconds between two checks of the job's progress."""


@dataclass(frozen=True, slots=True)
class Read:
    """The results of the job and its times, in seconds."""

    tables: int
    rows: int
    mean_score: float
    longest: float
    """The norm of the longest vector."""
    starting: float
    planning: float
    running: float


def check_installed() -> None:
    """Raises `Misuse` or JavaNotFoundError if Spark cannot be started; called before any other work."""
    if find_spec("pyspark") is None:
        raise Misuse("the demo needs Spark: pip install 'lance-ns-async[spark]', or use --no-spark")
    from lance_ns_async.spark.java import find_java

    find_java()


def read(locations: Locations) -> Read:
    """Reads every row of every table as one DataFrame, and aggregates them in one job."""
    from lance_ns_async.spark.local import local_spark

    start = perf_counter()
    with progress("starting Spark"), warnings.catch_warnings():
        # The warning does not apply: Spark forks this process only to start Java.
        warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
        spark = local_spark("lance-ns demo")
    try:
        ready = perf_counter()
        with progress("planning"):
            summary = _summary(locations.dataframe(spark))
        plan_end = perf_counter()
        row = _run(spark, summary)
        run_end = perf_counter()
    finally:
        spark.stop()
    return Read(
        tables=row["tables"],
        rows=row["rows"],
        mean_score=row["mean_score"],
        longest=row["longest"],
        starting=ready - start,
        planning=plan_end - ready,
        running=run_end - plan_end,
    )


def _summary(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    norm = f.sqrt(f.aggregate("vector", f.lit(0.0), lambda total, part: total + part * part))
    summary = frame.agg(
        f.count_distinct("_table").alias("tables"),
        f.count("text").alias("rows"),
        f.avg("score").alias("mean_score"),
        f.max(norm).alias("longest"),
    )
    with redirect_stdout(StringIO()):
        # Spark plans lazily; this call makes it plan now, so that planning and running are measured separately.
        summary.explain()
    return summary


def _run(spark: SparkSession, summary: DataFrame) -> Row:
    """Runs the job and shows its progress; returns the summary's only row."""
    with ThreadPoolExecutor(1) as pool, progress("reading with Spark") as bar:
        job = pool.submit(summary.collect)
        stages: set[int] = set()
        while wait([job], timeout=_LOOK_EVERY).not_done:
            tracker = spark.sparkContext.statusTracker()
            stages.update(tracker.getActiveStageIds())
            infos = [stage for stage in map(tracker.getStageInfo, stages) if stage is not None]
            if infos:
                bar.reach(sum(stage.numCompletedTasks for stage in infos), sum(stage.numTasks for stage in infos))
        (row,) = job.result()
    return row
