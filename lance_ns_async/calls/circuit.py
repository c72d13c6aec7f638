"""Whether a catalog that fails is to be asked at all, and asked again. Knows no clock and no event loop."""

from __future__ import annotations

from lance_ns_async.model import Id

PROBE_INTERVAL = 5.0
"""Seconds from one call that is let through to the next, while others fail unsent."""

_FEWEST = 10
"""Calls that fail in a row before a catalog counts as down, and subjects of an operation before that does."""

_LEAST_RESERVE = 100.0
_PER_ANSWER = 0.5


class Circuit:
    """Opens when nothing was answered for `patience` seconds; then lets one call through now and then.

    What was not asked for yet is let through besides: a table that fails, or an operation, says nothing of others.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failures = 0
        self._failing: dict[str, set[Id]] = {}
        """By the operation, of what it failed since the last answer; no more than tell that it fails of anything."""
        self._failing_since = 0.0
        self._probe_at: float | None = None
        """None while the circuit is closed."""
        self._why = ""

    @property
    def is_open(self) -> bool:
        """Whether calls are held back."""
        return self._probe_at is not None

    def obstacle(self, now: float, operation: str, subject: Id) -> str | None:
        """Why that call is not to be sent; None where it may be, which counts as sent."""
        if self._probe_at is None:
            return None
        failing = self._failing.get(operation, ())
        if subject not in failing and len(failing) < _FEWEST:
            return None
        if now >= self._probe_at:
            self._probe_at = now + PROBE_INTERVAL
            return None
        return (
            f"not sent, as nothing was answered for {now - self._failing_since:.0f} s: {self._why}; "
            f"the catalog is tried again in {self._probe_at - now:.0f} s"
        )

    def answered(self) -> None:
        """Notes that the catalog is there."""
        if self._failures:
            self._failures = 0
            self._failing.clear()
            self._probe_at = None

    def failed(self, now: float, operation: str, subject: Id, why: str) -> None:
        """Notes a call that was refused, or had no answer."""
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
    """Repetitions that may be made: twice what may be in flight at first, a hundred at least; one more for two answers.

    So a catalog that fails is asked at most half as often again as it answers. One that suddenly bears less may refuse
    all that is in flight, and much of it once more before the limit has followed.
    """

    def __init__(self, most: int) -> None:
        self._left = self._reserve = max(_LEAST_RESERVE, 2.0 * most)

    def answered(self) -> None:
        """Notes an answer."""
        self._left = min(self._reserve, self._left + _PER_ANSWER)

    def take(self) -> bool:
        """Whether a call may be sent again, which is then counted."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
