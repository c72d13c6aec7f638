"""A caller's slots are never exceeded or lost, and observers receive each attempt."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import ServiceUnavailableError

from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.calls.waiting import Turns, set_client, turns_for
from lance_ns_async.errors import Failure, NotALanceTableError
from tests.fakes.calls import TABLE, Script, Turnstile, busy, call, caller, settle
from tests.fakes.clock import skipping_timers
from tests.support.errors import catch


@skipping_timers
async def test_waiting_for_a_slot_does_not_eat_the_attempts_time() -> None:
    to = caller(Policy(max_in_flight=1, attempt_timeout=5.0, max_retries=0))
    assert await asyncio.gather(*(call(to, lambda: asyncio.sleep(4.0, "done")) for _ in range(10))) == ["done"] * 10


@skipping_timers
async def test_the_operations_time_bounds_waiting_for_a_slot() -> None:
    to, hold, late = caller(Policy(max_in_flight=1, max_retries=0, attempt_timeout=1e6)), Turnstile(), Script()
    holder = asyncio.create_task(call(to, hold))
    await settle()
    with deadline(5), pytest.raises(ServiceUnavailableError, match="waited for a slot, with 1 other calls"):
        await call(to, late, safe=False)
    assert late.sent == 0
    hold.open.set()
    await holder
    assert await call(to, late) == 1


async def test_cancellation_passes_at_once_and_frees_the_slot() -> None:
    to, hold, calls = caller(Policy(max_in_flight=1)), Turnstile(), list[Call]()
    with to.observe(calls.append):
        held = asyncio.create_task(call(to, hold))
        queued = asyncio.create_task(call(to, hold))
        await settle()
        queued.cancel()
        held.cancel()
        done = await asyncio.gather(held, queued, return_exceptions=True)
        assert [type(e) for e in done] == [asyncio.CancelledError] * 2 and await call(to, Script()) == 1
    assert [c.outcome for c in calls] == ["cancelled", "ok"] and (hold.inside, hold.most) == (0, 1)


@skipping_timers
async def test_a_pause_holds_no_slot() -> None:
    to = caller(Policy(max_in_flight=1))
    pausing = asyncio.create_task(call(to, Script(busy(retry_after=60.0))))
    await settle()
    assert await call(to, Script()) == 1 and not pausing.done()
    assert await pausing == 2


async def test_clients_get_slots_in_turn_and_each_one_in_order() -> None:
    to, hold, order = caller(Policy(max_in_flight=1)), Turnstile(), list[str]()

    async def one(client: str, number: int) -> None:
        set_client(client)

        async def send() -> None:
            order.append(f"{client}{number}")

        await call(to, send)

    held = asyncio.create_task(call(to, hold))
    await settle()
    waiting = [asyncio.create_task(one(client, number)) for client, number in [*(("a", n) for n in range(4)), ("b", 0)]]
    await settle()
    gone = asyncio.create_task(one("c", 0))
    await settle()
    gone.cancel()
    hold.open.set()
    await asyncio.gather(held, *waiting)
    assert order == ["a0", "b0", "a1", "a2", "a3"]


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 6)), max_size=25),
    st.booleans(),
)
async def test_slots_are_never_exceeded(slots: int, calls: Sequence[tuple[int, bool, int]], adaptive: bool) -> None:
    to = caller(Policy(max_in_flight=slots, max_retries=3, backoff_initial=0.0, adaptive=adaptive))
    inside, most = 0, 0

    async def send(steps: int, failures: list[Failure]) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            for _ in range(steps):
                await asyncio.sleep(0)
            if failures:
                raise failures.pop()
        finally:
            inside -= 1

    async def one(steps: int, fails: bool, cancel_after: int) -> None:
        failures = [busy()] if fails else []
        task = asyncio.create_task(call(to, lambda: send(steps, failures)))
        for _ in range(cancel_after):
            await asyncio.sleep(0)
        if cancel_after % 2:
            task.cancel()
        await asyncio.wait([task])

    await asyncio.gather(*(one(*arguments) for arguments in calls))
    assert inside == 0 and most <= slots
    hold = Turnstile()
    tasks = [asyncio.create_task(call(to, hold)) for _ in range(slots + 3)]
    await settle()
    # Few slots may have led to a rate, which depends on the time that the calls took.
    assert hold.inside <= to.slots.limit <= slots and (to.slots.is_paced or hold.inside == to.slots.limit)
    assert adaptive or hold.inside == slots
    hold.open.set()
    await asyncio.gather(*tasks)
    assert hold.most <= slots


async def test_what_is_no_failure_passes_unchanged_and_frees_the_slot() -> None:
    to, calls = caller(Policy(max_in_flight=1)), list[Call]()
    error = NotALanceTableError("Invalid input: db$t is no Lance table")

    async def refuse() -> None:
        raise error

    async def fault() -> None:
        raise ZeroDivisionError

    with to.observe(calls.append):
        raised = await catch(NotALanceTableError, call(to, refuse))
        await catch(ZeroDivisionError, call(to, fault))
        assert await call(to, Script()) == 1
    assert raised.value is error and [c.outcome for c in calls] == ["NotALanceTableError", "failed", "ok"]


async def test_observers_are_reported_of_each_attempt_while_they_observe() -> None:
    to, outer, inner = caller(), list[Call](), list[Call]()
    with to.observe(outer.append):
        with to.observe(inner.append):
            await call(to, Script(busy()), operation="first")
        await call(to, Script(), operation="second")
    await call(to, Script(), operation="third")
    attempts = [(c.operation, c.subject, c.attempt, c.outcome) for c in outer]
    assert attempts == [("first", TABLE, 1, "503"), ("first", TABLE, 2, "ok"), ("second", TABLE, 1, "ok")]
    assert inner == outer[:2] and all(c.seconds >= 0 for c in outer)


async def test_each_attempt_is_one_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "lance_ns_async.calls.caller"):
        await call(caller(), Script(busy()))
    assert [r.getMessage().split(" in ")[0] for r in caplog.records] == [
        "describe_table db$t: 503",
        "describe_table db$t: ok",
    ]
    assert all(r.levelno == logging.DEBUG for r in caplog.records)


FORKING = """
import asyncio, os
from lance_ns_async.calls.waiting import Turns

