"""Adaptive limit of the calls to one catalog, learned from its responses. Uses no clock and no event loop.

A catalog refuses calls for one of three reasons, and each shows in its own way:

- It accepts a number of concurrent calls. Calls in slots that are new, or whose last call was refused, are refused
  again, and those in slots that worked go on to work. The limit becomes the number of slots that worked, and grows
  again, slowly at first and then faster, as in TCP CUBIC.
- Accidents, for example because another client has used up a common quota. They refuse a share of calls in all slots.
- It accepts a number of calls per second. It refuses calls in all slots, too, but a smaller share of fewer calls.

Therefore refusals in slots that worked lead to a trial: half of the calls for a moment. If the share of refused calls
stays, the load is not its cause: the cut is undone, and that share counts as usual for a while. If not, the limit
becomes what the catalog delivered; if that is only a few calls, a `Pacer` takes over.
"""

from __future__ import annotations

from collections import deque
from math import inf, log
from typing import Literal, NamedTuple

from lance_ns_async.calls.pacer import BELOW, GUESS, Pacer

START, _FLOOR, _FEW = 32, 2, 5
"""The initial and the smallest limit of calls in flight, and the largest number of them that is rather paced."""
_PROBES, _WORKED, _BURST = 3.0, 5.0, 8
"""The scores of refusals in new or refused slots, and in slots that worked, at which something is done; and the number
of those at once that needs no trial."""
_LEAK = 0.05
"""What each response takes from the second score: up to 5 % refused calls are never a reason."""
_GROWTH = 0.8
"""Growth of the limit for each response, until something is refused."""
_HOLD, _LONGEST_HOLD, _UNSURE_HOLD, _LEAST_ROUND = 8, 16, 2, 20
"""Rounds of responses in which the limit hardly exceeds the plateau: at first, at most, and if the plateau is a guess;
and the responses of the smallest round."""
_MOST, _MOST_USUAL = 0.55, 0.6
"""The share of refused calls that is never accidental, and the largest one that counts as usual."""
_MEMORY, _REMEMBERED = 2_000, 60.0
"""Responses and seconds after which a usual share is forgotten."""
_OUTAGE, _RECENT, _LONGEST_REST = 0.3, 2.0, 1.0
"""Seconds: without any response after which the limit begins anew; for which a response says, among accidents, that a
failure is isolated; and of the longest rest of a slot."""
_SURE, _EXPECTED, _ENOUGH = 3.0, 8, 24
"""What decides a trial: the logarithm of the odds, else the refusals to expect without a change, or the calls of a
larger load."""


class Sent(NamedTuple):
    """A call: the time, its number, and what is known of its slot by the last call in it."""

    at: float
    number: int = 0
    slot: Literal["worked", "refused", "new"] = "worked"


class _Trial(NamedTuple):
    """What was known before a trial."""

    share: float
    """The share of refused calls."""
    limit: float
    rate: float
    delivered: float
    """Responses per second."""

    def odds(self, responses: int, refusals: int) -> float:
        """Returns the logarithm of the odds that the load is the cause.

        Then the share of twice as many calls is half-way to 1, and that of half as many is at most a fourth.
        """
        share = (1 + self.share) / 2 if self.rate < inf else self.share / 4
        return refusals * log(share / self.share) + responses * log((1 - share) / (1 - self.share))


