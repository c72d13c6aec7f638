"""Repetition of work that failed: the only module that makes another attempt, with its pauses and its limits."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import uniform
from time import monotonic
from typing import Any, Generic, TypeVar

from lance_namespace.errors import LanceNamespaceError
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from lance_ns_async.calls.tasks import pause

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")


class TryAgainError(Exception):
    """An attempt that must be repeated, for example because another writer was first.

    `Caller.repeat` and `Caller.repeat_in_thread` make another attempt, or raise `error` if there is no other.
    """

    def __init__(self, error: LanceNamespaceError, *, retry_after: float = 0.0) -> None:
        """Creates the exception.

        Args:
            error: The error to raise if the work is not repeated.
            retry_after: Seconds that the server asked to wait, in addition to the pause.
        """
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


@dataclass(slots=True)
class Repetition(Generic[E]):
    """Repeats work after some exceptions, as long as attempts and time are left; then raises the last exception."""

    kind: type[E]
    """The class of exceptions after which work is repeated."""
    attempts: int
    """Maximum number of attempts."""
    until: float
    """Time after which no attempt begins, on the clock of `time.monotonic`."""
    pause: Callable[[E, int], float]
    """Returns the seconds to wait after an exception of the nth attempt."""
    repeats: Callable[[E], bool] | None = None
    """Returns whether the work is repeated after an exception; None repeats it after every one of this kind."""
    permits: Callable[[E], bool] | None = None
    """Returns whether one more attempt is permitted now, and counts it; None permits every attempt."""
    spares: Callable[[E], bool] | None = None
    """Returns whether an exception leaves the number of remaining attempts unchanged; called once for each attempt."""
    is_late: bool = field(default=False, init=False)
    """Whether there was no time for another attempt."""
    is_refused: bool = field(default=False, init=False)
    """Whether another attempt was not permitted."""
    _free: int = field(default=0, init=False)
    """Attempts that do not count."""

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of the first attempt that succeeds."""
        return await AsyncRetrying(sleep=pause, **self._rules())(work)

    def run_in_thread(self, work: Callable[[], T]) -> T:
        """Returns the result of the first attempt that succeeds; blocks during the pauses."""
        return Retrying(sleep=time.sleep, **self._rules())(work)

    def _rules(self) -> dict[str, Any]:
        return {
            "retry": retry_if_exception(self._repeats),
            "wait": lambda state: self.pause(self._error(state), state.attempt_number),
            "stop": self._stops,
            "reraise": True,
        }

    def _repeats(self, error: BaseException) -> bool:
        return isinstance(error, self.kind) and (self.repeats is None or self.repeats(error))

    def _error(self, state: RetryCallState) -> E:
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, self.kind)
        return error

    def _stops(self, state: RetryCallState) -> bool:
        error = self._error(state)
        is_free = self.spares is not None and self.spares(error)
        self._free += is_free
        if stop_after_attempt(self.attempts + self._free)(state):
            return True
        self.is_late = monotonic() + state.upcoming_sleep >= self.until
        needs_permit = self.permits is not None and not (self.is_late or is_free)
        self.is_refused = needs_permit and self.permits is not None and not self.permits(error)
        return self.is_late or self.is_refused


def backoff(attempt: int, initial: float, maximum: float) -> float:
    """Returns a random pause in seconds after `attempt` attempts; its upper limit doubles with each attempt.

    Args:
        attempt: Number of attempts so far, at least 1.
        initial: Upper limit of the first pause, in seconds.
        maximum: Upper limit of every pause, in seconds.
    """
    return uniform(0, min(maximum, initial * 2.0 ** min(attempt - 1, 64)))
