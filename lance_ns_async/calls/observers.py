"""Observers of remote calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from lance_ns_async.model import Id

T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)

http_status: ContextVar[int | None] = ContextVar("http_status", default=None)
"""The HTTP status of the attempt in this task, which its transport sets if there are observers."""


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt of a remote call, as observers see it."""

    operation: str
    subject: Id
    attempt: int
    """The number of the attempt; 1 for the first."""
    seconds: float
    outcome: str
    """`"ok"`, the most specific code of the failure, the error class of a rejected response, or `"cancelled"`."""
    hedge: bool = False
    """Whether it was a second, concurrent sending of a slow call; the slower of the two is cancelled."""
    http_status: int | None = None
    """The status of the response; None without a response, and for catalogs without HTTP."""


Observer = Callable[[Call], None]
"""Receives calls in the event loop's thread; it must neither block nor raise."""


@runtime_checkable
class TraceObserver(Protocol):
    """An observer that also knows the trace of the caller."""

    def __call__(self, call: Call) -> None:
        """Receives a call."""

    def trace_headers(self) -> Mapping[str, str]:
        """Returns the headers by which a server adds its spans to the trace; runs in the event loop's thread."""

    def operation(self, name: str) -> AbstractContextManager[None]:
        """Returns a context in which calls are parts of one operation."""


class Observers:
    """The registered observers of calls."""

    def __init__(self) -> None:
        self.all: list[Observer] = []

    @contextmanager
    def with_one(self, observer: Observer) -> Iterator[None]:
        """Registers an observer while the context is open. Other threads may register observers at the same time."""
        self.all.append(observer)
        try:
            yield
        finally:
            self.all.remove(observer)

    def trace_headers(self) -> Mapping[str, str]:
        """Returns the headers of all observers that provide some; the first one wins."""
        headers: dict[str, str] = {}
        for observer in reversed(self.all):
            if isinstance(observer, TraceObserver):
                headers |= observer.trace_headers()
        return headers

    @contextmanager
    def operation(self, name: str) -> Iterator[None]:
        """Makes the calls in the context parts of one operation in traces."""
        with ExitStack() as stack:
            for observer in tuple(self.all):
                if isinstance(observer, TraceObserver):
                    stack.enter_context(observer.operation(name))
            yield

    async def walk(self, name: str, groups: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yields the groups, whose calls are parts of one operation in traces."""
        if not self.all:
            async for each in groups:
                yield each
            return
        # The consumer keeps its own context, and may ask for each group in another task.
        operation, context = self.operation(name), copy_context()
        context.run(operation.__enter__)
        with ExitStack() as stack:
            stack.push(lambda *error: context.run(operation.__exit__, *error))
            while (group := await asyncio.create_task(next_group(groups), context=context)) is not None:
                yield group

    def notify(self, call: Call) -> None:
        """Passes a call to each observer."""
        for observer in tuple(self.all):
            try:
                observer(call)
            except Exception:  # an observer's error must not change the outcome of the call
                log.exception("an observer of remote calls failed")


async def next_group(groups: AsyncGenerator[T, None]) -> T | None:
    """Returns the next group; None at the end."""
    return await anext(groups, None)
