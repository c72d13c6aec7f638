"""What clients do: short programs on the tables `a` and `b`, and what a client finds afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError, TableNotFoundError

from lance_ns_async import AsyncNamespace, Policy
from lance_ns_async.calls.steps import Step
from lance_ns_async.fleet import CleanupOptions, maintain
from tests.contract.site import Site
from tests.support.lake import stream

Rows = frozenset[int]

POLICY = Policy(backoff_initial=0, backoff_max=0, adaptive=False)
"""No pauses, so that only steps take time."""


@dataclass(frozen=True)
class Action:
    """One operation of a program."""

    kind: str
    name: str = "a"
    to: str | None = None
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        rest = [f"rows {list(self.rows)}"] if self.rows else []
        return " ".join([self.kind, self.name, *([f"to {self.to}"] if self.to else []), *rest])


PROGRAMS: Mapping[str, Sequence[Action]] = {
    "declare": [Action("declare")],
    "create": [Action("create", rows=(10, 11))],
    "append": [Action("append", rows=(20,))],
    "merge": [Action("merge", rows=(25,))],
    "overwrite": [Action("overwrite", rows=(30,))],
    "replace": [Action("replace", rows=(40,))],
    "drop": [Action("drop")],
    "deregister": [Action("deregister")],
    "recreate": [Action("drop"), Action("create", rows=(50,))],
    "move": [Action("deregister"), Action("register", "b")],
    "move-and-create": [Action("deregister"), Action("register", "b"), Action("create", rows=(60,))],
    "reregister": [Action("reregister")],
    "rename": [Action("rename", to="b")],
    "rename-and-create": [Action("rename", to="b"), Action("create", rows=(70,))],
    "restore": [Action("restore")],
    "tag": [Action("tag")],
    "branch": [Action("branch")],
    "maintain": [Action("maintain")],
}
"""The programs by name; a name stands for the table `a`, unless the program names another one."""

NEW = ("declare", "create", "append", "overwrite", "drop", "deregister")
"""The programs that clients also run if `a` does not exist."""

RENAMES = {"rename", "rename-and-create"}

FIRST, SECOND = frozenset({1}), frozenset({1, 2})
"""The rows of the two versions of `a` before the programs begin."""


@dataclass(frozen=True)
class Outcome:
    """The answer to an action."""

    error: str | None = None
    message: str = ""
    location: str | None = None

    @property
    def is_unknown(self) -> bool:
        """Returns whether the operation may have taken effect, in part or as a whole."""
        return self.error == "dead" or (
            self.error is not None
            and any(it in self.message for it in ("unknown", "may take effect", "no longer registered"))
        )

    def __str__(self) -> str:
        return f"ok, {self.location}" if self.error is None else f"{self.error}: {self.message}"


@dataclass(frozen=True)
class Event:
    """An action of a client, between two moments of a run."""

    client: int
    action: Action
    outcome: Outcome
    begun: int
    ended: int


@dataclass(frozen=True)
class Found:
    """What a client finds at a name or a location afterwards."""

    state: str
    """`missing`, `declared`, `rows`, or an error."""
    location: str | None = None
    rows: Rows = frozenset()
    tag: Rows | str | None = None
    branch: Rows | str | None = None

    def __str__(self) -> str:
        more = "".join(f", {it} {getattr(self, it)}" for it in ("tag", "branch") if getattr(self, it) is not None)
        return f"{self.state} {sorted(self.rows) or ''} at {self.location}{more}"


@dataclass
class Stage:
    """An open site with clients; each run has a namespace of its own."""

    site: Site
    stack: AsyncExitStack
    """Closes the clients at the end."""
    clients: list[AsyncNamespace]
    observer: AsyncNamespace
    numbers: Any = field(default_factory=count)
    namespace: list[str] = field(default_factory=list)

    async def add(self) -> None:
        """Adds a client."""
        self.clients.append(await connect(self.site, self.stack))

    async def replace(self, client: int) -> None:
        """Replaces a client that was killed."""
        await self.add()
        self.clients[client] = self.clients.pop()

    async def begin(self, *, exists: bool) -> str | None:
        """Prepares the tables of a run; returns the location of `a`, if it exists."""
        self.namespace = [*self.site.above, f"run{next(self.numbers)}"]
        await self.observer.create_namespace({"id": self.namespace})
        if not exists:
            return None
        await self.observer.write(self.id("a"), _table((1,)))
        await self.observer.write(self.id("a"), _table((2,)), mode="append")
        return (await self.observer.describe_table(self.id("a"))).location

    def id(self, name: str) -> list[str]:
        """Returns the id of a table."""
        return [*self.namespace, name]

    async def perform(self, client: int, action: Action, location: str | None) -> Outcome:
        """Performs an action; an error becomes an outcome."""
        try:
            return Outcome(location=await self._act(self.clients[client], action, location))
        except LanceNamespaceError as e:
            return Outcome(type(e).__name__, " ".join([str(e), *getattr(e, "__notes__", ())]))

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
                report = await maintain(ns, [id], cleanup=CleanupOptions(older_than="0s"))
                if report.problems:
                    raise ConcurrentModificationError(str(report.problems[0].reason))
            case _:
                raise AssertionError(it.kind)
        return None

    async def look(self, name: str) -> Found:
        """Returns what a client finds at a name."""
        id, location = self.id(name), None
        try:
            location = (await self.observer.describe_table(id)).location
            dataset = await self.observer.open(id)
        except TableNotFoundError:
            return Found("missing" if location is None else "declared", location)
        return replace(read(dataset), location=location)

    def look_at(self, location: str) -> Found:
        """Returns the rows at a location."""
        try:
            return replace(read(lance.dataset(location)), location=location)
        except ValueError:
            return Found("missing", location)


async def connect(site: Site, stack: AsyncExitStack) -> AsyncNamespace:
    """Returns a client of a site, which is closed with the stack."""
    ns = await stack.enter_async_context(AsyncNamespace.connect(site.impl, site.properties, policy=POLICY))
    # What a client asks once, such as a server's configuration, is no part of a run.
    await ns.list_namespaces({"id": list(site.above)})
    return ns


def read(dataset: Any) -> Found:
    """Returns the rows of a dataset, and those of its tag and branch."""
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


def _table(rows: Sequence[int]) -> pa.Table:
    return pa.table({"v": pa.array(rows, pa.int64())})


def dependent(site: Site) -> Any:
    """Returns whether two steps of clients may not be exchanged, for a site."""
    # These catalogs read and write the storage themselves; Hive only makes and deletes folders.
    in_storage, only_changes = site.impl in ("dir", "hive3", "hive2", "rest"), site.impl.startswith("hive")

    def depends(one: Step, other: Step) -> bool:
        if not (one.changes or other.changes):
            return False
        if one.remote != other.remote:
            call = one if one.remote else other
            return in_storage and (call.changes or not only_changes)
        return one.remote or one.subject == other.subject

    return depends
