"""Memory of failed items in a bulk describe: errors without references to their calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.errors import failure_of
from tests.fakes.iceberg import FakeIceberg


@pytest.mark.parametrize("operation", ["describe", "vend", "open"])
async def test_errors_that_are_kept_hold_no_frames(tmp_path: Path, operation: str) -> None:
    ids = [("a", "there"), ("a", "gone"), ("a", "lost")]
    with FakeIceberg() as server:
        server.add_table(["a"], "there", location=str(tmp_path / "there"))
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as ns:
            errors: Mapping[TableId, LanceNamespaceError]
            if operation == "open":
                errors = (await ns.open_many(ids)).errors
                # Nothing was written to it.
                assert len(errors) == 3
            else:
                described = await ns.describe_tables(ids, vend_credentials=operation == "vend")
                errors = described.errors
                assert len(described.tables) == 1 and len(errors) == 2
    for error in errors.values():
        assert isinstance(error, TableNotFoundError)
        assert operation == "open" or failure_of(error) is not None
        known: BaseException | None = error
        while known is not None:
            assert known.__traceback__ is None
            known = known.__cause__ or known.__context__
