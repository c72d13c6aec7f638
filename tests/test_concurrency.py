"""Doing one thing for many items: each once, so many at once, and the first error ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, TableNotFoundError

from lance_ns_async.concurrency import each


class Work:
    """Takes as many turns of the event loop as the item says; counts what is under way."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.inside = 0
        self.most = 0

    async def __call__(self, turns: int) -> None:
        self.begun.append(turns)
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            self.done.append(turns)
        finally:
            self.inside -= 1


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 8))
async def test_every_item_is_done_once_and_no_more_at_once_than_may_be(items: list[int], workers: int) -> None:
    work = Work()
    await each(work, items, max_in_flight=workers)
    assert work.begun == items and sorted(work.done) == sorted(items)
    assert work.most <= min(workers, len(items)) and work.inside == 0


async def test_as_many_run_at_once_as_may_be() -> None:
    work = Work()
    await each(work, [50] * 40, max_in_flight=20)
    assert work.most == 20


async def test_items_are_taken_when_somebody_is_free_for_them() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        while taken < 1000:
            taken += 1
            yield taken

    ahead: list[int] = []
    done = 0

    async def work(_: int) -> None:
        nonlocal done
        await asyncio.sleep(0)
        ahead.append(taken - done)
        done += 1

    await each(work, items(), max_in_flight=7)
    assert done == 1000 and max(ahead) <= 7


async def test_nothing_to_do_is_done() -> None:
    work = Work()
    await each(work, [], max_in_flight=3)
    assert work.begun == []


async def test_the_first_error_is_raised_itself_and_ends_the_rest() -> None:
    work, error = Work(), TableNotFoundError("Table not found: t")
    cancelled: list[int] = []

    async def failing(item: int) -> None:
        if item == 3:
            raise error
        try:
            await work(1000)
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    with pytest.raises(TableNotFoundError) as raised:
        await each(failing, range(10), max_in_flight=5)
    assert raised.value is error
    assert work.inside == 0 and work.done == [] and len(work.begun) < 9
    assert len(cancelled) == len(work.begun)


async def test_of_several_errors_the_first_is_raised() -> None:
    async def failing(item: int) -> None:
        try:
            await asyncio.sleep(0 if item == 1 else 60)
        finally:
            raise InternalError(f"Internal error: {item}")

    with pytest.raises(InternalError, match="Internal error: 1"):
        await each(failing, range(3), max_in_flight=3)


async def test_a_fault_of_ours_comes_in_a_group() -> None:
    async def fault(item: int) -> None:
        raise ZeroDivisionError(item)

    with pytest.raises(ExceptionGroup) as raised:
        await each(fault, range(3), max_in_flight=1)
    assert [str(e) for e in raised.value.exceptions] == ["0"]


async def test_cancellation_passes_and_leaves_nothing_under_way() -> None:
    work = Work()
    task = asyncio.create_task(each(work, [10**6] * 10, max_in_flight=4))
    for _ in range(20):
        await asyncio.sleep(0)
    assert work.inside == 4
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.inside == 0 and len(work.begun) == 4


async def test_a_scope_around_it_can_give_it_up() -> None:
    work = Work()
    with anyio.move_on_after(0.001) as scope:
        await each(work, [10**9] * 10, max_in_flight=4)
    assert scope.cancelled_caught and work.inside == 0
