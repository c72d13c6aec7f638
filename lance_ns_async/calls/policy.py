"""The policy of remote calls."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from math import inf

from lance_namespace.errors import InvalidInputError

from lance_ns_async.calls.repetition import backoff
from lance_ns_async.calls.slots import Slots, slots_by_key

_MOST_IN_FLIGHT = 256


def _most_in_flight() -> int:
    """Returns the default for `max_in_flight`: each call may need a connection, and each connection is an open file."""
    with suppress(ImportError):  # Windows has no such limit.
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files != resource.RLIM_INFINITY:
            return max(1, min(_MOST_IN_FLIGHT, files // 4))
    return _MOST_IN_FLIGHT


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
    max_in_flight: int = _most_in_flight()
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

    def pause(self, attempt: int, pace: float = inf) -> float:
        """Returns a random pause in seconds after `attempt` attempts; the first one is at most `pace`.

        Args:
            attempt: The number of attempts so far.
            pace: Maximum of the first pause in seconds.
        """
        return backoff(attempt, min(self.backoff_initial, pace), self.backoff_max)
