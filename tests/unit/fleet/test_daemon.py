"""Maintenance that never ends: what it looks at, its state, its lease, its failures and its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_ns_async import AsyncNamespace
from lance_ns_async.fleet import MaintenanceStatus, Report, maintain_forever
from lance_ns_async.fleet.maintenance.shared_state import LEASE, MaintenanceState, SharedState
from lance_ns_async.model import TableId
from lance_ns_async.storage.opening import Opener
from tests.fakes.clock import pass_time
from tests.fakes.iceberg import FakeIceberg

NAMES = ("t0", "t1", "t2")


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace.connect("dir", {"root": str(tmp_path / "lake")}) as ns:
        await ns.create_namespace({"id": ["db"]})
        for name in NAMES:
            await append(ns, name, 14)
        yield ns


async def append(ns: AsyncNamespace, name: str, times: int) -> None:
    for _ in range(times):
        await ns.write(["db", name], pa.table({"id": range(10)}), mode="append" if await has(ns, name) else "create")


async def has(ns: AsyncNamespace, name: str) -> bool:
    return name in (await ns.list_tables({"id": ["db"]})).tables


def outcomes(report: Report) -> dict[str, str]:
    return {str(row.id).removeprefix("db$"): row.outcome for row in report.rows}


async def runs(ns: AsyncNamespace, count: int, what: str = "db.*", **options: Any) -> list[dict[str, str]]:
    """Returns the outcomes of the first runs with any."""
    reports: list[Report] = []
    stop = anyio.Event()

    def note(report: Report) -> None:
        reports.append(report)
        if len(reports) == count:
            stop.set()

    await maintain_forever(ns, what, on_report=note, stop=stop, **{"every": 0.001, **options})
    return [outcomes(it) for it in reports]


async def test_tables_are_looked_at_until_there_is_nothing_to_do(namespace: AsyncNamespace) -> None:
    status = MaintenanceStatus()
    seen = await runs(namespace, 2, status=status)
    assert seen == [dict.fromkeys(NAMES, "maintained"), dict.fromkeys(NAMES, "unchanged")]
    assert (status.is_leader, status.is_ready, status.tables, status.pending, status.runs) == (False, True, 3, 0, 2)
    assert status.outcomes == {"maintained": 3, "unchanged": 3} and status.last is not None


async def test_the_next_process_goes_on_where_the_last_one_was(namespace: AsyncNamespace, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert await runs(namespace, 1, state=state) == [dict.fromkeys(NAMES, "maintained")]
    await append(namespace, "new", 1)
    # Until a run finds nothing to do, a table is looked at again.
    assert await runs(namespace, 1, state=state) == [dict.fromkeys([*NAMES, "new"], "unchanged")]
    await append(namespace, "t1", 1)
    await namespace.deregister_table({"id": ["db", "t2"]})
    assert await runs(namespace, 1, state=state) == [{"t1": "unchanged"}]
    assert await runs(namespace, 1, state=state, all_every=0) == [dict.fromkeys(["t0", "t1", "new"], "unchanged")]
    with pytest.raises(
        InvalidInputError, match=r"state: it belongs to another catalog or other tables.*use a folder for each set"
    ):
        await runs(namespace, 1, state=state, what="db.t*")


async def test_what_a_budget_leaves_is_for_the_next_run(namespace: AsyncNamespace, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert await runs(namespace, 2, state=state, budget=0) == [dict.fromkeys(NAMES, "left")] * 2
    assert await runs(namespace, 1, state=state) == [dict.fromkeys(NAMES, "maintained")]


async def test_after_a_stop_no_table_is_begun(namespace: AsyncNamespace) -> None:
    stop, seen = anyio.Event(), list[Report]()

    def progress(done: int, total: int) -> None:
        if total:
            stop.set()

    # The first table is done before the others are examined.
    policies = {"db.t0": {"maintain": False}}
    await maintain_forever(namespace, "db.*", stop=stop, on_report=seen.append, progress=progress, policies=policies)
    assert [outcomes(it) for it in seen] == [{"t0": "off", "t1": "left", "t2": "left"}]
    assert (await namespace.open(["db", "t1"])).version == 14


async def test_a_catalog_that_fails_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with FakeIceberg() as server:
        properties = {"endpoint": server.endpoint, "root": tmp_path.as_uri(), "max_retries": "0"}
        async with AsyncNamespace.connect("iceberg", properties) as ns:
            await ns.create_namespace({"id": ["db"]})
            await append(ns, "t0", 14)
            status = MaintenanceStatus()

            server.fail(503, times=1)
            with caplog.at_level("WARNING"):
                seen = await runs(ns, 2, status=status)
    assert seen == [{"db": "failed"}, {"t0": "maintained"}] and status.is_ready
    assert "Service unavailable: 1 namespace cannot be listed, such as db" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every 0: must be above 0"),
        ({"every": "soon"}, "every 'soon'"),
        ({"budget": "much"}, "budget 'much'"),
        ({"what": "db..*"}, r"pattern 'db\.\.\*'"),
        ({"state": ""}, "state: uri ''"),
        ({"state": "s3:/bucket"}, "state: uri 's3:/bucket'"),
    ],
)
async def test_wrong_arguments_are_refused(namespace: AsyncNamespace, options: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        await runs(namespace, 1, **options)


async def test_an_error_of_the_caller_ends_the_work_and_the_lease(namespace: AsyncNamespace, tmp_path: Path) -> None:
    def fail(report: Report) -> None:
        raise ZeroDivisionError(report.line())

    with pytest.raises(ZeroDivisionError, match="3 maintained"):
        await maintain_forever(namespace, "db.*", state=tmp_path / "state", on_report=fail)
    assert await runs(namespace, 1, state=tmp_path / "state") == [dict.fromkeys(NAMES, "unchanged")]


async def test_a_state_replaces_no_other_files(namespace: AsyncNamespace, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="the folder has other files, such as lake; use a new folder"):
        await runs(namespace, 1, state=tmp_path)
    table = lance.write_dataset(pa.table({"id": [1]}), str(tmp_path / "other")).uri
    with pytest.raises(InvalidInputError, match="there is another table; use a new folder"):
        await runs(namespace, 1, state=table)
    assert lance.dataset(table).version == 1


class Clock:
    """A clock that tests move."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def instances(tmp_path: Path, clock: Clock, count: int = 2) -> list[SharedState]:
    return [SharedState(Opener(), str(tmp_path / "state"), lease=30, now=clock) for _ in range(count)]


