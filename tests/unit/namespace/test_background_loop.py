"""The background loop: after any interruption of a waiting caller, no work continues there unnoticed."""

from __future__ import annotations

import asyncio
import linecache
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from types import FrameType
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError

from lance_ns_async.namespace import background_loop
from lance_ns_async.namespace.background_loop import BackgroundLoop


class Interrupter:
    """A trace function that interrupts at the nth executed line of the module."""

    def __init__(self, lines: int) -> None:
        self.left = lines
        self.at = ""
        """The source of the line at which it interrupted."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != background_loop.__file__:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.at = linecache.getline(background_loop.__file__, frame.f_lineno).strip()
                raise KeyboardInterrupt
        return self


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def others() -> int:
    """Returns the tasks other than this one and the loop's own, after all ending tasks have ended."""
    for _ in range(3):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks()) - 1


def test_an_interrupt_at_any_line_leaves_nothing_under_way() -> None:
    lease = BackgroundLoop.lease()
    tracing = sys.gettrace()
    for lines in count(1):
        interrupter = Interrupter(lines)
        work = forever()
        try:
            sys.settrace(interrupter)
            with pytest.raises(KeyboardInterrupt):
                lease.run(work)
        finally:
            sys.settrace(tracing)
            # A tracer interrupts where no signal does: at the end of a block under the lock, which then stays locked.
            while background_loop._lock._is_owned():  # type: ignore[attr-defined]  # of the standard library, and not typed
                background_loop._lock.release()
        # If it was not started, Python itself warns that it was never awaited.
        work.close()
        assert lease.run(others()) == 0, interrupter.at
        if "outcome.result(" in interrupter.at:
            break
    assert lines > 5
    lease.release()


@pytest.fixture
def lease() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop.lease()
    yield loop
    loop.release()


async def current_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def test_work_is_awaited_in_another_loop(lease: BackgroundLoop) -> None:
    assert await lease.arun(current_loop()) is lease._loop is not asyncio.get_running_loop()


def test_work_is_awaited_in_the_loop_itself(lease: BackgroundLoop) -> None:
    async def inside() -> asyncio.AbstractEventLoop:
        return await lease.arun(current_loop())

    assert lease.run(inside()) is lease._loop


async def test_a_cancelled_wait_cancels_the_work(lease: BackgroundLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    waiting = asyncio.create_task(lease.arun(work()))
    assert await asyncio.to_thread(begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(ended.wait, 10)


async def test_work_that_ends_with_the_loop_is_no_cancellation() -> None:
    loop = BackgroundLoop.lease()
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await forever()

    waiting = asyncio.create_task(loop.arun(work()))
    assert await asyncio.to_thread(begun.wait, 10)
    loop.release()
    with pytest.raises(InvalidInputError, match="the namespace was closed during the call"):
        await waiting
    with pytest.raises(InvalidInputError, match="was closed"):
        await loop.arun(current_loop())


def test_a_context_is_kept_open_by_one_task(lease: BackgroundLoop) -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[str]:
        async with asyncio.TaskGroup():
            tasks.append(asyncio.current_task())
            yield "value"
        tasks.append(asyncio.current_task())

    with lease.keep_open(context()) as value:
        assert value == "value" and len(tasks) == 1
    assert len(tasks) == 2 and tasks[0] is tasks[1]
    with pytest.raises(ZeroDivisionError), lease.keep_open(context()):
        raise ZeroDivisionError
    assert len(tasks) == 4 and lease.run(others()) == 0


def test_a_context_that_cannot_be_entered_raises_its_error(lease: BackgroundLoop) -> None:
    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        raise InvalidInputError("port 1: it is in use") from OSError(98, "in use")
        yield

    with pytest.raises(InvalidInputError, match="port 1") as raised, lease.keep_open(context()):
        pass
    assert isinstance(raised.value.__cause__, OSError) and lease.run(others()) == 0
