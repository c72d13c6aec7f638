"""Work of Spark's tasks: its distribution, its encoding, and the way of results and errors back to the driver.

Spark's Python processes import this module, so its own imports are kept to a minimum.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any, TypeVar

from lance_namespace import errors
from lance_namespace.errors import InternalError, LanceNamespaceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator, AccumulatorParam

    _Parameter = AccumulatorParam[list[str]]
else:
    _Parameter = object  # PySpark needs only the methods, and this package is imported without it.

T = TypeVar("T")


def distribute(items: Sequence[T], weight: Callable[[T], int], groups: int) -> list[list[T]]:
    """Distributes items among 1 to `groups` groups of about equal weight, each in the order of the items."""
    loads = [(0, n) for n in range(max(1, min(groups, len(items))))]
    heapify(loads)
    members: list[list[int]] = [[] for _ in loads]
    # Each item goes to the lightest group, heaviest items first, so groups differ by at most one item's weight.
    for i in sorted(range(len(items)), key=lambda i: -weight(items[i])):
        load, lightest = loads[0]
        members[lightest].append(i)
        heapreplace(loads, (load + weight(items[i]), lightest))
    return [[items[i] for i in sorted(group)] for group in members]


def encode(work: Any) -> str:
    """Returns work of JSON's types as text, compressed because many of its parts are similar."""
    return base64.b64encode(zlib.compress(json.dumps(work).encode(), 3)).decode()


def decode(text: str) -> Any:
    """Returns the work from the output of `encode`."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def for_each_text(
    execute: Callable[[str], Iterable[pa.RecordBatch]], name: str = "execute"
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` that executes each text of the first column; Spark shows its name."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from execute(text)

    work.__name__ = name
    return work


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


def describe_error(error: Exception) -> tuple[str, str]:
    """Returns the arguments of `rebuild`: the name of the error's class, and its message."""
    return type(error).__name__ if isinstance(error, LanceNamespaceError) else InternalError.__name__, str(error)


def rebuild(name: str, message: str) -> LanceNamespaceError:
    """Returns the error of a task from the name of its class and its message."""
    return (_class_of(name) or InternalError)(message)


def _class_of(name: str) -> type[LanceNamespaceError] | None:
    cls: Any = getattr(errors, name, None)
    return cls if isinstance(cls, type) and issubclass(cls, LanceNamespaceError) else None


class Delivery(_Parameter):
    """Accumulator of the results of finished tasks.

    `receive` is called with each result in Spark's thread for accumulators, which then keeps none. Without it, as in
    executors, all of them are kept.
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


def collector(context: SparkContext | None) -> Accumulator[list[str]] | None:
    """Returns an accumulator of the results of finished tasks, also of a failing job; None with Spark Connect."""
    return None if context is None else context.accumulator([], Delivery())
