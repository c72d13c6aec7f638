"""Tracebacks: the caller's errors show the caller's line and no frame of the package below the public method."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import InternalError, LanceNamespaceError, NamespaceNotFoundError, TableNotFoundError

from lance_ns_async import AsyncNamespace, DirNamespace, IcebergNamespace
from tests.fakes.iceberg import FakeIceberg

MISSING = ["nothing"]


def frames(error: BaseException) -> list[str]:
    """Returns the names of the functions in a traceback as it is printed, those of the causes included."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return [line.rpartition(" in ")[2] for line in lines if line.startswith("  File ")]


async def test_an_error_shows_the_callers_line_and_the_public_method(tmp_path: Path) -> None:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        with pytest.raises(TableNotFoundError) as raised:
            await ns.describe_table(MISSING)
        assert frames(raised.value) == ["test_an_error_shows_the_callers_line_and_the_public_method", "call"]
        with pytest.raises(NamespaceNotFoundError) as missing:
            [id async for id in ns.iter_tables(["no", "namespace"])]
        assert len(frames(missing.value)) <= 3


@pytest.mark.parametrize(
    "use",
    [
        lambda ns: ns.describe_table(MISSING),
        lambda ns: ns.open(MISSING),
        lambda ns: ns.list_tables(["no", "namespace"]),
        lambda ns: list(ns.iter_tables(["no", "namespace"])),
    ],
)
def test_the_sync_namespace_adds_its_own_line_alone(tmp_path: Path, use: Callable[[DirNamespace], Any]) -> None:
    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(LanceNamespaceError) as raised:
        use(ns)
    assert frames(raised.value)[:2] == ["test_the_sync_namespace_adds_its_own_line_alone", "<lambda>"]
    assert len(frames(raised.value)) <= 5


def test_an_error_that_may_be_a_mistake_of_the_package_stays_whole() -> None:
    with FakeIceberg() as server, IcebergNamespace(endpoint=server.url) as ns:
        server.reply("short and stout", status=418, content_type="text/plain")
        with pytest.raises(InternalError) as raised:
            ns.describe_table(["a", "t"])
    assert len(frames(raised.value)) > 10 and raised.value.__cause__ is not None


def test_all_errors_stay_whole_at_the_level_debug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lance_ns_async")
    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(TableNotFoundError) as raised:
        ns.describe_table(MISSING)
    assert len(frames(raised.value)) > 10


def test_the_callers_own_error_stays_the_cause(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise ZeroDivisionError("in the caller's rows")

    with DirNamespace(root=str(tmp_path)) as ns, pytest.raises(LanceNamespaceError) as raised:
        ns.write(["t"], pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), rows()))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
