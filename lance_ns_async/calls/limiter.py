"""Adaptive limit of the calls to one catalog, learned from its responses. Uses no clock and no event loop.

Refusals in slots that are new, or that were refused before, are those of a catalog that accepts a number of concurrent
calls. Refusals in slots that worked are accidents, or those of a catalog that accepts a number of calls per second: a
trial with fewer calls tells which, since it does not change the share of accidents. `policy.md` explains all rules.
"""

from __future__ import annotations

from collections import deque
from math import exp, inf, log
from typing import Literal, NamedTuple

START, _FLOOR, _FEW = 32, 2, 5
"""The initial and the smallest limit of calls in flight, and the largest number of them that is rather paced."""
GUESS, _LEAST, _SAMPLE, _DROP = 50.0, 0.5, 5, 4
"""Calls per second before anything is measured, and at least; the responses that suffice to measure a rate, and the
divisor of a rate that is refused before."""
_BEYOND, _WITHIN, _BURST, _MARGIN = 3.0, 5.0, 8, 30
"""Scores of refusals beyond and within what worked at which something is done, refusals that need no trial, and how
many more are needed in proportion to the share of accidents."""
_LEAK, _MOST = 0.05, 0.55
"""The shares of refused calls that are always accidental, and never; the scores fall by the first one."""
_GROWTH, _CLIMB, _CREEP, _CREEP_GROWS = 0.86, 1.3, 0.0005, 30
"""For each response: growth of a free limit, factor of a rate that was not measured, and growth of a measured rate;
and the responses after which the last one is 4, 9, ... times as much."""
_HOLD, _LONGEST_HOLD, _UNSURE_HOLD, _LEAST_ROUND = 8, 16, 2, 20
"""Rounds in which the limit stays near the plateau: at first, at most, and if it is a guess; least responses of one."""
_BELOW, _LOWEST, _RESIDUE = 0.97, 0.85, 0.03
"""The share of a measured rate that is used, that of the best one below which only a trial leads, and that of calls
which are refused at such rates."""
_FOLLOWS, _MEMORY, _REMEMBERED, _LATELY, _RECENT, _LONGEST_REST = 200, 2_000, 60.0, 5.0, 2.0, 1.0
"""Outcomes that average the share of accidents; responses and seconds after which what was learned is forgotten; and
seconds that average goodput, for which a response isolates a failure among accidents, and of a slot's longest rest."""
_SURE, _EXPECTED = 3.0, 8
"""What decides a trial: the logarithm of the odds (of a rate only with some calls), else the refusals to expect."""


class Sent(NamedTuple):
    """A call: the time, its number, and what is known of its slot by the last call in it."""

    at: float
    number: int = 0
    slot: Literal["worked", "refused", "new"] = "worked"


class Pacer:
    """The rate at which calls are sent, in calls per second; inf if they are not paced."""

    def __init__(self) -> None:
        self.rate: float = inf
        self._next_at = -inf

    @property
    def is_active(self) -> bool:
        """Whether calls are paced."""
        return self.rate < inf

    def begin(self, now: float, rate: float) -> None:
        """Starts to pace calls."""
        self.rate, self._next_at = rate, now

    def delay(self, now: float, position: int = 0) -> float:
        """Returns the seconds until a call may be sent that has `position` calls before it in the queue."""
        return max(0.0, self._next_at + position / self.rate - now) if self.rate < inf else 0.0

    def send(self, now: float) -> None:
        """Records that a call is sent; two may catch up, so that late timers do not lower the rate."""
        self._next_at = max(self._next_at, now - 2 / self.rate) + 1 / self.rate


class _Trial(NamedTuple):
    """The share of refused calls, the limit and the rate before a trial."""

    share: float
    limit: float
    rate: float


