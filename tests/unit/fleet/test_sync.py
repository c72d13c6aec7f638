"""Operations on sync namespaces: the same coroutine on the background loop."""

from __future__ import annotations

from pathlib import Path

from lance_ns_async import AsyncNamespace, Namespace
from lance_ns_async.fleet import Report
from lance_ns_async.fleet.run import start
from lance_ns_async.fleet.sync import blocking, blocking_between


async def count(namespace: AsyncNamespace, *, at: list[str]) -> Report:
    with start("count", namespace) as run:
        async for _ in namespace.iter_tables(at):
            run.counters["tables"] += 1
        return run.report()


async def count_both(source: AsyncNamespace, target: AsyncNamespace, *, at: list[str]) -> int:
    reports = [await count(source, at=at), await count(target, at=at)]
    return sum(report.counters["tables"] for report in reports)


def test_operations_run_on_one_and_two_sync_namespaces(tmp_path: Path) -> None:
    with (
        Namespace.connect("dir", {"root": str(tmp_path / "a")}) as one,
        Namespace.connect("dir", {"root": str(tmp_path / "b")}) as other,
    ):
        one.declare_table({"id": ["t"]})
        other.declare_table({"id": ["t"]})
        report = blocking(count)(one, at=[])
        assert report.counters == {"tables": 1} and report.calls >= 1
        assert blocking_between(count_both)(one, other, at=[]) == 2
