"""The catalogs on which clients run their programs, and what a client finds there afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import lance
import pyarrow as pa
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import AsyncNamespace, Policy
from lance_ns_async.calls.steps import Step
from lance_ns_async.fleet import CleanupOptions, CompactOptions, copy, maintain, purge, undrop
from lance_ns_async.operations import maintaining
from tests.contract.site import Site
from tests.interleavings.model import EXCUSED, Rules, check, state_before
from tests.interleavings.programs import (
    COPIES,
    FIRST,
    IN_PARTITIONS,
    NEW,
    OTHERS,
    PROGRAMS,
    RENAMES,
    UNDROPS,
    Action,
    Event,
    Found,
    Outcome,
    Rows,
)
from tests.support.lake import stream

SOURCE = "source"
"""Prefix of the namespaces of the other catalog, which no other client changes, and the name of its folder."""

POLICY = Policy(backoff_initial=0, backoff_max=0, adaptive=False)  # No pauses, so that only steps take time


@dataclass
class Stage:
    """An open site with clients; each run has a namespace of its own."""

    site: Site
    stack: AsyncExitStack  # Closes the clients at the end
    source: AsyncNamespace  # Another catalog, whose tables clients copy
    clients: list[AsyncNamespace] = field(default_factory=list)
    numbers: Any = field(default_factory=count)
    namespace: list[str] = field(default_factory=list)
    original: list[str] = field(default_factory=list)  # The table in the other catalog
    copied: str | None = None  # Its location, in a run that copies it

    @property
    def observer(self) -> AsyncNamespace:
        """Returns the client that prepares a run and looks at its end; it is the last one."""
        return self.clients[-1]

    @property
    def programs(self) -> Mapping[str, Sequence[Action]]:
        if self.undrops:
            return UNDROPS
        lacking = {*(() if self.site.can.renames else RENAMES), *(() if self.site.can.replaces else ("replace",))}
        # A copy registers a table at a location of another storage.
        lacking |= COPIES if "storage.aws_endpoint" in self.site.properties else set()
        return {name: actions for name, actions in PROGRAMS.items() if name not in lacking}

    undrops: bool = False  # Whether the programs are those with drops that can be taken back

    new_programs: Sequence[str] = NEW  # The programs that clients also run if `a` does not exist

    def depends(self, one: Step, other: Step) -> bool:
        """Returns whether two steps of clients may not be exchanged."""
        if not (one.changes or other.changes) or _is_of_source(one) or _is_of_source(other):
            return False
        if one.remote != other.remote:
            return self._uses_storage(one if one.remote else other)
        return one.remote or one.subject == other.subject

    def _uses_storage(self, call: Step) -> bool:
        """Returns whether a remote call may read or write the storage of a table."""
        if self.site.impl == "rest":
            return True
        # Hive makes and deletes folders; a directory catalog writes and deletes markers.
        return call.changes and self.site.impl in ("hive3", "hive2", "dir")

    async def open(self, clients: int) -> None:
        for _ in range(clients + 1):
            self.clients.append(await self._connect())

    async def replace(self, client: int) -> None:
        self.clients[client] = await self._connect()

    async def _connect(self) -> AsyncNamespace:
        return await connect(self.site, self.stack)

    async def begin(self, programs: Sequence[str], *, exists: bool) -> str | None:
        """Prepares the tables of a run; returns the location of `a`, if it exists."""
        if self.undrops and self.namespace:
            # A purge reads the whole catalog.
            for name in (await self.observer.list_tables(self.namespace)).tables:
                await self.observer.deregister_table(self.id(name))
            await self.observer.drop_namespace(self.namespace)
        number = next(self.numbers)
        self.namespace, self.copied = [*self.site.above, f"run{number}"], None
        await self.observer.create_namespace({"id": self.namespace})
        if COPIES & {*programs}:
            self.original = [f"{SOURCE}{number}", "a"]
            await self.source.create_namespace({"id": self.original[:1]})
            await self.source.write(self.original, _table([*OTHERS]))
            self.copied = (await self.source.describe_table(self.original)).location
        if not exists:
            return None
        await self.observer.write(self.id("a"), _table((1,)))
        await self.observer.write(self.id("a"), _table((2,)), mode="append")
        return (await self.observer.describe_table(self.id("a"))).location

    def id(self, name: str) -> list[str]:
        return [*self.namespace, name]

    def target(self, action: Action, location: str | None) -> str | None:
        """Returns the location at which an action registers a table; None if the catalog chooses it."""
        if action.kind in COPIES:
            return self.copied
        return location if action.kind in ("register", "reregister", "undrop", "purge") else None

    async def perform(self, client: int, action: Action, location: str | None) -> Outcome:
        try:
            return Outcome(location=await self._act(self.clients[client], action, location))
        except LanceNamespaceError as e:
            message = " ".join([str(e), *getattr(e, "__notes__", ())])
            return Outcome(type(e).__name__, message, self.target(action, location))

    async def _act(self, ns: AsyncNamespace, it: Action, location: str | None) -> str | None:
        id = self.id(it.name)
        match it.kind:
            case "declare":
                return (await ns.declare_table({"id": id})).location
            case "create" | "append" | "overwrite":
                dataset = await ns.write(id, _table(it.rows), mode=it.kind)
                return Path(dataset.uri).as_uri() if dataset.uri.startswith("/") else dataset.uri
            case "merge":
                request = {"id": id, "on": ["v"], "when_not_matched_insert_all": True}
                await ns.merge_insert_into_table(request, stream(_table(it.rows)))
            case "replace":
                request = {"id": id, "mode": "overwrite", "properties": {"p": "1"}}
                return (await ns.create_table(request, stream(_table(it.rows)))).location
            case "drop":
                await ns.drop_table({"id": id})
            case "lose":
                await ns.drop_table({"id": id}, keep=0.000_001)
            case "undrop":
                assert location is not None
                await undrop(ns, location, as_=id, storage_options=self._options or None)
                return location
            case "purge":
                assert location is not None
                report = await purge(ns, under=location, storage_options=self._options or None)
                assert not report.problems, report
                return location
            case "deregister":
                return (await ns.deregister_table({"id": id})).location
            case "register" | "reregister":
                mode = "create" if it.kind == "register" else "overwrite"
                await ns.register_table({"id": id, "location": location, "mode": mode})
                return location
            case "rename":
                assert it.to is not None
                await ns.rename_table({"id": id, "new_namespace_id": self.namespace, "new_table_name": it.to})
            case "restore":
                await ns.restore_table({"id": id, "version": 1})
            case "tag":
                await ns.create_table_tag({"id": id, "tag": "t", "version": 1})
            case "branch":
                await ns.create_table_branch({"id": id, "name": "br", "from_version": 1})
            case "maintain":
                compact, cleanup = CompactOptions(max_small_fragments=1), CleanupOptions(older_than="0s")
                report = await maintain(ns, [id], compact=compact, cleanup=cleanup)
                if report.problems:
                    raise ConcurrentModificationError(str(report.problems[0].reason))
            case "copy" | "sync":
                how: Literal["create", "sync"] = "create" if it.kind == "copy" else "sync"
                report = await copy(self.source, ns, [self.original], to=lambda _: id, mode=how)
                for row in report.problems:
                    # The target has another table of that name, or got one meanwhile.
                    error = TableAlreadyExistsError if row.outcome == "conflict" else ConcurrentModificationError
                    raise error(row.reason)
                return self.copied
            case _:
                raise AssertionError(it.kind)
        return None

    async def judge(
        self, events: Sequence[Event], first: str | None
    ) -> tuple[Mapping[str, Found], Mapping[str, Found], str | None]:
        """Returns what is found at the names and at further locations at the end, and why that has no explanation."""
        found = {name: await self.look(name) for name in ("a", "b")}
        used = {it.location for it in found.values()}
        answered = {event.outcome.location for event in events} | {first, self.copied}
        left = {it: self.look_at(it) for it in answered if it is not None and it not in used}
        start = state_before(first, self.copied)
        return (
            found,
            left,
            check(events, first, start, found, left, Rules(self.site.impl == "dir", self.site.can.replaces)),
        )

    async def look(self, name: str) -> Found:
        id, location = self.id(name), None
        try:
            location = (await self.observer.describe_table(id)).location
            dataset = await self.observer.open(id)
        except TableNotFoundError:
            return Found("missing" if location is None else "declared", location)
        return replace(read(dataset), location=location)

    @property
    def _options(self) -> dict[str, str]:
        properties = self.site.properties.items()
        return {key.removeprefix("storage."): value for key, value in properties if key.startswith("storage.")}

    def look_at(self, location: str) -> Found:
        try:
            return replace(read(lance.dataset(location, storage_options=self._options)), location=location)
        except ValueError:
            return Found("missing", location)


async def connect(site: Site, stack: AsyncExitStack) -> AsyncNamespace:
    """Returns a client of a site, which is closed with the stack."""
    # Versions are old at once, as they are after ten minutes.
    stack.enter_context(patch.object(maintaining, "MIN_AGE", 0.0))
    ns = await stack.enter_async_context(AsyncNamespace.connect(site.impl, site.properties, policy=POLICY))
    # What a client asks once, such as a server's configuration, is no part of a run.
    await ns.list_namespaces({"id": list(site.above)})
    return ns


def read(dataset: Any) -> Found:
    try:
        found = Found("rows", rows=frozenset(dataset.to_table()["v"].to_pylist()))
    except (OSError, ValueError) as e:
        return Found(f"unreadable: {str(e)[:120]}")
    parts: dict[str, Rows | str] = {}
    for part, name, names in (("tag", "t", dataset.tags.list()), ("branch", "br", dataset.branches.list())):
        if name in names:
            try:
                there = dataset.checkout_version(name if part == "tag" else (name, None))
                parts[part] = frozenset(there.to_table()["v"].to_pylist())
            except (OSError, ValueError) as e:
                parts[part] = f"unreadable: {str(e)[:120]}"
    return replace(found, tag=parts.get("tag"), branch=parts.get("branch"))


def _is_of_source(step: Step) -> bool:
    return step.subject.startswith(SOURCE) or f"/{SOURCE}" in step.subject


def _table(rows: Sequence[int]) -> pa.Table:
    return pa.table({"v": pa.array(rows, pa.int64())})


@dataclass
class PartitionedStage(Stage):
    """A directory of its own for each run, whose tables are the partitions `a` and `b` of one namespace."""

    new_programs: Sequence[str] = ()
    number: int = 0  # The number of the current run
    run: AsyncExitStack = field(default_factory=AsyncExitStack)  # Closes the clients of the current run

    @property
    def programs(self) -> Mapping[str, Sequence[Action]]:
        return IN_PARTITIONS

    def _uses_storage(self, call: Step) -> bool:
        # Partitions are only found in the manifest. The deletion of files is a step of its own.
        return False

    async def _connect(self) -> AsyncNamespace:
        root = f"{self.site.properties['root']}/run{self.number}"
        return await connect(replace(self.site, properties={"root": root}), self.run)

    async def begin(self, programs: Sequence[str], *, exists: bool) -> str | None:
        """Prepares the directory of a run, with rows in `a`."""
        clients = len(self.clients) - 1
        await self.run.aclose()
        self.clients.clear()
        self.number += 1
        await self.open(clients)
        await self.observer.partition_by(["part"], schema=self._rows("a", ()).schema)
        await self.observer.write_partitions(self._rows("a", [*FIRST]))
        return None

    def _rows(self, name: str, rows: Sequence[int]) -> pa.Table:
        return pa.table({"part": pa.array([name] * len(rows), pa.string()), "v": pa.array([*rows], pa.int64())})

    async def _act(self, ns: AsyncNamespace, it: Action, location: str | None) -> str | None:
        match it.kind:
            case "write":
                await ns.write_partitions(self._rows(it.name, _own_rows(self.clients.index(ns), it)))
            case "drop-partition":
                await ns.drop_partitions(f"part = '{it.name}'")
            case "divide":
                await ns.partition_by(["part", "bucket(2, v)"])
            case _:
                raise AssertionError(it.kind)
        return None

    async def judge(
        self, events: Sequence[Event], first: str | None
    ) -> tuple[Mapping[str, Found], Mapping[str, Found], str | None]:
        """Returns the rows of the partitions, and which of them are wrong. A row is there if no drop of its partition
        ended after its write began, and it is not there if such a drop began after its write ended."""
        found, wrong = {}, []
        for name in ("a", "b"):
            dataset = await self.observer.open_partitions(f"part = '{name}'")
            rows = dataset.to_reader().read_all()["v"].to_pylist()
            found[name] = Found("rows", rows=frozenset(rows))
            wrong += [f"row {row} is there twice" for row in {*rows} if rows.count(row) > 1]
            own = [it for it in events if it.action.name == name]
            drops = [it for it in own if it.action.kind == "drop-partition"]
            writes: list[tuple[Iterable[int], int, int, Outcome]] = [(FIRST, -1, -1, Outcome())] if name == "a" else []
            writes += [
                (_own_rows(it.client, it.action), it.begun, it.ended, it.outcome)
                for it in own
                if it.action.kind == "write"
            ]
            for new, begun, ended, outcome in writes:
                is_certain = outcome.error is None and not any(it.ended > begun for it in drops)
                is_gone = any(it.outcome.error is None and it.begun >= ended for it in drops) or (
                    outcome.error is not None and not outcome.is_unknown
                )
                wrong += [f"row {row} is lost" for row in new if is_certain and row not in rows]
                wrong += [f"row {row} should not be there" for row in new if is_gone and row in rows]
        wrong += [
            f"unexpected error of client {it.client}: {it.action}: {it.outcome}"
            for it in events
            if it.outcome.error not in (None, "ConcurrentModificationError")
            and not (it.outcome.is_unknown or EXCUSED.search(it.outcome.message))
        ]
        return found, {}, "; ".join(wrong) or None


def _own_rows(client: int, action: Action) -> Sequence[int]:
    """Returns the rows of an action, which differ for each client."""
    return [row + 100 * client for row in action.rows]
