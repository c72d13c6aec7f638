"""The rate of the calls to a catalog that accepts a number of calls per second. Uses no clock and no event loop.

The rate is what the catalog accepted between two refusals, when it had no call to spare, minus a few per cent. It then
grows slowly until the next refusal. A usual share of refused calls, which does not depend on the load, changes nothing.
"""

from __future__ import annotations

from math import inf

GUESS, _LEAST = 50.0, 0.5
"""Calls per second before anything is measured, and the smallest rate."""
_SAMPLE = 5
"""Responses between two refusals that suffice for a measurement."""
BELOW, _LOWEST = 0.97, 0.85
"""The share of a measured rate that is used, and the share of the best one below which only a trial leads."""
_CLIMB = 1.3
"""Factor of the rate for each response before anything is measured."""
_CREEP, _CREEP_DOUBLES = 0.0005, 30
"""Growth for each response after a measurement, and the responses after which the growth is doubled, tripled, ..."""
_DOUBT, _CERTAIN = 5.0, 0.05
"""The score of refusals at measured rates that is a reason for a trial, and what each response takes from it."""
_IN_VAIN, _DROP = 4.0, 4
"""The score at which a rate without a measurement is divided, and the divisor."""
_QUIET = 60.0
"""Seconds without a refusal after which calls are not paced any more."""


class Pacer:
    """The rate at which calls are sent; inf if they are not paced. Times are seconds of one common clock."""

    def __init__(self) -> None:
        self.rate: float = inf
        self.changed_at: float = -inf
        """Time of the last change of the rate, except for its growth."""
        self._refused_at = self._next_at = -inf
        """Times of the last refusal, and at which the next call may be sent."""
        self._is_measured, self._best = False, 0.0
        """Whether the rate was measured, and the largest one that was since the last trial."""
        self._doubt = self._score = 0.0
        """The scores of refusals at measured rates, and of those since the last change of the rate."""
        self._responses = self._quiet = 0
        """Responses since the last change of the rate, and since the last refusal."""

    @property
    def is_active(self) -> bool:
        """Whether calls are paced."""
        return self.rate < inf

    def begin(self, now: float, rate: float) -> None:
        """Starts to pace calls."""
        self._next_at = self._refused_at = now
        self._is_measured, self._best = False, 0.0
        self._set(now, rate)

    def delay(self, now: float, position: int = 0) -> float:
        """Returns the seconds until a call may be sent that has `position` calls before it in the queue."""
        return max(0.0, self._next_at + position / self.rate - now) if self.rate < inf else 0.0

    def send(self, now: float) -> None:
        """Records that a call is sent; two may catch up, so that late timers do not lower the rate."""
        if now - self._refused_at > _QUIET:
            self.rate = inf
        elif self.rate < inf:
            self._next_at = max(self._next_at, now - 2 / self.rate) + 1 / self.rate

    def record_response(self, now: float, enough: float, usual: float) -> None:
        """Records a response to a call that was sent at this rate.

        Args:
            now: The current time.
            enough: The rate from which on calls need no pace.
            usual: The share of calls that is refused whatever the rate.
        """
        self._responses, self._quiet = self._responses + 1, self._quiet + 1
        drain = max(_CERTAIN, 2 * usual / (1 - usual))
        self._doubt, self._score = max(0.0, self._doubt - drain), max(0.0, self._score - drain)
        self.rate *= 1 + _CREEP * (1 + self._quiet / _CREEP_DOUBLES) if self._is_measured else _CLIMB
        if self.rate > enough and now > self.changed_at + 1:
            self.rate = inf

    def record_refusal(self, now: float, usual: float) -> bool:
        """Records a refusal of a call that was sent at this rate; returns whether a trial is due."""
        self._refused_at, self._quiet, self._score = now, 0, self._score + 1
        self._doubt += self._is_measured
        if self._doubt >= _DOUBT:
            # A measured rate is refused again and again, so its cause may be another one.
            self._doubt = 0.0
            return True
        if self._responses >= _SAMPLE and self._score >= min(_DOUBT, 1 + 40 * usual):
            rate = BELOW * min(self.rate, self._responses / max(now - self.changed_at, 1e-3) / (1 - usual))
            # Refusals by chance would lower the rate again and again.
            self.measure(now, max(rate, _LOWEST * self._best))
        elif self._responses < _SAMPLE and self._score >= _IN_VAIN + 8 * usual:
            self._is_measured, self._best = False, 0.0
            self._set(now, self.rate / _DROP)
        return False

    def measure(self, now: float, rate: float, *, is_new: bool = False) -> None:
        """Sets a rate that was measured; if `is_new`, better ones of before do not count any more."""
        self._is_measured, self._best = True, rate if is_new else max(self._best, rate)
        self._set(now, rate)

    def try_twice(self, now: float) -> None:
        """Doubles the rate for a trial."""
        self._set(now, 2 * self.rate)

    def forget(self, now: float, rate: float = 0.0) -> None:
        """Lets the rate grow freely, because it is not the cause of the refusals."""
        self._is_measured, self._best = False, 0.0
        self._set(now, max(rate, self.rate))

    def _set(self, now: float, rate: float) -> None:
        self.rate, self.changed_at, self._score = max(_LEAST, rate), now, 0.0
        self._responses = self._quiet = 0