turns = Turns()

async def main():
    begun, released = asyncio.Event(), asyncio.Event()

    async def work(_):
        begun.set()
        await released.wait()

    holder = asyncio.create_task(turns.run("a", work, timeout=None))
    await begun.wait()
    if (child := os.fork()) == 0:
        print(len(turns), "names in the child,", end=" ", flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    released.set()
    await holder
    print("exit code", os.waitstatus_to_exitcode(status))

asyncio.run(main())
"""


def holding(begun: asyncio.Event, released: asyncio.Event, *, fails: bool = False) -> Callable[[bool], Awaitable[str]]:
    async def work(_: bool) -> str:
        begun.set()
        await released.wait()
        if fails:
            raise ValueError("no")
        return "held"

    return work


async def at_once(_: bool) -> str:
    return "done"


async def whether(others_succeeded: bool) -> bool:
    return others_succeeded


async def test_one_name_is_worked_on_by_one_at_a_time_in_order() -> None:
    turns, working, order = Turns(), 0, list[int]()

    async def one(number: int) -> None:
        async def work(_: bool) -> None:
            nonlocal working
            working += 1
            assert working == 1
            await asyncio.sleep(0)
            order.append(number)
            working -= 1

        await turns.run("name", work, timeout=None)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(one(number))
    assert order == list(range(20)) and len(turns) == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_work_is_reported_whether_another_succeeded_meanwhile(fails: bool) -> None:
    turns, begun, released = Turns(), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(turns.run("a", holding(begun, released, fails=fails), timeout=None))
    await begun.wait()
    second = asyncio.create_task(turns.run("a", whether, timeout=None))
    await asyncio.sleep(0)
    released.set()
    done = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(done[0], ValueError) is fails and done[1] is not fails
    assert await turns.run("a", whether, timeout=None) is False and len(turns) == 0


@pytest.mark.parametrize("which", ["holder", "waiter"])
async def test_a_cancelled_call_leaves_the_turn_to_the_next(which: str) -> None:
    turns, begun, released = Turns(), asyncio.Event(), asyncio.Event()
    holder = asyncio.create_task(turns.run("a", holding(begun, released), timeout=None))
    await begun.wait()
    waiter = asyncio.create_task(turns.run("a", at_once, timeout=None))
    last = asyncio.create_task(turns.run("a", at_once, timeout=None))
    await asyncio.sleep(0)
    (holder if which == "holder" else waiter).cancel()
    released.set()
    outcomes = await asyncio.gather(holder, waiter, last, return_exceptions=True)
    assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == 1
    assert outcomes[2] == "done" and len(turns) == 0


async def test_waiting_for_the_same_name_ends_with_the_time_and_leaves_nothing() -> None:
    turns, begun, released = Turns(), asyncio.Event(), asyncio.Event()
    holder = asyncio.create_task(turns.run("a", holding(begun, released), timeout=None))
    await begun.wait()
    assert await turns.run("b", at_once, timeout=None) == "done"
    await catch(TimeoutError, turns.run("a", at_once, timeout=0.001))
    released.set()
    assert await holder == "held" and len(turns) == 0


def test_threads_with_loops_of_their_own_take_turns() -> None:
    turns, barrier, working, most = Turns(), threading.Barrier(4), 0, 0

    async def work(_: bool) -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0)
        working -= 1

    async def run() -> None:
        barrier.wait()
        for _ in range(100):
            await asyncio.gather(*(turns.run("a", work, timeout=None) for _ in range(3)))

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(asyncio.run, run()) for _ in range(4)]:
            future.result()
    assert most == 1 and len(turns) == 0


def test_a_loop_that_was_closed_while_it_held_a_turn_stops_nobody() -> None:
    turns, loop = Turns(), asyncio.new_event_loop()
    begun, released = asyncio.Event(), asyncio.Event()
    held = turns.run("a", holding(begun, released), timeout=None)
    waiting = turns.run("a", at_once, timeout=None)

    async def start() -> None:
        for coroutine in (held, waiting):
            coroutine.send(None)

    loop.run_until_complete(start())
    loop.close()
    assert asyncio.run(turns.run("a", at_once, timeout=1)) == "done"
    for coroutine in (held, waiting):
        coroutine.close()
    assert len(turns) == 0


def test_a_coroutine_thrown_away_gives_its_turn_to_another_loop() -> None:
    turns, loop = Turns(), asyncio.new_event_loop()
    begun, released = asyncio.Event(), asyncio.Event()
    held = turns.run("a", holding(begun, released), timeout=None)

    async def start() -> None:
        held.send(None)

    loop.run_until_complete(start())

    async def other() -> str:
        waiting = asyncio.create_task(turns.run("a", at_once, timeout=None))
        await asyncio.sleep(0)
        held.close()
        return await waiting

    assert asyncio.run(other()) == "done"
    loop.close()


def test_turns_of_a_key_are_shared_and_not_kept() -> None:
    one = turns_for(("test", "key"))
    assert turns_for(("test", "key")) is one and turns_for(("test", "other")) is not one
    before = id(one)
    one.mark = before  # type: ignore[attr-defined]
    del one
    gc.collect()
    assert not hasattr(turns_for(("test", "key")), "mark")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_does_not_wait_for_its_parent() -> None:
    # In a separate process, because the threads of this one would cause warnings of the fork.
    ran = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "0 names in the child, exit code 0\n", ran.stderr
