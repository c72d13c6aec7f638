"""The policy of remote calls, and the repetition of work that failed: no other module makes another attempt."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from math import inf
from random import uniform
from time import monotonic
from typing import Any, Generic, TypeVar

from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from lance_ns_async.calls.slots import Slots, slots_by_key
from lance_ns_async.calls.tasks import pause

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

_MAX_IN_FLIGHT = 256


def _max_in_flight() -> int:
    """Returns the default for `max_in_flight`: each call may need a connection, and each connection is an open file."""
    with suppress(ImportError):  # Windows has no such limit.
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            return max(1, min(_MAX_IN_FLIGHT, files // 4))
    return _MAX_IN_FLIGHT


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of every remote call. All times are in seconds.

    Raises:
        InvalidInputError: A limit is too small.
    """

    max_retries: int = 3
    """How many times a call is sent again after a transient failure."""
    attempt_timeout: float = 30.0
    """Maximum time of one attempt of a call, without the wait for a slot."""
    operation_timeout: float = 120.0
    """Maximum time of one operation: waits, attempts and pauses of all its calls together."""
    backoff_initial: float = 0.1
    """The longest pause before the first retry; it doubles with each further retry.

    With `adaptive`, a call is sent again sooner if the catalog responds quickly to other calls.
    """
    backoff_max: float = 5.0
    """The longest pause before any retry, unless the server asks for a longer one."""
    max_in_flight: int = _max_in_flight()
    """Maximum number of concurrent calls, shared by all namespaces with the same properties.

    It is 256, or a quarter of the files that the process may open if that is less. The calls begin with 32; more follow
    as long as the catalog responds to them.
    """
    adaptive: bool = True
    """Whether the limit of concurrent calls follows the catalog's capacity; if not, it is always `max_in_flight`."""
    circuit_after: float = 30.0
    """Time without any response after which calls fail without being sent, except for occasional probe calls."""
    hedge_after: float | None = None
    """Time after which a read under way is sent a second time, concurrently; None disables this."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            least = 1 if limit.name == "max_in_flight" else 0
            if value is None and limit.name == "hedge_after":
                continue
            is_positive = limit.name.endswith(("timeout", "hedge_after"))
            if not value >= least or (value == 0 and is_positive):
                bound = "above 0" if is_positive else f"at least {least}"
                raise InvalidInputError(f"policy: {limit.name} is {value!r}; it must be {bound}")

    def slots(self, key: Hashable | None = None) -> Slots:
        """Returns the slots for calls: shared by all users of the same key, or separate ones if the key is None.

        Args:
            key: Identifies the slots that are shared; None means separate slots.
        """
        create = partial(Slots, self.max_in_flight, adaptive=self.adaptive, patience=self.circuit_after)
        if key is None:
            return create()
        return slots_by_key.find_or_create((key, self.max_in_flight, self.adaptive, self.circuit_after), create)

    def pause(self, attempt: int, pace: float = inf, *, least: float = 0.0) -> float:
        """Returns a random pause in seconds after `attempt` attempts; its maximum is at first `pace`, and doubles.

        Args:
            attempt: The number of attempts so far.
            pace: Maximum of the first pause in seconds.
            least: The smallest pause, as a share of the largest one.
        """
        longest = min(self.backoff_max, min(self.backoff_initial, pace) * 2.0 ** min(attempt - 1, 64))
        return uniform(least * longest, longest)


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
