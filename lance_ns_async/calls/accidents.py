"""Tells failures by accident from overload, by an experiment: does a much lower limit lower the share of failed calls?

A catalog, or a proxy before it, may refuse a steady share of calls whatever their number, for example because another
user has used up a common quota. To lower the limit of calls is then useless, and slow. A catalog that is overloaded, or
limits its rate, refuses a clearly smaller share of calls at half of the limit.
"""

from __future__ import annotations

from collections import deque
from math import inf

_SUSPICIOUS = 0.09
"""The smallest share of failed calls, after the limit was lowered, that is a reason for an experiment."""
_OVERLOAD = 0.6
"""The largest such share: at half of a limit that causes more failures, there are many, too."""
_FAILURES = 6
"""Failures that suffice to estimate a share, and failures to expect in an experiment."""
_UNCHANGED = 0.5
"""The part of the earlier share from which on the share counts as unchanged."""
_LARGER = 1.5
"""Factor by which a share must exceed the known one to be a reason for another experiment."""
_MOST = 0.35
"""The largest share that is taken for accidents."""
_FORGET = 2_000
"""Responses after which most of a known share is forgotten, so that another experiment confirms or refutes it."""
_LEAST = 0.03
"""The share below which a known share is forgotten."""
_MOST_PENDING = 1_000
"""Failed calls that are remembered while there is no response; more would say no more."""
_SPARED = 200
"""Calls without an experiment after one that found overload; the number doubles with each of these."""


class Accidents:
    """The share of calls to one catalog that fails without overload. Times are seconds of one common clock."""

    def __init__(self) -> None:
        self.known: float = 0.0
        """The share of failed calls that did not depend on the limit; 0 if no experiment found one."""
        self._ended = self._failed = 0
        """Calls that were sent since `restart`: those that ended, and those that failed."""
        self._since = -inf
        self._pending: deque[float] = deque(maxlen=_MOST_PENDING)
        """Failed calls that are not counted yet, by the times at which they were sent.

        A refusal comes sooner than a response, so it is counted with the next response to a call that was sent later.
        """
        self._before: float | None = None
        """The share of failed calls before the experiment under way; None if there is none."""
        self._spared, self._next_spared = 0, _SPARED

    @property
    def is_experimenting(self) -> bool:
        """Whether an experiment is under way."""
        return self._before is not None

    @property
    def is_suspicious(self) -> bool:
        """Whether so many calls fail at a limit that was lowered already that an experiment is due."""
        if self.is_experimenting or self._failed < _FAILURES or self._spared > 0:
            return False
        return max(_SUSPICIOUS, _LARGER * self.known) <= self._failed / self._ended <= _OVERLOAD

    @property
    def is_usual(self) -> bool:
        """Whether no more calls fail than the known share."""
        return self.known > 0 and self._failed <= _LARGER * self.known * self._ended

    def record_response(self, sent_at: float) -> bool:
        """Records a response; returns whether it ends an experiment that found accidents."""
        self._spared -= 1
        self._ended += sent_at >= self._since
        while self._pending and self._pending[0] <= sent_at:
            if self._pending.popleft() >= self._since:
                self._ended += 1
                self._failed += 1
        self.known -= self.known / _FORGET
        if self.known < _LEAST:
            self.known = 0.0
        return self._before is not None and self._ended * self._before >= _FAILURES and self._conclude(self._before)

    def record_failure(self, sent_at: float) -> None:
        """Records a failed call."""
        self._pending.append(sent_at)

    def restart(self, now: float, *, is_experiment: bool) -> None:
        """Counts anew, because the limit was lowered at the time `now`."""
        self._before = self._failed / self._ended if is_experiment else None
        self._ended = self._failed = 0
        self._since = now

    def _conclude(self, before: float) -> bool:
        share, self._before = self._failed / self._ended, None
        is_accidental = share >= _UNCHANGED * before
        if is_accidental:
            self.known, self._next_spared = min(_MOST, share), _SPARED
        else:
            self._spared, self._next_spared = self._next_spared, 2 * self._next_spared
        self._ended = self._failed = 0
        return is_accidental
