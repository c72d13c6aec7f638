"""Circuit breaker and retry budget for one catalog. Neither uses a clock or an event loop."""

from __future__ import annotations

from lance_ns_async.model import Id

PROBE_INTERVAL = 5.0
"""Seconds between two probe calls while the circuit is open."""

_FEWEST = 10  # Number of consecutive failures that open the circuit, and of failing subjects that block an operation.

_LEAST_RESERVE = 100.0
_PER_ANSWER = 0.5


class Circuit:
    """Opens after `patience` seconds of failures without a response; then sends one probe call per `PROBE_INTERVAL`.

    An open circuit also lets calls pass whose subject has not failed in the same operation, until `_FEWEST` subjects
    have failed in it. The failure of one table or one operation does not predict the failure of others.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failures = 0
        self._failing: dict[str, set[Id]] = {}
        """The subjects that failed since the last response, by operation; at most `_FEWEST` for each operation."""
        self._failing_since = 0.0
        self._probe_at: float | None = None
        """Time of the next probe call; None while the circuit is closed."""
        self._why = ""

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open."""
        return self._probe_at is not None

    def obstacle(self, now: float, operation: str, subject: Id) -> str | None:
        """Returns the reason why a call must not be sent; None if it may be sent, which counts it as sent."""
        if self._probe_at is None:
            return None
        failing = self._failing.get(operation, ())
        if subject not in failing and len(failing) < _FEWEST:
            return None
        if now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL
            return None
        return (
            f"not sent, because there was no response for {now - self._failing_since:.0f} s: {self._why}; "
            f"the catalog is tried again in {self._probe_at - now:.0f} s"
        )

    def record_response(self) -> None:
        """Records a response, which closes the circuit."""
        if self._failures:
            self._failures = 0
            self._failing.clear()
            self._probe_at = None

    def record_failure(self, now: float, operation: str, subject: Id, why: str) -> None:
        """Records a call that was refused or got no response."""
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        failing = self._failing.setdefault(operation, set())
        if len(failing) < _FEWEST:
            failing.add(subject)
        self._why = why
        lasting = self._failures >= _FEWEST and now - self._failing_since > self._patience
        if lasting and self._probe_at is None:
            self._probe_at = now + PROBE_INTERVAL


class Budget:
    """Retry budget: starts at twice `most`, but at least 100; each response adds half a retry, up to the initial value.

    A failing catalog therefore receives at most half as many retries as it gives responses. The initial value covers a
    sudden loss of capacity: all calls in flight may be refused, and many of them again before the limit has adapted.
    """

    def __init__(self, most: int) -> None:
        self._left = self._reserve = max(_LEAST_RESERVE, 2.0 * most)

    @property
    def left(self) -> int:
        """The number of calls that may be sent again now."""
        return int(self._left)

    def record_response(self) -> None:
        """Records a response."""
        self._left = min(self._reserve, self._left + _PER_ANSWER)

    def take(self) -> bool:
        """Returns whether a call may be sent again, and counts that retry."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
