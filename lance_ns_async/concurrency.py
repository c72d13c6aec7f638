"""Doing one thing for many items, so many at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio
from lance_namespace.errors import LanceNamespaceError

T = TypeVar("T")


async def each(work: Callable[[T], Awaitable[None]], items: Iterable[T], *, max_in_flight: int) -> None:
    """Does `work` for every item, by at most so many workers over one iterator.

    Memory is bounded by the workers, not by the items. The first LanceNamespaceError cancels what is under
    way and is raised as it is, not in a group.
    """
    waiting = iter(items)
    workers = 1
    errors: list[LanceNamespaceError] = []

    async def worker() -> None:
        nonlocal workers
        for item in waiting:
            if workers < max_in_flight:
                workers += 1
                group.start_soon(worker)
            try:
                await work(item)
            except LanceNamespaceError as e:
                errors.append(e)
                group.cancel_scope.cancel()
                return

    async with anyio.create_task_group() as group:
        await worker()
    if errors:
        raise errors[0]
