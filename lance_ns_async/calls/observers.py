"""What is told of remote calls, and to whom."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lance_ns_async.model import Id

log = logging.getLogger(__name__)

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Upper bounds of the buckets in which seconds are counted, but for the last, which has none."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is told of one sending of a remote call."""

    operation: str
    subject: Id
    attempt: int
    """1 for the first sending."""
    seconds: float
    outcome: str
    """`"ok"`, the failure's most specific code, the error's name for an answer we refuse, or `"cancelled"`."""
    hedge: bool = False
    """Whether it was sent beside another, which took long; the slower one is cancelled."""


Observer = Callable[[Call], None]
"""Is told of calls, in the event loop's thread: it must neither block nor raise."""


class Observers:
    """Those who want to be told of calls."""

    def __init__(self) -> None:
        self.all: list[Observer] = []

    @contextmanager
    def with_one(self, observer: Observer) -> Iterator[None]:
        """One more while the context is open. Other threads may come and go meanwhile."""
        self.all.append(observer)
        try:
            yield
        finally:
            self.all.remove(observer)

    def tell(self, call: Call) -> None:
        """Tells each of them."""
        for observer in tuple(self.all):
            try:
                observer(call)
            except Exception:  # what became of the call must not depend on who watches it
                log.exception("an observer of remote calls failed")
