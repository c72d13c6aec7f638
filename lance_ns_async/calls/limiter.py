"""How many calls a catalog bears at once, found out from its answers. Knows no clock and no event loop.

Refusals are told from accidents by a sequential test: each adds to a score that answers drain, and only a full score
lowers the limit, to what the catalog held at that moment. From there it is probed upwards, slowly at first and then
quicker, as TCP's CUBIC does.
"""

from __future__ import annotations

from math import inf

START = 32
"""Calls in flight that are tried at first."""

_FLOOR = 2
_ALARM = 5.0
"""The score at which refusals count as load."""
_WARY = 2.0
"""The score from which on the limit does not grow."""
_AFTER_ALARM = 3.0
_HOLD, _LONGEST_HOLD = 8, 32
"""Rounds of answers in which a limit that was found is hardly exceeded."""
_LONGEST_REST = 1.0


class Limiter:
    """The limit of calls in flight to one catalog; it never exceeds `most`. Times are seconds of any one clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._floor = float(min(_FLOOR, most))
        self.limit = float(min(START, most))
        self._plateau: float | None = None
        """What the catalog was found to bear; None while it has refused nothing."""
        self._score = 0.0
        self._usual = 0.03
        """The share of calls that fails by accident."""
        self._latency = 0.0
        self._rounds = 0.0
        """Answers since the limit stands at the plateau, in multiples of the limit."""
        self._hold = _HOLD
        self._answered_at = self._cut_at = -inf
        self._rests_until = -inf

    def answered(self, now: float, sent: float, in_flight: int) -> None:
        """Notes an answer, be it an error; `in_flight` is what is still under way."""
        took, self._answered_at = now - sent, now
        self._latency += (took - self._latency) / 8 if self._latency else took
        if self._score:
            self._score = max(0.0, self._score - max(0.01, 2 * self._usual))
        self._learn(0.0)
        # Where fewer calls are made than may be, their answers tell nothing about more.
        if self._score < _WARY and in_flight + 1 >= 0.8 * int(self.limit):
            self._grow()

    def refused(self, now: float, sent: float, in_flight: int) -> float:
        """Notes that the catalog would not take a call; gives how long its place is to stay empty."""
        self._learn(1.0)
        if sent >= self._cut_at:
            self._suspect(1.0, now, in_flight)
        else:
            # It was sent before the last cut: no news of overload, but it was not borne all the same.
            self._lower(self.limit - 1, (self._plateau or self.limit) - 1)
        return self._rest(now)

    def failed(self, now: float, sent: float, in_flight: int) -> float:
        """Notes a call without an answer; gives how long its place is to stay empty."""
        self._learn(1.0)
        if sent >= self._cut_at:
            self._suspect(0.5, now, in_flight)
        return self._rest(now)

    def pace(self, sent: float) -> float:
        """How long an answer takes, where a call sent then failed by accident; inf where load may be why.

        An accident befalls one call while others are answered. To be asked before the failure is noted.
        """
        return self._latency if self._score < _WARY and self._answered_at >= sent else inf

    def _suspect(self, weight: float, now: float, in_flight: int) -> None:
        self._score += weight
        if self._score < _ALARM:
            return
        if now - self._cut_at <= 3 * self._latency:
            # The cut before was not enough, so what was in flight then was no measure.
            self._lower(self.limit / 2, 0.75 * self.limit)
        else:
            repeated = self._plateau is not None and self.limit <= 1.1 * self._plateau
            self._hold = min(_LONGEST_HOLD, 2 * self._hold) if repeated else _HOLD
            held = min(self.limit - 1, max(self.limit / 2, 0.98 * in_flight))
            self._lower(held, held)
        self._score, self._cut_at = _AFTER_ALARM, now

    def _lower(self, limit: float, plateau: float) -> None:
        self.limit = max(self._floor, limit)
        self._plateau = max(self._floor, plateau)
        self._rounds = 0.0

    def _grow(self) -> None:
        if self._plateau is None:
            grown = self.limit + 1
        elif self.limit < self._plateau:
            grown = self.limit + max(self._plateau - self.limit, 1.0) / (2 * self.limit)
        else:
            self._rounds += 1 / self.limit
            grown = self._plateau + max(1.0, self._plateau / 16) * (self._rounds / self._hold) ** 3
        self.limit = min(float(self._most), grown)

    def _learn(self, refused: float) -> None:
        # What is refused well below what the catalog bears is refused by accident.
        if self._plateau is not None and (self.limit < 0.7 * self._plateau or 2 * self._rounds < self._hold):
            self._usual = min(0.15, self._usual + (refused - self._usual) / 32)

    def _rest(self, now: float) -> float:
        # Places come back one after another, or all of them would be refused once more.
        self._rests_until = max(now + self._latency, self._rests_until + self._latency / self.limit)
        return min(_LONGEST_REST, self._rests_until - now)
