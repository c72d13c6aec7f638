"""Adaptive limit of concurrent calls to one catalog, learned from its responses. Uses no clock and no event loop.

A sequential test separates overload from isolated refusals. Each refusal adds to a score, and each response lowers
it. Only a full score lowers the limit, to the number of calls that the catalog handled at that moment. The limit then
grows again, slowly at first and then faster, as in TCP CUBIC. If the catalog throttles even a few concurrent calls, it
limits calls per second; then a `Pacer` takes over. If calls go on to fail at a lower limit, `Accidents` finds out
whether the limit has to do with it.
"""

from __future__ import annotations

from math import inf

from lance_ns_async.calls.accidents import Accidents
from lance_ns_async.calls.pacer import Pacer

START = 32
"""The initial limit of calls in flight."""

_FLOOR = 2
_FEW = 5
"""The largest limit at which an alarm because of throttled calls is the sign of a rate limit."""
_ALARM = 5.0
"""The score at which refusals count as overload."""
_WARY = 2.0
"""The score from which the limit stops growing."""
_AFTER_ALARM = 3.0
_HOLD, _LONGEST_HOLD, _HOLD_AMONG_ACCIDENTS = 8, 32, 2
"""Rounds of responses during which the limit hardly exceeds the plateau: the initial and the largest number.

Among accidents an alarm is often a false one.
"""
_LONGEST_REST = 1.0
_HALVED = 8
"""The smallest limit that is halved for an experiment."""


class Limiter:
    """The limit of calls in flight to one catalog; it never exceeds `most`. Times are seconds of one common clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._floor = float(min(_FLOOR, most))
        self.limit: float = float(min(START, most))
        self._plateau: float | None = None
        """The number of concurrent calls that the catalog is known to handle; None while it has refused nothing."""
        self._score = 0.0
        self._usual = 0.03
        """The share of calls that fail without overload, as it was at limits far below the known capacity."""
        self._accidents = Accidents()
        self._latency = 0.0
        self._rounds = 0.0
        """Responses since the limit reached the plateau, in multiples of the limit."""
        self._hold = _HOLD
        self._answered_at = self._cut_at = -inf
        self._rests_until = -inf
        self.pacer: Pacer = Pacer()

    def record_response(self, now: float, sent_at: float, in_flight: int) -> None:
        """Records a response, errors included; `in_flight` is the number of calls still under way."""
        latency, self._answered_at = now - sent_at, now
        self._latency += (latency - self._latency) / 8 if self._latency else latency
        self.pacer.record_response(now, sent_at)
        if self._score:
            self._score = max(0.0, self._score - max(0.01, 2 * self._usual, 3 * self._accidents.known))
        self._learn(0.0)
        if self._accidents.record_response(sent_at):
            # The limit may grow fast: what was taken for the capacity was none.
            self._plateau, self._score = None, 0.0
        # Responses to fewer calls than the limit allows say nothing about a higher limit.
        if self._score < _WARY and in_flight + 1 >= 0.8 * int(self.limit):
            self._grow()

    def record_refusal(self, now: float, sent_at: float, in_flight: int, *, is_throttle: bool = False) -> float:
        """Records a refused call; returns the seconds for which its slot must stay empty.

        Args:
            now: The current time.
            sent_at: The time at which the call was sent.
            in_flight: The number of calls still under way.
            is_throttle: Whether the catalog says that there are too many calls, as with HTTP 429.
        """
        if is_throttle and self.pacer.is_active(now):
            self.pacer.record_throttle(now, sent_at)
            return 0.0
        self._learn(1.0)
        self._accidents.record_failure(sent_at)
        if sent_at >= self._cut_at:
            is_few = self.limit <= _FEW and not self._accidents.is_usual
            if self._suspect(1.0, now, in_flight) and is_throttle and is_few and self.pacer.begin(now):
                # The refusals had another cause than concurrency, so the limit begins anew.
                self.limit, self._plateau, self._score = float(min(START, self._most)), None, 0.0
                return 0.0
        else:
            # It was sent before the last cut, so it is no new sign of overload; but it was one call too many.
            self._lower(self.limit - 1, (self._plateau or self.limit) - 1)
        return self._rest(now)

    def record_failure(self, now: float, sent_at: float, in_flight: int) -> float:
        """Records a call without a response; returns the seconds for which its slot must stay empty."""
        self._learn(1.0)
        self._accidents.record_failure(sent_at)
        if sent_at >= self._cut_at:
            self._suspect(0.5, now, in_flight)
        return self._rest(now)

    def pace(self, sent_at: float) -> float:
        """Returns the usual latency if the failure of a call sent at `sent_at` is isolated; inf if it may be overload.

        A failure is isolated if other calls got responses since `sent_at`. Call this before the failure is recorded.
        """
        is_isolated = self._score < _WARY or self._accidents.known > 0
        return self._latency if is_isolated and self._answered_at >= sent_at else inf

    def _suspect(self, weight: float, now: float, in_flight: int) -> bool:
        """Returns whether there was an alarm, which lowers the limit."""
        self._score += weight
        is_experiment = self._plateau is not None and self.limit >= _HALVED and self._accidents.is_suspicious
        if self._score < (2 * _ALARM if self._accidents.is_experimenting else _ALARM) and not is_experiment:
            return False
        self._accidents.restart(now, is_experiment=is_experiment)
        if is_experiment or now - self._cut_at <= 3 * self._latency:
            # An experiment, or the previous cut was too small: the calls in flight are no measure of the capacity.
            self._lower(self.limit / 2, 0.75 * self.limit)
        else:
            at_plateau = self._plateau is not None and self.limit <= 1.1 * self._plateau
            hold = _HOLD_AMONG_ACCIDENTS if self._accidents.known else _HOLD
            self._hold = min(_LONGEST_HOLD, 2 * self._hold) if at_plateau else hold
            capacity = min(self.limit - 1, max(self.limit / 2, 0.98 * in_flight))
            self._lower(capacity, capacity)
        self._score, self._cut_at = _AFTER_ALARM, now
        return True

    def _lower(self, limit: float, plateau: float) -> None:
        self.limit = max(self._floor, limit)
        self._plateau = max(self._floor, plateau)
        self._rounds = 0.0

    def _grow(self) -> None:
        if self._plateau is None:
            limit = self.limit + 1
        elif self.limit < self._plateau:
            limit = self.limit + max(self._plateau - self.limit, 1.0) / (2 * self.limit)
        else:
            self._rounds += 1 / self.limit
            limit = self._plateau + max(1.0, self._plateau / 16) * (self._rounds / self._hold) ** 3
        self.limit = min(float(self._most), limit)

    def _learn(self, refusal: float) -> None:
        # A refusal far below the known capacity is not a sign of overload.
        if self._plateau is not None and (self.limit < 0.7 * self._plateau or 2 * self._rounds < self._hold):
            self._usual = min(0.15, self._usual + (refusal - self._usual) / 32)

    def _rest(self, now: float) -> float:
        # Slots become free one after another; if all did at once, all their calls would be refused again.
        self._rests_until = max(now + self._latency, self._rests_until + self._latency / self.limit)
        return min(_LONGEST_REST, self._rests_until - now)
