"""Replacing a table's registration or a namespace, given up at any of its calls: the old is there, or the new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pyarrow as pa
import pytest
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


@pytest.mark.parametrize("what", REPLACED)
@pytest.mark.parametrize("operation", ["deregister_table", "drop_namespace", "declare_table", "create_namespace"])
async def test_whoever_is_refused_loses_nothing(what: str, operation: str) -> None:
    backend = Stuck(-1, done=False)
    backend.faults[operation, TABLE if what == "table" else NAMESPACE] = PermissionDeniedError("Permission denied")
    declares = operation in ("declare_table", "create_namespace")
    try:
        await REPLACED[what](backend.namespace())
    except PermissionDeniedError as e:
        # What may be made no more can be put back no more either, and the error says what that was.
        assert not declares or "owner" in str(e.__notes__) or "mem://old" in str(e.__notes__)
    if not declares:
        check(backend, what)


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
