"""Concurrent work over many items, and one run of shared work for all callers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InternalError, ServiceUnavailableError, TableNotFoundError

from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.tasks import SingleFlight, SingleFlights, each, each_added, pause
from tests.fakes.calls import settle
from tests.fakes.clock import run, skipping_timers


class Work:
    """Takes as many turns of the event loop as the item says; counts the work in progress."""

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
def test_each_added_item_is_done_while_others_are_added(turns: list[int], max_in_flight: int) -> None:
    work = Work()

    async def add_all() -> None:
        async with each_added(work, max_in_flight=max_in_flight) as add:
            for item in turns:
                add(item)
                await asyncio.sleep(0)

    run(add_all())
    assert work.begun == turns and sorted(work.done) == sorted(turns) and work.most <= max_in_flight


async def test_an_error_of_added_work_or_of_the_block_is_raised_by_itself() -> None:
    async def fail(item: str) -> None:
        raise TableNotFoundError(item)

    with pytest.raises(TableNotFoundError, match="one"):
        async with each_added(fail, max_in_flight=2) as add:
            add("one")
            await asyncio.Event().wait()
    with pytest.raises(InternalError, match="block"):
        async with each_added(fail, max_in_flight=2):
            raise InternalError("block")


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 8))
async def test_every_item_is_done_once_and_no_more_at_once_than_may_be(items: list[int], workers: int) -> None:
    work = Work()
    await each(work, items, max_in_flight=workers)
    assert work.begun == items and sorted(work.done) == sorted(items)
    assert work.most <= min(workers, len(items)) and work.inside == 0


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


def test_a_worker_that_pauses_is_replaced() -> None:
    busy, most, done = 0, 0, []

    async def work(item: int) -> None:
        nonlocal busy, most
        busy, most = busy + 1, max(most, busy + 1)
        await asyncio.sleep(1)
        if item % 3 == 0:
            busy -= 1
            await pause(60)
            busy += 1
        busy -= 1
        done.append(item)

    async def everything() -> float:
        begun = asyncio.get_running_loop().time()
        await each(work, range(12), max_in_flight=4)
        return asyncio.get_running_loop().time() - begun

    # The pauses take place at the same time, and beside the work.
    assert run(everything()) == pytest.approx(1 + 60, abs=4) and sorted(done) == list(range(12))
    assert sorted(done[:8]) == [1, 2, 4, 5, 7, 8, 10, 11] and most <= 2 * 4


def test_no_more_workers_pause_than_may_work() -> None:
    paused, most = 0, 0

    async def work(item: int) -> None:
        nonlocal paused, most
        paused, most = paused + 1, max(most, paused + 1)
        await pause(60)
        paused -= 1

    run(each(work, range(50), max_in_flight=4))
    assert most == 8


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


class Flight:
    """Work with a number as its result, which ends on demand; first fails a number of times."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.begun = 0
        self.open = asyncio.Event()
        self.kept: int | None = None

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        return number

    def known(self) -> int | None:
        return self.kept


async def all_of(work: Flight, callers: int = 50) -> list[int | BaseException]:
    flight = SingleFlight(work)
    tasks = [asyncio.create_task(flight.outcome(work.known)) for _ in range(callers)]
    await settle()
    work.open.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_waits_for_work_shares_what_comes_of_it() -> None:
    work = Flight()
    assert await all_of(work) == [1] * 50 and work.begun == 1


async def test_who_comes_later_does_the_work_again_unless_it_is_known() -> None:
    work = Flight()
    work.open.set()
    flight = SingleFlight(work)
    assert [await flight.outcome(work.known) for _ in range(3)] == [1, 2, 3]
    work.kept = 7
    assert await flight.outcome(work.known) == 7 and work.begun == 3


async def test_an_error_is_shared_and_a_fault_of_ours_is_not() -> None:
    work = Flight(TableNotFoundError("Table not found: t"))
    done = await all_of(work)
    assert {(type(e), str(e)) for e in done} == {(TableNotFoundError, "Table not found: t")} and work.begun == 1
    faulty = Flight(ZeroDivisionError())
    done = await all_of(faulty)
    assert isinstance(done[0], ZeroDivisionError) and done[1:] == [2] * 49 and faulty.begun == 2


async def test_work_whose_doer_is_cancelled_is_done_by_the_next() -> None:
    work = Flight()
    flight = SingleFlight(work)
    first, *others = [asyncio.create_task(flight.outcome(work.known)) for _ in range(5)]
    await settle()
    first.cancel()
    others[1].cancel()
    await settle()
    work.open.set()
    await asyncio.wait(others)
    assert [task.result() for task in others if not task.cancelled()] == [2] * 3 and work.begun == 2


@skipping_timers
async def test_who_has_less_time_waits_no_longer_for_others() -> None:
    work = Flight()
    flight = SingleFlight(work)
    doer = asyncio.create_task(flight.outcome(work.known))
    await settle()
    with deadline(5), pytest.raises(ServiceUnavailableError, match="time ended while it waited for the same call"):
        await flight.outcome(work.known)
    work.open.set()
    assert await doer == 1


async def test_whose_time_was_over_tells_nothing_to_those_who_have_more() -> None:
    work = Flight(ServiceUnavailableError("Service unavailable: no answer within 0 s"))
    flight = SingleFlight(work)

    async def hurried() -> int:
        with deadline(0):
            return await flight.outcome(work.known)

    first = asyncio.create_task(hurried())
    await settle()
    others = [asyncio.create_task(flight.outcome(work.known)) for _ in range(5)]
    await settle()
    work.open.set()
    with pytest.raises(ServiceUnavailableError):
        await first
    assert await asyncio.gather(*others) == [2] * 5


async def test_work_for_each_key_is_shared_by_those_who_want_it() -> None:
    begun: list[str] = []
    gate = asyncio.Event()

    async def work(key: str) -> str:
        begun.append(key)
        await gate.wait()
        if key == "c":
            raise TableNotFoundError("Table not found: c")
        return key.upper()

    flights = SingleFlights(work)
    tasks = [asyncio.create_task(flights.outcome(key)) for key in "abcabc"]
    await settle()
    assert begun == ["a", "b", "c"]
    gate.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert done[:2] == done[3:5] == ["A", "B"] and begun == ["a", "b", "c"]
    assert {type(error) for error in (done[2], done[5])} == {TableNotFoundError}
    assert await flights.outcome("a") == "A" and begun[3:] == ["a"]
