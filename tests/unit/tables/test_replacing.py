"""Replacements of registrations and namespaces that are cancelled at any call: either the old or the new one exists."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    NamespaceNotEmptyError,
    PermissionDeniedError,
    TableAlreadyExistsError,
)

from lance_ns_async import AsyncNamespace, NamespaceId, Policy, TableId
from lance_ns_async.backends.journal import JournalBackend
from lance_ns_async.calls.policy import Caller
from lance_ns_async.model import Id, Table
from tests.fakes.memory import MemoryBackend
from tests.support.lake import ROWS

T = TypeVar("T")

TABLE, NAMESPACE = TableId(["a", "t"]), NamespaceId(["a", "n"])
OLD, NEW = {"owner": "old"}, {"owner": "new"}


class Stuck(MemoryBackend):
    """A catalog with one call that is never answered: the first one after `left` others."""

    def __init__(self, left: int, *, done: bool) -> None:
        super().__init__()
        self.left = left
        self.done = done
        """Whether it performs the operation nevertheless."""
        self.reached = asyncio.Event()
        self.plant_namespace(NAMESPACE)
        self.namespaces[NAMESPACE] = OLD
        self.tables[TABLE] = Table(TABLE, "mem://old", OLD)

    async def _call(self, operation: str, subject: Id, work: Callable[[], T]) -> T:
        self.left -= 1
        if self.left:
            return await super()._call(operation, subject, work)
        if self.done:
            await super()._call(operation, subject, work)
        self.reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    def namespace(self, **limits: Any) -> AsyncNamespace:
        return AsyncNamespace(self, Caller(Policy(**limits), {}), "memory")


class Noting(JournalBackend, Stuck):
    """The same for a catalog that changes no registration in place."""

    catalog_capabilities = replace(Stuck.catalog_capabilities, replaces=False)

    async def _describe_registration(self, id: TableId, *, vend: bool) -> Table:
        return await Stuck.describe_table(self, id, vend=vend)

    async def _declare_registration(
        self, id: TableId, location: str | None, properties: Mapping[str, str], schema: pa.Schema | None
    ) -> Table:
        return await Stuck.declare_table(self, id, location, properties, schema)

    async def _remove_registration(self, id: TableId) -> None:
        await Stuck.deregister_table(self, id)


Replace = Callable[[AsyncNamespace], Coroutine[Any, Any, Any]]
REPLACED: dict[str, Replace] = {
    "table": lambda ns: ns.register_table(
        {"id": list(TABLE), "location": "mem://new", "mode": "Overwrite", "properties": NEW}
    ),
    "namespace": lambda ns: ns.create_namespace({"id": list(NAMESPACE), "mode": "Overwrite", "properties": NEW}),
}


def check(backend: Stuck, what: str) -> None:
    """Checks that the old or the new one exists, without a part of the other."""
    if what == "table":
        found = backend.tables[TABLE]
        assert (found.location, found.properties) in [("mem://old", OLD), ("mem://new", NEW)]
    else:
        assert backend.namespaces[NAMESPACE] in (OLD, NEW)


CALLS = [
    *((Stuck, "table", calls) for calls in (1, 2)),
    *((Noting, "table", calls) for calls in range(1, 9)),
    *((Stuck, "namespace", calls) for calls in (1, 2, 3)),
]


@pytest.mark.parametrize(("kind", "what", "calls"), CALLS)
@pytest.mark.parametrize("done", [False, True])
async def test_a_cancellation_loses_nothing(kind: type[Stuck], what: str, done: bool, calls: int) -> None:
    backend = kind(calls, done=done)
    task = asyncio.ensure_future(REPLACED[what](backend.namespace()))
    with anyio.fail_after(30):
        await backend.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    check(backend, what)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("calls", range(1, 9))
async def test_after_a_kill_the_next_calls_find_the_old_or_the_new(calls: int, done: bool) -> None:
    backend = Noting(calls, done=done)
    task = asyncio.ensure_future(REPLACED["table"](backend.namespace()))
    with anyio.fail_after(30):
        await backend.reached.wait()
    # Like a process that is killed here: nothing is rolled back.
    kept = dict(backend.tables)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for end in ("declare", "replace", "deregister"):
        backend.tables = dict(kept)
        ns = backend.namespace()
        found = await ns.describe_table({"id": list(TABLE)})
        assert (found.location, found.properties) in [("mem://old", OLD), ("mem://new", NEW)]
        if end == "declare":
            with pytest.raises(TableAlreadyExistsError):
                await ns.declare_table({"id": list(TABLE), "location": "mem://other"})
            again = await ns.describe_table({"id": list(TABLE)})
            assert (again.location, again.properties) == (found.location, found.properties)
        elif end == "replace":
            await REPLACED["table"](ns)
            assert {id: table.location for id, table in backend.tables.items()} == {TABLE: "mem://new"}
        else:
            await ns.deregister_table({"id": list(TABLE)})
            assert not await ns.exists(TABLE) and backend.tables == {}


@pytest.mark.parametrize(
    ("kind", "what", "operation"),
    [
        (Stuck, "table", "replace_table"),
        (Noting, "table", "deregister_table"),
        (Stuck, "namespace", "drop_namespace"),
    ],
)
async def test_a_denied_removal_loses_nothing(kind: type[Stuck], what: str, operation: str) -> None:
    backend = kind(-1, done=False)
    backend.faults[operation, TABLE if what == "table" else NAMESPACE] = PermissionDeniedError("Permission denied")
    with pytest.raises(PermissionDeniedError):
        await REPLACED[what](backend.namespace())
    check(backend, what)


async def test_a_failed_restoration_is_reported_without_secrets() -> None:
    backend = Stuck(-1, done=False)
    backend.namespaces[NAMESPACE] = {**OLD, "key": "hush"}
    backend.faults["create_namespace", NAMESPACE] = PermissionDeniedError("Permission denied")
    with pytest.raises(PermissionDeniedError) as raised:
        await REPLACED["namespace"](backend.namespace())
    (note,) = raised.value.__notes__
    assert note == (
        "and the earlier state could not be restored (Permission denied): namespace a$n had the properties "
        "{'owner': 'old', 'key': '***'}"
    )


async def test_a_table_that_can_be_put_back_no_more_is_found_by_its_note() -> None:
    backend = Noting(-1, done=False)
    backend.faults["declare_table", TABLE] = PermissionDeniedError("Permission denied")
    with pytest.raises(PermissionDeniedError) as raised:
        await REPLACED["table"](backend.namespace())
    assert "table a$t was registered at mem://old" in raised.value.__notes__[0]
    found = await backend.namespace().describe_table({"id": list(TABLE)})
    assert (found.location, found.properties) == ("mem://new", NEW)


@pytest.mark.parametrize("mode", ["register", "namespace"])
async def test_what_a_directory_does_after_it_was_given_up_is_waited_for(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    commit = lance.LanceDataset.commit

    def slow(*given: Any, **how: Any) -> Any:
        begun.set()
        go_on.wait()
        return commit(*given, **how)

    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["a"], "properties": OLD})
        await ns.create_namespace({"id": ["b"]})
        await ns.write(["b", "t"], ROWS)
        location = (await ns.describe_table({"id": ["b", "t"]})).location
        monkeypatch.setattr(lance.LanceDataset, "commit", slow)
        if mode == "register":
            request = {"id": ["b", "t"], "location": location, "mode": "Overwrite", "properties": NEW}
            task: asyncio.Future[Any] = asyncio.ensure_future(ns.register_table(request))
        else:
            request = {"id": ["a"], "mode": "Overwrite", "properties": NEW}
            task = asyncio.ensure_future(ns.create_namespace(request))
        await anyio.to_thread.run_sync(begun.wait)
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        # A second cancellation does not lose it either.
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ns.exists(["b", "t"])
        assert (await ns.describe_namespace({"id": ["a"]})).properties == OLD


async def test_a_namespace_that_is_not_empty_stays_as_it_is() -> None:
    backend = Stuck(-1, done=False)
    backend.tables[NAMESPACE.table("t")] = Table(NAMESPACE.table("t"), "mem://t", {})
    with pytest.raises(NamespaceNotEmptyError):
        await REPLACED["namespace"](backend.namespace())
    assert backend.namespaces[NAMESPACE] == OLD


async def test_what_somebody_else_has_put_there_meanwhile_stays() -> None:
    backend, theirs = Noting(-1, done=False), Table(TABLE, "mem://theirs", {})

    def meddle(operation: str, id: Id) -> None:
        if operation == "declare_table" and id == TABLE:
            backend.tables.setdefault(TABLE, theirs)

    backend.on_call = meddle
    with pytest.raises(ConcurrentModificationError):
        await REPLACED["table"](backend.namespace())
    assert backend.tables == {TABLE: theirs}


@pytest.mark.parametrize(("kind", "operation"), [(Stuck, "replace_table"), (Noting, "deregister_table")])
async def test_a_table_that_another_client_removes_meanwhile_is_registered(kind: type[Stuck], operation: str) -> None:
    backend = kind(-1, done=False)

    def meddle(called: str, _: Id) -> None:
        if called == operation:
            backend.tables.pop(TABLE, None)

    backend.on_call = meddle
    await REPLACED["table"](backend.namespace())
    assert list(backend.tables) == [TABLE] and backend.tables[TABLE].location == "mem://new"


@pytest.mark.parametrize(("kind", "calls"), [*((Stuck, n) for n in (1, 2, 3)), *((Noting, n) for n in range(1, 10))])
@pytest.mark.parametrize("done", [False, True])
async def test_an_overwrite_that_is_cancelled_leaves_the_table_registered(
    tmp_path: Path, kind: type[Stuck], calls: int, done: bool
) -> None:
    """With other columns than the catalog stores, so it is registered anew."""
    backend = kind(calls, done=done)
    place = str(tmp_path / "t")
    backend.tables[TABLE] = Table(TABLE, place, OLD, schema=ROWS.schema)
    task = asyncio.ensure_future(backend.namespace().write(TABLE, pa.table({"other": [1]}), mode="overwrite"))
    with anyio.fail_after(30):
        await backend.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (backend.tables[TABLE].location, backend.tables[TABLE].properties) == (place, OLD)
