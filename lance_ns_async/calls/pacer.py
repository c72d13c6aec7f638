"""Adaptive rate of calls to one catalog that limits calls per second. Uses no clock and no event loop.

A catalog with a rate limit, for example a token bucket, refuses calls however few are in flight. The pacer measures how
many calls per second the catalog accepted between two refusals, when its bucket was empty, and sends slightly fewer.
The rate then grows slowly until the next refusal.
"""

from __future__ import annotations

from math import inf

_START, _LEAST = 50.0, 0.5
"""Calls per second before anything is measured, and the smallest rate."""
_SAMPLE = 5
"""Responses between two refusals that suffice for a measurement."""
_BELOW = 0.97
"""The share of the measured rate that is used."""
_IN_A_ROW, _DROP = 4, 4
"""Consecutive refusals after which the rate is divided, and the divisor."""
_CLIMB = 1.3
"""Factor of the rate for each response before anything is measured."""
_CREEP, _CREEP_DOUBLES = 0.0005, 30
"""Growth for each response after a measurement, and the responses after which the growth is doubled, tripled, ..."""
_CATCH_UP = 2
"""Calls that may be sent at once if they are late, so that late timers do not lower the rate."""
_CLEAR = 0.85
"""Below this share of the best measured rate, refusals have another cause than the rate; a few do not lower it."""
_QUIET = 60.0
"""Seconds without a refusal after which calls are not paced any more."""
_USELESS = 3
"""Consecutive measurements with many refusals, at rates from earlier measurements, after which pacing ends for a while.

The rate is then not the cause of the refusals.
"""


class Pacer:
    """The rate at which calls to one catalog are sent while it throttles. Times are seconds of one common clock."""

    def __init__(self) -> None:
        self.rate: float = _START
        self._has_measured = False
        """Whether the rate comes from a measurement; if not, it grows quickly."""
        self._best = 0.0
        """The largest rate that was measured since the catalog last accepted clearly fewer calls than were sent."""
        self._began_at = self._refused_at = -inf
        self._next_at = -inf
        """Time at which the next call may be sent."""
        self._adjusted_at = -inf
        self._sample_at = -inf
        """Start of the current measurement: a time at which the catalog had no call to spare."""
        self._sample = 0
        self._in_a_row = 0
        self._quiet = 0
        """Responses since the last refusal."""
        self._useless = 0
        self._off_until = -inf
        """Time until which no pace is begun, because a lower rate did not lower the share of refusals."""

    def is_active(self, now: float) -> bool:
        """Returns whether calls are paced."""
        return now - self._refused_at < _QUIET

    def begin(self, now: float) -> bool:
        """Starts to pace calls, at the last measured rate if there is one; returns False if this is known to fail."""
        if now < self._off_until:
            return False
        if not self._has_measured:
            self.rate = _START
        self._began_at = self._refused_at = self._adjusted_at = self._sample_at = self._next_at = now
        self._sample = self._in_a_row = self._quiet = self._useless = 0
        return True

    def delay(self, now: float, position: int = 0) -> float:
        """Returns the seconds until a call may be sent that has `position` calls before it in the queue."""
        if not self.is_active(now):
            return 0.0
        return max(0.0, self._next_at + position / self.rate - now)

    def send(self, now: float) -> None:
        """Records that a call is sent."""
        self._next_at = max(self._next_at, now - _CATCH_UP / self.rate) + 1 / self.rate

    def record_response(self, now: float, sent_at: float) -> None:
        """Records a response."""
        if not self.is_active(now) or sent_at < self._began_at:
            return
        self._in_a_row = 0
        self._sample += 1
        self._quiet += 1
        self.rate *= 1 + _CREEP * (1 + self._quiet / _CREEP_DOUBLES) if self._has_measured else _CLIMB

    def record_throttle(self, now: float, sent_at: float) -> None:
        """Records a refusal because of the rate."""
        self._refused_at = now
        if sent_at < self._adjusted_at:
            # It was sent before the last change of the rate, so it says nothing about the present rate.
            return
        self._in_a_row += 1
        if self._sample >= _SAMPLE:
            self._measure(max(now - self._sample_at, 1e-3))
            if self._useless >= _USELESS:
                self._refused_at, self._off_until, self._has_measured = -inf, now + _QUIET, False
            self._sample, self._sample_at = 0, now
        elif self._in_a_row >= _IN_A_ROW:
            self.rate = max(_LEAST, self.rate / _DROP)
            self._has_measured = False
        else:
            return
        self._in_a_row, self._adjusted_at = 0, now

    def _measure(self, seconds: float) -> None:
        capacity = self._sample / seconds
        # One more call was sent than was accepted, and only more than one is a sign that the rate is too high.
        is_clear = (self._sample + 1) / seconds < _CLEAR * self.rate
        # A measurement after a guessed rate is no sign: the guess may have been far too high.
        self._useless = self._useless + self._has_measured if is_clear else 0
        if is_clear:
            self._best = capacity
        elif self._has_measured and self.rate < _CLEAR * self._best:
            # Nearly all calls were accepted, at a rate far below the best one: the refusal was an isolated one.
            return
        self._best = max(self._best, capacity)
        self._quiet = 0
        self._has_measured = True
        self.rate = max(_LEAST, _BELOW * min(self.rate, capacity))