class Limiter:
    """The limit of calls in flight to one catalog; it never exceeds `most`. Times are seconds of one common clock."""

    def __init__(self, most: int) -> None:
        self._most, self._floor = most, float(min(_FLOOR, most))
        self.pacer: Pacer = Pacer()
        self.limit: float = 0.0
        self._plateau: float | None = None
        """The number of concurrent calls that the catalog is known to accept; None while the limit grows freely."""
        self._probes, self._worked, self._refused_slots = 0.0, 0.0, 0
        """The scores of refusals in new or refused slots, and in slots that worked; and the refused slots."""
        self._latency, self._answered_at, self._refused_at, self._rests_until = 0.0, -inf, -inf, -inf
        self._usual, self._usual_at, self._quiet = 0.0, -inf, 0
        """The share of calls refused whatever the load, when it was found, and the responses since a refusal."""
        self._hold = _HOLD
        """The rounds in which the limit hardly exceeds the plateau."""
        self._trial: _Trial | None = None
        self._wakes: deque[float] = deque()
        """Times at which refused slots may be used again."""
        self._blamed: _Trial | None = None
        """The last trial that found the rate to be the cause."""
        self._number = 0
        self._begin_anew(-inf)

    @property
    def reason(self) -> str:
        """Why the limit is what it is, in a few words."""
        if self.pacer.is_active:
            return f"paced at {self.pacer.rate:.3g}/s"
        if self._plateau is not None:
            return f"capped at {self._plateau:.0f}"
        return f"{self._usual:.0%} refused whatever the load" if self._usual > _LEAK else "free"

    def send(self, now: float) -> Sent:
        """Records that a call is sent; returns what its outcome needs."""
        was_paced = self.pacer.is_active
        self.pacer.send(now)
        if was_paced and not self.pacer.is_active:
            self._trial = None
            self._begin_anew(-inf)
        self._number += 1
        if max(self._answered_at, self._refused_at) < now - 2 * self._latency:
            # Others may have left since the catalog was busy.
            self._hold = min(self._hold, _HOLD)
        if self._wakes and self._wakes[0] <= now:
            self._wakes.popleft()
            return Sent(now, self._number, "refused")
        self._new -= 1
        return Sent(now, self._number, "worked" if self._new < 0 else "new")

    def pace(self, sent: Sent) -> float:
        """Returns the usual latency if the failure of a call is isolated; inf if it may be overload.

        A failure is isolated if others got responses at about that time. Call this before the failure is recorded.
        """
        recent = _RECENT if self._usual_at > sent.at - _REMEMBERED else self._latency
        return self._latency if self._answered_at >= sent.at - recent else inf

    def record_response(self, now: float, sent: Sent, in_flight: int) -> None:
        """Records a response, errors included; `in_flight` is the number of calls still under way."""
        if self._refused_at > self._answered_at and now - self._answered_at > max(_OUTAGE, 10 * self._latency):
            if not self.pacer.is_active and self._answered_at > -inf and self.limit < START:
                # For a while, all calls were refused, so the limit became far too small.
                self._begin_anew(-inf)
        latency, self._answered_at, self._quiet = now - sent.at, now, self._quiet + 1
        self._latency += (latency - self._latency) / 8 if self._latency else latency
        self._usual = min(self._usual * (1 - 1 / _MEMORY), 6 / self._quiet)
        if now - self._usual_at > _REMEMBERED:
            self._usual = 0.0
        if sent.at < self._cut_at:
            return
        self._responses += 1
        odds = 2 * self._usual / (1 - self._usual)
        if sent.slot == "refused":
            self._refused_slots = max(0, self._refused_slots - 1)
        self._probes -= 1 / (4 * self.limit) if sent.slot == "worked" else max(1.0, odds)
        self._probes, self._worked = max(0.0, self._probes), max(0.0, self._worked - max(_LEAK, odds))
        if self._trial is not None:
            self._judge(self._trial, now)
        elif self.pacer.is_active:
            self.pacer.record_response(now, 2 * START / max(self._latency, 1e-3), self._usual)
            if not self.pacer.is_active:
                self._begin_anew(-inf)
        elif max(self._probes, self._worked) < (2 if self._plateau is None else 1):
            # Few calls say nothing about a higher limit.
            if in_flight + 1 >= 0.8 * int(self.limit):
                self._grow()

    def record_refusal(self, now: float, sent: Sent, in_flight: int, *, is_throttle: bool = False) -> float:
        """Records a refused or failed call; returns the seconds for which its slot must stay empty.

        Args:
            now: The current time.
            sent: What `send` returned.
            in_flight: The number of calls still under way.
            is_throttle: Whether the catalog says that there are too many calls, as with HTTP 429.
        """
        self._refused_at, self._quiet, is_paced = now, 0, self.pacer.is_active
        if sent.at < self._cut_at:
            # It was sent before the last cut, so it is no new sign; but it was one call too many.
            if not is_paced and sent.slot != "refused" and self._trial is None:
                self._cut(self.limit - 1, (self._plateau or self.limit) - 1)
            return 0.0 if is_paced else min(_LONGEST_REST, self._latency)
        if not self._worked and self._trial is None and not is_paced:
            self._count_from(sent.at, sent.number - 1)
        self._refusals += sent.at >= self._since
        self._in_vain += 1
        self._refused_slots += sent.slot != "refused"
        if sent.slot == "worked":
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
        else:
            self._react(now, sent, in_flight, is_throttle=is_throttle)
        if self.pacer.is_active:
            return 0.0
        if sent.slot == "worked" and self._usual > _LEAK:
            self._wakes.appendleft(now)
            return 0.0
        # Slots become free one after another; if all did at once, all their calls would be refused again.
        self._rests_until = max(now + self._latency, self._rests_until + self._latency / self.limit)
        rest = min(_LONGEST_REST, self._rests_until - now)
        self._wakes.append(now + rest)
        return rest

    def _react(self, now: float, sent: Sent, in_flight: int, *, is_throttle: bool) -> None:
        held, plateau = self.limit - self._refused_slots, self._plateau
        is_most = self._refusals - 1 > _MOST * (sent.number - self._first - 1)
        is_mute = self._answered_at <= self._cut_at and self._in_vain > _MOST * (sent.number - self._cut_number)
        if is_mute and self._in_vain >= _PROBES:
            # Nothing is accepted any more.
            self._lower(now, self.limit / 2, _UNSURE_HOLD, is_throttle=is_throttle)
        elif self._probes >= _PROBES + 10 * self._usual:
            limit = min(self.limit - 1, max(held + self._usual * self.limit, self.limit / 4))
            is_known = plateau is not None and self.limit <= 1.1 * plateau
            self._lower(now, limit, _LONGEST_HOLD if is_known else _HOLD, is_throttle=is_throttle)
        elif is_most and self._refusals >= _BURST:
            limit = max(self.limit / 2, min(self.limit - 1, BELOW * in_flight))
            self._lower(now, limit, _UNSURE_HOLD, is_throttle=is_throttle)
        elif self._worked >= _WORKED and now >= self._since + 1.2 * self._latency:
            self._try(now, in_flight)

    def _lower(self, now: float, limit: float, hold: int, *, is_throttle: bool) -> None:
        """Lowers the limit, or paces the calls if a catalog that throttles accepts only a few."""
        if is_throttle and limit <= _FEW:
            self._begin_pace(now)
        else:
            self._hold = hold
            self._cut(limit, limit)
            self._restart(now)

    def _try(self, now: float, in_flight: int) -> None:
        """Sends half as many calls for a moment, or at twice the rate if they are paced."""
        share = self._refusals / (self._refusals + self._responses + in_flight)
        last = self._blamed
        if last is not None and last.rate > self.pacer.rate and share > 0.7 * last.share:
            # A lower rate did not lower the share, so the rate is not the cause.
            self._usual, self._usual_at, self._blamed = min(share, _MOST_USUAL), now, None
            self.pacer.forget(now, last.rate)
            self._restart(now)
            return
        delivered = self._responses / max(now - self._since, 1e-3)
        self._trial = _Trial(min(0.9, max(0.05, share)), self.limit, self.pacer.rate, delivered)
        if self.pacer.is_active:
            self.pacer.try_twice(now)
        else:
            self._cut(self.limit / 2, self.limit)
        self._restart(now)

    def _judge(self, trial: _Trial, now: float) -> None:
        """Ends a trial that tells enough: the load is the cause of the refusals, or it is not."""
        responses, refusals, is_paced = self._responses, self._refusals, trial.rate < inf
        odds, began = trial.odds(responses, refusals), self._cut_at + self._latency
        is_decided = abs(odds) >= _SURE or responses + refusals >= (_ENOUGH if is_paced else _EXPECTED / trial.share)
        if now < began + self._latency or not is_decided:
            return
        delivered = max(trial.delivered, responses / max(now - began, 1e-3))
        self._trial = None
        self._restart(now)
        if odds < 0 or not is_paced:
            self._usual, self._usual_at = min(refusals / (responses + refusals), _MOST_USUAL), now
        if is_paced and odds < 0:
            self.pacer.forget(now)
        elif is_paced:
            self._blamed = trial
            # What is delivered in a bad moment says little, so one trial at most halves the rate.
            self.pacer.measure(now, max(trial.rate / 2, BELOW * delivered / (1 - self._usual)), is_new=True)
        elif odds < 0:
            self.limit, self._plateau = max(trial.limit, self.limit), None
        else:
            limit = min(trial.limit, max(self.limit, BELOW * delivered * self._latency))
            self._hold = _HOLD
            self._cut(limit, limit)
            if self.limit <= _FEW:
                self._begin_pace(now, max(1.0, BELOW * delivered))

    def _begin_pace(self, now: float, rate: float = GUESS) -> None:
        self.pacer.begin(now, rate)
        self._begin_anew(now)

    def _begin_anew(self, now: float) -> None:
        self.limit, self._plateau = float(min(START, self._most)), None
        self._restart(now)
        self._new = int(self.limit)

    def _restart(self, now: float) -> None:
        """Counts anew; calls that were sent before `now` do not count."""
        self._cut_at, self._refused_slots, self._new, self._probes, self._worked = now, 0, 0, 0.0, 0.0
        self._wakes.clear()
        self._cut_number, self._in_vain = self._number, 0
        self._count_from(now, self._number)

    def _count_from(self, since: float, number: int) -> None:
        self._since, self._first, self._responses, self._refusals = since, number, 0, 0

    def _cut(self, limit: float, plateau: float) -> None:
        self.limit, self._plateau, self._rounds = max(self._floor, limit), max(self._floor, plateau), 0.0

    def _grow(self) -> None:
        old, limit, plateau = int(self.limit), self.limit, self._plateau
        if plateau is None:
            limit += _GROWTH
        else:
            self._rounds += 1 / max(limit, _LEAST_ROUND)
            limit = plateau + max(1.0, plateau / 16) * (self._rounds / self._hold) ** 3
        self.limit = min(float(self._most), limit)
        self._new = max(0, self._new) + int(self.limit) - old
