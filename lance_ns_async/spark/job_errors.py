"""Errors of Spark jobs: those that their tasks raised, and those of a Python that lacks this package."""

from __future__ import annotations

import re
from typing import Any

from lance_namespace import errors
from lance_namespace.errors import InternalError, LanceNamespaceError

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
