"""A slow call sent a second time, beside the first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from lance_namespace.errors import LanceNamespaceError

from lance_ns_async.errors import Failure

T = TypeVar("T")


async def hedged(call: Callable[[], Awaitable[T]], *, after: float, may: Callable[[], bool]) -> T:
    """What `call` gives, or a second one of it, begun where the first takes longer than `after` seconds and it `may`.

    The slower one is cancelled. Where one fails, the other is waited for; where both do, the first failure is raised.
    """
    answers: list[T] = []
    errors: list[Failure | LanceNamespaceError] = []
    begun = 1
    settled = asyncio.Event()

    async def run() -> None:
        try:
            answers.append(await call())
        except LanceNamespaceError as e:
            # That is an answer: the other call would be told the same.
            errors.insert(0, e)
        except Failure as e:
            errors.append(e)
            if len(errors) < begun:
                return
        settled.set()

    # None of anyio's scopes: one that ends in the turn in which its task is cancelled may hide that from those around.
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run())]
        with suppress(TimeoutError):
            async with asyncio.timeout(after):
                await settled.wait()
        if not settled.is_set() and may():
            begun = 2
            tasks.append(group.create_task(run()))
        await settled.wait()
        for task in tasks:
            task.cancel()
    if answers:
        return answers[0]
    raise errors[0]
