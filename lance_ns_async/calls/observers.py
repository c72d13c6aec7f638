"""Observers of remote calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lance_ns_async.model import Id

log = logging.getLogger(__name__)


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

    def notify(self, call: Call) -> None:
        """Passes a call to each observer."""
        for observer in tuple(self.all):
            try:
                observer(call)
            except Exception:  # an observer's error must not change the outcome of the call
                log.exception("an observer of remote calls failed")
