"""Observers of remote calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lance_ns_async.model import Id

log: logging.Logger = logging.getLogger(__name__)


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


Observer = Callable[[Call], None]
"""Receives calls in the event loop's thread; it must neither block nor raise."""


@runtime_checkable
class TraceObserver(Protocol):
    """An observer that also provides the headers by which a server adds its spans to the trace of the caller."""

    def __call__(self, call: Call) -> None:
        """Receives a call."""

    def trace_headers(self) -> Mapping[str, str]:
        """Returns the headers for a call that is sent in the current context; runs in the event loop's thread."""


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

    def notify(self, call: Call) -> None:
        """Passes a call to each observer."""
        for observer in tuple(self.all):
            try:
                observer(call)
            except Exception:  # an observer's error must not change the outcome of the call
                log.exception("an observer of remote calls failed")
