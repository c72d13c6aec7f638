"""Replacements of registrations and namespaces that are cancelled at any call: either the old or the new one exists."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import NamespaceNotEmptyError, PermissionDeniedError, UnsupportedOperationError

from lance_ns_async import AsyncNamespace, NamespaceId, Policy, TableId
from lance_ns_async.backends.base import Backend
from lance_ns_async.calls.caller import Caller
from lance_ns_async.lifecycle import replacing
from lance_ns_async.model import Id, Table
from tests.fakes.memory import MemoryBackend, over
from tests.support.errors import catch
from tests.support.lake import ROWS

pytestmark = pytest.mark.environment
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
        self.tables[TABLE] = Table(TABLE, "memory://old", OLD)

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
        return over(self, Caller(Policy(**limits), {}))


class Fixed(Stuck):
    """The same for a catalog that cannot change a registration."""

    capabilities = replace(Stuck.capabilities, replaces=False)
    replace_table = Backend.replace_table


REPLACED: dict[str, Callable[[AsyncNamespace], Coroutine[Any, Any, Any]]] = {
    "table": lambda ns: ns.register_table(
        {"id": list(TABLE), "location": "memory://new", "mode": "Overwrite", "properties": NEW}
    ),
    "namespace": lambda ns: ns.create_namespace({"id": list(NAMESPACE), "mode": "Overwrite", "properties": NEW}),
}


def check(backend: Stuck, what: str) -> None:
    """Checks that the old or the new one exists, without a part of the other."""
    if what == "table":
        table = backend.tables[TABLE]
        assert (table.location, table.properties) in [("memory://old", OLD), ("memory://new", NEW)]
    else:
        assert backend.namespaces[NAMESPACE] in (OLD, NEW)


async def cancelled(backend: Stuck, work: Awaitable[Any]) -> None:
    """Cancels the work during the call that is never answered."""
    task = asyncio.ensure_future(work)
    with anyio.fail_after(30):
        await backend.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


CALLS = [*(("table", calls) for calls in (1, 2)), *(("namespace", calls) for calls in (1, 2, 3))]


@pytest.mark.parametrize(("what", "calls"), CALLS)
@pytest.mark.parametrize("done", [False, True])
async def test_a_cancellation_loses_nothing(what: str, done: bool, calls: int) -> None:
    backend = Stuck(calls, done=done)
    await cancelled(backend, REPLACED[what](backend.namespace()))
    check(backend, what)


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("done", [False, True])
async def test_a_registration_that_is_removed_and_made_again_is_restored(done: bool, calls: int) -> None:
    backend = Fixed(calls, done=done)
    await cancelled(backend, replacing.replace(backend, backend.tables[TABLE], "memory://new", NEW))
    if (calls, done) == (2, True):
        # It is unknown whether the removal succeeded, and another client may have made it.
        assert backend.tables == {}
        return
    check(backend, "table")


async def test_a_catalog_that_replaces_nothing_says_what_to_do() -> None:
    backend = Fixed(-1, done=False)
    old = dict(backend.tables)
    message = "memory://old: deregister it, and register it at memory://new"
    await catch(UnsupportedOperationError, REPLACED["table"](backend.namespace()), message)
    assert backend.tables == old
    same = {"id": list(TABLE), "location": "memory://old", "mode": "Overwrite", "properties": OLD}
    assert (await backend.namespace().register_table(same)).location == "memory://old"


@pytest.mark.parametrize(("what", "operation"), [("table", "replace_table"), ("namespace", "drop_namespace")])
async def test_a_denied_removal_loses_nothing(what: str, operation: str) -> None:
    backend = Stuck(-1, done=False)
    backend.faults[operation, TABLE if what == "table" else NAMESPACE] = PermissionDeniedError("Permission denied")
    await catch(PermissionDeniedError, REPLACED[what](backend.namespace()))
    check(backend, what)


async def test_a_failed_restoration_is_reported_without_secrets() -> None:
    backend = Stuck(-1, done=False)
    backend.namespaces[NAMESPACE] = {**OLD, "key": "hush"}
    backend.faults["create_namespace", NAMESPACE] = PermissionDeniedError("Permission denied")
    raised = await catch(PermissionDeniedError, REPLACED["namespace"](backend.namespace()))
    (note,) = raised.value.__notes__
    assert note == (
        "and the earlier state could not be restored (Permission denied): namespace a$n had the properties "
        "{'owner': 'old', 'key': '***'}"
    )


@pytest.mark.parametrize("mode", ["register", "namespace"])
async def test_abandoned_changes_are_awaited(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    commit = lance.LanceDataset.commit

    def slow(*arguments: Any, **how: Any) -> Any:
        begun.set()
        go_on.wait()
        return commit(*arguments, **how)

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
    backend.tables[NAMESPACE.table("t")] = Table(NAMESPACE.table("t"), "memory://t", {})
    await catch(NamespaceNotEmptyError, REPLACED["namespace"](backend.namespace()))
    assert backend.namespaces[NAMESPACE] == OLD


async def test_a_table_that_another_client_removes_meanwhile_is_registered() -> None:
    backend = Stuck(-1, done=False)

    def meddle(called: str, _: Id) -> None:
        if called == "replace_table":
            backend.tables.pop(TABLE, None)

    backend.on_call = meddle
    await REPLACED["table"](backend.namespace())
    assert list(backend.tables) == [TABLE] and backend.tables[TABLE].location == "memory://new"


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("done", [False, True])
async def test_a_cancelled_overwrite_leaves_the_table_registered(tmp_path: Path, calls: int, done: bool) -> None:
    """With other columns than the catalog stores, so it is registered anew."""
    backend = Stuck(calls, done=done)
    place = str(tmp_path / "t")
    backend.tables[TABLE] = Table(TABLE, place, OLD, schema=ROWS.schema)
    await cancelled(backend, backend.namespace().write(TABLE, pa.table({"other": [1]}), mode="overwrite"))
    assert (backend.tables[TABLE].location, backend.tables[TABLE].properties) == (place, OLD)
