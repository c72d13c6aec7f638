"""Rounds of the crash suite for drops that can be taken back: a killed operation, and a process that examines it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from signal import SIGKILL
from traceback import format_exc

import lance
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_ns_async import AsyncNamespace, TableId
from lance_ns_async.fleet import Row, dropped, purge, undrop
from lance_ns_async.storage.lance_layout import DROP_NOTES
from tests.consistency.crash import Place
from tests.consistency.model import Name, path
from tests.consistency.steps import add_step, report_steps, supervise
from tests.support.processes import receive, started, wait_until_quiet


@dataclass(frozen=True)
class Plan:
    """An operation that is killed."""

    kind: str
    keep: float = 3600
    """The seconds of the retention."""
    purges: bool = False
    """Whether a new process first purges what it finds."""
    at_root: bool = False
    files: int = 1


@dataclass(frozen=True)
class Known:
    """A table before the operation."""

    name: Name
    location: str
    properties: Mapping[str, str] | None
    rows: int

    def files(self, pattern: str = "**/*") -> Sequence[str]:
        """Returns its files of a pattern, without the catalog's own."""
        folder, own = Path(path(self.location)), (".metadata.json", ".lance-deregistered")
        files = (it for it in folder.glob(pattern) if it.is_file() and not it.name.endswith(own))
        return sorted(str(it.relative_to(folder)) for it in files)


def run(place: Place, plan: Plan, at: int) -> tuple[bool, int, str]:
    """Kills an operation before a step; returns whether it was, the number of steps, and what is wrong then."""
    with started(_work, place, plan) as (process, connection):
        messages, steps = supervise(process, connection, at)
    killed = process.exitcode == -SIGKILL
    if len(messages) != (1 if killed else 2):
        return killed, steps, f"the process ended with {process.exitcode} after {len(messages)} messages"
    wait_until_quiet(place.properties)
    with started(_inspect, place, plan, messages[0]) as (_, connection):
        return killed, steps, receive(connection)


def _work(connection: Connection, place: Place, plan: Plan) -> None:
    report_steps(connection)
    asyncio.run(_working(connection, place, plan))


async def _working(connection: Connection, place: Place, plan: Plan) -> None:
    async with AsyncNamespace.connect(place.impl, place.properties) as ns:
        for namespace in place.namespaces:
            await ns.create_namespace({"id": list(namespace)})
        names = [*place.terms.bare] if plan.at_root else place.terms.names[: 2 if plan.kind == "drop_namespace" else 1]
        tables = [await _create(ns, it, plan.files) for it in names]
        (id, location) = (list(tables[0].name), tables[0].location)
        if plan.kind in ("undrop", "purge"):
            await ns.drop_table(id, keep=plan.keep)
        with ns.observe(add_step):
            connection.send(tables)
            match plan.kind:
                case "drop_table":
                    await ns.drop_table(id, keep=plan.keep)
                case "drop_namespace":
                    await ns.drop_namespace({"id": id[:-1], "behavior": "cascade"}, keep=plan.keep)
                case "undrop":
                    await undrop(ns, location)
                case _:
                    assert [it.outcome for it in (await purge(ns, under=str(place.disk))).rows] == ["purged"]
            connection.send(None)


async def _create(ns: AsyncNamespace, name: Name, files: int) -> Known:
    """Creates a table with properties, a tag and more versions."""
    id, rows, is_nested = list(name), pa.table({"id": range(3)}), len(name) > 1
    if is_nested:
        await ns.declare_table({"id": id, "properties": {"owner": "me"}})
    dataset = await ns.write(id, rows, mode="append" if is_nested else "create")
    await ns.create_table_tag(id, tag="first", version=dataset.version)
    lance.write_dataset(pa.table({"id": range(files)}), dataset.uri, mode="append", max_rows_per_file=1)
    described = await ns.describe_table(id)
    return Known(name, str(described.location), described.properties, 3 + files)


