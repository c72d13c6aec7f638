"""Locks by name, shared by tasks, event loops and threads."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lance_ns_async.calls.waiting import Turns, turns_for

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


def holding(begun: asyncio.Event, released: asyncio.Event) -> Callable[[bool], Awaitable[str]]:
    async def work(_: bool) -> str:
        begun.set()
        await released.wait()
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
    assert order == list(range(20))
    assert len(turns) == 0


async def test_different_names_do_not_wait_for_each_other() -> None:
    turns, begun, released = Turns(), asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(turns.run("a", holding(begun, released), timeout=None))
    await begun.wait()
    assert await turns.run("b", at_once, timeout=None) == "done"
    released.set()
    assert await task == "held"


async def test_work_is_reported_whether_another_succeeded_meanwhile() -> None:
    turns, begun, released = Turns(), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(turns.run("a", holding(begun, released), timeout=None))
    await begun.wait()
    second = asyncio.create_task(turns.run("a", whether, timeout=None))
    await asyncio.sleep(0)
    released.set()
    assert await first and await second is True
    assert await turns.run("a", whether, timeout=None) is False


async def test_what_fails_ends_its_turn_and_is_no_success() -> None:
    turns, begun, released = Turns(), asyncio.Event(), asyncio.Event()

    async def fail(_: bool) -> None:
        begun.set()
        await released.wait()
        raise ValueError("no")

    first = asyncio.create_task(turns.run("a", fail, timeout=None))
    await begun.wait()
    second = asyncio.create_task(turns.run("a", whether, timeout=None))
    await asyncio.sleep(0)
    released.set()
    with pytest.raises(ValueError, match="no"):
        await first
    assert await second is False
    assert len(turns) == 0


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


async def test_waiting_ends_with_the_time_and_leaves_nothing() -> None:
    turns, begun, released = Turns(), asyncio.Event(), asyncio.Event()
    holder = asyncio.create_task(turns.run("a", holding(begun, released), timeout=None))
    await begun.wait()
    with pytest.raises(TimeoutError):
        await turns.run("a", at_once, timeout=0.001)
    released.set()
    await holder
    assert len(turns) == 0


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
