"""Adaptive limit of the calls to one catalog, learned from its responses. Uses no clock and no event loop.

A catalog refuses calls for one of three reasons, and each shows in its own way:

- It accepts a number of concurrent calls. Calls in slots that are new, or whose last call was refused, are refused
  again, and those in slots that worked go on to work. After a few such refusals, the limit becomes the number of slots
  that worked, and grows again: slowly at first, then faster, as in TCP CUBIC.
- Accidents, for example because another client has used up a common quota. They refuse a share of calls in all slots,
  whatever the load.
- It accepts a number of calls per second. It refuses calls in all slots, too, and a smaller share of fewer calls.

Therefore refusals in slots that worked lead to a trial: half of the calls for a moment, or twice as many if they are
few. If the share of refused calls stays, the load is not its cause: the cut is undone, and that share counts as usual
for a while. If not, the limit becomes what the catalog delivered; if that is only a few calls, a `Pacer` takes over.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from math import inf
from typing import Self

from lance_ns_async.calls.pacer import BELOW, Pacer
from lance_ns_async.calls.trial import Trial

START, _FLOOR = 32, 2
"""The initial and the smallest limit of calls in flight."""
_FEW, _SMALL = 5, 8
"""The largest number of calls in flight that are rather paced, and the limit below which a trial doubles it."""
_PROBES, _WORKED = 3.0, 5.0
"""The scores of refusals in new or refused slots, and in slots that worked, at which something is done."""
_LEAK = 0.05
"""What each response takes from the second score: up to 5 % refused calls are never a reason."""
_HOLD, _LONGEST_HOLD, _UNSURE_HOLD, _LEAST_ROUND = 8, 16, 2, 20
"""Rounds of responses in which the limit hardly exceeds the plateau: at first, at most, and if the plateau is a guess;
and the responses of the smallest round."""
_GROWTH = 0.8
"""Growth of the limit for each response, until something is refused."""
_MOST, _MOST_USUAL = 0.55, 0.45
"""The share of refused calls that is never accidental, and the largest one that counts as usual."""
_MEMORY, _REMEMBERED = 2_000, 60.0
"""Responses and seconds after which a usual share is forgotten."""
_LONGEST_REST = 1.0
_FIRST_PAUSE, _FIRST = 0.02, 3
"""The pause of a failed call, and the number of such calls, before there is any response."""
_OUTAGE = 0.3
"""Seconds without any response, after which refused calls begin anew with the first response."""
_RECENT = 2.0
"""Seconds for which a response to another call says, among accidents, that a failure is isolated."""


class Slot(Enum):
    """What is known of a slot by its last call."""

    WORKED = auto()
    REFUSED = auto()
    NEW = auto()


class SentAt(float):
    """The time at which a call was sent, and what is known of its slot."""

    __slots__ = ("slot",)
    slot: Slot

    def __new__(cls, now: float, slot: Slot = Slot.WORKED) -> Self:
        sent_at = super().__new__(cls, now)
        sent_at.slot = slot
        return sent_at


class Limiter:
    """The limit of calls in flight to one catalog; it never exceeds `most`. Times are seconds of one common clock."""

    def __init__(self, most: int) -> None:
        self._most, self._floor = most, float(min(_FLOOR, most))
        self.limit: float = float(min(START, most))
        self.pacer: Pacer = Pacer()
        self._plateau: float | None = None
        """The number of concurrent calls that the catalog is known to accept; None while the limit grows freely."""
        self._rounds, self._hold = 0.0, _HOLD
        """Responses since the limit reached the plateau, in rounds, and the rounds in which it hardly grows."""
        self._latency = 0.0
        self._usual, self._usual_at = 0.0, -inf
        """The share of refused calls that does not depend on the load, and the time at which it was found."""
        self._answered_at = self._refused_at = self._rests_until = -inf
        self._wakes: deque[float] = deque()
        """Times at which refused slots may be used again."""
        self._answers: deque[float] = deque(maxlen=most)
        self._trial: Trial | None = None
        self._cut_at = self._since = -inf
        """The times since which calls count, and since which refusals in slots that worked do."""
        self._sent = self._responses = self._refusals = self._fresh = 0
        """Calls, responses and refusals since then, and refusals of calls sent since `_since`."""
        self._refused_slots, self._new = 0, int(self.limit)
        """Slots whose last call was refused, and slots that were not used yet."""
        self._probes = self._worked = 0.0
        """The scores of refused calls in new or refused slots, and in slots that worked."""

    def send(self, now: float) -> SentAt:
        """Records that a call is sent; returns the time, which the outcome needs."""
        self.pacer.send(now)
        sent_at = SentAt(now, self._take_slot(now))
        if self._since == -inf:
            self._since = now
        self._sent += 1
        if -inf < max(self._answered_at, self._refused_at) < now - 2 * self._latency:
            # Others may have left since the catalog was busy.
            self._hold = min(self._hold, _HOLD)
        return sent_at

    def _take_slot(self, now: float) -> Slot:
        while self._wakes and self._wakes[0] < now - 2 * self._latency:
            # Nobody wanted this slot, so its refusal is no sign any more.
            self._wakes.popleft()
            self._refused_slots = max(0, self._refused_slots - 1)
        if self._wakes and self._wakes[0] <= now:
            self._wakes.popleft()
            return Slot.REFUSED
        if self._new >= 1:
            self._new -= 1
            return Slot.NEW
        return Slot.WORKED

    def abandon(self, now: float, sent_at: SentAt) -> None:
        """Records a call that was cancelled, and says nothing about the catalog."""
        if sent_at >= self._cut_at:
            if sent_at.slot is Slot.REFUSED:
                self._wakes.appendleft(now)
            self._new += sent_at.slot is Slot.NEW

    def pace(self, sent_at: float) -> float:
        """Returns the usual latency if the failure of a call sent at `sent_at` is isolated; inf if it may be overload.

        A failure is isolated if others got responses at about that time. Call this before the failure is recorded.
        """
        if not self._latency and self._refusals < _FIRST:
            return _FIRST_PAUSE
        recent = _RECENT if self._usual else self._latency
        return self._latency if self._answered_at >= sent_at - recent else inf

    def record_response(self, now: float, sent_at: SentAt, in_flight: int) -> None:
        """Records a response, errors included; `in_flight` is the number of calls still under way."""
        if self._refused_at > self._answered_at and now - self._answered_at > max(_OUTAGE, 10 * self._latency):
            # For a while, all calls were refused, so the limit became far too small.
            if not self.pacer.is_active and -inf < self._answered_at and self.limit < START:
                self._begin_anew(-inf)
                self._new = START
        latency, self._answered_at = now - sent_at, now
        self._latency += (latency - self._latency) / 8 if self._latency else latency
        self._answers.append(now)
        self._usual = 0.0 if now - self._usual_at > _REMEMBERED else self._usual * (1 - 1 / _MEMORY)
        if sent_at < self._cut_at:
            return
        self._responses += 1
        odds = 2 * self._usual / (1 - self._usual)
        if sent_at.slot is Slot.REFUSED:
            self._refused_slots = max(0, self._refused_slots - 1)
        is_probe = sent_at.slot is not Slot.WORKED
        self._probes = max(0.0, self._probes - (max(1.0, odds) if is_probe else 1 / (4 * self.limit)))
        self._worked = max(0.0, self._worked - max(_LEAK, odds))
        if self._trial is not None:
            self._judge(self._trial, now)
        elif self.pacer.is_active:
            self.pacer.record_response(now, 2 * START / self._latency, self._usual)
            if not self.pacer.is_active:
                self._begin_anew(-inf)
                self._new = START
        else:
            if not self._worked:
                self._sent = self._responses = self._refusals = self._fresh = 0
                self._since = now
            # Growth stops while refusals are unexplained, and few calls say nothing about a higher limit.
            wary = 2 if self._plateau is None else 1
            if max(self._probes, self._worked) < wary and in_flight + 1 >= 0.8 * int(self.limit):
                self._grow()

    def record_failure(self, now: float, sent_at: SentAt, in_flight: int) -> float:
        """Records a call without a response; returns the seconds for which its slot must stay empty."""
        return self.record_refusal(now, sent_at, in_flight)

    def record_refusal(self, now: float, sent_at: SentAt, in_flight: int, *, is_throttle: bool = False) -> float:
        """Records a refused call; returns the seconds for which its slot must stay empty.

        Args:
            now: The current time.
            sent_at: What `send` returned.
            in_flight: The number of calls still under way.
            is_throttle: Whether the catalog says that there are too many calls, as with HTTP 429.
        """
        self._refused_at = now
        is_paced = self.pacer.is_active
        if sent_at < self._cut_at:
            # It was sent before the last cut, so it is no new sign; but it was one call too many.
            if not is_paced and sent_at.slot is not Slot.REFUSED and self._trial is None:
                self._cut(self.limit - 1, (self._plateau or self.limit) - 1)
            return 0.0 if is_paced else min(_LONGEST_REST, self._latency)
        self._refusals += 1
        self._fresh += sent_at >= self._since
        self._refused_slots += sent_at.slot is not Slot.REFUSED
        if sent_at.slot is Slot.WORKED:
            self._worked += 1
        else:
            self._probes += 1
        if self._trial is not None:
            self._judge(self._trial, now)
        elif is_paced:
            if self.pacer.record_refusal(now, self._usual):
                self._try(now, 0)
            elif self.pacer.changed_at > self._cut_at:
                self._restart(now)
        elif self._answered_at >= self._cut_at or now > max(self._since, self._cut_at) + 2 * (self._latency or 0.05):
            self._react(now, in_flight, is_throttle=is_throttle)
        if self.pacer.is_active:
            return 0.0
        if sent_at.slot is Slot.WORKED and self._usual > _LEAK:
            self._wakes.appendleft(now)
            return 0.0
        # Slots become free one after another; if all did at once, all their calls would be refused again.
        self._rests_until = max(now + self._latency, self._rests_until + self._latency / self.limit)
        rest = min(_LONGEST_REST, self._rests_until - now)
        self._wakes.append(now + rest)
        return rest

    def _react(self, now: float, in_flight: int, *, is_throttle: bool) -> None:
        held = self.limit - self._refused_slots
        is_most = self._fresh > _MOST * self._sent
        if is_throttle and is_most and held <= _FEW and held < 0.4 * self.limit and self._score >= _WORKED:
            self._begin_pace(now)
        elif self._probes >= _PROBES + 10 * self._usual:
            limit = min(self.limit - 1, max(held + self._usual * self.limit, self.limit / 4))
            if is_throttle and limit <= _FEW and self._plateau is not None:
                self._begin_pace(now)
                return
            at_plateau = self._plateau is not None and self.limit <= 1.1 * self._plateau
            self._hold = min(_LONGEST_HOLD, 2 * self._hold) if at_plateau else _HOLD
            self._cut(limit, limit)
            self._restart(now)
        elif is_most and self._fresh >= _WORKED:
            if is_throttle and self.limit <= 2 * _FEW:
                self._begin_pace(now)
                return
            self._hold = _UNSURE_HOLD
            self._cut(self.limit / 2, self.limit / 2)
            self._restart(now)
        elif self._worked >= _WORKED and now >= self._since + 1.2 * self._latency:
            self._try(now, in_flight)

    @property
    def _score(self) -> float:
        return max(self._probes, self._worked)

    def _try(self, now: float, in_flight: int) -> None:
        """Allows half or twice as many calls for a moment."""
        is_paced = self.pacer.is_active
        self._trial = Trial(
            share=self._refusals / (self._refusals + self._responses + in_flight),
            limit=self.limit,
            rate=self.pacer.rate,
            delivered=self._responses / max(now - self._since, 1e-3),
            held=self._answers_since(now - self._latency),
            is_larger=is_paced or self.limit < _SMALL,
        )
        if is_paced:
            self.pacer.try_twice(now)
        elif self._trial.is_larger:
            self._cut(min(2 * self.limit, self._most), 2 * self.limit)
        else:
            self._cut((self.limit - min(self._refused_slots, self.limit / 2)) / 2, self.limit)
        self._restart(now)

    def _judge(self, trial: Trial, now: float) -> None:
        """Ends a trial that tells enough: the load is the cause of the refusals, or it is not."""
        if now < self._cut_at + 2 * self._latency or not trial.is_decided(self._responses, self._refusals):
            return
        share, self._trial = self._refusals / (self._responses + self._refusals), None
        began = self._cut_at + self._latency
        delivered = max(trial.delivered, self._answers_since(began) / (now - began))
        is_accidental = not trial.blames_load(self._responses, self._refusals)
        is_paced = self.pacer.is_active
        if share < _MOST and (is_accidental or not trial.is_larger):
            self._usual, self._usual_at = min(share, _MOST_USUAL), now
        elif is_paced and trial.rate < 0.95 * delivered:
            # Calls were refused at a rate clearly below the one that the catalog accepts.
            self._usual, self._usual_at = min(trial.share, _MOST_USUAL), now
        self._restart(now)
        if is_paced and is_accidental:
            self.pacer.forget(now)
        elif is_paced:
            # What is delivered in a bad moment says little, so one trial at most halves the rate.
            self.pacer.measure(now, max(trial.rate / 2, BELOW * delivered / (1 - self._usual)), is_new=True)
        elif is_accidental:
            self.limit, self._plateau = max(trial.limit, self.limit), None
        else:
            known = max(min(trial.limit, self.limit), BELOW * max(trial.held, delivered * self._latency))
            self._hold = _HOLD
            self._cut(min(trial.limit, known), min(trial.limit, known))
            if self.limit <= _FEW:
                self._begin_pace(now, max(1.0, BELOW * delivered))

    def _begin_pace(self, now: float, *rate: float) -> None:
        self.pacer.begin(now, *rate)
        self._begin_anew(now)

    def _begin_anew(self, now: float) -> None:
        self.limit, self._plateau = float(min(START, self._most)), None
        self._restart(now)

    def _cut(self, limit: float, plateau: float) -> None:
        self.limit, self._plateau, self._rounds = max(self._floor, limit), max(self._floor, plateau), 0.0

    def _restart(self, now: float) -> None:
        """Counts anew; calls that were sent before `now` do not count."""
        self._cut_at = self._since = now
        self._sent = self._responses = self._refusals = self._fresh = self._refused_slots = self._new = 0
        self._probes = self._worked = 0.0
        self._wakes.clear()

    def _grow(self) -> None:
        old = int(self.limit)
        if self._plateau is None:
            limit = self.limit + _GROWTH
        elif self.limit < self._plateau:
            limit = self.limit + max(self._plateau - self.limit, 1.0) / (2 * self.limit)
        else:
            self._rounds += 1 / max(self.limit, _LEAST_ROUND)
            limit = self._plateau + max(1.0, self._plateau / 16) * (self._rounds / self._hold) ** 3
            if limit > 1.5 * self._plateau + 2:
                self._plateau = None
        self.limit = min(float(self._most), limit)
        self._new += int(self.limit) - old

    def _answers_since(self, then: float) -> int:
        return sum(at > then for at in self._answers)
