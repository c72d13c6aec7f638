"""The context, the number of tasks, and the names of jobs in a Spark session, with and without Spark Connect."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from heapq import heapify, heapreplace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lance_namespace import errors
from lance_namespace.errors import InternalError, InvalidInputError, LanceNamespaceError
from pyspark.accumulators import AccumulatorParam

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
    """Sets properties of the jobs that this thread starts in the block, and then restores them.

    Args:
        context: The context of the jobs; None with Spark Connect, which does not allow it.
        properties: The values by name; None removes a property.
    """
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
    """Describes the jobs of the block, unless the user has described them or set a group; then restores both.

    Args:
        context: The context of the jobs; None with Spark Connect.
        text: The description, which is also the name of the group.
    """
    names = [] if context is None else [name for name in (DESCRIPTION, GROUP) if not context.getLocalProperty(name)]
    return local_properties(context, dict.fromkeys(names, text))


T = TypeVar("T")


def distribute(items: Sequence[T], weight: Callable[[T], int], groups: int) -> list[list[T]]:
    """Distributes items among at most `groups` groups of about equal weight, each in the order of the items.

    Returns:
        The groups; at least one, which is empty if there are no items.
    """
    loads = [(0, n) for n in range(max(1, min(groups, len(items))))]
    heapify(loads)
    members: list[list[int]] = [[] for _ in loads]
    # Each item goes to the lightest group, heaviest items first, so groups differ by at most one item's weight.
    for i in sorted(range(len(items)), key=lambda i: -weight(items[i])):
        load, lightest = loads[0]
        members[lightest].append(i)
        heapreplace(loads, (load + weight(items[i]), lightest))
    return [[items[i] for i in sorted(group)] for group in members]


_RAISED = re.compile(r"^(?:lance_namespace\.errors\.)(?P<name>\w+): (?P<message>.+)$", re.MULTILINE)

_LACKING = re.compile(
    r"No module named '(?:lance|lance_namespace|lance_ns_async|pandas|pyarrow|pyspark)\b[^']*'"
    r"|\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|PYTHON_VERSION_MISMATCH)\][^\n]*"
    r"|Python in worker has different version[^\n]*"
    r"|Cannot run program \"[^\"]*python[^\n]*"
)

REMEDY = (
    "start Spark, or the Spark Connect server, with PYSPARK_PYTHON=/path/to/python of an environment that has "
    "lance-ns-async[spark] and the Python version of this process, on each of its machines"
)


def cause_of(error: BaseException) -> Exception | None:
    """Returns the error of a task, or of an unsuitable environment, that made a job fail; None for others."""
    return task_error(error) or environment_error(error)


def environment_error(error: BaseException) -> ImportError | None:
    """Returns an error with a remedy if Spark failed because of the Python that it starts; None otherwise."""
    match = _LACKING.search(str(error))
    return None if match is None else ImportError(f"Spark starts a Python that cannot serve ({match[0]}): {REMEDY}")


def task_error(error: BaseException) -> LanceNamespaceError | None:
    """Returns the error that a task raised; None if the job failed otherwise, as in a function of the user."""
    match = _RAISED.search(str(error))
    if match is None or (cls := _class_of(match["name"])) is None:
        return None
    original = cls(match["message"])
    for note in getattr(error, "__notes__", ()):
        original.add_note(note)
    return original


def rebuild(name: str, message: str) -> LanceNamespaceError:
    """Returns the error of a task from the name of its class and its message."""
    return (_class_of(name) or InternalError)(message)


def _class_of(name: str) -> type[LanceNamespaceError] | None:
    cls: Any = getattr(errors, name, None)
    return cls if isinstance(cls, type) and issubclass(cls, LanceNamespaceError) else None


class Delivery(AccumulatorParam[list[str]]):
    """Accumulator of the results of finished tasks.

    Args:
        receive: Called with each result in Spark's thread for accumulators, which then keeps none; None to keep all of
            them, as in executors.
    """

    def __init__(self, receive: Callable[[str], None] | None = None) -> None:
        self.receive = receive

    def __reduce__(self) -> tuple[type[Delivery], tuple[()]]:
        return Delivery, ()

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:
        if self.receive is None:
            value1.extend(value2)
        else:
            for text in value2:
                self.receive(text)
        return value1


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
    """Returns the jars of the connector and of its dependencies that Spark does not contain.

    They are downloaded from Maven's central repository (240 MB) at the first time, and then cached.
    """
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
