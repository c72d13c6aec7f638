"""Invalid arguments of a write, and the errors of its tasks, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from lance_ns_async import Namespace, TableId
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.job_errors import task_error
from lance_ns_async.spark.write import fitting
from tests.support.lake import ID, Lake
from tests.support.spark_jobs import SCHEMA, writing

# It needs pyspark, but no JVM.
pytestmark = pytest.mark.integration

NO_FRAME: Any = None

INVALID: Sequence[tuple[Callable[[], object], str]] = [
    (lambda: writing(limits={"max_rows_per_file": 0}), "max_rows_per_file 0: must be at least 1"),
    (lambda: writing("append", schema=SCHEMA), "schema: not allowed with mode 'append'"),
    (lambda: fitting.for_new(TableId(["t"]), SCHEMA, pa.schema([("x", pa.int8())]), None), "'x' is not a column"),
]


@pytest.mark.parametrize(("call", "message"), INVALID)
def test_invalid_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


async def test_async_namespace_is_refused(async_lake: Lake) -> None:
    with pytest.raises(InvalidInputError, match=r"^write: this resolver has an AsyncNamespace"):
        LocationResolver(async_lake.ns).write(NO_FRAME, ID, mode="append")


def test_unknown_mode(tmp_path: Path) -> None:
    mode: Any = "insert"
    with (
        Namespace.connect("dir", {"root": str(tmp_path)}) as ns,
        pytest.raises(InvalidInputError, match=r"mode 'insert': unknown; it is one of create, append"),
    ):
        LocationResolver(ns).write(NO_FRAME, ID, mode=mode)


def test_errors_of_tasks_keep_class_and_message() -> None:
    text = (
        "Traceback ...\n  File x, line 1\n"
        "lance_namespace.errors.PermissionDeniedError: Permission denied: t (at s3://b/t: no)\n\n\tat org.apache"
    )
    job_error = RuntimeError(text)
    job_error.add_note("and this is left")
    error = task_error(job_error)
    assert isinstance(error, PermissionDeniedError) and str(error) == "Permission denied: t (at s3://b/t: no)"
    assert error.__notes__ == ["and this is left"]
    assert task_error(RuntimeError("ZeroDivisionError: division by zero")) is None
    assert task_error(RuntimeError("lance_namespace.errors.json: no class of errors")) is None
