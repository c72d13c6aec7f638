"""Servers of tests with a namespace that is connected to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from lance_ns_async import AsyncNamespace

S = TypeVar("S")


@asynccontextmanager
async def running(
    connect: Callable[..., AbstractAsyncContextManager[AsyncNamespace]], server: S, /, **properties: Any
) -> AsyncIterator[tuple[S, AsyncNamespace]]:
    """Runs a server, and provides it with a namespace that has these properties."""
    context: Any = server
    with context:
        async with connect(server, **properties) as ns:
            yield server, ns
