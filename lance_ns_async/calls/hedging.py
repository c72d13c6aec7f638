"""Hedged calls: a second, concurrent sending of a slow call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.errors import Failure

T = TypeVar("T")


async def hedge(call: Callable[[bool], Awaitable[T]], *, after: float, may: Callable[[], bool]) -> T:
    """Returns the first result of `call`, which is sent a second time if it is slow.

    The slower call is cancelled. If one call fails, the other is awaited; if both fail, the first failure is raised.

    Args:
        call: Sends the call; receives whether this is the second sending.
        after: Seconds before the second call is sent.
        may: Returns whether the second call may be sent.
    """
    answers: list[T] = []
    errors: list[Failure | LanceNamespaceError] = []
    sendings = 1
    is_settled = asyncio.Event()

    async def run(is_second: bool) -> None:
        try:
            answers.append(await call(is_second))
        except LanceNamespaceError as e:
            # The error is the server's response; the other call would get the same one.
            errors.insert(0, e)
        except Failure as e:
            errors.append(e)
            if len(errors) < sendings:
                return
        is_settled.set()

    # An anyio task group could hide a cancellation that arrives in the iteration of the loop in which its scope ends.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(False))]
        with suppress(TimeoutError):
            async with asyncio.timeout(after):
                await is_settled.wait()
        if not is_settled.is_set() and may():
            sendings = 2
            tasks.append(group.create_task(run(True)))
        await is_settled.wait()
        for task in tasks:
            task.cancel()
    if answers:
        return answers[0]
    raise errors[0]