class Limiter:
    """The limit of calls in flight to one catalog; it never exceeds `most`. Times are seconds of one common clock."""

    def __init__(self, most: int) -> None:
        self._most, self._floor = most, float(min(_FLOOR, most))
        self.pacer: Pacer = Pacer()
        self._latency, self._answered_at, self._refused_at, self._rests_until = 0.0, -inf, -inf, -inf
        self._usual, self._usual_at, self._goodput = 0.0, -inf, 0.0
        """The share of calls refused whatever the load, when it was found, and the responses a second."""
        self._responses = self._refusals = self._sample = self._quiet = 0
        self._number = self._refused_slots = self._new = 0
        """Responses and refusals since `_since`, responses since the last change and refusal; calls; and slots."""
        self.limit: float = 0.0
        self._best = self._beyond = self._within = self._rounds = 0.0
        self._hold = _HOLD
        """The limit, the best rate, the scores of refusals beyond and within what worked, rounds, and their goal."""
        self.plateau: float | None = None
        """The number of concurrent calls that the catalog is known to accept; None while the limit grows freely."""
        self._trial: _Trial | None = None
        self._wakes: deque[float] = deque()
        """Times at which refused slots may be used again."""
        self._begin_anew()

    @property
    def reason(self) -> str:
        """Why the limit is what it is, in a few words."""
        usual = f"{self._usual:.0%} refused whatever the load" if self._usual > _LEAK else ""
        capped = f"capped at {self.plateau:.0f}" if self.plateau is not None else ""
        causes = [f"paced at {self.pacer.rate:.3g}/s"] if self.pacer.is_active else [capped, usual]
        return ", ".join(filter(None, causes)) or "free"

    def send(self, now: float) -> Sent:
        """Records that a call is sent; returns what its outcome needs."""
        if now > self._refused_at + _REMEMBERED and (self.pacer.is_active or self.plateau is not None):
            self._begin_anew()
        if self.pacer.rate < inf:
            self.pacer.send(now)
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
        """Returns the maximum of a failed call's first pause: the usual latency, or inf if there may be overload.

        There is none while calls are paced, or if others got responses when this call was sent.
        """
        if self.pacer.is_active and self._best:
            # The pace alone says when a call is sent.
            return self._latency
        recent = _RECENT if self._usual > _LEAK else self._latency
        return self._latency if self._answered_at >= sent.at - recent else inf

    def record_response(self, now: float, sent: Sent, in_flight: int) -> None:
        """Records a response, errors included; `in_flight` is the number of calls still under way."""
        self._goodput = self._goodput * exp((self._answered_at - now) / _LATELY) + 1 / _LATELY
        latency, self._answered_at, self._quiet = now - sent.at, now, self._quiet + (sent.at > self._refused_at)
        is_paced = self.pacer.rate < inf
        self._latency += (latency - self._latency) / 8 if self._latency else latency
        # Many accepted calls in a row say that the share is smaller now.
        most = 6 / max(1, self._quiet) if now < self._usual_at + _REMEMBERED else 0.0
        self._usual = min(self._usual * (1 - 1 / (_MEMORY if is_paced else _FOLLOWS)), most)
        if sent.at < self._cut_at:
            return
        leak = max(_LEAK, 2 * self._usual / (1 - self._usual))
        self._responses, self._sample = self._responses + 1, self._sample + 1
        self._within = max(0.0, self._within - leak)
        if is_paced or sent.slot != "worked":
            self._beyond = max(0.0, self._beyond - (leak if is_paced else 1.0))
        self._refused_slots = max(0, self._refused_slots - (sent.slot == "refused"))
        if self._trial is not None:
            self._judge(self._trial, now)
        elif is_paced:
            self._speed_up(now)
        elif max(self._beyond, self._within) < (2 if self.plateau is None else 1):
            self._grow(in_flight + 1)

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
                self._cut(self.limit - 1, (self.plateau or self.limit) - 1)
            return 0.0 if is_paced else min(_LONGEST_REST, self._latency)
        if not self._within + self._beyond and self._trial is None:
            self._count_from(sent.at, sent.number - 1)
        self._refusals += sent.at >= self._since
        if self._usual and self._trial is None and not is_paced:
            self._usual = min(_MOST, self._usual + (1 - self._usual) / _FOLLOWS)
        self._refused_slots += sent.slot != "refused"
        self._beyond += is_paced or sent.slot != "worked"
        self._within += self._best > 0 if is_paced else sent.slot == "worked"
        if self._trial is not None:
            self._judge(self._trial, now)
        elif is_paced:
            self._slow_down(now)
        else:
            self._react(now, sent, in_flight, is_throttle=is_throttle)
        if self.pacer.is_active:
            return 0.0
        if sent.slot == "worked" and self._usual > _LEAK:
            self._wakes.appendleft(now)
            return 0.0
        # Slots become free one after another; if all did at once, all their calls would be refused again.
        self._rests_until = max(now + self._latency, self._rests_until + self._latency / self.limit)
        self._wakes.append(min(self._rests_until, now + _LONGEST_REST))
        return self._wakes[-1] - now

    def _speed_up(self, now: float) -> None:
        """Raises the rate after a response; ends it if nothing is refused for longer than a `Retry-After` of 1 s."""
        if self._best and self.pacer.rate > self._goodput / 3:
            self.pacer.rate *= 1 + _CREEP * (1 + self._sample / _CREEP_GROWS) ** 2
        else:
            self.pacer.rate *= _CLIMB if self.pacer.rate > GUESS / _DROP else 2
        if self.pacer.rate > 2 * START / max(self._latency, 1e-3) and now > self._cut_at + 1.5:
            self._begin_anew()

    def _slow_down(self, now: float) -> None:
        """Sets the rate after a refused call to what was accepted since the last change."""
        if self._within >= _WITHIN + 10 * self._usual:
            self._try(now, 0)
        elif self._sample >= _SAMPLE and self._beyond >= 1 + _MARGIN * self._usual:
            rate = _BELOW * min(self.pacer.rate, self._sample / max(now - self._cut_at, 1e-3) / (1 - self._usual))
            # Refusals by chance would lower the rate again and again.
            self._best = max(self._best, rate)
            self._set_rate(now, max(rate, _LOWEST * self._best))
        elif not self._best and self._sample <= 1 and self._beyond > _BEYOND:
            self._set_rate(now, self.pacer.rate / _DROP)

    def _react(self, now: float, sent: Sent, in_flight: int, *, is_throttle: bool) -> None:
        """Lowers the limit after a refused call, or tries whether that would help."""
        is_most = self._refusals - 1 > _MOST * (sent.number - self._first - 1)
        if is_most and self._answered_at <= self._cut_at and self._refusals >= _BEYOND:
            # Nothing is accepted any more.
            limit, self._hold = self.limit / 2, _UNSURE_HOLD
        elif self._beyond >= _BEYOND + 100 * self._usual**2:
            limit = min(self.limit - 1, max(self.limit - self._refused_slots, self.limit / 4))
            self._hold = _LONGEST_HOLD if self.limit <= 1.1 * (self.plateau or 0.0) else _HOLD
        elif is_most and self._refusals >= _BURST + _MARGIN * self._usual:
            limit, self._hold = max(self.limit / 2, min(self.limit - 1, _BELOW * in_flight)), _UNSURE_HOLD
        else:
            if self._within >= _WITHIN and now >= self._since + 1.2 * self._latency:
                self._try(now, in_flight)
            return
        self._cut(limit, limit)
        self._restart(now)
        if is_throttle and limit <= _FEW:
            self._begin_anew(now, GUESS)

    def _try(self, now: float, in_flight: int) -> None:
        """Sends half as many calls for a moment, or at the rate that was accepted lately."""
        share = (self._refusals - 2 * self.pacer.is_active) / (self._refusals + self._responses + in_flight)
        trial, rate = _Trial(min(0.9, max(_LEAK, share)), self.limit, self.pacer.rate), self.pacer.rate
        if self.pacer.is_active:
            self._set_rate(now, min(rate, max(rate / _DROP, _BELOW * self._responses / max(now - self._since, 1e-3))))
        else:
            self._cut(self.limit / 2, self.limit)
        self._restart(now)
        self._trial = trial

    def _judge(self, trial: _Trial, now: float) -> None:
        """Ends a trial that tells enough: the load is the cause of the refusals, or it is not."""
        responses, refusals, share, is_paced = self._responses, self._refusals, trial.share, self.pacer.is_active
        # The logarithm of the odds that the load is the cause. Then only a small share is still refused.
        rest, calls = min(share / 4, _RESIDUE) if is_paced else share / 4, responses + refusals
        odds = responses * log((1 - rest) / (1 - share)) + refusals * log(rest / share)
        is_sure = abs(odds) >= _SURE and (calls >= _EXPECTED or not is_paced)
        if now < self._cut_at + 2 * self._latency or not (is_sure or calls >= _EXPECTED / share):
            return
        delivered = _BELOW * responses / max(now - self._cut_at - self._latency, 1e-3)
        self._restart(now)
        earlier, refused, self._usual_at = self._usual, refusals / calls, now
        self._usual = refused if refused <= _MOST else min(share, _MOST)
        if odds < 0:
            self.limit, self.plateau, self.pacer.rate, self._best = max(trial.limit, self.limit), None, trial.rate, 0.0
        elif is_paced:
            # The few calls at a rate do not disprove the accidents that were known before.
            self._usual, self._best = min(max(refused, earlier), share / 4), self.pacer.rate
        else:
            limit, self._hold = min(trial.limit, max(self.limit, delivered * self._latency)), _HOLD
            self._cut(limit, limit)
            if limit <= _FEW:
                self._begin_anew(now, max(1.0, delivered))

    def _set_rate(self, now: float, rate: float) -> None:
        self.pacer.rate, self._cut_at, self._sample, self._beyond = max(_LEAST, rate), now, 0, 0.0

    def _begin_anew(self, now: float = -inf, rate: float = inf) -> None:
        self.pacer.begin(now, rate)
        self.limit, self.plateau, self._best = float(min(START, self._most)), None, 0.0
        self._restart(now)
        self._new = int(self.limit)

    def _restart(self, now: float) -> None:
        """Counts anew; calls that were sent before `now` do not count."""
        self._cut_at, self._sample, self._refused_slots, self._new = now, 0, 0, 0
        self._trial, self._beyond, self._within = None, 0.0, 0.0
        self._wakes.clear()
        self._count_from(now, self._number)

    def _count_from(self, since: float, number: int) -> None:
        self._since, self._first, self._responses, self._refusals = since, number, 0, 0

    def _cut(self, limit: float, plateau: float) -> None:
        self.limit, self.plateau, self._rounds = max(self._floor, limit), max(self._floor, plateau), 0.0

    def _grow(self, used: int) -> None:
        old, plateau = int(self.limit), self.plateau
        if used < 0.8 * old:
            # Few calls say nothing about a higher limit.
            return
        self._rounds += 1 / max(self.limit, _LEAST_ROUND)
        curve = (self._rounds / self._hold) ** 3
        limit = self.limit + _GROWTH if plateau is None else plateau + max(1.0, plateau / 16) * curve
        self.limit = min(float(self._most), limit)
        self._new = max(0, self._new) + int(self.limit) - old
