"""What a bulk describe keeps of what failed: what is to be known of it, and nothing that its calls had in hand."""

from __future__ import annotations

from lance_namespace.errors import TableNotFoundError

from lance_ns_async import AsyncNamespace
from lance_ns_async.errors import failure_of
from tests.fakes.iceberg import FakeIceberg


async def test_errors_that_are_kept_hold_no_frames() -> None:
    with FakeIceberg() as server:
        server.add_table(["a"], "there")
        async with AsyncNamespace.connect("iceberg", {"endpoint": server.endpoint}) as ns:
            described = await ns.describe_tables([("a", "there"), ("a", "gone"), ("a", "lost")])
    assert len(described.tables) == 1 and len(described.errors) == 2
    for error in described.errors.values():
        assert isinstance(error, TableNotFoundError) and failure_of(error) is not None
        known: BaseException | None = error
        while known is not None:
            assert known.__traceback__ is None
            known = known.__cause__ or known.__context__
