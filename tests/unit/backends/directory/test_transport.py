"""pylance in worker threads: slots, abandoned work, and one write at a time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import lance_namespace.errors as err
import pytest

from lance_ns_async.backends.directory.transport import LANCE_ERRORS, LanceTransport
from lance_ns_async.calls.caller import Caller
from lance_ns_async.calls.deadline import deadline
from lance_ns_async.calls.observers import Call
from lance_ns_async.calls.policy import Policy
from lance_ns_async.model import TableId
from lance_ns_async.storage.process_end import check_given_up
from tests.fakes.clock import idle, run_past
from tests.support.errors import catch

T = TypeVar("T")
TABLE = TableId(["db", "t"])


class Lance:
    """A transport, and the outcome of each attempt."""

    def __init__(self, policy: Policy) -> None:
        self.caller = Caller(policy, LANCE_ERRORS)
        self.transport = LanceTransport(self.caller)
        self.calls: list[Call] = []

    async def call(self, work: Callable[[], T], *, safe: bool = True) -> T:
        return await self.transport.call(work, subject=TABLE, operation="op", safe=safe)


@asynccontextmanager
async def lance(policy: Policy | None = None) -> AsyncIterator[Lance]:
    made = Lance(policy or Policy(max_retries=3, backoff_initial=0.0))
    with made.caller.observe(made.calls.append):
        yield made


class Gate:
    """Blocks threads until it is opened, and counts them."""

    def __init__(self) -> None:
        self.most = 0
        self._inside = 0
        self._changed = threading.Condition()
        self._is_open = False

    def __call__(self) -> int:
        with self._changed:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._is_open, 10)
            self._inside -= 1
            return threading.get_ident()

    async def reached(self, count: int) -> None:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: self._inside >= count, 10)

        assert await asyncio.to_thread(wait)

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


async def test_calls_run_in_threads_side_by_side_as_many_as_there_are_slots() -> None:
    gate = Gate()
    async with lance(Policy(max_in_flight=3)) as at:
        tasks = [asyncio.create_task(at.call(gate)) for _ in range(10)]
        await gate.reached(3)
        gate.open()
        threads = await asyncio.gather(*tasks)
    assert gate.most == 3 and threading.get_ident() not in threads


async def test_a_call_given_up_frees_its_slot_although_its_thread_goes_on() -> None:
    gate = Gate()
    policy = Policy(max_in_flight=1, max_retries=0, attempt_timeout=30)
    async with lance(policy) as at:
        await catch(err.ServiceUnavailableError, run_past(at.call(gate), gate.reached(1), 30), "no answer within 30 s")
        assert await at.call(lambda: "next") == "next"
        gate.open()
    assert [call.outcome for call in at.calls] == ["timeout", "ok"]


async def test_a_read_given_up_ends_where_it_asks_and_a_write_does_not() -> None:
    begun, over = threading.Event(), threading.Event()

    def read() -> None:
        begun.set()
        try:
            while True:
                check_given_up()
        finally:
            over.set()

    def write() -> None:
        begun.set()
        over.wait(10)
        check_given_up()
        over.clear()
        written.set()

    async with lance() as made:
        reading = asyncio.create_task(made.call(read))
        await asyncio.to_thread(begun.wait, 10)
        reading.cancel()
        assert await asyncio.to_thread(over.wait, 10)
        begun.clear()
        over.clear()
        written = threading.Event()
        writing = asyncio.create_task(made.call(write, safe=False))
        await asyncio.to_thread(begun.wait, 10)
        writing.cancel()
        await asyncio.wait([reading, writing])
        over.set()
        assert await asyncio.to_thread(written.wait, 10)


async def test_one_write_at_a_time_and_reads_beside_it() -> None:
    gate = Gate()
    async with lance() as at:
        writes = [asyncio.create_task(at.call(gate, safe=False)) for _ in range(5)]
        await gate.reached(1)
        assert await at.call(lambda: "read") == "read"
        gate.open()
        await asyncio.gather(*writes)
    assert gate.most == 1


async def test_a_write_waits_for_others_no_longer_than_it_has_time() -> None:
    gate, written = Gate(), list[str]()
    async with lance() as at:
        first = asyncio.create_task(at.call(gate, safe=False))
        await gate.reached(1)
        with deadline(20), pytest.raises(err.ServiceUnavailableError, match="time ended while other calls wrote"):
            await run_past(at.call(lambda: written.append("late"), safe=False), idle(), 20)
        gate.open()
        await first
        await at.call(lambda: written.append("next"), safe=False)
    assert written == ["next"]


async def test_a_write_that_is_cancelled_lets_the_next_one_write() -> None:
    gate = Gate()
    async with lance() as at:
        first = asyncio.create_task(at.call(gate, safe=False))
        await gate.reached(1)
        waiting = asyncio.create_task(at.call(lambda: "never", safe=False))
        await asyncio.sleep(0)
        waiting.cancel()
        first.cancel()
        done = await asyncio.gather(first, waiting, return_exceptions=True)
        assert all(isinstance(e, asyncio.CancelledError) for e in done)
        gate.open()  # A write that has begun goes on in its thread, and keeps its turn.
        assert await at.call(lambda: "next", safe=False) == "next"


@pytest.mark.parametrize("safe", [True, False])
async def test_a_commit_that_lost_a_race_is_made_again(safe: bool) -> None:
    errors: list[Exception] = [err.ConcurrentModificationError("conflict")] * 2

    def work() -> str:
        if errors:
            raise errors.pop()
        return "committed"

    async with lance() as at:
        assert await at.call(work, safe=safe) == "committed"
    assert [call.outcome for call in at.calls] == ["ConcurrentModificationError"] * 2 + ["ok"]


@pytest.mark.parametrize(
    ("error", "cls", "sent"),
    [
        (err.TableNotFoundError("gone"), err.TableNotFoundError, 1),
        (OSError("disk full"), err.InternalError, 1),
        (OSError("error sending request for url"), err.ServiceUnavailableError, 4),
        (err.InternalError("max_retries: 3 - status code: 503 Busy"), err.ServiceUnavailableError, 1),
        (OSError("max_retries: 3 - status code: 429 Busy"), err.ThrottlingError, 1),
        (OSError("Failed to resolve region for bucket 'b'"), err.InvalidInputError, 1),
    ],
)
async def test_only_what_may_pass_is_read_again(error: Exception, cls: type[Exception], sent: int) -> None:
    def work() -> None:
        raise error

    async with lance() as at:
        await catch(cls, at.call(work))
        assert len(at.calls) == sent
        await catch(cls, at.call(work, safe=False))
        assert len(at.calls) == sent + 1


def test_pylance_is_imported_in_a_thread_before_the_first_attempt(tmp_path: Path) -> None:
    script = """
import asyncio, sys, threading
from lance_ns_async import AsyncNamespace

class Imports:
    def find_spec(self, name, path=None, target=None):
        if name == "lance":
            print(threading.current_thread() is threading.main_thread(), ns.snapshot().in_flight)

async def main():
    await ns.list_tables([])
    await ns.aclose()

ns = AsyncNamespace.connect("dir", {"root": sys.argv[1]})
sys.meta_path.insert(0, Imports())
asyncio.run(main())
"""
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout == "False 0\n"
