"""The context and the number of cores of a Spark session, with and without Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

TASKS_A_CORE = 4
"""Default number of tasks per core. A task costs tens of milliseconds, so more tasks than a few per core are slower."""

USUAL_CORES = 8
"""The assumed number of cores if it is unknown, as in a Spark Connect client."""


def context_of(spark: SparkSession) -> SparkContext | None:
    """Returns the Spark context; None with Spark Connect, where it is not available."""
    try:
        return spark.sparkContext
    except AttributeError:
        return None


def default_tasks(spark: SparkSession) -> int:
    """Returns the default number of tasks of a job, so that all cores are busy until its end."""
    context = context_of(spark)
    return TASKS_A_CORE * (USUAL_CORES if context is None else context.defaultParallelism)