async def test_a_lease_has_one_holder(tmp_path: Path, clock: Clock) -> None:
    many = instances(tmp_path, clock, 8)
    taken = await asyncio.gather(*(it.take() for it in many))
    assert taken.count(True) == 1 and [it.is_held for it in many] == taken
    holder, other = many[taken.index(True)], many[taken.index(False)]
    await holder.release()
    assert not holder.is_held and await other.take() and not await holder.take()


async def test_a_lease_that_is_not_renewed_ends(tmp_path: Path, clock: Clock) -> None:
    holder, other = instances(tmp_path, clock)
    assert await holder.take() and not await other.take()
    assert f" {os.getpid()} " in other.other_holder and not holder.other_holder
    clock.seconds = 29
    assert not holder.is_held and not await other.take()
    assert await holder.take() and holder.is_held
    clock.seconds = 58
    # It was renewed at 29 seconds, which the other sees only now.
    assert not await other.take()
    clock.seconds = 87
    assert not await other.take()
    clock.seconds = 88
    assert await other.take() and not await holder.take()


async def test_who_lost_the_lease_stores_nothing(tmp_path: Path, clock: Clock) -> None:
    holder, other = instances(tmp_path, clock)
    state = MaintenanceState("token", (TableId(["db", "t"]),), 1.5)
    assert await holder.take() and await holder.read() == MaintenanceState()
    await holder.write(state)
    clock.seconds = 29
    await holder.write(MaintenanceState("late"))
    assert await other.read() == state


async def test_a_storage_that_fails_ends_no_lease_before_its_time(tmp_path: Path, clock: Clock) -> None:
    (holder,) = instances(tmp_path, clock, 1)
    assert await holder.take()
    folder = tmp_path / "state" / "_versions"
    folder.rename(tmp_path / "hidden")
    folder.touch()
    with pytest.raises(LanceNamespaceError):
        await holder.take()
    assert holder.is_held
    folder.unlink()
    (tmp_path / "hidden").rename(folder)
    assert await holder.take()


async def test_a_lost_lease_ends_the_work_of_its_holder(namespace: AsyncNamespace, tmp_path: Path) -> None:
    """Another instance takes the lease by force, as after a pause of this process that was longer than the lease."""
    status, stop, seen = MaintenanceStatus(), anyio.Event(), anyio.Event()
    work = maintain_forever(
        namespace, "db.*", state=tmp_path / "state", status=status, stop=stop, on_report=lambda _: seen.set()
    )
    task = asyncio.create_task(work)
    await seen.wait()
    await asyncio.to_thread(take_by_force, tmp_path / "state")
    while status.is_leader:
        await pass_time(LEASE)
    stop.set()
    await task


def take_by_force(state: Path) -> None:
    lance.dataset(state).update_config({"lance_ns_async.lease": "other 1"})