def _inspect(connection: Connection, place: Place, plan: Plan, tables: Sequence[Known]) -> None:
    """Sends what is wrong with the state that a killed process left."""
    try:
        asyncio.run(_inspecting(place, plan, tables))
    except (AssertionError, LanceNamespaceError):
        connection.send(format_exc(limit=-3))
    else:
        connection.send("")


async def _inspecting(place: Place, plan: Plan, tables: Sequence[Known]) -> None:
    async with AsyncNamespace.connect(place.impl, place.properties) as ns:
        inspector = _Inspector(ns, str(place.disk), plan)
        for table in tables:
            await inspector.check(table)
        for namespace in place.namespaces:
            await ns.create_namespace({"id": list(namespace), "mode": "exist_ok"})
        for table in tables:
            await inspector.use(table.name)
            assert not await inspector.dropped(table), f"{table} is shown after all"
        for namespace in reversed(place.namespaces):
            # The next purges read the whole catalog.
            await ns.drop_namespace({"id": list(namespace)})


@dataclass(frozen=True)
class _Inspector:
    ns: AsyncNamespace
    under: str
    plan: Plan

    async def dropped(self, table: Known) -> Sequence[Row]:
        report = await dropped(self.ns, under=self.under)
        assert not report.problems, report.problems
        return [it for it in report.rows if it.id == TableId(table.name)]

    async def check(self, table: Known) -> None:
        """Checks that a table is whole, or can be brought back whole; or that its purge is finished."""
        if is_there := await self.ns.exists(TableId(table.name)):
            await self.check_whole(table)
            assert not await self.dropped(table), f"{table} is registered, and shown as dropped"
            if not table.files(f"{DROP_NOTES}/*.json"):
                return
            # The data of a table that is deregistered stays, whatever a killed process has noted there before.
            await self.ns.deregister_table(list(table.name))
        rows = await self.dropped(table)
        if not rows:
            assert self.plan.kind == "purge", f"{table} is lost"
            # An empty mark without the file of a drop means nothing.
            assert table.files() == table.files(f"{DROP_NOTES}/*.purge"), f"a purge left {table.files()}"
            return
        is_purging = rows[0].outcome == "purging"
        if is_purging:
            with suppress(TableNotFoundError):
                await undrop(self.ns, table.location)
                raise AssertionError(f"{table} was brought back while it is purged")
        if is_purging or self.plan.purges:
            expected = {"purged"} if is_purging or (table.files(f"{DROP_NOTES}/*.done") and not is_there) else {"kept"}
            if self.plan.kind == "undrop":
                expected.add("kept")  # It may have begun.
            report = await purge(self.ns, under=self.under)
            outcomes = {it.outcome for it in report.rows}
            assert len(outcomes) == 1 and outcomes <= expected, f"{table}: {outcomes}, not {expected}: {report}"
            if outcomes == {"purged"}:
                assert not table.files(), f"a purge left {table.files()}"
                return
        await undrop(self.ns, table.location)
        await self.check_whole(table)

    async def check_whole(self, table: Known) -> None:
        id = list(table.name)
        described, tags = await self.ns.describe_table(id), (await self.ns.list_table_tags(id)).tags
        new = (await self.ns.count_table_rows(id)).count
        old = [(await self.ns.count_table_rows(id, version=it.version)).count for it in tags.values()]
        assert (described.properties, new, old) == (table.properties, table.rows, [3]), f"{table}: {described}"

    async def use(self, name: Name) -> None:
        """Creates, writes, drops and brings back a table."""
        id = list(name)
        if not await self.ns.exists(TableId(name)):
            await self.ns.write(id, pa.table({"id": [1]}))
        before = (await self.ns.count_table_rows(id)).count or 0
        described = await self.ns.describe_table(id)
        table = Known(name, str(described.location), described.properties, before + 1)
        await self.ns.write(id, pa.table({"id": [2]}), mode="append")
        await self.ns.drop_table(id, keep=3600)
        await undrop(self.ns, table.location)
        after = (await self.ns.count_table_rows(id)).count
        assert after == table.rows, f"{table} has {after} rows after all"
        await self.ns.drop_table(id)
        assert not table.files(), f"a drop left {table.files()}"
