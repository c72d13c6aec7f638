"""The context, the number of tasks, and the names of jobs in a Spark session, with and without Spark Connect."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lance_namespace.errors import InvalidInputError

from lance_ns_async.model import TableId

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

TASKS_A_CORE = 4
"""Default number of tasks per core. A task costs tens of milliseconds, so more tasks than a few per core are slower."""

INTERRUPT = "spark.job.interruptOnCancel"
"""The local property that makes the tasks of a cancelled or failed job end at once."""

USUAL_CORES = 8
"""The assumed number of cores if it is unknown, as in a Spark Connect client."""

DESCRIPTION = "spark.job.description"
GROUP = "spark.jobGroup.id"
_LONGEST = 100


def check_session(spark: SparkSession) -> None:
    """Raises InvalidInputError if the argument is not a Spark session, with or without Spark Connect."""
    if not hasattr(spark, "createDataFrame"):
        raise InvalidInputError(
            f"spark: must be a SparkSession, not {type(spark).__name__}; use the session that you have, or "
            "lance_ns_async.spark.local.local_spark()"
        )


def check_partitions(partitions: int | None) -> None:
    """Raises InvalidInputError if a maximum number of tasks is below 1; None is the default number."""
    if partitions is not None and partitions < 1:
        raise InvalidInputError(f"partitions {partitions}: must be at least 1")


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


def one_task_each(spark: SparkSession, texts: Sequence[str]) -> DataFrame:
    """Returns a DataFrame with one column, whose partitions have one of the texts each."""
    frame = spark.createDataFrame([(n, text) for n, text in enumerate(texts)], "n int, text string")
    # Other kinds of partitioning would put two texts into one task and none into another.
    return frame.repartitionByRange(len(texts), "n").select("text")


@contextmanager
def local_properties(context: SparkContext | None, properties: Mapping[str, str | None]) -> Iterator[None]:
    """Sets properties of the jobs of the block, if there is a context, then restores them; None removes one."""
    if context is None:
        yield
        return
    before = {name: context.getLocalProperty(name) for name in properties}
    try:
        for name, value in properties.items():
            context.setLocalProperty(name, cast(str, value))  # None removes it
        yield
    finally:
        for name, value in before.items():
            context.setLocalProperty(name, cast(str, value))


def label(verb: str, tables: Collection[TableId]) -> str:
    """Returns a name such as "lance-ns: read 1,000 tables of sales.*".

    It contains no character that has a meaning in class names or paths, because Spark looks up data sources by such
    names, too. There must be at least one table.
    """
    subject = ".".join(next(iter(tables))) if len(tables) == 1 else f"{len(tables):,} tables of {_pattern(tables)}"
    text = re.sub(r"[^\w .,*$-]", "_", subject)
    return f"lance-ns: {verb} {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"


def _pattern(tables: Collection[TableId]) -> str:
    """Returns the pattern of the smallest namespace that contains all tables."""
    parents = {tuple(id)[:-1] for id in tables}
    levels = takewhile(lambda names: len(set(names)) == 1, zip(*parents, strict=False))
    common = tuple(names[0] for names in levels)
    return ".".join((*common, "*" if parents == {common} else "**"))


def describe_jobs(context: SparkContext | None, text: str) -> AbstractContextManager[None]:
    """Describes the jobs of the block, and names their group, unless the user has done so; then restores both."""
    names = [] if context is None else [name for name in (DESCRIPTION, GROUP) if not context.getLocalProperty(name)]
    return local_properties(context, dict.fromkeys(names, text))


SPARK = "3.5"
"""The version of Spark that the connector is built for."""

CONNECTOR = "org.lance:lance-spark-3.5_2.12:0.4.0"

CATALOG = "org.lance.spark.LanceNamespaceSparkCatalog"
"""The connector's class that implements a Spark catalog."""

_SPARKS_OWN = (  # Libraries that Spark itself contains, in other versions.
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.google.code.findbugs:*",
    "com.google.errorprone:*",
    "com.google.guava:*",
    "com.google.j2objc:*",
    "commons-codec:*",
    "io.netty:*",
    "org.apache.commons:*",
    "org.checkerframework:*",
)

_REMEDY = "pip install 'lance-ns-async[connector]'"


def connector_jars() -> list[Path]:
    """Returns the jars that the connector needs besides Spark's; the first time, it downloads 240 MB."""
    try:
        from lance_ns_async.spark.maven import classpath
    except ImportError as e:
        raise ImportError(f"the jars of the Lance connector for Spark need: {_REMEDY}") from e
    return classpath("lance-spark", [CONNECTOR], _SPARKS_OWN)


def connector_settings() -> Mapping[str, str]:
    """Returns the settings of a Spark session that loads the connector."""
    import pyspark

    if not pyspark.__version__.startswith(f"{SPARK}."):
        raise ImportError(f"the Lance connector needs Spark {SPARK}, not {pyspark.__version__}: {_REMEDY}")
    # Before Spark's own jars, whose Arrow is too old for the connector.
    jars = os.pathsep.join(map(str, connector_jars()))
    return {
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        # A union of a thousand tables is a deep tree, and Arrow needs memory outside the heap.
        "spark.driver.extraJavaOptions": "-Xss64m -Dio.netty.tryReflectionSetAccessible=true",
    }


def has_connector(spark: SparkSession) -> bool:
    """Returns whether the driver's JVM has loaded the jars of the connector; for sessions without Spark Connect."""
    # PySpark has no public access to the class path.
    jvm = spark._jvm  # noqa: SLF001
    assert jvm is not None
    # Spark uses the same class loader to find catalogs.
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(f"{CATALOG.replace('.', '/')}.class") is not None
