"""What is remembered of a table whose credentials were asked for: what, for how long, and of how many tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import pyarrow as pa
import pytest
from lance_namespace.errors import (
    LanceNamespaceError,
    PermissionDeniedError,
    TableNotFoundError,
    ThrottlingError,
    UnsupportedOperationError,
)

from lance_ns_async import NamespaceId, TableId
from lance_ns_async.backends.base import Backend, Capabilities, Prepare, Version, Versions
from lance_ns_async.engine.credentials import SharedCredentials
from lance_ns_async.model import Id, Table
from tests.fakes.clock import run
from tests.fakes.memory import MemoryBackend

T, U = TableId(["t"]), TableId(["u"])


class Answering(MemoryBackend):
    """Gives out credentials, and counts how often."""

    declared = Capabilities(min_depth=0, max_depth=None, vends=True)

    def __init__(self) -> None:
        super().__init__()
        self.plant([T, U])
        self.asked = 0
        self.on_call = self._count

    def fail(self, error: LanceNamespaceError | None) -> None:
        self.faults.clear()
        if error is not None:
            self.faults["describe_table", T] = error

    def lasting(self) -> None:
        options = {"expires_at_millis": str(int(time.time() * 1000) + 3_600_000)}
        for id in self.tables:
            self.tables[id] = Table(id, "mem://t", storage_options=options)

    async def commit_versions(self, wanted: Mapping[TableId, Version], prepare: Prepare) -> Mapping[TableId, Versions]:
        return {}

    def _count(self, operation: str, subject: Id) -> None:
        self.asked += operation == "describe_table"


def test_an_error_is_told_again_for_a_second() -> None:
    async def check() -> None:
        backend = Answering()
        shared = SharedCredentials(backend)
        backend.fail(ThrottlingError("Throttled: t"))
        for _ in range(3):
            for ask in (shared.renewed(T), shared.describe_table(T, vend=True)):
                with pytest.raises(ThrottlingError, match=r"^Throttled: t$"):
                    await ask
        assert backend.asked == 1
        # It is of those who want credentials.
        backend.fail(None)
        assert (await shared.describe_table(T)).id == T
        await asyncio.sleep(0.9)
        with pytest.raises(ThrottlingError):
            await shared.renewed(T)
        await asyncio.sleep(0.2)
        assert (await shared.renewed(T)).id == T
        backend.fail(PermissionDeniedError("Permission denied: t"))
        with pytest.raises(PermissionDeniedError):
            await shared.renewed(T)

    run(check())


def test_credentials_are_given_again_for_a_second_and_to_renew_alone() -> None:
    async def check() -> None:
        backend = Answering()
        backend.lasting()
        shared = SharedCredentials(backend)
        for _ in range(3):
            await shared.renewed(T)
        assert backend.asked == 1
        # Who opens a table wants it as it is now.
        await shared.describe_table(T, vend=True)
        assert backend.asked == 2
        await asyncio.sleep(1.1)
        await shared.renewed(T)
        assert backend.asked == 3
        backend.fail(PermissionDeniedError("Permission denied: t"))
        await asyncio.sleep(1.1)
        with pytest.raises(PermissionDeniedError):
            await shared.renewed(T)

    run(check())


async def test_that_a_table_is_missing_is_never_told_again() -> None:
    backend = Answering()
    shared = SharedCredentials(backend)
    backend.fail(TableNotFoundError("Table not found: t"))
    for ask in (shared.renewed(T), shared.describe_table(T, vend=True)):
        with pytest.raises(TableNotFoundError):
            await ask
    # Another process makes it.
    backend.fail(None)
    assert (await shared.describe_table(T, vend=True)).id == (await shared.renewed(T)).id == T


async def test_so_many_tables_are_remembered_and_those_asked_for_last() -> None:
    backend = Answering()
    backend.lasting()
    shared = SharedCredentials(backend, limit=1)
    for id in (T, T, U, T):
        await shared.renewed(id)
    assert backend.asked == 3


async def test_nothing_is_remembered_where_that_is_said_or_after_the_end() -> None:
    backend = Answering()
    backend.lasting()
    shared = SharedCredentials(backend, memory=0)
    for _ in range(2):
        await shared.renewed(T)
    assert backend.asked == 2
    shared = SharedCredentials(backend)
    await shared.renewed(T)
    await shared.aclose()
    await shared.renewed(T)
    assert backend.asked == 4


async def test_credentials_that_never_end_are_not_remembered() -> None:
    backend = Answering()
    shared = SharedCredentials(backend)
    for _ in range(2):
        await shared.renewed(T)
    assert backend.asked == 2


async def test_a_catalog_that_gives_out_none_is_asked_each_time() -> None:
    backend = MemoryBackend()
    backend.plant([T])
    shared = SharedCredentials(backend)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(shared.renewed(T))
    assert len(backend.calls) == 3


async def test_a_change_that_fails_counts_as_one() -> None:
    backend = Answering()
    backend.lasting()
    shared = SharedCredentials(backend)
    await shared.renewed(T)
    await shared.renewed(U)
    with pytest.raises(UnsupportedOperationError):
        await shared.rename_table(T, U)
    await shared.renewed(T)
    await shared.renewed(U)
    assert backend.asked == 4


async def test_a_version_that_is_committed_is_seen_at_once() -> None:
    backend = Answering()
    backend.lasting()
    shared = SharedCredentials(backend)

    async def prepare(table: Table, version: Version) -> pa.Schema:
        raise AssertionError("it is not asked")

    await shared.renewed(T)
    for committed, asked in ((U, 1), (T, 2)):
        await shared.commit_versions({committed: Version(2, None)}, prepare)
        await shared.renewed(T)
        assert backend.asked == asked


def test_nothing_that_a_backend_does_is_left_out() -> None:
    duties = {name for name, duty in vars(Backend).items() if callable(duty) and name[0] != "_"}
    assert duties <= vars(SharedCredentials).keys()


async def test_all_else_is_what_the_catalog_says() -> None:
    backend = Answering()
    shared, root = SharedCredentials(backend), NamespaceId()
    assert shared.capabilities is backend.capabilities
    assert await shared.create_namespace(NamespaceId(["n"]), {"k": "v"}) == await shared.describe_namespace(
        NamespaceId(["n"])
    )
    assert (await shared.list_namespaces(root, None, None)).items == ["n"]
    assert (await shared.list_tables(root, None, None)).items == ["t", "u"]
    assert [table.id for table in (await shared.scan_tables(root, None)).items] == [T, U]
    shared.check_declaration(T, None, {})
    assert shared.listed_name(NamespaceId(["a", "b"])) == "b"
