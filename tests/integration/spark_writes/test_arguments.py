"""Invalid arguments of a write, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async import Namespace, TableId
from lance_ns_async.spark import LocationResolver
from lance_ns_async.spark.write import write
from tests.support.lake import ID, Lake
from tests.support.spark_jobs import SCHEMA, writing

# It needs pyspark, but no JVM.
pytestmark = pytest.mark.integration

NO_FRAME: Any = None

INVALID: Sequence[tuple[Callable[[], object], str]] = [
    (lambda: writing(limits={"max_rows_per_file": 0}), "max_rows_per_file 0: must be at least 1"),
    (lambda: writing("append", schema=SCHEMA), "schema: not allowed with mode 'append'"),
    (lambda: write.schema_for_new(TableId(["t"]), SCHEMA, pa.schema([("x", pa.int8())]), None), "'x' is not a column"),
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
        pytest.raises(InvalidInputError, match=r"mode 'insert': unknown, known are create, append"),
    ):
        LocationResolver(ns).write(NO_FRAME, ID, mode=mode)
