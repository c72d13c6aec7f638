"""The cache of vended credentials: its content, its duration and its size."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    PermissionDeniedError,
    TableNotFoundError,
    ThrottlingError,
)

from lance_ns_async import TableId
from lance_ns_async.backends.base import Capabilities
from lance_ns_async.engine.locate import Locator, locate
from lance_ns_async.errors import NotALanceTableError
from lance_ns_async.model import Id, Table
from tests.fakes.clock import run
from tests.fakes.memory import MemoryBackend

T, U = TableId(["t"]), TableId(["u"])


class Answering(MemoryBackend):
    """Vends credentials, and counts the calls."""

    catalog_capabilities = Capabilities(min_depth=0, max_depth=None, vends=True)

    def __init__(self) -> None:
        super().__init__()
        self.plant([T, U])
        self.describes = 0
        self.on_call = self._count

    def fail(self, error: LanceNamespaceError | None) -> None:
        self.faults.clear()
        if error is not None:
            self.faults["describe_table", T] = error

    def lasting(self) -> None:
        options = {"expires_at_millis": str(int(time.time() * 1000) + 3_600_000)}
        for id in self.tables:
            self.tables[id] = Table(id, "mem://t", storage_options=options)

    def _count(self, operation: str, subject: Id) -> None:
        self.describes += operation == "describe_table"


def test_an_error_is_repeated_for_a_second() -> None:
    async def check() -> None:
        backend = Answering()
        locator = Locator(backend)
        backend.fail(ThrottlingError("Throttled: t"))
        for _ in range(3):
            for ask in (locator.renew(T), locator.locate(T)):
                with pytest.raises(ThrottlingError, match=r"^Throttled: t$"):
                    await ask
        assert backend.describes == 1
        # The request is for credentials.
        backend.fail(None)
        assert (await backend.describe_table(T)).id == T
        await asyncio.sleep(0.9)
        with pytest.raises(ThrottlingError):
            await locator.renew(T)
        await asyncio.sleep(0.2)
        assert (await locator.renew(T)).id == T
        backend.fail(PermissionDeniedError("Permission denied: t"))
        with pytest.raises(PermissionDeniedError):
            await locator.renew(T)

    run(check())


def test_credentials_are_given_again_for_a_second_and_to_renew_alone() -> None:
    async def check() -> None:
        backend = Answering()
        backend.lasting()
        locator = Locator(backend)
        for _ in range(3):
            await locator.renew(T)
        assert backend.describes == 1
        # Opening a table needs its current state.
        await locator.locate(T)
        assert backend.describes == 2
        await asyncio.sleep(1.1)
        await locator.renew(T)
        assert backend.describes == 3
        backend.fail(PermissionDeniedError("Permission denied: t"))
        await asyncio.sleep(1.1)
        with pytest.raises(PermissionDeniedError):
            await locator.renew(T)

    run(check())


async def test_a_missing_table_is_not_cached() -> None:
    backend = Answering()
    locator = Locator(backend)
    backend.fail(TableNotFoundError("Table not found: t"))
    for ask in (locator.renew(T), locator.locate(T)):
        with pytest.raises(TableNotFoundError):
            await ask
    # Another process creates it.
    backend.fail(None)
    assert (await locator.locate(T)).id == (await locator.renew(T)).id == T


async def test_the_cache_keeps_the_last_tables_up_to_its_limit() -> None:
    backend = Answering()
    backend.lasting()
    locator = Locator(backend, limit=1)
    for id in (T, T, U, T):
        await locator.renew(id)
    assert backend.describes == 3


async def test_nothing_is_cached_if_disabled_or_after_the_end() -> None:
    backend = Answering()
    backend.lasting()
    locator = Locator(backend, memory=0)
    for _ in range(2):
        await locator.renew(T)
    assert backend.describes == 2
    locator = Locator(backend)
    await locator.renew(T)
    locator.forget()
    await locator.renew(T)
    assert backend.describes == 4


async def test_credentials_that_never_end_are_not_remembered() -> None:
    backend = Answering()
    locator = Locator(backend)
    for _ in range(2):
        await locator.renew(T)
    assert backend.describes == 2


async def test_a_catalog_that_gives_out_none_is_called_each_time() -> None:
    backend = MemoryBackend()
    backend.plant([T])
    locator = Locator(backend)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(locator.renew(T))
    assert len(backend.calls) == 3


async def test_only_tables_that_were_changed_are_forgotten() -> None:
    backend = Answering()
    backend.lasting()
    locator = Locator(backend)
    await locator.renew(T)
    for changed, describes in ((U, 1), (T, 2)):
        locator.forget(changed)
        await locator.renew(T)
        assert backend.describes == describes


async def test_credentials_that_the_catalog_refuses_are_left_out() -> None:
    class Refusing(Answering):
        async def describe_table(self, id: TableId, *, vend: bool = False) -> Table:
            table = await super().describe_table(id, vend=vend)
            if vend:
                raise InvalidInputError("Invalid input: no credentials for this table")
            return table

    backend = Refusing()
    locator = Locator(backend)
    for _ in range(2):
        assert (await locator.locate(T)).id == T
        with pytest.raises(InvalidInputError, match="no credentials"):
            await locator.renew(T)
    # The refusal is remembered, but not the description without credentials.
    assert backend.describes == 3
    assert (await locate(backend, T)).id == T
    assert backend.describes == 5


async def test_a_table_of_another_format_is_described_once() -> None:
    backend = Answering()
    backend.plant_others([TableId(["csv"])])
    for locate_table in (Locator(backend).locate, partial(locate, backend)):
        backend.describes = 0
        with pytest.raises(NotALanceTableError):
            await locate_table(TableId(["csv"]))
        assert backend.describes == 1
