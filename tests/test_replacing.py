"""Replacing a table's registration or a namespace, given up at any of its calls: the old is there, or the new."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pyarrow as pa
import pytest
from lance.namespace import DirectoryNamespace
from lance_namespace.errors import (
    NamespaceNotEmptyError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_ns_async import AsyncNamespace, NamespaceId, Policy, TableId
from lance_ns_async.model import Id, Table
from lance_ns_async.policy import Caller
from tests.fakes.memory import MemoryBackend
from tests.lake import ROWS

T = TypeVar("T")

TABLE, NAMESPACE = TableId(["a", "t"]), NamespaceId(["a", "n"])
OLD, NEW = {"owner": "old"}, {"owner": "new"}


class Stuck(MemoryBackend):
    """A catalog one of whose calls is never answered: the first after `left` others."""

    def __init__(self, left: int, *, done: bool) -> None:
        super().__init__()
        self.left = left
        self.done = done
        """Whether it does what it was told, all the same."""
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


Replace = Callable[[AsyncNamespace], Coroutine[Any, Any, Any]]
REPLACED: dict[str, Replace] = {
    "table": lambda ns: ns.register_table(
        {"id": list(TABLE), "location": "mem://new", "mode": "Overwrite", "properties": NEW}
    ),
    "namespace": lambda ns: ns.create_namespace({"id": list(NAMESPACE), "mode": "Overwrite", "properties": NEW}),
}


def check(backend: Stuck, what: str) -> None:
    """The old is there, or the new, and nothing of both."""
    if what == "table":
        found = backend.tables[TABLE]
        assert (found.location, found.properties) in [("mem://old", OLD), ("mem://new", NEW)]
    else:
        assert backend.namespaces[NAMESPACE] in (OLD, NEW)


@pytest.mark.parametrize("what", REPLACED)
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("calls", [1, 2, 3])
async def test_whoever_is_cancelled_loses_nothing(what: str, done: bool, calls: int) -> None:
    backend = Stuck(calls, done=done)
    task = asyncio.ensure_future(REPLACED[what](backend.namespace()))
    with anyio.fail_after(30):
        await backend.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    check(backend, what)


@pytest.mark.parametrize(("what", "operation"), [("table", "deregister_table"), ("namespace", "drop_namespace")])
async def test_whoever_may_not_remove_loses_nothing(what: str, operation: str) -> None:
    backend = Stuck(-1, done=False)
    backend.faults[operation, TABLE if what == "table" else NAMESPACE] = PermissionDeniedError("Permission denied")
    with pytest.raises(PermissionDeniedError):
        await REPLACED[what](backend.namespace())
    check(backend, what)


@pytest.mark.parametrize(
    ("what", "operation", "told"),
    [
        ("table", "declare_table", "table a$t was registered at mem://old with {'owner': 'old', 'key': '***'}"),
        ("namespace", "create_namespace", "namespace a$n had the properties {'owner': 'old', 'key': '***'}"),
    ],
)
async def test_what_can_be_put_back_no_more_is_told_but_for_secrets(what: str, operation: str, told: str) -> None:
    backend = Stuck(-1, done=False)
    backend.namespaces[NAMESPACE] = {**OLD, "key": "hush"}
    backend.tables[TABLE] = Table(TABLE, "mem://old", {**OLD, "key": "hush"})
    backend.faults[operation, TABLE if what == "table" else NAMESPACE] = PermissionDeniedError("Permission denied")
    with pytest.raises(PermissionDeniedError) as raised:
        await REPLACED[what](backend.namespace())
    (note,) = raised.value.__notes__
    assert note == f"and what was before could not be put back (Permission denied): {told}"


@pytest.mark.parametrize("mode", ["register", "namespace"])
async def test_what_a_directory_does_after_it_was_given_up_is_waited_for(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def late(name: str) -> None:
        real = getattr(DirectoryNamespace, name)

        def slow(*given: Any) -> Any:
            begun.set()
            go_on.wait()
            return real(*given)

        monkeypatch.setattr(DirectoryNamespace, name, slow)

    async with AsyncNamespace.connect("dir", {"root": str(tmp_path)}) as ns:
        await ns.create_namespace({"id": ["a"], "properties": OLD})
        await ns.create_namespace({"id": ["b"]})
        await ns.write(["b", "t"], ROWS)
        location = (await ns.describe_table({"id": ["b", "t"]})).location
        late("deregister_table" if mode == "register" else "drop_namespace")
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
        # Cancelled once more, which is no way to have it lost either.
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
    backend, theirs = Stuck(-1, done=False), Table(TABLE, "mem://theirs", {})

    def meddle(operation: str, _: Id) -> None:
        if operation == "declare_table" and not backend.tables:
            backend.tables[TABLE] = theirs

    backend.on_call = meddle
    with pytest.raises(TableAlreadyExistsError):
        await REPLACED["table"](backend.namespace())
    assert backend.tables[TABLE] == theirs


async def test_what_somebody_else_has_removed_meanwhile_is_not_put_back() -> None:
    backend = Stuck(-1, done=False)

    def meddle(operation: str, _: Id) -> None:
        if operation == "deregister_table":
            backend.tables.clear()

    backend.on_call = meddle
    with pytest.raises(TableNotFoundError):
        await REPLACED["table"](backend.namespace())
    assert backend.tables == {}


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("calls", range(1, 5))
async def test_an_overwrite_that_is_cancelled_leaves_the_table_registered(
    tmp_path: Path, calls: int, done: bool
) -> None:
    """With other columns than the catalog keeps: it is registered anew."""
    backend = Stuck(calls, done=done)
    place = str(tmp_path / "t")
    backend.tables[TABLE] = Table(TABLE, place, OLD, schema=ROWS.schema)
    task = asyncio.ensure_future(backend.namespace().write(TABLE, pa.table({"other": [1]}), mode="overwrite"))
    with anyio.fail_after(30):
        await backend.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (backend.tables[TABLE].location, backend.tables[TABLE].properties) == (place, OLD)
